"""The pointer's path in the log: where it was at a time, and when it started towards a target."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import dist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.recording.input_log import INPUT_EVENTS

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
class PointerPath:
    """Where the pointer was: (n,) ascending epoch milliseconds, (n,) x and (n,) y in event space.

    `elapsed`: (n,) the times of a log whose clock was set as by one that was not: how long a rest
    was; None: they are `times`.
    """

    times: Floats
    x: Floats
    y: Floats
    elapsed: Floats | None = None

    @classmethod
    def through(cls, places: Iterable[tuple[float, float, float]]) -> "PointerPath":
        """The path through (time, x, y), ascending."""
        return cls(*np.array(list(places), float).reshape(-1, 3).T)

    def at(self, time_ms: float) -> Point | None:
        """Position of the pointer in event space; None before the first event with a position."""
        position = self._newest(time_ms)
        return self.place(position) if position >= 0 else None

    def arrival(self, time_ms: float) -> float:
        """When the pointer came to where it is at a time, epoch milliseconds.

        Minus infinity when it was there from the beginning.
        """
        first = position = self._newest(time_ms)
        while position >= 0 and dist(self.place(position), self.place(first)) <= MOVED_PX:
            position -= 1
        return float(self.times[position + 1]) if position >= 0 else float("-inf")

    def between(self, first_ms: float, last_ms: float) -> list[Point]:
        """All positions from one time to another, the one at the beginning included.

        Before the first event with a position, the pointer is where that has it.
        """
        begin = max(0, self._newest(first_ms))
        inside = slice(begin, max(begin, self._newest(last_ms)) + 1)
        return list(zip(self.x[inside].tolist(), self.y[inside].tolist(), strict=True))

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
        position = self._newest(press_ms)
        while position >= 0 and area.contains(*self.place(position)):
            if self.times[position] <= since_ms:
                return None
            position -= 1
        start = position + 1
        if start >= len(self.times):
            return None
        elapsed = self.times if self.elapsed is None else self.elapsed
        while position >= 0 and self.times[position] > since_ms:
            if elapsed[start] - elapsed[position] >= RUN_GAP_MS:
                break
            start = position
            position -= 1
        return float(self.times[start])

    def _newest(self, time_ms: float) -> int:
        """Number of the last position at a time; -1 before the first."""
        return int(self.times.searchsorted(time_ms, "right")) - 1

    def place(self, position: int) -> Point:
        """The position of a number, event space."""
        return float(self.x[position]), float(self.y[position])


_INPUT_EVENTS = pa.array(sorted(INPUT_EVENTS))


def pointer_path(events: pa.Table) -> PointerPath:
    """The path by an events table: of every input with a position, not cut to a display."""
    uncut = pc.is_valid(events["raw_x"])
    x, y = (pc.if_else(uncut, events[f"raw_{side}"], events[side]) for side in "xy")
    placed = pc.and_(pc.is_valid(x), pc.is_valid(y))
    placed = pc.and_(placed, pc.is_in(events["event"], _INPUT_EVENTS))
    columns = (pc.filter(column, placed).to_numpy() for column in (events["time_ms"], x, y))
    times, x, y = (column.astype(float) for column in columns)
    order = np.argsort(times, kind="stable")
    return PointerPath(times[order], x[order], y[order])
