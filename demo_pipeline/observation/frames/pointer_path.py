"""Finds the pointer's position at a time, and the start of its movement towards a target."""

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

MOVED_PX = 8.0  # units of event space; smaller displacements do not count as moves
RUN_GAP_MS = 300  # milliseconds of rest that separate two movements of the pointer


class PixelBox(NamedTuple):
    """An axis-aligned box; `right` and `bottom` are the first coordinates outside of it."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def around(cls, point: Point, reach: float) -> "PixelBox":
        """Returns the square with its center at a point and a side length of 2 * `reach`."""
        return cls(point[0] - reach, point[1] - reach, 2 * reach, 2 * reach)

    @property
    def right(self) -> float:
        """The first x beyond the box."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The first y beyond the box."""
        return self.y + self.height

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height

    def contains(self, x: float, y: float) -> bool:
        """Whether the point is inside."""
        return self.x <= x < self.right and self.y <= y < self.bottom


@dataclass(frozen=True)
class TargetArea:
    """The area in which the pointer counts as being at its target, event space.

    Attributes:
        x, y: the point of the press.
        radius: radius of the circle around the press; unused if there is a box.
        box: the target's box. None if it is unknown or too large to show where the press will be.
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
    """The pointer's positions in the log.

    Attributes:
        times: (n,), logged times, ascending epoch milliseconds.
        x, y: (n,), positions in event space.
        elapsed: (n,), `times` corrected for shifts of the recorder's clock, for measuring how long
            the pointer rested. None if nobody set the clock.
    """

    times: Floats
    x: Floats
    y: Floats
    elapsed: Floats | None = None

    @classmethod
    def through(cls, places: Iterable[tuple[float, float, float]]) -> "PointerPath":
        """Returns the path through the positions (time, x, y), which must be in time order."""
        return cls(*np.array(list(places), float).reshape(-1, 3).T)

    def at(self, time_ms: float) -> Point | None:
        """Returns the pointer's position at an event time, or None before the first position.

        `time_ms` is in epoch milliseconds, the position in event space.
        """
        number = self._newest(time_ms)
        return self.place(number) if number >= 0 else None

    def arrival(self, time_ms: float) -> float:
        """Returns the time at which the pointer came to the place where it was at `time_ms`.

        Both times are epoch milliseconds. The result is minus infinity if the pointer was there
        from the beginning.
        """
        last = self._newest(time_ms)
        number = last
        while number >= 0 and dist(self.place(number), self.place(last)) <= MOVED_PX:
            number -= 1
        return float(self.times[number + 1]) if number >= 0 else float("-inf")

    def between(self, first_ms: float, last_ms: float) -> list[Point]:
        """Returns the position at the first time, and all later positions up to the last time.

        Times are epoch milliseconds, positions are in event space. The first logged position is
        also used for earlier times.
        """
        begin = max(0, self._newest(first_ms))
        inside = slice(begin, max(begin, self._newest(last_ms)) + 1)
        return list(zip(self.x[inside].tolist(), self.y[inside].tolist(), strict=True))

    def approach_start(self, press_ms: int, since_ms: float, area: TargetArea) -> float | None:
        """Returns the start of the last movement into `area` before a press, epoch milliseconds.

        Only movements after `since_ms` count. If the pointer was in the area's box all the time,
        the circle around the press is used instead. Returns None if the pointer was in this
        circle all the time, too.
        """
        start = self._entry_start(press_ms, since_ms, area)
        if start is None and area.box is not None:
            return self._entry_start(press_ms, since_ms, replace(area, box=None))
        return start

    def _entry_start(self, press_ms: int, since_ms: float, area: TargetArea) -> float | None:
        """Returns the start of the last movement into `area`, or None if there was none.

        A movement begins after the pointer rested for `RUN_GAP_MS`, or at `since_ms`.
        """
        number = self._newest(press_ms)
        while number >= 0 and area.contains(*self.place(number)):
            if self.times[number] <= since_ms:
                return None
            number -= 1
        start = number + 1  # the first position inside the area
        if start >= len(self.times):
            return None
        elapsed = self.times if self.elapsed is None else self.elapsed
        while number >= 0 and self.times[number] > since_ms:
            if elapsed[start] - elapsed[number] >= RUN_GAP_MS:
                break
            start = number
            number -= 1
        return float(self.times[start])

    def _newest(self, time_ms: float) -> int:
        """Returns the index of the last position at or before a time, or -1 if there is none."""
        return int(self.times.searchsorted(time_ms, "right")) - 1

    def place(self, number: int) -> Point:
        """Returns the position with this index, in event space."""
        return float(self.x[number]), float(self.y[number])


_INPUT_EVENTS = pa.array(sorted(INPUT_EVENTS))


def pointer_path(events: pa.Table) -> PointerPath:
    """Returns the path through the positions of all inputs in an events table.

    The positions are those that the recorder logged, even outside of a display.
    """
    is_cut = pc.is_valid(events["raw_x"])
    x = pc.if_else(is_cut, events["raw_x"], events["x"])
    y = pc.if_else(is_cut, events["raw_y"], events["y"])
    has_position = pc.and_(pc.is_valid(x), pc.is_valid(y))
    is_used = pc.and_(has_position, pc.is_in(events["event"], _INPUT_EVENTS))
    columns = (pc.filter(column, is_used).to_numpy() for column in (events["time_ms"], x, y))
    times, x, y = (column.astype(float) for column in columns)
    order = np.argsort(times, kind="stable")
    return PointerPath(times[order], x[order], y[order])
