"""The hand on its way: where the pointer was when, and when it set out for a target.

Belongs here: the pointer's time line and the moment each action's approach began.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demo_pipeline.actions.inputs import Input

Point = tuple[float, float]
Floats = np.ndarray[Any, np.dtype[np.float64]]

RUN_GAP_MS = 300  # a rest this long separates two movements of the hand


@dataclass(frozen=True)
class PixelBox:
    """An axis-aligned box, x and y included, x + width and y + height not."""

    x: float
    y: float
    width: float
    height: float

    def contains(self, x: float, y: float) -> bool:
        """Whether the point lies inside."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass(frozen=True)
class TargetArea:
    """What counts as being at the target: inside its box, or within a radius of the point."""

    x: float
    y: float
    radius: float
    box: PixelBox | None = None

    def contains(self, x: float, y: float) -> bool:
        """Whether a pointer at (x, y) gives the target away."""
        if self.box is not None:
            return self.box.contains(x, y)
        return bool(np.hypot(x - self.x, y - self.y) <= self.radius)


@dataclass(frozen=True)
class PointerTrack:
    """Where the pointer was: (n,) epoch ms ascending, (n,) x and y in event space."""

    times: Floats
    x: Floats
    y: Floats


class PointerPath:
    """Positions of the pointer by time, from every event that has one."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        placed = [item for item in inputs if item.x is not None and item.y is not None]
        self._times = [item.time for item in placed]
        self._points = [(float(item.x or 0), float(item.y or 0)) for item in placed]

    def at(self, time_ms: float) -> tuple[float, float] | None:
        """Where the pointer was; None before the first event that says so."""
        position = bisect_right(self._times, time_ms)
        return self._points[position - 1] if position else None

    def track(self) -> PointerTrack:
        """The whole path as arrays."""
        points = np.array(self._points, float).reshape(-1, 2)
        return PointerTrack(np.array(self._times, float), points[:, 0], points[:, 1])

    def approach_start(self, press_ms: int, since_ms: float, area: TargetArea) -> float | None:
        """When the last movement that brought the pointer to `area` began.

        Searches back from the press, not beyond `since_ms` (the end of the previous action). None
        when the pointer was there already.
        """
        position = bisect_right(self._times, press_ms) - 1
        while position >= 0 and area.contains(*self._points[position]):
            if self._times[position] <= since_ms:
                return None
            position -= 1
        first_inside = position + 1
        if first_inside >= len(self._times):
            return None
        start = self._times[first_inside]
        while position >= 0 and self._times[position] > since_ms:
            if start - self._times[position] >= RUN_GAP_MS:
                break
            start = self._times[position]
            position -= 1
        return float(start)
