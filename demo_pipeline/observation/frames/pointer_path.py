"""The pointer's path in the log: where it was at a time, and when it started towards a target."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import dist
from typing import Any, NamedTuple

import numpy as np

from demo_pipeline.actions.inputs import Input

Point = tuple[float, float]
Floats = np.ndarray[Any, np.dtype[np.float64]]

MOVED_PX = 8.0  # units of event space between two frames that count as a move
RUN_GAP_MS = 300  # milliseconds of rest that separate two movements of the pointer


class PixelBox(NamedTuple):
    """An axis-aligned box, x and y included, right and bottom not."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def around(cls, point: Point, reach: float) -> "PixelBox":
        """The square that reaches so far from a point to each side."""
        return cls(point[0] - reach, point[1] - reach, 2 * reach, 2 * reach)

    @property
    def right(self) -> float:
        """The first x beyond it."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The first y beyond it."""
        return self.y + self.height

    @property
    def area(self) -> float:
        """Its width times its height."""
        return self.width * self.height

    def contains(self, x: float, y: float) -> bool:
        """Whether the point is inside."""
        return self.x <= x < self.right and self.y <= y < self.bottom


@dataclass(frozen=True)
class TargetArea:
    """Where the pointer counts as at its target: in its box, else within a radius of the point.

    In event space.
    """

    x: float
    y: float
    radius: float
    box: PixelBox | None = None

    def contains(self, x: float, y: float) -> bool:
        """Whether a pointer at (x, y) is at the target."""
        if self.box is not None:
            return self.box.contains(x, y)
        return bool(np.hypot(x - self.x, y - self.y) <= self.radius)


@dataclass(frozen=True)
class PointerTrack:
    """Positions of the pointer: (n,) ascending epoch ms, (n,) x and (n,) y in event space."""

    times: Floats
    x: Floats
    y: Floats


class PointerPath:
    """Positions of the pointer by time, from every event with a position.

    `elapsed` gives milliseconds for a time of the log whose clock was set: how long a rest was.
    """

    def __init__(
        self, inputs: Sequence[Input], elapsed: Callable[[float], float] | None = None
    ) -> None:
        placed = [item for item in inputs if item.x is not None and item.y is not None]
        self._times = [item.time for item in placed]
        self._elapsed = self._times if elapsed is None else list(map(elapsed, self._times))
        self._points = [(float(item.x or 0), float(item.y or 0)) for item in placed]

    def at(self, time_ms: float) -> Point | None:
        """Position of the pointer in event space; None before the first event with a position."""
        position = bisect_right(self._times, time_ms)
        return self._points[position - 1] if position else None

    def arrival(self, time_ms: float) -> float:
        """When the pointer came to where it is at a time, epoch milliseconds.

        Minus infinity when it was there from the beginning.
        """
        first = position = bisect_right(self._times, time_ms) - 1
        while position >= 0 and dist(self._points[position], self._points[first]) <= MOVED_PX:
            position -= 1
        return float(self._times[position + 1]) if position >= 0 else float("-inf")

    def between(self, first_ms: float, last_ms: float) -> list[Point]:
        """All positions from one time to another, the one at the beginning included.

        Before the first event with a position, the pointer is where that has it.
        """
        begin = max(0, bisect_right(self._times, first_ms) - 1)
        return self._points[begin : max(begin + 1, bisect_right(self._times, last_ms))]

    def track(self) -> PointerTrack:
        """The whole path as arrays."""
        points = np.array(self._points, float).reshape(-1, 2)
        return PointerTrack(np.array(self._times, float), points[:, 0], points[:, 1])

    def approach_start(self, press_ms: int, since_ms: float, area: TargetArea) -> float | None:
        """When the last movement that brought the pointer into `area` began, epoch milliseconds.

        Searches back from the press to `since_ms`, the end of the previous action. When the pointer
        was in the area's box all that time, the last movement that brought it near the press; None
        when it was there all that time, too.
        """
        start = self._entry_start(press_ms, since_ms, area)
        if start is None and area.box is not None:
            return self._entry_start(press_ms, since_ms, replace(area, box=None))
        return start

    def _entry_start(self, press_ms: int, since_ms: float, area: TargetArea) -> float | None:
        position = bisect_right(self._times, press_ms) - 1
        while position >= 0 and area.contains(*self._points[position]):
            if self._times[position] <= since_ms:
                return None
            position -= 1
        first_inside = position + 1
        if first_inside >= len(self._times):
            return None
        start = first_inside
        while position >= 0 and self._times[position] > since_ms:
            if self._elapsed[start] - self._elapsed[position] >= RUN_GAP_MS:
                break
            start = position
            position -= 1
        return float(self._times[start])
