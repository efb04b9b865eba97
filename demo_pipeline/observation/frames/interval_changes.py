"""What changed on the screen between two successive actions, from a few pictures a second.

Belongs here: an interval between two actions and the record of its changes. What they mean is in
waits.py and restless_cells.py.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import cv2
import numpy as np

from demo_pipeline.observation.frames.change_detection import (
    MIN_SIGNIFICANT_CELLS,
    SIGNIFICANT_SHARE,
)
from demo_pipeline.observation.frames.changed_cells import (
    BLOCK,
    Cells,
    changed_cells,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_frames import Luma

MEAN_LEVELS = 12  # of 255; means of 4 x 4 pixels of a still screen differ by less in two encodings
EARLY_S = 1.0  # seconds after an action in which its own effect shows: a pressed button, a menu
BEFORE_S = 0.6  # seconds; nobody sees a change and acts on it sooner: what changed moved by itself
REACTION_S = 0.3  # seconds; nobody sees something and presses a button on it sooner
ANSWER_S = 0.4  # seconds from a key to what it wrote
TOGETHER_S = 0.5  # seconds; changes as close as this are one
LONGEST_S = 120.0  # seconds; what changes later than this after an action is not looked at

SLIGHT_SHARE = 0.25  # of the largest change; a status line that fades is less
COLUMN_GAP, ROW_GAP = 0.25, 0.05  # of the screen's sides; between columns and lines of one table


@dataclass(frozen=True)
class Interval:
    """The time between two actions, video seconds.

    Attributes:
        earlier: end of the action before the first of the two; minus infinity without one.
        pressed: when the first one began.
        since: when it had ended.
        looked: when the pointer started towards the second one; `limit` when it did not move.
        limit: the latest time of a frame that certainly shows the screen before the second one.
        until: when the second one began.
        place: around the second one's press, video pixels; None for keys.
        pause: row of actions.parquet of the pause between the two.
        seconds: its length.
    """

    earlier: float
    pressed: float
    since: float
    looked: float
    limit: float
    until: float
    place: PixelBox | None
    pause: int
    seconds: float


class Sample(NamedTuple):
    """A picture of the screen and what changed since the one before.

    Attributes:
        time: video seconds.
        before: luma of the picture before.
        luma: of this one.
        changed: (rows, columns), without what is around a moving pointer.
        hovered: those of them that belong to a change beside a pointer that came there of late.
        arrival: when the pointer had come to where it is.
    """

    time: float
    before: Luma
    luma: Luma
    changed: Cells
    hovered: Cells
    arrival: float


@dataclass(frozen=True)
class IntervalChanges:
    """What changed between two actions; cells: (rows, columns). Times are video seconds.

    Attributes:
        since: end of the first action.
        looked: when the pointer started towards the second.
        until: press of the second.
        by_key: whether the second one is of the keyboard.
        place: cells at the second one's press; of a key, the cells that it changed.
        early: changed so soon after the first action that it is the action's own effect.
        late: the changes after that, each with its time.
        hovered: last changed beside a pointer that had moved away from the first action.
        moving_before: still changed right before the first action.
        new: differ from what was there before the first action.
    """

    since: float
    looked: float
    until: float
    by_key: bool
    place: Cells
    early: Cells
    late: Sequence[tuple[float, Cells]]
    hovered: Cells
    moving_before: Cells
    new: Cells

    def filled(self, cells: Cells) -> Cells:
        """Cells that changed together and what is between them, in which the next action may be.

        A pointer is on a line or between the columns of what appeared; keys act in the window, and
        only its columns are known.
        """
        return columns_of(cells) if self.by_key else filled_between(cells)


_MAPS = ("place", "early", "hovered", "moving_before", "new")


@dataclass
class IntervalRecord:
    """Collects the changes of one interval; `see` takes samples in order."""

    interval: Interval
    _before: list[Cells] = field(default_factory=list)
    _early: list[Cells] = field(default_factory=list)
    _late: list[tuple[float, Cells]] = field(default_factory=list)
    _hovered: Cells | None = None
    _first: Luma | None = None
    _last: Luma | None = None
    _at_limit: Luma | None = None
    _answer: Cells | None = None

    @property
    def begin(self) -> float:
        """Samples after this time are needed."""
        return self.interval.pressed - BEFORE_S

    @property
    def end(self) -> float:
        """When the second action shows its effect: the first sample after it is the last."""
        return self.interval.until + (0.0 if self.interval.place else ANSWER_S)

    def see(self, sample: Sample) -> None:
        """Take the next sample."""
        interval, time, changed = self.interval, sample.time, sample.changed
        hovered = sample.hovered & (sample.arrival > interval.since)
        if self._first is None:
            self._first = self._last = self._at_limit = sample.before
        if time <= interval.pressed:
            self._first = sample.luma
            if changed.any() and time > interval.earlier + EARLY_S:
                self._before.append(changed)
        elif time <= interval.since + EARLY_S:
            self._early.append(changed)
        elif time <= interval.limit and time <= interval.since + LONGEST_S and changed.any():
            is_approach = time > interval.looked
            self._late.append((time, changed & ~hovered if is_approach else changed))
        if interval.pressed < time <= interval.looked and changed.any():
            earlier = np.zeros_like(changed) if self._hovered is None else self._hovered
            self._hovered = np.where(changed, hovered, earlier)
        if time <= interval.looked:
            self._last = sample.luma
        if time <= interval.limit:
            self._at_limit = sample.luma
        elif time <= self.end:
            self._answer = _changed(self._at_limit, sample.luma)

    def changes(self) -> IntervalChanges | None:
        """What was seen; None when the interval was not seen from before to after."""
        first, last, answer = self._first, self._last, self._answer
        if first is None or last is None or first.shape != last.shape:
            return None
        interval, new = self.interval, changed_cells(first, last, MEAN_LEVELS)
        by_key = interval.place is None
        place = answer if interval.place is None else _cells_of(interval.place, new)
        if place is None or place.shape != new.shape:
            return None
        none = np.zeros_like(new)
        return IntervalChanges(
            interval.since,
            interval.looked,
            interval.until,
            by_key,
            place,
            union(self._early, new),
            self.late(),
            none if self._hovered is None else self._hovered,
            union(self._before, new),
            new,
        )

    def late(self) -> Sequence[tuple[float, Cells]]:
        """The changes after the first action's own effect.

        Without slight ones right before the second action, such as a text cursor's blink: they are
        not what the person acted on.
        """
        slight = SLIGHT_SHARE * max((np.count_nonzero(c) for _, c in self._late), default=0)
        seen = self.interval.until - REACTION_S
        return [(t, c) for t, c in self._late if t <= seen or np.count_nonzero(c) > slight]


@dataclass(frozen=True)
class PackedChanges:
    """An `IntervalChanges` in a hundredth of the memory; `pause` and `seconds` of its interval."""

    pause: int
    seconds: float
    _without_maps: IntervalChanges
    _shape: tuple[int, ...]
    _maps: bytes

    @classmethod
    def of(cls, interval: Interval, changes: IntervalChanges) -> "PackedChanges":
        """Pack the changes of an interval with a pause."""
        late = [cells for _, cells in changes.late]
        maps = np.stack([*(getattr(changes, name) for name in _MAPS), *late])
        none = np.zeros((0, 0), bool)
        times = [(time, none) for time, _ in changes.late]
        bare = replace(changes, late=times, **dict[str, Any](dict.fromkeys(_MAPS, none)))
        packed = zlib.compress(np.packbits(maps).tobytes(), 1)
        return cls(interval.pause, interval.seconds, bare, maps.shape, packed)

    def unpacked(self) -> IntervalChanges:
        """The changes as they were."""
        bare, packed = self._without_maps, np.frombuffer(zlib.decompress(self._maps), np.uint8)
        bits = np.unpackbits(packed, count=prod(self._shape))
        maps = list(bits.reshape(self._shape).astype(bool))
        times = (time for time, _ in bare.late)
        late = list(zip(times, maps[len(_MAPS) :], strict=True))
        return replace(bare, late=late, **dict[str, Any](zip(_MAPS, maps, strict=False)))


def is_notable(cells: Cells) -> bool:
    """Whether it is more than a text cursor, a letter or noise."""
    enough = max(MIN_SIGNIFICANT_CELLS, SIGNIFICANT_SHARE * cells.size)
    return bool(np.count_nonzero(cells) >= enough)


def filled_between(cells: Cells) -> Cells:
    """The cells and those between them, as between the columns of a table that appeared at once."""
    rows, columns = cells.shape
    sides = (max(1, round(columns * COLUMN_GAP)), max(1, round(rows * ROW_GAP)))
    if not cells.any():
        return cells
    padded = np.pad(cells.astype(np.uint8), ((sides[1],) * 2, (sides[0],) * 2))
    closed = cv2.morphologyEx(padded, cv2.MORPH_CLOSE, np.ones(sides[::-1], np.uint8))
    inside: Cells = closed[sides[1] : sides[1] + rows, sides[0] : sides[0] + columns] > 0
    return inside


def columns_of(cells: Cells) -> Cells:
    """All cells above, below and between some: the window in which they changed, at most."""
    columns = np.flatnonzero(cells.any(axis=0))
    filled = np.zeros_like(cells)
    if len(columns):
        filled[:, columns[0] : columns[-1] + 1] = True
    return filled


def _changed(before: Luma | None, after: Luma) -> Cells | None:
    if before is None or before.shape != after.shape:
        return None
    return changed_cells(before, after, MEAN_LEVELS)


def union(maps: Iterable[Cells], like: Cells) -> Cells:
    """The cells that are set in any of the maps; `like`: of the same size."""
    found = np.zeros_like(like)
    for cells in maps:
        if cells.shape == found.shape:
            found |= cells
    return found


def _cells_of(box: PixelBox, like: Cells) -> Cells:
    cells = np.zeros_like(like)
    left, right = (max(0, int(x // BLOCK)) for x in (box.x, box.x + box.width))
    top, bottom = (max(0, int(y // BLOCK)) for y in (box.y, box.y + box.height))
    cells[top : bottom + 1, left : right + 1] = True
    return cells
