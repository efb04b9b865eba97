"""Converts times of the log to times of the video, and says how uncertain the conversion is.

Events keep the times that the recorder wrote. This module also creates the two clocks that need no
decoded frame: from `meta.timestamp`, and from the start time that ffmpeg printed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat

_FFMPEG_START = re.compile(r"start:\s*(\d{10,}(?:\.\d+)?)")

EARLIEST_START_S = 1e9  # epoch seconds, 2001; smaller numbers are not dates
LATEST_START_S = 32_503_680_000.0  # epoch seconds, the year 3000; larger numbers are not dates

META_UNCERTAINTY_MS = 2500.0  # real recorders start the video up to 2.5 s after meta.timestamp
FFMPEG_UNCERTAINTY_MS = 20.0  # maximum time from ffmpeg's printed start to the first frame

DECIMALS = 6  # decimal places of seconds and of epoch milliseconds in written files

ClockMethod = Literal[
    "ffmpeg_start", "pixels", "typing", "inputs", "click_onsets", "meta_timestamp"
]


# Milliseconds. A shift of a day or more stands for an unknown shift. It moves the events to times
# that no video contains.
NEVER_MS = 24 * 3600 * 1000.0


class ClockShift(NamedTuple):
    """The correction of event times after somebody set the recorder's clock.

    Attributes:
        from_ms: the first event time that is corrected, epoch milliseconds. The correction holds
            until the next shift.
        shift_ms: milliseconds added to event times to undo the change of the clock.
    """

    from_ms: float
    shift_ms: float

    @property
    def is_known(self) -> bool:
        """Whether the size of the shift is known."""
        return abs(self.shift_ms) < NEVER_MS


# A shift can leave a gap in the video times of events. Times in the gap are converted to 0.5 ms
# before the shift. No event has this time, because event times are whole milliseconds.
_BEFORE_MS = 0.5


@dataclass(frozen=True)
class Clock:
    """Converts event times to video times and back.

    video seconds = (event milliseconds + shift - origin_ms) / 1000 * rate

    Attributes:
        origin_ms: event time at second 0 of the video, epoch milliseconds.
        method: the kind of evidence that shows the clock.
        uncertainty_ms: largest possible error of `origin_ms`.
        documented_offset_ms: origin_ms - meta.timestamp.
        score: share of the pointer's moves that the frames confirm. For the method `click_onsets`,
            share of the presses with a reaction. None if neither was measured.
        moves: number of pointer moves, keys, inputs or presses (depending on the method) that were
            compared with the video.
        event_scale: video pixels per unit of event space, confirmed by the same evidence.
        rate: video seconds per second of the log; 1.0 without drift.
        shifts: corrections of event times, in time order; empty if nobody set the recorder's clock.
    """

    origin_ms: float
    method: ClockMethod
    uncertainty_ms: NonNegativeFloat
    documented_offset_ms: float = 0.0
    score: float | None = None
    moves: int = 0
    event_scale: float = 1.0
    rate: float = 1.0
    shifts: tuple[ClockShift, ...] = ()

    def video_time(self, event_ms: float) -> float:
        """Converts an event time (epoch milliseconds) to a video time (seconds)."""
        return (self.elapsed_ms(event_ms) - self.origin_ms) / 1000 * self.rate

    def elapsed_ms(self, event_ms: float) -> float:
        """Returns the event time corrected by the shift that holds then, epoch milliseconds."""
        shift_ms = 0.0
        for shift in self.shifts:
            if event_ms >= shift.from_ms:
                shift_ms = shift.shift_ms
        return event_ms + shift_ms

    def is_known(self, event_ms: float) -> bool:
        """Whether the video time of an event time is known; false while an unknown shift holds."""
        return abs(self.elapsed_ms(event_ms) - event_ms) < NEVER_MS

    def event_time(self, video_s: float) -> float:
        """Converts a video time (seconds) to an event time (epoch milliseconds).

        A shift can leave a gap in the video times of events. Times in the gap are converted to the
        event time just before the shift.
        """
        event_ms = video_s * 1000 / self.rate + self.origin_ms
        before_ms = float("inf")
        for shift in reversed(self.shifts):
            if event_ms >= shift.from_ms + shift.shift_ms:
                return min(event_ms - shift.shift_ms, before_ms)
            before_ms = shift.from_ms - _BEFORE_MS
        return min(event_ms, before_ms)

    def rounded(self) -> "Clock":
        """Returns the clock with its times rounded to the decimal places of written files."""
        return replace(
            self,
            origin_ms=round(self.origin_ms, DECIMALS),
            documented_offset_ms=round(self.documented_offset_ms, DECIMALS),
        )


def documented_clock(timestamp_ms: float) -> Clock:
    """Returns the clock of a video that starts at meta.timestamp, as Training Gym documents.

    `timestamp_ms` is meta.timestamp in epoch milliseconds.
    """
    return Clock(timestamp_ms, "meta_timestamp", META_UNCERTAINTY_MS)


def ffmpeg_clock(lines: Iterable[str], timestamp_ms: float, first_s: float = 0.0) -> Clock | None:
    """Returns the clock from the start time that ffmpeg printed, or None if no line contains it.

    Args:
        lines: the lines that ffmpeg printed and the recorder logged.
        timestamp_ms: meta.timestamp, epoch milliseconds.
        first_s: video time of the first frame, seconds. ffmpeg prints the capture time of this
            frame.
    """
    for line in lines:
        match = _FFMPEG_START.search(line)
        if match and EARLIEST_START_S < float(match.group(1)) < LATEST_START_S:
            origin = (float(match.group(1)) - first_s) * 1000
            return Clock(origin, "ffmpeg_start", FFMPEG_UNCERTAINTY_MS, origin - timestamp_ms)
    return None
