"""Measures from the video by how much somebody set the recorder's clock forward or back.

A *step* is a place in the log at which the times jump. The order of the lines and the end of the
video limit how large the jump can be. Within these limits, the video is searched for the pointer's
moves and the typing after the step. If the video shows neither, the video times of later events
are unknown.
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

WINDOW_MS = 10_000.0  # length of a window of the log whose inputs are searched for in the video
MAX_WINDOWS = 3  # only the three windows with the most input are tried
MIN_INPUTS = 12  # minimum number of positions and keys in a window
MOST_MS = 60_000.0  # shifts up to one minute above the smallest possible shift are tried
LEAST_MS = 2_000.0  # minimum range of lags tried in each direction, so that one lag can stand out
# Shifts up to 50 ms beyond the limits are tried, because lines may be written late. The uncertainty
# of a clock that comes only from meta.json is added.
SLACK_MS = 50.0


@dataclass(frozen=True)
class InputTimes:
    """The inputs that the search for a clock compares with the video.

    Attributes:
        keys: press times from `typed_keys`, epoch milliseconds.
    """

    track: PointerPath
    keys: Floats

    def between(self, from_ms: float, until_ms: float) -> "InputTimes":
        """Returns the inputs from `from_ms` on and before `until_ms`."""
        inside = (self.track.times >= from_ms) & (self.track.times < until_ms)
        track = PointerPath(self.track.times[inside], self.track.x[inside], self.track.y[inside])
        return InputTimes(track, self.keys[(self.keys >= from_ms) & (self.keys < until_ms)])

    def shifted(self, shifts: Sequence[ClockShift]) -> "InputTimes":
        """Returns the inputs with their times corrected by `shifts`.

        Inputs whose shift is unknown are left out.
        """
        moved = _shifted(self.track.times, shifts)
        typed = _shifted(self.keys, shifts)
        is_known = np.isfinite(moved)
        track = PointerPath(moved[is_known], self.track.x[is_known], self.track.y[is_known])
        return InputTimes(track, typed[np.isfinite(typed)])


def _shifted(times: Floats, shifts: Sequence[ClockShift]) -> Floats:
    """Returns the times with their shifts added; infinite where the shift is unknown."""
    shifted = times.copy()
    for shift in shifts:
        shift_ms = shift.shift_ms if shift.is_known else np.inf
        shifted[times >= shift.from_ms] = times[times >= shift.from_ms] + shift_ms
    return shifted


def find_shifts(
    video: RecordedVideo,
    clock: Clock,
    scales: Sequence[float],
    steps: Sequence[ClockStep],
    inputs: InputTimes,
) -> Clock:
    """Returns the clock with a shift for each step.

    The result has the largest uncertainty of the clocks before and after the steps. If `clock`
    comes only from meta.json, its own uncertainty is used only if no later clock is found. A step
    back to an earlier offset reuses the shift that was measured for this offset.

    If `clock` comes only from meta.json, and the video shows the events after a step, these
    events define the clock. The video times of the events before the first step are then unknown.

    Args:
        clock: the clock for the events before the first step.
        steps: jumps of the recorder's clock, in time order.
    """
    shifts: list[ClockShift] = []
    is_proven = clock.method != "meta_timestamp"
    shift_by_offset = {0: 0.0} if is_proven else {}
    slack_ms = SLACK_MS if is_proven else SLACK_MS + clock.uncertainty_ms
    proven_clocks: list[Clock] = [clock] if is_proven else []
    ends = [*(step.from_ms for step in steps[1:]), float("inf")]
    # Limits of the next shift, milliseconds. Events after a clock step cannot be earlier than
    # the last line before the clock step, nor later than the end of the video.
    lowest = 0.0
    last_ms = max(inputs.track.times[-1:].max(initial=0), inputs.keys.max(initial=0))
    highest = clock.event_time(float(video.times[-1])) - float(last_ms)
    highest += sum(step.gap_ms for step in steps[1:])
    for step, until in zip(steps, ends, strict=True):
        lowest -= step.gap_ms
        shift_ms = shift_by_offset.get(step.moved_ms)
        if shift_ms is None:
            inputs_after = inputs.between(step.from_ms, until)
            upper = max(lowest, min(highest, lowest + MOST_MS))
            bounds = (lowest - slack_ms, upper + slack_ms)
            clock_after = _clock_within(bounds, video, clock, scales, inputs_after)
            if clock_after is not None:
                shift_ms = round(clock.origin_ms - clock_after.origin_ms, 3)
                proven_clocks.append(clock_after)
        if shift_ms is None:
            shifts.append(ClockShift(step.from_ms, NEVER_MS))
        else:
            shifts.append(ClockShift(step.from_ms, shift_ms))
            shift_by_offset[step.moved_ms] = shift_ms
            lowest = shift_ms
    if not is_proven and proven_clocks:
        shifts.insert(0, ClockShift(0.0, -NEVER_MS))
        clock = replace(proven_clocks[0], origin_ms=clock.origin_ms, documented_offset_ms=0.0)
    uncertainty_ms = max(
        (proven.uncertainty_ms for proven in proven_clocks), default=clock.uncertainty_ms
    )
    return replace(clock, shifts=tuple(shifts), uncertainty_ms=uncertainty_ms)


def _clock_within(
    bounds: tuple[float, float],
    video: RecordedVideo,
    clock: Clock,
    scales: Sequence[float],
    inputs: InputTimes,
) -> Clock | None:
    """Returns the clock estimated from the video for these inputs; None without enough evidence.

    `bounds` are the smallest and the largest possible shift of these inputs relative to `clock`,
    milliseconds.
    """
    low, high = bounds
    middle = (low + high) / 2
    reference = replace(clock, origin_ms=clock.origin_ms - middle)
    search_s = max(LEAST_MS, (high - low) / 2) / 1000
    for from_ms, until_ms in _windows(inputs):
        window = inputs.between(from_ms, until_ms)
        start = max(clock.video_time(from_ms + low), float(video.times[0]))
        end = clock.video_time(until_ms + high)
        changes = ChangeMap()
        for frame in video.frames([Span(start, end)]):
            changes.add(frame)
        shifted = clock_from_pointer(changes, window.track, reference, scales, search_s)
        if shifted is None:
            shifted = clock_from_keys(changes, video.times, window.keys, reference, search_s)
        if shifted is not None and low <= clock.origin_ms - shifted.origin_ms <= high:
            return shifted
    return None


def _windows(inputs: InputTimes) -> Iterator[tuple[float, float]]:
    """Yields start and end (epoch milliseconds) of the windows with the most input.

    Each input counts in only one window.
    """
    times = np.sort(np.concatenate([inputs.track.times, inputs.keys]))
    for _ in range(MAX_WINDOWS):
        counts = np.searchsorted(times, times + WINDOW_MS) - np.arange(len(times))
        if not len(counts) or counts.max() < MIN_INPUTS:
            return
        start = float(times[int(np.argmax(counts))])
        yield start, start + WINDOW_MS
        times = times[(times < start) | (times >= start + WINDOW_MS)]
