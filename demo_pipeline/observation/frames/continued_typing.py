"""Decides whether a person went on typing on the same screen or in a window with new content.

Content that only scrolls, like the output of a program in a terminal, is still the same screen.
"""

from typing import Any, NamedTuple

import cv2
import numpy as np

from demo_pipeline.observation.frames.changes import (
    LARGE_SHARE,
    MEAN_LEVELS,
    THRESHOLD,
    Cells,
    Mask,
    changed_cells,
    connected_parts,
    is_notable,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.frames.tree_scales import INK_LEVELS
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, Frame, Luma

# Minimum height of replaced content, as a share of the height of the window, or of the screen if no
# window is found. Measured: pagers and editors changed 0.68 to 0.88 of the height.
REPLACED_HEIGHT = 0.5
# Minimum height of a window, as a share of the screen's height. A field of one line has 0.03, a
# terminal at least 0.25.
LEAST_WINDOW = 0.1
BLANK_LEVELS = 12  # maximum variation of a window's background, levels of brightness (0 to 255)
FLOWING_S = 0.2  # seconds; pauses of a program that is writing output are shorter
# Number of pixel rows by which a changed row is widened up and down, to include blank lines.
ROW_GAP = 9
# Minimum number of samples that differ in a changed pixel row. A text cursor changes fewer.
DIFFERENT_SAMPLES = 2
# Of the rows that both screens show, only those with content are compared. At least 80 % of these
# rows must be the same for the content to count as scrolled. When new lines replaced lines that
# differed only in their digits, the share was 0.35.
KEPT_SHARE = 0.8
# Maximum number of columns that are compared, selected evenly from the changed columns. Columns are
# 4 pixels apart, and a line of text covers at least 100 of them.
MOST_COLUMNS = 96
# Minimum share of the later screen's rows with content that overlap with the earlier screen. With a
# smaller overlap, the content does not count as scrolled.
KEPT_HEIGHT = 0.2

_Rows = np.ndarray[Any, np.dtype[np.bool_]]


class _Screen(NamedTuple):
    """The screen in a screenshot.

    Attributes:
        quartered: the frame's `Frame.quartered`.
        rows: the luma of every row at every 4th column.
    """

    quartered: Luma
    rows: Luma


class ContinuedTyping:
    """Compares the screenshots of successive actions in the window that was clicked last."""

    def __init__(self) -> None:
        self._last_screen: _Screen | None = None
        self._pressed: Point | None = None
        self._moved_s = float("-inf")

    def see(self, frame: Frame | None, pressed: Point | None) -> None:
        """Stores the screenshot of an action.

        `pressed` is the point of the press in video pixels, or None for keys.
        """
        self._last_screen = None
        if frame is not None:
            self._last_screen = _Screen(frame.quartered, frame.samples(1))
        self._pressed = pressed or self._pressed

    def follow(self, before: Frame | None, frame: Frame) -> None:
        """Stores the time of a frame if it differs notably from the frame before.

        Flicker counts, too. Call it for each frame before the person goes on typing.
        """
        if before and is_notable(changed_cells(before.luma, frame.luma, THRESHOLD)):
            self._moved_s = frame.time

    def is_replaced(self, frame: Frame | None, latest: Frame | None) -> bool:
        """Whether a frame shows a different screen than the last screenshot does.

        If the window that was clicked last can be found, only this window is compared. The result
        is False while a program writes output. `latest` is the last frame before the person went on
        typing.
        """
        flows = latest is not None and latest.time - self._moved_s < FLOWING_S
        if self._last_screen is None or frame is None or flows:
            return False
        before = self._last_screen.rows
        after = frame.samples(1)
        window = self._pressed and _window_at(after, self._pressed)
        if not window:
            changed = changed_cells(self._last_screen.quartered, frame.quartered, MEAN_LEVELS)
            height = cv2.boundingRect(changed.view(np.uint8))[3]
            is_high = height >= REPLACED_HEIGHT * len(changed)
            is_page = is_high and np.count_nonzero(changed) >= LARGE_SHARE * changed.size
            return bool(is_page) and not _is_scrolled(before, after)
        rows = slice(int(window.y), int(window.bottom))
        columns = slice(int(window.x) // SAMPLE_STEP, int(window.right) // SAMPLE_STEP)
        before = before[rows, columns]
        after = after[rows, columns]
        differs = cv2.morphologyEx(
            _differing(before, after).astype(np.uint8)[:, None],
            cv2.MORPH_CLOSE,
            np.ones((2 * ROW_GAP + 1, 1), np.uint8),
        )
        is_replaced = np.count_nonzero(differs) >= REPLACED_HEIGHT * len(after)
        return bool(is_replaced) and not _is_scrolled(before, after)


def _window_at(luma: Luma, point: Point) -> PixelBox | None:
    """Returns the box of the window around a point, video pixels, or None if there is no window.

    A window is an area of uniform background that is at least `LEAST_WINDOW` high. `luma` has
    every row and every 4th column of the frame.
    """
    rows, columns = luma.shape
    x = int(point[0]) // SAMPLE_STEP
    y = int(point[1])
    around = luma[max(0, y - 60) : y + 60, max(0, x - 15) : x + 15]
    if not around.size:
        return None
    ground = int(np.bincount(around.ravel(), minlength=256).argmax())
    blank: Mask = (cv2.absdiff(luma, np.full_like(luma, ground)) <= BLANK_LEVELS).astype(np.uint8)
    for (part_rows, part_columns), _ in connected_parts(blank, (0, 0), rows):
        height = part_rows.stop - part_rows.start
        width = part_columns.stop - part_columns.start
        in_rows = part_rows.start <= y < part_rows.stop
        in_columns = part_columns.start <= x < part_columns.stop
        if in_rows and in_columns and height >= LEAST_WINDOW * rows:
            return PixelBox(
                part_columns.start * SAMPLE_STEP,
                part_rows.start,
                min(columns, width) * SAMPLE_STEP,
                height,
            )
    return None


def _differing(before: Luma, after: Luma) -> _Rows:
    """Returns a mask of the rows that differ by more than a text cursor or noise."""
    differs: _Rows = np.count_nonzero(_unlike(before, after), axis=1) >= DIFFERENT_SAMPLES
    return differs


def _unlike(before: Luma, after: Luma) -> Cells:
    unlike: Cells = cv2.absdiff(before, after) > THRESHOLD
    return unlike


def _is_scrolled(before: Luma, after: Luma) -> bool:
    """Whether most rows that both screens show are the same, only moved up or down.

    Only rows and columns that differ are compared, because the surroundings of a scrolled window do
    not move.
    """
    differs = np.flatnonzero(_differing(before, after))
    columns = np.flatnonzero(_unlike(before, after).any(axis=0))
    if not len(differs):
        return False
    columns = columns[:: -(-len(columns) // MOST_COLUMNS)]
    rows = slice(differs[0], differs[-1] + 1)
    before = before[rows, columns]
    after = after[rows, columns]
    has_content = np.ptp(after, axis=1) > INK_LEVELS
    for distance in range(1, len(after)):
        moved_up = slice(None, -distance)
        moved_down = slice(distance, None)
        if _is_kept(before[moved_down], after[moved_up], has_content, moved_up):
            return True
        if _is_kept(before[moved_up], after[moved_down], has_content, moved_down):
            return True
    return False


def _is_kept(before: Luma, after: Luma, has_content: _Rows, overlap: slice) -> bool:
    """Whether most rows with content are the same, for an assumed distance of scrolling.

    Returns False if the overlap has too few rows with content.

    Args:
        before, after: the rows that overlap after scrolling, from the earlier and later screen.
        has_content: (rows,), true where a row of the whole later screen has content.
        overlap: selects the rows `after` from the whole later screen.
    """
    compared = has_content[overlap]
    count = np.count_nonzero(compared)
    if not count or count < KEPT_HEIGHT * np.count_nonzero(has_content):
        return False
    same = np.count_nonzero(~_differing(before[compared], after[compared]))
    return bool(same >= KEPT_SHARE * count)
