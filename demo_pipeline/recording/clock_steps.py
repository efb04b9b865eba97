"""Where the recorder's clock was set in mid-recording: time servers, sleep, a person.

Belongs here: finding such a step from the order of the lines and the length of the film, and times
that go on over it. A log is written in the order of what happened, so that a line far earlier than
those before it is late (a hook's buffer) or after a step. How long it was from one to the other,
only the pictures tell: until observation/clock looks at them, it is as short as can be.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from demo_pipeline.files.parquet import ANY, COUNT, between, described_schema, read_rows
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.input_log import (
    INPUT_EVENTS,
    KEY_EVENTS,
    MOUSEMOVE,
    Event,
    EventType,
    Rejected,
)

CLOCK_STEPS_FILE = "clock_steps.parquet"
CLOCK_STEPS_SCHEMA = described_schema(
    (
        ("line", pa.int64(), False, "first line of input after the step, 1-based"),
        ("logged_ms", pa.int64(), False, "its time as logged, epoch milliseconds"),
        ("moved_ms", pa.int64(), False, "added to the logged times from that line on"),
        ("gap_ms", pa.int64(), False, "from the line before it, after that; at least: not known"),
    ),
    {"line": between(1), "logged_ms gap_ms": COUNT, "moved_ms": ANY},
)

BACK_MS = 100  # a line less late was overtaken in a queue; hooks of four recorders: 0 of 1,371 late
SURELY_BACK_MS = 250  # a longer delay of a block of lines is no buffer of the hook
LATEST_MS = 10_000  # no hook is later than this
BEFORE_START_MS = 5_000  # a time so long before the recording began is another clock's
BEYOND_MS = 10_000  # after the film's end; recorders stop it up to some seconds before the log
FEW = 3  # lines that may be far ahead of all others, by damage
USUAL_GAP_MS = 16  # from one move to the next, where the log has no pair of moves
APART_MS = 1_500  # no click, scroll or key is joined over it, and it is no pause
_MOTION_MS = 250  # between two moves of one motion, at most
_MIN_STEP_PX = 2.0  # screen pixels in such a gap of a pointer that is on its way
_WINDOW = 20_000  # lines of input looked at before and after a line that is back
_SCAN_MS = 60_000  # a scan is written when it ends, so much later than its time at most
_PRESSES = frozenset({EventType.MOUSEDOWN.value, EventType.KEYDOWN.value})
_RELEASES = frozenset({EventType.MOUSEUP.value, EventType.KEYUP.value})


class ClockStep(NamedTuple):
    """A row of clock_steps.parquet; fields as in `CLOCK_STEPS_SCHEMA`."""

    line: int
    logged_ms: int
    moved_ms: int
    gap_ms: int

    @property
    def from_ms(self) -> int:
        """The time of its line in events.parquet, epoch milliseconds."""
        return self.logged_ms + self.moved_ms


def find_clock_steps(
    events: Iterable[Event | Rejected], filmed: tuple[float, float] | None = None
) -> list[ClockStep]:
    """The steps of the clock in a log.

    Args:
        events: of the log, in the order of the lines.
        filmed: when the video began and ended by meta.timestamp, epoch milliseconds; None: not
            known, so that a step forward cannot be told from a rest.
    """
    inputs = [event for event in events if isinstance(event, Event) and event.event in INPUT_EVENTS]
    return _Finder(inputs, filmed).steps() if inputs else []


@dataclass
class _Finder:
    """`moves` are the milliseconds by which each line is moved."""

    inputs: Sequence[Event]
    filmed: tuple[float, float] | None

    def __post_init__(self) -> None:
        self.times = np.array([item.time_ms for item in self.inputs], np.int64)
        first = int(self.times[0])
        self.start = first
        if self.filmed:
            self.start = min(first, round(self.filmed[0]))

    def steps(self) -> list[ClockStep]:
        """In the order of the lines."""
        steps: list[ClockStep] = []
        moved = 0
        begin = 0
        position = 1
        high = int(self.times[0])
        while position < len(self.times):
            time = int(self.times[position]) + moved
            late_until = position
            if high - time > BACK_MS:
                late_until = self._late_until(begin, position, moved)
            if (high - time > BACK_MS and late_until == position) or self._is_beyond(
                position, moved, high
            ):
                earlier = [0, *(earlier_step.moved_ms for earlier_step in steps)]
                step = self._step(position, high, earlier)
                steps.append(step)
                moved = step.moved_ms
                begin = position
            position = max(position + 1, late_until)
            high = max(high, int(self.times[begin:position].max()) + moved)
        return steps

    def _late_until(self, begin: int, position: int, moved: int) -> int:
        """Up to which position lines are late, those of the part that starts at `begin`.

        `position` itself: they are not late but after a step. Each hook writes its own lines in
        order, so that only another's may come late; a buffer that is written late fits between
        two lines, and comes back by a jump.
        """
        begin = max(begin, position - _WINDOW)
        before = self.times[begin:position]
        after = self.times[position : position + _WINDOW]
        high = int(before.max())
        first = int(after[0])
        back = np.flatnonzero(after >= high)
        end = position + len(after)
        if len(back):
            end = position + int(back[0])
        block = self.times[position:end]
        overtaken = begin + np.flatnonzero(before > block.min())
        passed = int(self.times[overtaken].min())
        in_order = before[before <= block.min()]
        fits = passed >= int(block.max())
        ahead = 0
        if len(in_order):
            ahead = passed - int(in_order.max())
        if fits and len(overtaken) <= FEW and ahead > BEYOND_MS:
            return end  # those before it have damaged times
        if first < high - LATEST_MS or first + moved < self.start - BEFORE_START_MS:
            return position
        if self._is_other_hook(begin, position, end):
            return end
        depth = high - int(block.min())
        is_apart = self._names(overtaken.tolist()).isdisjoint(self._names(range(position, end)))
        returns = len(back) > 0 or depth <= 2 * SURELY_BACK_MS
        if fits and (depth <= SURELY_BACK_MS or (is_apart and returns)):
            return end
        return position

    def _is_other_hook(self, begin: int, position: int, end: int) -> bool:
        """Whether the lines of the pointer, and those of keys, are in order by themselves."""
        latest: dict[bool, int] = {}
        for number, item in enumerate(self.inputs[begin:end], begin):
            is_key = item.event in KEY_EVENTS
            latest_ms = latest.get(is_key, item.time_ms)
            if number >= position and item.time_ms < latest_ms - BACK_MS:
                return False
            latest[is_key] = max(latest_ms, item.time_ms)
        return True

    def _names(self, positions: Iterable[int]) -> set[str]:
        """What the lines are of: the pointer, the wheel, or a key or button."""
        items = (self.inputs[position] for position in positions)
        return {item.key or item.button or item.event for item in items}

    def _is_beyond(self, position: int, moved: int, high: int) -> bool:
        """Whether the lines from a position jump beyond the video, although they fit into it."""
        if self.filmed is None:
            return False
        end = self.filmed[1]
        time = int(self.times[position]) + moved
        if high > end or time <= end + BEYOND_MS or time - high <= BEYOND_MS:
            return False
        after = self.times[position:]
        returns = np.flatnonzero(after < after[0] - BEYOND_MS)
        part = after
        if len(returns):
            part = after[: returns[0]]
        return bool(int(part.max()) - int(part[0]) <= end + BEYOND_MS - high)

    def _step(self, position: int, high: int, earlier: Sequence[int]) -> ClockStep:
        """The step before a position, after which lines go on soon after the time `high`.

        If the clock was set back to an earlier offset (for example after corrupt times), that
        offset is used again.
        """
        item = self.inputs[position]
        time = int(self.times[position])
        end = np.inf
        if self.filmed:
            end = self.filmed[1] + BEYOND_MS
        for moved in reversed(earlier[:-1]):
            if high < time + moved <= end and self.filmed:
                return ClockStep(item.event_index, time, moved, time + moved - high)
        if self._is_twin(position):
            gap = 0
        elif self._goes_on(position):
            gap = self._usual_gap()
        else:
            gap = APART_MS
        return ClockStep(item.event_index, time, high + gap - time, gap)

    def _is_twin(self, position: int) -> bool:
        """Whether a second hook wrote the previous line again; two equal wheel lines are usual."""
        pair = self.inputs[position - 1 : position + 1]
        inputs_written = {(item.event, item.x, item.y, item.button, item.key) for item in pair}
        return len(inputs_written) == 1 and pair[0].event != EventType.MOUSEWHEEL

    def _usual_gap(self) -> int:
        moves = [item.time_ms for item in self.inputs if item.event == MOUSEMOVE]
        gaps = np.diff(moves)
        usual = gaps[(gaps > 0) & (gaps <= _MOTION_MS)].tolist()
        if not usual:
            return USUAL_GAP_MS
        typical: float = median(usual)
        return round(typical)

    def _goes_on(self, position: int) -> bool:
        """Whether the pointer was on its way, or a button or key held, when the clock was set."""
        held: dict[str, bool] = {}
        for item in self.inputs[max(0, position - _WINDOW) : position]:
            if item.event in _PRESSES | _RELEASES:
                held[item.key or item.button or ""] = item.event in _PRESSES
        names = {name for name, is_held in held.items() if is_held}
        for item in self.inputs[position : position + _WINDOW]:
            name = item.key or item.button or ""
            if item.event in _RELEASES and name in names:
                return True
            if item.event in _PRESSES:
                names.discard(name)
        around = self.inputs[max(0, position - 2) : position + 2]
        if len(around) < 4 or {item.event for item in around} != {MOUSEMOVE}:
            return False
        places = [(item.x or 0.0, item.y or 0.0) for item in around]
        steps = [hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(places)]
        return min(steps) >= _MIN_STEP_PX and max(steps) <= 5 * min(steps)


def moved_events(
    events: Iterable[Event | Rejected], steps: Sequence[ClockStep]
) -> Iterator[Event | Rejected]:
    """The events with times that go on over the steps; the lines of scans as those around them."""
    moved = before = 0
    latest = 0
    pending = list(steps)
    for event in events:
        if isinstance(event, Rejected):
            yield event
            continue
        if pending and event.event_index >= pending[0].line:
            before = moved
            moved = pending.pop(0).moved_ms
        change = moved
        if event.event in INPUT_EVENTS:
            latest = event.time_ms + moved
        elif abs(event.time_ms + moved - latest) > _SCAN_MS:  # it began before the step
            change = min(moved, before, key=lambda ms: abs(event.time_ms + ms - latest))
        if not change:
            yield event
            continue
        yield replace(event, time_ms=max(0, event.time_ms + change))


def read_clock_steps(folder: Path) -> list[ClockStep]:
    """The steps of a committed output, in the order of the lines."""
    return [ClockStep(**row) for row in read_rows(folder / CLOCK_STEPS_FILE, CLOCK_STEPS_SCHEMA)]


def clock_step_problems(steps: Collection[ClockStep]) -> list[Problem]:
    """A problem for each step."""
    remedy = (
        "nothing, if the screenshots after it are right; where the video does not show how far the "
        "clock was set, actions after it are left out"
    )
    problems = []
    earlier_ms = 0
    for step in steps:
        seconds = (earlier_ms - step.moved_ms) / 1000
        way = "forward"
        if seconds < 0:
            way = "back"
        message = f"time: the recorder's clock was set {way} by about {abs(seconds):.1f} s"
        problems.append(Problem("clock_step", LOG_FILE, message, line=step.line, remedy=remedy))
        earlier_ms = step.moved_ms
    return problems
