"""The unit in which a log counts time, found by the magnitude of its times, and their median.

The documented unit is epoch milliseconds. Some recorders write seconds with a fraction,
microseconds or nanoseconds, and others milliseconds since the recording began. Belongs here: the
unit and the origin, conversion to epoch milliseconds, and which times are too far from the others
to be right.
"""

from array import array
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

import msgspec

from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.log_lines import split_lines
from demo_pipeline.settings import RecordingSettings

DAY_MS = 24 * 3600 * 1000  # recordings take minutes; clocks set to another zone differ by less
_FAR = 1e30  # an integer of hundreds of digits is no float
_MAX_TIMES = 2**16  # of which the median is taken; of a longer log, those of every n-th line


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time: its name, and how many milliseconds it has."""

    name: str
    milliseconds: float

    def to_ms(self, value: float) -> float:
        """A time in this unit as milliseconds, not rounded; far outside every range it is cut."""
        value = _cut(value)
        if self.milliseconds < 1:
            return value / round(1 / self.milliseconds)
        return value * self.milliseconds

    def duration_ms(self, value: float) -> float:
        """A duration as milliseconds. Less than one means that the log has it in milliseconds."""
        converted = self.to_ms(value)
        return value if 0 < converted < 1 <= value else converted


MILLISECONDS = TimeUnit("milliseconds", 1)
# In each unit the years 2014 to about 5000; no two of the ranges overlap. Any other time is read as
# milliseconds: the documentation's own examples have times of 1970 in that unit.
_EARLIEST_S, _LATEST_S = 1.4e9, 1e11
_EARLIEST_MS = _EARLIEST_S * 1000
_OTHER_UNITS = (
    TimeUnit("seconds", 1000),
    TimeUnit("microseconds", 1e-3),
    TimeUnit("nanoseconds", 1e-6),
)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """How a log counts time.

    Attributes:
        unit: of most of its lines.
        median_ms: of all its times, epoch milliseconds; None if it is before 2014, or not known.
            Most times of such a log are wrong, so that none can be told to be the damaged one.
        origin_ms: epoch milliseconds of time 0: of the recording's start where times count from
            there, else 0.
    """

    unit: TimeUnit = MILLISECONDS
    median_ms: float | None = None
    origin_ms: int = 0

    def to_epoch_ms(self, value: float) -> float:
        """A time of the log as epoch milliseconds, not rounded.

        Among times that count from the recording's start, a line may have epoch time.
        """
        milliseconds = self.unit.to_ms(value)
        return milliseconds + (self.origin_ms if milliseconds < _EARLIEST_MS else 0)

    def is_far(self, milliseconds: float) -> bool:
        """Whether a time is more than a day from the median: its line is damaged."""
        return self.median_ms is not None and abs(milliseconds - self.median_ms) > DAY_MS


class _Time(msgspec.Struct):
    time: int | float


_decode_time = msgspec.json.Decoder(_Time).decode


def _cut(value: float) -> float:
    return max(-_FAR, min(value, _FAR))


def unit_of_time(value: float) -> TimeUnit:
    """The unit in which `value` is a time since 2014; milliseconds if it is so in none."""
    for unit in _OTHER_UNITS:
        if _EARLIEST_S <= unit.to_ms(value) / 1000 < _LATEST_S:
            return unit
    return MILLISECONDS


def find_time_scale(
    stream: BinaryIO, settings: RecordingSettings, recorded_at: datetime | None = None
) -> TimeScale:
    """The unit of most lines of a log (with a tie, that of the earliest line), median and origin.

    Reads `stream` to its end. Lines without a readable time do not count. Times whose median is
    less than a day count from the recording's start: their size says so more surely than
    `timestamp_type` in input_log_meta.json, which uploaders add to older logs.

    Args:
        stream: of the log.
        settings: limits the length of a line.
        recorded_at: meta.timestamp; None: not known.
    """
    units: Counter[TimeUnit] = Counter()
    times, every, lines = array("d"), 1, 0
    for _, _, _, line in split_lines(stream, settings.max_line_bytes):
        try:
            value = None if line is None else _decode_time(line).time
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if value is None:
            continue
        if lines % every == 0:
            times.append(_cut(value))
        lines += 1
        if len(times) > _MAX_TIMES:
            times, every = times[::2], 2 * every
        if value > 0:
            units[unit_of_time(value)] += 1
    unit = units.most_common(1)[0][0] if units else MILLISECONDS
    median_ms = unit.to_ms(sorted(times)[len(times) // 2]) if times else 0
    origin_ms = 0
    if recorded_at is not None and unit == MILLISECONDS and median_ms < DAY_MS:
        origin_ms = round(recorded_at.timestamp() * 1000)
    median_ms += origin_ms
    return TimeScale(unit, median_ms if median_ms >= _EARLIEST_MS else None, origin_ms)


def time_unit_problems(unit: TimeUnit) -> list[Problem]:
    """A problem if a log does not count in milliseconds."""
    if unit == MILLISECONDS:
        return []
    message = f"time: most values are epoch {unit.name}, not milliseconds; all were converted"
    remedy = "write `time` in epoch milliseconds"
    return [Problem("time_unit", LOG_FILE, message, remedy=remedy)]
