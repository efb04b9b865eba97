"""Scroll motion: how the content around the pointer moves in the video during scrolls.

What the movement proves about the wheel is decided in actions/scrolls.py.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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

MOST_SCROLLS = 12  # spread over the recording; a vote needs no more
AFTER_S = 0.5  # smooth scrolling runs on after the last notch
ROW_STEP, COLUMN_STEP = 2, SAMPLE_STEP  # lines of text need a closer look
_REACH_X, _REACH_Y = 640, 360  # around the pointer, video pixels
_CHANGED = 12  # of 255
_LEAST_ROWS, _LEAST_COLUMNS = 24, 12  # with a change; 48 video pixels each
_OVERLAP = 0.35  # of the changed region must show in both pictures
_MATCH = 0.8  # correlation of the content with itself, moved
_LEAD = 0.08  # by which it beats the best in the opposite direction
_LEAD_OVER_REST = 0.05
_MOST_FRAMES = 6  # with movement, of one scroll

Floats32 = np.ndarray[Any, np.dtype[Any]]


@dataclass
class _Scroll:
    action_index: int
    span: Span
    place: tuple[float, float]
    delta: float
    unclear: bool
    moved: Counter[Direction]
    pixels: int = 0


class ScrollMotion:
    """Measures how the content moves during some scrolls; sees every frame in order."""

    def __init__(self, actions: Sequence[Action], clock: Clock, screen: ScreenParts) -> None:
        # What moves after the next press, that one causes.
        presses = [*(clock.video_time(action.press_ms) for action in actions[1:]), np.inf]
        found = [
            _Scroll(
                action.action_index,
                Span(
                    clock.video_time(action.press_ms),
                    min(clock.video_time(action.end_ms) + AFTER_S, until),
                ),
                canvas.to_video(action.x, action.y),
                action.wheel_sum,
                UNCLEAR_UNIT in action.flags,
                Counter(),
            )
            for action, until in zip(actions, presses, strict=False)
            if action.action_type == "scroll" and action.wheel_sum
            if action.x is not None and action.y is not None
            if (canvas := screen.at(action.press_ms).canvas) is not None
        ]
        chosen = np.linspace(0, len(found) - 1, min(MOST_SCROLLS, len(found))).round().astype(int)
        self._scrolls = [found[index] for index in dict.fromkeys(chosen.tolist())]
        self._next = 0
        self._luma: Luma | None = None
        self.spans = [scroll.span for scroll in self._scrolls]

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
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
        """The direction that the measured scrolls prove; `misplaced` actions show nothing."""
        return count_votes(
            ScrollEvidence(one.action_index, one.delta, one.moved, one.pixels, one.unclear)
            for one in self._scrolls
            if one.action_index not in misplaced
        )


def content_moved(
    before: Luma, after: Luma, place: tuple[float, float]
) -> tuple[Direction, int] | None:
    """Where what surrounds a point went from one frame to the next, and by how many video pixels.

    None when that is not clear.

    `place` is in video pixels.
    """
    first = _around(before, place)
    second = _around(after, place)
    changed = _differ(first, second)
    rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
    if len(rows) < _LEAST_ROWS or len(columns) < _LEAST_COLUMNS:
        return None  # a scroll bar alone, or a highlight
    high = slice(rows[0], rows[-1] + 1)
    wide = slice(columns[0], columns[-1] + 1)
    down = _shift(first[high][:, columns], second[high][:, columns])
    if down:
        return "down" if down > 0 else "up", abs(down) * ROW_STEP
    across = _shift(first[rows][:, wide].T, second[rows][:, wide].T)
    if across:
        return "right" if across > 0 else "left", abs(across) * COLUMN_STEP
    return None


def _around(luma: Luma, place: tuple[float, float]) -> Luma:
    x = int(place[0] // COLUMN_STEP)
    y = int(place[1] // ROW_STEP)
    wide = _REACH_X // COLUMN_STEP
    high = _REACH_Y // ROW_STEP
    return luma[max(0, y - high) : max(0, y + high), max(0, x - wide) : max(0, x + wide)]


def _differ(first: Luma, second: Luma) -> Cells:
    differs: Cells = np.maximum(first, second) - np.minimum(first, second) > _CHANGED
    return differs


def _shift(before: Luma, after: Luma) -> int:
    """Rows by which the content went down, negative: up; 0 when it rests or that is not clear.

    The lag at which the two correlate best, by far better than at rest and than at any lag in the
    opposite direction. Flat areas, such as a highlighted row, do not count.
    """
    if min(before.shape) < _LEAST_COLUMNS:
        return 0
    found = _correlations(_texture(before), _texture(after))
    middle = len(before) - 1
    farthest = int(len(before) * (1 - _OVERLAP))
    up = found[middle - farthest : middle][::-1]
    down = found[middle + 1 : middle + 1 + farthest]
    best, opposite, sign = (down, up, 1) if down.max() > up.max() else (up, down, -1)
    top = float(best.max())
    if top < _MATCH or top - opposite.max() < _LEAD or top - found[middle] < _LEAD_OVER_REST:
        return 0
    return sign * (int(best.argmax()) + 1)


def _texture(luma: Luma) -> Floats32:
    """Edges and letters, slightly blurred against the grid's coarseness; flat areas are 0."""
    values = luma.astype(np.float32)
    texture: Floats32 = cv2.blur(values, (3, 3)) - cv2.blur(values, (1, 21))
    return texture


def _correlations(before: Floats32, after: Floats32) -> Floats32:
    """(2n - 1,): normalised correlation of n rows with n rows moved down by -(n - 1) … n - 1."""
    rows = len(before)
    length = cv2.getOptimalDFTSize(2 * rows)
    spectrum = np.fft.rfft(before, length, axis=0).conj() * np.fft.rfft(after, length, axis=0)
    cross = np.fft.irfft(spectrum.sum(axis=1), length)
    products = np.concatenate([cross[length - rows + 1 :], cross[:rows]])
    energy = [np.concatenate([[0.0], np.cumsum((part**2).sum(axis=1))]) for part in (before, after)]
    shifts = np.arange(1 - rows, rows)
    kept = rows - np.abs(shifts)
    upper = [total[kept] for total in energy]
    lower = [total[-1] - total[rows - kept] for total in energy]
    first = np.where(shifts > 0, upper[0], lower[0])
    second = np.where(shifts > 0, lower[1], upper[1])
    found: Floats32 = products / np.sqrt(np.maximum(first * second, 1e-6))
    return found
