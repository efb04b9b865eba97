"""How late the events after a step of the recorder's clock were, by the pictures.

Belongs here: the bounds that the lines before a step and the end of the film give, the search
between them, and what is left out because the pictures do not say when it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demo_pipeline.observation.clock.clock import NEVER_MS, Clock, ClockShift
from demo_pipeline.observation.clock.clock_evidence import clock_from_keys, clock_from_pointer
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerPath
from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span
from demo_pipeline.recording.clock_steps import ClockStep

WINDOW_MS = 10_000.0  # milliseconds of the log that are looked for in the film together
MAX_WINDOWS = 3  # looked for, those with most input first, until the pictures show one
MIN_INPUTS = 12  # positions or keys; a window with fewer shows nothing
MOST_MS = 60_000.0  # milliseconds between the bounds that are searched, from the first on
LEAST_MS = 2_000.0  # searched to each side at least: a lag stands out against others
SLACK_MS = 50.0  # beyond the bounds: a line may be written so much late


@dataclass(frozen=True)
class InputTimes:
    """What a log says about the pointer, and when keys were pressed that type; epoch ms."""

    track: PointerPath
    keys: Floats

    def between(self, from_ms: float, until_ms: float) -> "InputTimes":
        """What is from one time until before another."""
        kept = (self.track.times >= from_ms) & (self.track.times < until_ms)
        track = PointerPath(self.track.times[kept], self.track.x[kept], self.track.y[kept])
        return InputTimes(track, self.keys[(self.keys >= from_ms) & (self.keys < until_ms)])

    def shifted(self, shifts: Sequence[ClockShift]) -> "InputTimes":
        """The same by a clock that was not set, without what is not known by it."""
        track = self.track
        keys = self.keys
        moved, typed = (_shifted(times, shifts) for times in (track.times, keys))
        kept = np.isfinite(moved)
        track = PointerPath(moved[kept], track.x[kept], track.y[kept])
        return InputTimes(track, typed[np.isfinite(typed)])


def _shifted(times: Floats, shifts: Sequence[ClockShift]) -> Floats:
    """Times with their shifts; infinite where that is not known."""
    found = times.copy()
    for shift in shifts:
        known = shift.shift_ms if shift.is_known else np.inf
        found[times >= shift.from_ms] = times[times >= shift.from_ms] + known
    return found


def find_shifts(
    video: RecordedVideo,
    clock: Clock,
    scales: Sequence[float],
    steps: Sequence[ClockStep],
    inputs: InputTimes,
) -> Clock:
    """The clock with a shift for each step, as unsure as the least sure of them.

    Where nothing but meta.json tells the clock before the first step and the film shows a later
    part, that one tells it, and what is before the first step is not known.

    Args:
        video: of the recording.
        clock: of the events before the first step.
        scales: event scales to try.
        steps: of the recorder's clock.
        inputs: of the whole log.
    """
    shifts: list[ClockShift] = []
    is_shown = clock.method != "meta_timestamp"
    known = {0: 0.0} if is_shown else {}
    lowest = 0.0
    slack_ms = SLACK_MS if is_shown else SLACK_MS + clock.uncertainty_ms
    told: list[Clock] = [clock] if is_shown else []
    ends = [*(step.from_ms for step in steps[1:]), float("inf")]
    last_ms = max(inputs.track.times[-1:].max(initial=0), inputs.keys.max(initial=0))
    highest = clock.event_time(float(video.times[-1])) - float(last_ms)
    highest += sum(step.gap_ms for step in steps[1:])
    for step, until in zip(steps, ends, strict=True):
        lowest -= step.gap_ms
        shift_ms = known.get(step.moved_ms)
        if shift_ms is None:
            own = inputs.between(step.from_ms, until)
            upper = max(lowest, min(highest, lowest + MOST_MS))
            bounds = (lowest - slack_ms, upper + slack_ms)
            found = _found(video, clock, scales, own, bounds)
            if found is not None:
                shift_ms = round(clock.origin_ms - found.origin_ms, 3)
                told.append(found)
        shifts.append(ClockShift(step.from_ms, NEVER_MS if shift_ms is None else shift_ms))
        if shift_ms is not None:
            known[step.moved_ms] = lowest = shift_ms
    if not is_shown and told:
        shifts.insert(0, ClockShift(0.0, -NEVER_MS))
        clock = replace(told[0], origin_ms=clock.origin_ms, documented_offset_ms=0.0)
    unsure_ms = max((one.uncertainty_ms for one in told), default=clock.uncertainty_ms)
    return replace(clock, shifts=tuple(shifts), uncertainty_ms=unsure_ms)


def _found(
    video: RecordedVideo,
    clock: Clock,
    scales: Sequence[float],
    own: InputTimes,
    bounds: tuple[float, float],
) -> Clock | None:
    """The clock that the pictures show for events that are later by a shift within the bounds."""
    low, high = bounds
    middle = (low + high) / 2
    reference = replace(clock, origin_ms=clock.origin_ms - middle)
    search_s = max(LEAST_MS, (high - low) / 2) / 1000
    for window in _windows(own):
        inputs = own.between(*window)
        times = (window[0] + low, window[1] + high)
        start, end = (clock.video_time(time) for time in times)
        changes = ChangeMap()
        for frame in video.frames([Span(max(start, float(video.times[0])), end)]):
            changes.add(frame)
        found = clock_from_pointer(changes, inputs.track, reference, scales, search_s)
        keys = (video.times, inputs.keys, reference, search_s)
        found = found or clock_from_keys(changes, *keys)
        if found is not None and low <= clock.origin_ms - found.origin_ms <= high:
            return found
    return None


def _windows(own: InputTimes) -> Iterator[tuple[float, float]]:
    """From when until before when there is most input; such windows do not overlap."""
    times = np.sort(np.concatenate([own.track.times, own.keys]))
    for _ in range(MAX_WINDOWS):
        counts = np.searchsorted(times, times + WINDOW_MS) - np.arange(len(times))
        if not len(counts) or counts.max() < MIN_INPUTS:
            return
        start = float(times[int(np.argmax(counts))])
        yield start, start + WINDOW_MS
        times = times[(times < start) | (times >= start + WINDOW_MS)]
