"""Finds the lines at which the recorder's clock was set, and corrects the times after them.

A recorder writes lines in the order of the events. If the time of a line is much earlier than the
times of earlier lines, the line was written late from an input hook's buffer, or the clock was set
back. A time far beyond the end of the video shows that the clock was set forward.

The log does not show how much time really passed at a clock step. This module assumes the shortest
plausible time, which observation/clock later corrects by the video.
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
        (
            "line",
            pa.int64(),
            False,
            "1-based number of the first line of input after the clock was set",
        ),
        ("logged_ms", pa.int64(), False, "time of this line as logged, epoch milliseconds"),
        (
            "moved_ms",
            pa.int64(),
            False,
            "correction added to the logged times from this line on, milliseconds",
        ),
        (
            "gap_ms",
            pa.int64(),
            False,
            "assumed time between the lines before and after the change, milliseconds",
        ),
    ),
    {"line": between(1), "logged_ms gap_ms": COUNT, "moved_ms": ANY},
)

# A line may be up to 100 ms earlier than a line before it, because events can overtake each other
# in a queue. All 1,371 lines of four recorders stayed within this limit.
BACK_MS = 100
# If a block of lines is late by more than 250 ms, the clock was set back, unless there is evidence
# that the lines waited in a hook's buffer.
SURELY_BACK_MS = 250
LATEST_MS = 10_000  # the longest time that a line waits in a hook's buffer
# A logged time may lie at most 5 s before the start of the recording. An even earlier time means
# that the clock was set.
BEFORE_START_MS = 5_000
# A logged time may lie at most 10 s after the end of the video, because some recorders stop the
# video seconds before the log.
BEYOND_MS = 10_000
# If at most three lines have times far ahead of all others, their times are treated as damaged.
FEW = 3
USUAL_GAP_MS = 16  # assumed time between two pointer moves if the log has no continuous motion
# Assumed time between the lines before and after a clock step: too long to join clicks, scrolls or
# keys into one action, and too short to count as a pause.
APART_MS = 1_500
_MOTION_MS = 250  # the longest time between two pointer moves of the same motion
# The pointer counts as moving if it moves at least two screen pixels from each line to the next.
_MIN_STEP_PX = 2.0
_WINDOW = 20_000  # lines of input examined on each side of a possible clock step
_SCAN_MS = 60_000  # the longest time from the start of a scan to the writing of its line
_PRESSES = frozenset({EventType.MOUSEDOWN.value, EventType.KEYDOWN.value})
_RELEASES = frozenset({EventType.MOUSEUP.value, EventType.KEYUP.value})


class ClockStep(NamedTuple):
    """A change of the recorder's clock. `CLOCK_STEPS_SCHEMA` describes the fields."""

    line: int
    logged_ms: int
    moved_ms: int
    gap_ms: int

    @property
    def from_ms(self) -> int:
        """Corrected time of the first line after the step, as in events.parquet; epoch ms."""
        return self.logged_ms + self.moved_ms


def find_clock_steps(
    events: Iterable[Event | Rejected], video_ms: tuple[float, float] | None = None
) -> list[ClockStep]:
    """Returns the clock steps of a log, in line order.

    Args:
        events: the parsed lines of the log, in file order.
        video_ms: start and end of the video according to meta.timestamp, epoch milliseconds. If
            None, forward steps are not found, because they look like pauses of the person.
    """
    inputs = [event for event in events if isinstance(event, Event) and event.event in INPUT_EVENTS]
    return _Finder(inputs, video_ms).steps() if inputs else []


@dataclass
class _Finder:
    """Finds the clock steps in the input events of a log; at least one event is needed.

    Attributes:
        inputs: the input events, in the order of the lines.
        video_ms: start and end of the video, epoch milliseconds; None if unknown.
        times: logged times of the input events, epoch milliseconds.
        start: start of the recording, epoch milliseconds.
    """

    inputs: Sequence[Event]
    video_ms: tuple[float, float] | None

    def __post_init__(self) -> None:
        self.times = np.array([item.time_ms for item in self.inputs], np.int64)
        first = int(self.times[0])
        self.start = first
        if self.video_ms:
            self.start = min(first, round(self.video_ms[0]))

    def steps(self) -> list[ClockStep]:
        """Returns the clock steps in the order of the lines."""
        steps: list[ClockStep] = []
        moved_ms = 0
        part_start = 0
        position = 1
        latest_ms = int(self.times[0])  # latest corrected time of all lines so far
        while position < len(self.times):
            is_back = latest_ms - (int(self.times[position]) + moved_ms) > BACK_MS
            late_until = position
            if is_back:
                late_until = self._late_until(part_start, position, moved_ms)
            clock_was_set_back = is_back and late_until == position
            if clock_was_set_back or self._is_beyond(position, moved_ms, latest_ms):
                earlier = [0, *(earlier_step.moved_ms for earlier_step in steps)]
                step = self._step(position, latest_ms, earlier)
                steps.append(step)
                moved_ms = step.moved_ms
                part_start = position
            position = max(position + 1, late_until)
            latest_ms = max(latest_ms, int(self.times[part_start:position].max()) + moved_ms)
        return steps

    def _late_until(self, part_start: int, position: int, moved_ms: int) -> int:
        """Returns the end of a block of late lines, or `position` if the clock was set back.

        The block begins at `position` and ends before the first line whose time is at least as late
        as all times before `position`. The block counts as late only if the lines of key
        events and all other lines are each in order, or if no line before the block has a time
        within the block's range of times.

        Args:
            part_start: position of the first line after the previous clock step. Earlier lines are
                ignored.
            position: position of the first line of the block.
            moved_ms: correction of the logged times since the previous clock step, milliseconds.
        """
        part_start = max(part_start, position - _WINDOW)
        before = self.times[part_start:position]
        after = self.times[position : position + _WINDOW]
        latest_before = int(before.max())
        first = int(after[0])
        later_again = np.flatnonzero(after >= latest_before)
        end = position + len(after)
        if len(later_again):
            end = position + int(later_again[0])
        block = self.times[position:end]
        overtaken = part_start + np.flatnonzero(before > block.min())
        earliest_overtaken = int(self.times[overtaken].min())
        in_order = before[before <= block.min()]
        fits = earliest_overtaken >= int(block.max())
        ahead = 0
        if len(in_order):
            ahead = earliest_overtaken - int(in_order.max())
        if fits and len(overtaken) <= FEW and ahead > BEYOND_MS:
            return end  # the block is in order; the few lines before it have damaged times
        if first < latest_before - LATEST_MS or first + moved_ms < self.start - BEFORE_START_MS:
            return position
        if self._is_other_hook(part_start, position, end):
            return end
        depth = latest_before - int(block.min())
        is_apart = self._names(overtaken.tolist()).isdisjoint(self._names(range(position, end)))
        returns = len(later_again) > 0 or depth <= 2 * SURELY_BACK_MS
        if fits and (depth <= SURELY_BACK_MS or (is_apart and returns)):
            return end
        return position

    def _is_other_hook(self, part_start: int, position: int, end: int) -> bool:
        """Returns whether late lines may come from a second hook.

        This is possible if the lines of key events and all other lines are each in order.
        """
        latest: dict[bool, int] = {}
        for number, item in enumerate(self.inputs[part_start:end], part_start):
            is_key = item.event in KEY_EVENTS
            latest_ms = latest.get(is_key, item.time_ms)
            if number >= position and item.time_ms < latest_ms - BACK_MS:
                return False
            latest[is_key] = max(latest_ms, item.time_ms)
        return True

    def _names(self, positions: Iterable[int]) -> set[str]:
        """Returns the key or button of each line, or the event's name if the line has neither."""
        items = (self.inputs[position] for position in positions)
        return {item.key or item.button or item.event for item in items}

    def _is_beyond(self, position: int, moved_ms: int, latest_ms: int) -> bool:
        """Returns whether the clock was set forward before the line at `position`.

        The times then jump beyond the end of the video, although the lines after the jump would fit
        into the rest of the video. `latest_ms` is the latest corrected time before `position`.
        """
        if self.video_ms is None:
            return False
        end = self.video_ms[1]
        time = int(self.times[position]) + moved_ms
        if latest_ms > end or time <= end + BEYOND_MS or time - latest_ms <= BEYOND_MS:
            return False
        after = self.times[position:]
        returns = np.flatnonzero(after < after[0] - BEYOND_MS)
        part = after
        if len(returns):
            part = after[: returns[0]]
        return bool(int(part.max()) - int(part[0]) <= end + BEYOND_MS - latest_ms)

    def _step(self, position: int, latest_ms: int, earlier: Sequence[int]) -> ClockStep:
        """Returns the clock step before the line at `position`.

        If the clock seems to have returned to an earlier setting (for example after corrupt times),
        the correction of that setting is used again. Otherwise, the shortest plausible time is
        assumed to have passed.

        Args:
            position: position of the first line after the step.
            latest_ms: latest corrected time before the step, epoch milliseconds.
            earlier: correction for each part of the log so far, milliseconds; the first is 0.
        """
        item = self.inputs[position]
        time = int(self.times[position])
        end = np.inf
        if self.video_ms:
            end = self.video_ms[1] + BEYOND_MS
        for moved_ms in reversed(earlier[:-1]):
            if latest_ms < time + moved_ms <= end and self.video_ms:
                return ClockStep(item.event_index, time, moved_ms, time + moved_ms - latest_ms)
        if self._is_twin(position):
            gap = 0
        elif self._goes_on(position):
            gap = self._usual_gap()
        else:
            gap = APART_MS
        return ClockStep(item.event_index, time, latest_ms + gap - time, gap)

    def _is_twin(self, position: int) -> bool:
        """Returns whether a second hook logged the same input as the previous line.

        Mouse wheel lines do not count, because one hook logs equal lines while a wheel turns.
        """
        pair = self.inputs[position - 1 : position + 1]
        inputs_written = {(item.event, item.x, item.y, item.button, item.key) for item in pair}
        return len(inputs_written) == 1 and pair[0].event != EventType.MOUSEWHEEL

    def _usual_gap(self) -> int:
        """Returns the median time between two moves of the same motion, milliseconds."""
        moves = [item.time_ms for item in self.inputs if item.event == MOUSEMOVE]
        gaps = np.diff(moves)
        usual = gaps[(gaps > 0) & (gaps <= _MOTION_MS)].tolist()
        if not usual:
            return USUAL_GAP_MS
        typical: float = median(usual)
        return round(typical)

    def _goes_on(self, position: int) -> bool:
        """Returns whether an action continues across the clock step before the line at `position`.

        An action continues if the pointer moves evenly across the step, or if a button or key is
        held across it.
        """
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
    """Yields the events of a log with corrected times, and rejected lines unchanged.

    A scan may have begun before a clock step although its line comes after the step. The scan
    gets the correction from before the step if the correction from after the step would put it more
    than `_SCAN_MS` from the last input, and the earlier correction puts it closer.
    """
    moved_ms = 0
    previous_moved_ms = 0
    latest_ms = 0
    pending = list(steps)
    for event in events:
        if isinstance(event, Rejected):
            yield event
            continue
        if pending and event.event_index >= pending[0].line:
            previous_moved_ms = moved_ms
            moved_ms = pending.pop(0).moved_ms
        correction_ms = moved_ms
        if event.event in INPUT_EVENTS:
            latest_ms = event.time_ms + moved_ms
        else:
            distance_ms = abs(event.time_ms + moved_ms - latest_ms)
            previous_distance_ms = abs(event.time_ms + previous_moved_ms - latest_ms)
            if distance_ms > _SCAN_MS and previous_distance_ms < distance_ms:
                correction_ms = previous_moved_ms
        if not correction_ms:
            yield event
            continue
        yield replace(event, time_ms=max(0, event.time_ms + correction_ms))


def read_clock_steps(folder: Path) -> list[ClockStep]:
    """Reads the clock steps from the output of the `events` stage, in the order of the lines."""
    return [ClockStep(**row) for row in read_rows(folder / CLOCK_STEPS_FILE, CLOCK_STEPS_SCHEMA)]


def clock_step_problems(steps: Collection[ClockStep]) -> list[Problem]:
    """Returns a problem with the direction and the size of each clock step."""
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
