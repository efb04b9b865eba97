"""Measures how the content around the pointer moves in the video during scrolls.

actions/scrolls.py infers the sign and the unit of the wheel's deltas from this motion.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.scrolls import (
    UNCLEAR_UNIT,
    Direction,
    ScrollEvidence,
    WheelVote,
    count_votes,
)
from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import Cells
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, Luma, Span

# Maximum number of scrolls that are measured, spread over the recording.
MOST_SCROLLS = 12
AFTER_S = 0.5  # seconds for which smooth scrolling may go on after the last notch
ROW_STEP = 2  # video pixels between samples in a column; lines of text need close samples
COLUMN_STEP = SAMPLE_STEP  # video pixels between samples in a row
_REACH_X = 640  # video pixels to the left and right of the pointer that are compared
_REACH_Y = 360  # video pixels above and below the pointer that are compared
_CHANGED = 12  # levels of brightness (0 to 255); a sample that differs by more has changed
_LEAST_ROWS = 24  # minimum number of sample rows (48 video pixels) that a movement changes
_LEAST_COLUMNS = 12  # minimum number of sample columns (48 video pixels) that a movement changes
_OVERLAP = 0.35  # minimum share of the changed region that is visible in both frames
# The content before a movement is correlated with the content after it, for each possible distance.
# Limits for the distance with the best correlation:
_MATCH = 0.8  # minimum correlation
_LEAD = 0.08  # minimum lead over the best correlation in the opposite direction
_LEAD_OVER_REST = 0.05  # minimum lead over the correlation without movement
_MOST_FRAMES = 6  # maximum number of frames with movement that are measured per scroll

Floats32 = np.ndarray[Any, np.dtype[Any]]


@dataclass
class _Scroll:
    """A scroll, and how far it moved the content.

    Attributes:
        action_index: row of actions.parquet.
        span: from the start of the scroll until its effect ends or the next press begins, video
            seconds.
        place: position of the pointer, video pixels.
        delta: sum of the wheel's deltas.
        unclear: whether the unit of the deltas is unclear.
        moved: for each direction, the number of frames in which the content moved.
        pixels: sum of the movements in these frames, video pixels.
    """

    action_index: int
    span: Span
    place: tuple[float, float]
    delta: float
    unclear: bool
    moved: Counter[Direction] = field(default_factory=Counter)
    pixels: int = 0


class ScrollMotion:
    """The observer that measures the movement of the content during up to `MOST_SCROLLS` scrolls.

    Args:
        actions: the actions, in time order.
        screen: the parts of the recording, each with its canvas.
    """

    def __init__(self, actions: Sequence[Action], clock: Clock, screen: ScreenParts) -> None:
        # The next press may move the content, too, so a scroll ends before it.
        next_presses = [*(clock.video_time(action.press_ms) for action in actions[1:]), np.inf]
        scrolls: list[_Scroll] = []
        for action, next_press in zip(actions, next_presses, strict=False):
            if action.action_type != "scroll" or not action.wheel_sum:
                continue
            canvas = screen.at(action.press_ms).canvas
            if action.x is None or action.y is None or canvas is None:
                continue
            start = clock.video_time(action.press_ms)
            end = min(clock.video_time(action.end_ms) + AFTER_S, next_press)
            scrolls.append(
                _Scroll(
                    action.action_index,
                    Span(start, end),
                    place=canvas.to_video(action.x, action.y),
                    delta=action.wheel_sum,
                    unclear=UNCLEAR_UNIT in action.flags,
                )
            )
        count = min(MOST_SCROLLS, len(scrolls))
        chosen = np.linspace(0, len(scrolls) - 1, count).round().astype(int)
        self._scrolls = [scrolls[number] for number in dict.fromkeys(chosen.tolist())]
        self._next = 0
        self._luma: Luma | None = None
        self.spans = [scroll.span for scroll in self._scrolls]

    def see(self, diff: FrameDiff) -> None:
        """Measures the movement between the next frame and the frame decoded before it."""
        last = diff.before
        frame = diff.frame
        time = frame.time
        while self._next < len(self._scrolls) and self._scrolls[self._next].span.end < time:
            self._next += 1
        before = self._luma
        self._luma = None
        scroll = self._scrolls[self._next] if self._next < len(self._scrolls) else None
        if scroll is None or last is None or time <= scroll.span.start:
            return
        if scroll.moved.total() < _MOST_FRAMES:
            self._luma = frame.samples(ROW_STEP)
            before = last.samples(ROW_STEP) if before is None else before
            moved = content_moved(before, self._luma, scroll.place)
            if moved is not None:
                direction, pixels = moved
                scroll.moved[direction] += 1
                scroll.pixels += pixels

    def result(self, misplaced: Collection[int] = ()) -> WheelVote:
        """Returns the sign and unit of the wheel according to the measured scrolls.

        Call it after the last frame. Scrolls with indexes in `misplaced`, which have a wrong
        canvas, are ignored.
        """
        return count_votes(
            ScrollEvidence(
                scroll.action_index, scroll.delta, scroll.moved, scroll.pixels, scroll.unclear
            )
            for scroll in self._scrolls
            if scroll.action_index not in misplaced
        )


def content_moved(
    before: Luma, after: Luma, place: tuple[float, float]
) -> tuple[Direction, int] | None:
    """Returns the direction in which the content around a point moved, and the distance.

    The distance is in video pixels. Returns None if the movement is unclear.

    Args:
        before, after: `Frame.samples(ROW_STEP)` of two successive frames.
        place: the point, video pixels.
    """
    first = _around(before, place)
    second = _around(after, place)
    changed = _differ(first, second)
    rows = np.flatnonzero(changed.any(axis=1))
    columns = np.flatnonzero(changed.any(axis=0))
    if len(rows) < _LEAST_ROWS or len(columns) < _LEAST_COLUMNS:
        return None  # probably only a scroll bar or a highlight changed
    row_range = slice(rows[0], rows[-1] + 1)
    column_range = slice(columns[0], columns[-1] + 1)
    down = _shift(first[row_range][:, columns], second[row_range][:, columns])
    if down:
        return "down" if down > 0 else "up", abs(down) * ROW_STEP
    across = _shift(first[rows][:, column_range].T, second[rows][:, column_range].T)
    if across:
        return "right" if across > 0 else "left", abs(across) * COLUMN_STEP
    return None


def _around(luma: Luma, place: tuple[float, float]) -> Luma:
    column = int(place[0] // COLUMN_STEP)
    row = int(place[1] // ROW_STEP)
    reach_x = _REACH_X // COLUMN_STEP
    reach_y = _REACH_Y // ROW_STEP
    rows = slice(max(0, row - reach_y), max(0, row + reach_y))
    columns = slice(max(0, column - reach_x), max(0, column + reach_x))
    return luma[rows, columns]


def _differ(first: Luma, second: Luma) -> Cells:
    differs: Cells = np.maximum(first, second) - np.minimum(first, second) > _CHANGED
    return differs


def _shift(before: Luma, after: Luma) -> int:
    """Returns the number of rows by which the content moved down, negative for a move up.

    The result is 0 if no shift correlates well, or if the correlation without movement or in the
    opposite direction is nearly as high.
    """
    if min(before.shape) < _LEAST_COLUMNS:
        return 0
    correlations = _correlations(_texture(before), _texture(after))
    middle = len(before) - 1
    farthest = int(len(before) * (1 - _OVERLAP))
    at_rest = correlations[middle]
    up = correlations[middle - farthest : middle][::-1]
    down = correlations[middle + 1 : middle + 1 + farthest]
    best, opposite, sign = (down, up, 1) if down.max() > up.max() else (up, down, -1)
    top = float(best.max())
    if top < _MATCH or top - opposite.max() < _LEAD or top - at_rest < _LEAD_OVER_REST:
        return 0
    return sign * (int(best.argmax()) + 1)


def _texture(luma: Luma) -> Floats32:
    """Returns a slightly blurred image of the edges and letters; flat areas are 0."""
    values = luma.astype(np.float32)
    texture: Floats32 = cv2.blur(values, (3, 3)) - cv2.blur(values, (1, 21))
    return texture


def _correlations(before: Floats32, after: Floats32) -> Floats32:
    """Returns the normalised correlation of `before` with `after` for each shift of the rows.

    Both images have n rows. The result is (2n - 1,). Its first value is for content that moved up
    by n - 1 rows, its last value for content that moved down by n - 1 rows.
    """
    rows = len(before)
    length = cv2.getOptimalDFTSize(2 * rows)
    spectrum = np.fft.rfft(before, length, axis=0).conj() * np.fft.rfft(after, length, axis=0)
    cross = np.fft.irfft(spectrum.sum(axis=1), length)
    products = np.concatenate([cross[length - rows + 1 :], cross[:rows]])
    energy_before = np.concatenate([[0.0], np.cumsum((before**2).sum(axis=1))])
    energy_after = np.concatenate([[0.0], np.cumsum((after**2).sum(axis=1))])
    shifts = np.arange(1 - rows, rows)
    overlap = rows - np.abs(shifts)
    # If content moves down, the upper rows of `before` are the lower rows of `after`.
    first = np.where(
        shifts > 0, energy_before[overlap], energy_before[-1] - energy_before[rows - overlap]
    )
    second = np.where(
        shifts > 0, energy_after[-1] - energy_after[rows - overlap], energy_after[overlap]
    )
    correlations: Floats32 = products / np.sqrt(np.maximum(first * second, 1e-6))
    return correlations
