"""Whether typing went on in the screen it began in, or the window with the keyboard was replaced.

A pager, an editor and a form replace what their window shows, and the person looks before typing
on. What scrolls under the typing, as the output of a program in a terminal, is the same screen.
"""

from typing import Any

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

REPLACED_HEIGHT = 0.5  # of the window's or screen's; pagers and editors changed 0.68 to 0.88 of it
LEAST_WINDOW = 0.1  # of the screen's height; a field of one line has 0.03, a terminal 0.25 and more
BLANK_LEVELS = 12  # of 255; the ground of a window differs by less from itself
FLOWING_S = 0.2  # seconds; output that runs leaves the screen at rest for less
ROW_GAP = 9  # rows of samples between lines of text, as blank ones of a program's output
DIFFERENT_SAMPLES = 2  # of a row; a text cursor and noise have fewer
KEPT_SHARE = 0.8  # of the inked rows that both pictures have; lines alike but for digits kept 0.35
MOST_COLUMNS = 96  # of samples that are compared; a line of text has 100 and more
KEPT_HEIGHT = 0.2  # of the inked rows; fewer may be alike by chance

_Rows = np.ndarray[Any, np.dtype[np.bool_]]


class ContinuedTyping:
    """Follows the screenshots of actions, and where buttons were pressed, in order."""

    def __init__(self) -> None:
        self._shown: tuple[Luma, Luma] | None = None
        self._pressed: Point | None = None
        self._moved_s = float("-inf")

    def see(self, frame: Frame | None, pressed: Point | None) -> None:
        """Note the screenshot of an action; `pressed`: where it pressed, None for keys."""
        self._shown = None if frame is None else (frame.quartered, frame.samples(1))
        self._pressed = pressed or self._pressed

    def follow(self, before: Frame | None, frame: Frame) -> None:
        """Take two successive frames before typing went on; cells that flicker count, too."""
        if before and is_notable(changed_cells(before.luma, frame.luma, THRESHOLD)):
            self._moved_s = frame.time

    def is_replaced(self, frame: Frame | None, latest: Frame | None) -> bool:
        """Whether a frame shows another screen than the last one, in the window of the keyboard.

        `latest`: the last frame before the typing went on.
        """
        flows = latest is not None and latest.time - self._moved_s < FLOWING_S
        if self._shown is None or frame is None or flows:
            return False
        (shown, before), after = self._shown, frame.samples(1)
        window = self._pressed and _window_at(after, self._pressed)
        if not window:
            changed = changed_cells(shown, frame.quartered, MEAN_LEVELS)
            high = cv2.boundingRect(changed.view(np.uint8))[3] >= REPLACED_HEIGHT * len(changed)
            is_page = high and np.count_nonzero(changed) >= LARGE_SHARE * changed.size
            return bool(is_page) and not _is_scrolled(before, after)
        rows = slice(int(window.y), int(window.bottom))
        columns = _columns_of(window)
        before = before[rows, columns]
        after = after[rows, columns]
        differs = cv2.morphologyEx(
            _differing(before, after).astype(np.uint8)[:, None],
            cv2.MORPH_CLOSE,
            np.ones((2 * ROW_GAP + 1, 1), np.uint8),
        )
        replaced = np.count_nonzero(differs) >= REPLACED_HEIGHT * len(after)
        return bool(replaced) and not _is_scrolled(before, after)


def _columns_of(window: PixelBox) -> slice:
    return slice(int(window.x) // SAMPLE_STEP, int(window.right) // SAMPLE_STEP)


def _window_at(luma: Luma, point: Point) -> PixelBox | None:
    """The area around a point whose ground is of one brightness; None: it is no window.

    `luma`: (rows, columns) of every row and every 4th column.
    """
    rows, columns = luma.shape
    x = int(point[0]) // SAMPLE_STEP
    y = int(point[1])
    around = luma[max(0, y - 60) : y + 60, max(0, x - 15) : x + 15]
    if not around.size:
        return None
    ground = int(np.bincount(around.ravel(), minlength=256).argmax())
    blank: Mask = (cv2.absdiff(luma, np.full_like(luma, ground)) <= BLANK_LEVELS).astype(np.uint8)
    for (down, across), _ in connected_parts(blank, (0, 0), rows):
        inside = down.start <= y < down.stop and across.start <= x < across.stop
        if inside and down.stop - down.start >= LEAST_WINDOW * rows:
            return PixelBox(
                across.start * SAMPLE_STEP,
                down.start,
                min(columns, across.stop - across.start) * SAMPLE_STEP,
                down.stop - down.start,
            )
    return None


def _differing(before: Luma, after: Luma) -> _Rows:
    """(rows,) whether the two differ there."""
    differs: _Rows = np.count_nonzero(_unlike(before, after), axis=1) >= DIFFERENT_SAMPLES
    return differs


def _unlike(before: Luma, after: Luma) -> Cells:
    unlike: Cells = cv2.absdiff(before, after) > THRESHOLD
    return unlike


def _is_scrolled(before: Luma, after: Luma) -> bool:
    """Whether most of what both may have is in both, higher or lower.

    Only where the two differ: what stands around a scrolled window does not move.
    """
    differs = np.flatnonzero(_differing(before, after))
    columns = np.flatnonzero(_unlike(before, after).any(axis=0))
    if not len(differs):
        return False
    columns = columns[:: -(-len(columns) // MOST_COLUMNS)]
    rows = slice(differs[0], differs[-1] + 1)
    before = before[rows, columns]
    after = after[rows, columns]
    inked = np.ptp(after, axis=1) > INK_LEVELS
    return any(
        _is_kept(before[moved:], after[:-moved], inked, slice(None, -moved))
        or _is_kept(before[:-moved], after[moved:], inked, slice(moved, None))
        for moved in range(1, len(after))
    )


def _is_kept(before: Luma, after: Luma, inked: _Rows, part: slice) -> bool:
    """Whether the lines of a part are alike, and enough of all `inked` rows."""
    ink = inked[part]
    count = np.count_nonzero(ink)
    if not count or count < KEPT_HEIGHT * np.count_nonzero(inked):
        return False
    alike = np.count_nonzero(~_differing(before[ink], after[ink]))
    return bool(alike >= KEPT_SHARE * count)
