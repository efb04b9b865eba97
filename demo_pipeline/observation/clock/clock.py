"""The clock: which video time an event belongs to, and how uncertain that is.

Belongs here: the clock itself, and the two sources that need no pictures: `meta.timestamp` and the
start time that ffmpeg logged. Raw times are never rewritten; a `Clock` maps them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat

_FFMPEG_START = re.compile(r"start:\s*(\d{10,}(?:\.\d+)?)")

EARLIEST_START_S = 1e9  # epoch seconds, 2001; smaller numbers are not dates
LATEST_START_S = 32_503_680_000.0  # epoch seconds, the year 3000; larger numbers are not dates

META_UNCERTAINTY_MS = 2500.0  # real recorders start the video up to this long after the timestamp
FFMPEG_UNCERTAINTY_MS = 20.0  # between ffmpeg's own time and the first frame

DECIMALS = 6  # of seconds and of epoch milliseconds that are written: microseconds and below

ClockMethod = Literal[
    "ffmpeg_start", "pixels", "typing", "inputs", "click_onsets", "meta_timestamp"
]


# A shift to before or after every film: when the events were is not known.
NEVER_MS = 24 * 3600 * 1000.0


class ClockShift(NamedTuple):
    """Where the recorder's clock was set: event times from `from_ms` on are later by `shift_ms`."""

    from_ms: float
    shift_ms: float

    @property
    def is_known(self) -> bool:
        """Whether the film told by how much."""
        return abs(self.shift_ms) < NEVER_MS


_BEFORE_MS = 0.5  # event times are whole milliseconds


@dataclass(frozen=True)
class Clock:
    """video seconds = (event milliseconds + shift - origin_ms) / 1000 * rate.

    Attributes:
        origin_ms: epoch milliseconds of video time 0.
        method: what it was found by.
        uncertainty_ms: half width of the interval that contains the true origin.
        documented_offset_ms: origin_ms - meta.timestamp.
        score: share of pointer moves that the pictures confirm; None without picture evidence.
        moves: number of pointer moves that the score is of.
        event_scale: video pixels for one unit of event space, confirmed by the same evidence.
        rate: video seconds in a second of the log's clock.
        shifts: in time order; none where the recorder's clock was not set.
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
        """Video time in seconds of an event time in epoch milliseconds."""
        return (self.elapsed_ms(event_ms) - self.origin_ms) / 1000 * self.rate

    def elapsed_ms(self, event_ms: float) -> float:
        """An event time as by a clock that was not set, epoch milliseconds."""
        shift_ms = 0.0
        for shift in self.shifts:
            shift_ms = shift.shift_ms if event_ms >= shift.from_ms else shift_ms
        return event_ms + shift_ms

    def is_known(self, event_ms: float) -> bool:
        """Whether it is known when an event was: not beside a step of which no picture tells."""
        return abs(self.elapsed_ms(event_ms) - event_ms) < NEVER_MS

    def event_time(self, video_s: float) -> float:
        """Event time in epoch milliseconds of a video time in seconds.

        Between the events before a shift and those after it, just before the latter.
        """
        event_ms = video_s * 1000 / self.rate + self.origin_ms
        before_ms = float("inf")
        for shift in reversed(self.shifts):
            if event_ms >= shift.from_ms + shift.shift_ms:
                return min(event_ms - shift.shift_ms, before_ms)
            before_ms = shift.from_ms - _BEFORE_MS
        return min(event_ms, before_ms)

    def rounded(self) -> "Clock":
        """With times as they are written."""
        times = (round(time, DECIMALS) for time in (self.origin_ms, self.documented_offset_ms))
        origin_ms, offset_ms = times
        return replace(self, origin_ms=origin_ms, documented_offset_ms=offset_ms)


def documented_clock(timestamp_ms: float) -> Clock:
    """The clock whose origin is meta.timestamp, as Training Gym recordings document it."""
    return Clock(timestamp_ms, "meta_timestamp", META_UNCERTAINTY_MS)


def ffmpeg_clock(lines: Iterable[str], timestamp_ms: float, first_s: float = 0.0) -> Clock | None:
    """The clock from the start time that ffmpeg printed into the log; None when it did not.

    Args:
        lines: what ffmpeg printed.
        timestamp_ms: meta.timestamp, epoch milliseconds.
        first_s: video time of the first frame, which the start time is of.
    """
    for line in lines:
        match = _FFMPEG_START.search(line)
        if match and EARLIEST_START_S < float(match.group(1)) < LATEST_START_S:
            origin = (float(match.group(1)) - first_s) * 1000
            return Clock(origin, "ffmpeg_start", FFMPEG_UNCERTAINTY_MS, origin - timestamp_ms)
    return None
