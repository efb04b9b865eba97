"""The `events` stage: writes each line of the input log as an event or as a rejected line.

This module writes, checks and reads the four tables of the stage.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, starmap
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from demo_pipeline.files.parquet import (
    TableWriter,
    open_rows,
    read_rows,
    read_table,
    schema_problems,
    write_rows,
)
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.clock_steps import (
    BACK_MS,
    CLOCK_STEPS_FILE,
    CLOCK_STEPS_SCHEMA,
    ClockStep,
    clock_step_problems,
    find_clock_steps,
    moved_events,
    read_clock_steps,
)
from demo_pipeline.recording.input_log import (
    BUFFER_BYTES,
    BUTTON_EVENTS,
    DAY_MS,
    DOCUMENTED_EVENTS,
    EVENTS_SCHEMA,
    KEY_EVENTS,
    MILLISECONDS,
    MOUSEMOVE,
    MOUSEWHEEL,
    REJECTED_SCHEMA,
    SCANS_SCHEMA,
    Event,
    EventType,
    Rejected,
    TimeScale,
    find_time_scale,
    parse_log,
    public_event_name,
    time_unit_problems,
    unit_of_time,
)

EVENTS_FILE = "events.parquet"
REJECTED_FILE = "rejected.parquet"
SCANS_FILE = "trees.parquet"
EVENT_SCHEMAS = {
    EVENTS_FILE: EVENTS_SCHEMA,
    REJECTED_FILE: REJECTED_SCHEMA,
    SCANS_FILE: SCANS_SCHEMA,
    CLOCK_STEPS_FILE: CLOCK_STEPS_SCHEMA,
}
DEFECT_REMEDY = "this is a bug in the pipeline: report it with the id of the demonstration"
# Maximum number of rejected lines whose message is in the stage's summary.
_MAX_SUMMARY_MESSAGES = 5
_MAX_REPORTED_LINES = 100  # maximum number of rejected lines that get a problem or a debug message
# Maximum number of lines in a log. A 125 Hz mouse produces 2.7 million lines in 6 hours.
_MAX_LINES = 5_000_000
_LOG = logging.getLogger(__package__)
_event_row, _rejected_row, _scan_row = (
    attrgetter(*schema.names) for schema in (EVENTS_SCHEMA, REJECTED_SCHEMA, SCANS_SCHEMA)
)


def build_events(
    log: Path,
    out: Path,
    *,
    recorded_at: datetime | None = None,
    video_s: float | None = None,
) -> dict[str, Any]:
    """Converts an input log to the stage's four tables and returns the summary of the stage.

    Memory use does not grow with the length of the log, unless lines are far out of order.

    Args:
        recorded_at: meta.timestamp, or None if unknown. Needed for logs whose times count from the
            start of the recording.
        video_s: length of the video in seconds, or None if unknown. Needed, with `recorded_at`, to
            find whether the clock was set forward.

    Raises:
        DemonstrationError: the log has more than `_MAX_LINES` lines.
    """
    event_counts = Counter[str]()
    reasons = Counter[str]()
    messages = list[str]()
    scale = _time_scale(log, recorded_at)
    steps = _clock_steps(log, scale, recorded_at, video_s)
    write_rows(out / CLOCK_STEPS_FILE, [step._asdict() for step in steps], CLOCK_STEPS_SCHEMA)
    with (
        log.open("rb", buffering=BUFFER_BYTES) as stream,
        TableWriter(out / EVENTS_FILE, EVENTS_SCHEMA) as events,
        TableWriter(out / REJECTED_FILE, REJECTED_SCHEMA) as rejected,
        TableWriter(out / SCANS_FILE, SCANS_SCHEMA) as scans,
    ):
        for number, item in enumerate(moved_events(parse_log(stream, scale), steps), 1):
            if number > _MAX_LINES:
                raise too_many("lines", number, _MAX_LINES)
            if isinstance(item, Rejected):
                reasons[item.code] += 1
                if rejected.rows < _MAX_REPORTED_LINES:
                    _LOG.debug("line %d rejected: %s", item.line, item.code)
                if rejected.rows < _MAX_SUMMARY_MESSAGES:
                    messages.append(f"{LOG_FILE}:{item.line}: {item.message}")
                rejected.append(_rejected_row(item))
                continue
            event_counts[public_event_name(item.event)] += 1
            events.append(_event_row(item))
            if item.event == EventType.AXTREE:
                scans.append(_scan_row(item))
    return _times_summary(scale, steps) | {
        "lines": sum(event_counts.values()) + sum(reasons.values()),
        "events": sum(event_counts.values()),
        "rejected_lines": sum(reasons.values()),
        "rejected_by_reason": dict(sorted(reasons.items())),
        "first_rejected": messages,
        "by_event": dict(sorted(event_counts.items())),
    }


def _times_summary(scale: TimeScale, steps: Sequence[ClockStep]) -> dict[str, Any]:
    """Returns the part of the summary about the unit of the times and the recorder's clock."""
    return {
        "time_unit": scale.unit.name,
        "times_from": "meta.timestamp" if scale.origin_ms else "epoch",
        "clock_steps": len(steps),
        "warnings": list(map(str, [*time_unit_problems(scale), *clock_step_problems(steps)])),
    }


def _clock_steps(
    log: Path, scale: TimeScale, recorded_at: datetime | None, video_s: float | None
) -> list[ClockStep]:
    """Finds the clock steps of a log.

    The log is read again only if its times are out of order or outside the video.
    """
    video_ms = None
    if recorded_at is not None and video_s is not None:
        start = recorded_at.timestamp() * 1000
        video_ms = start, start + video_s * 1000
    if scale.back_ms <= BACK_MS and (video_ms is None or scale.last_ms <= video_ms[1]):
        return []
    with log.open("rb", buffering=BUFFER_BYTES) as stream:
        return find_clock_steps(parse_log(stream, scale), video_ms)


def check_clock_steps(folder: Path) -> list[Problem]:
    """Returns a problem for each clock step in the log."""
    return clock_step_problems(read_clock_steps(folder))


def check_time_unit(log: Path) -> list[Problem]:
    """Returns a problem if the times of a log are not in milliseconds."""
    return time_unit_problems(_time_scale(log))


def _time_scale(log: Path, recorded_at: datetime | None = None) -> TimeScale:
    with log.open("rb", buffering=BUFFER_BYTES) as stream:
        return find_time_scale(stream, recorded_at)


def too_many(what: str, line: int, limit: int) -> DemonstrationError:
    """Returns the error for a log that has too many lines or actions.

    Args:
        what: plural noun for the counted things, such as `lines`.
        line: 1-based number of the first line beyond the limit.
        limit: the largest accepted number.
    """
    return DemonstrationError(
        Problem(
            "log_too_long",
            LOG_FILE,
            f"has more than {limit} {what}",
            line=line,
            remedy="upload the demonstration in parts, or the log that the recorder wrote",
        )
    )


def read_events(folder: Path) -> pa.Table:
    """Reads events.parquet from the output of the `events` stage, in line order."""
    return read_table(folder / EVENTS_FILE, EVENTS_SCHEMA)


def event_rows(events: pa.Table) -> Iterator[Event]:
    """Yields the rows of an events table as events."""
    columns = (events[name].to_pylist() for name in EVENTS_SCHEMA.names)
    return starmap(Event, zip(*columns, strict=True))


def read_scans(folder: Path) -> list[dict[str, Any]]:
    """Reads trees.parquet: the line, the start and the duration of each scan in the log."""
    return read_rows(folder / SCANS_FILE, SCANS_SCHEMA)


def check_event_tables(folder: Path) -> list[Problem]:
    """Checks that the written tables have exactly the declared columns, types and nullability."""
    tables = EVENT_SCHEMAS.items()
    problems: list[Problem] = []
    for name, schema in tables:
        problems += schema_problems(folder / name, schema)
    return problems


def check_line_accounting(folder: Path, log: Path) -> list[Problem]:
    """Checks that every line of the log is exactly one event or one rejected line."""
    events = read_table(folder / EVENTS_FILE, columns=["event_index"])
    rejected = read_table(folder / REJECTED_FILE, columns=["line"])
    indexes = np.sort(np.concatenate([events[0].to_numpy(), rejected[0].to_numpy()]))
    lines = count_lines(log)
    if np.array_equal(indexes, np.arange(1, lines + 1)):
        return []
    message = f"{lines} lines, but {len(indexes)} rows ({len(np.unique(indexes))} distinct)"
    return [Problem("lines_unaccounted", LOG_FILE, message, remedy=DEFECT_REMEDY)]


def check_order(folder: Path) -> list[Problem]:
    """Checks that events and scans are in the order of the log, and that no line occurs twice."""
    problems = []
    for name in (EVENTS_FILE, SCANS_FILE):
        table = read_table(folder / name, columns=["event_index", "byte_offset"])
        for column in table.columns:
            if np.any(np.diff(column.to_numpy()) <= 0):
                message = "is not in the order of the log"
                problems.append(Problem("wrong_order", name, message, remedy=DEFECT_REMEDY))
    return problems


# Maps event types to the column that is never null in their rows.
_NEEDED_COLUMN = {
    MOUSEMOVE: "x",
    MOUSEWHEEL: "delta",
    **dict.fromkeys(BUTTON_EVENTS, "button"),
    **dict.fromkeys(KEY_EVENTS, "key"),
}


def check_event_values(folder: Path) -> list[Problem]:
    """Checks that events have the values that their types need, and that no time is an outlier.

    Only the first row with each kind of fault is reported.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - only for checks

    names = ["event_index", "event", "time_ms", "payload", *set(_NEEDED_COLUMN.values())]
    table = read_table(folder / EVENTS_FILE, columns=names)
    problems: list[Problem] = []

    def report(wrong: Any, message: str) -> None:
        row = pc.index(wrong, value=True).as_py()
        if row >= 0:
            line = table["event_index"][row].as_py()
            message = f"row {row + 1}, of line {line} of the log: {message}"
            problems.append(Problem("wrong_event", EVENTS_FILE, message, remedy=DEFECT_REMEDY))

    for kind, column in _NEEDED_COLUMN.items():
        wrong = pc.and_(pc.equal(table["event"], kind), pc.is_null(table[column]))
        report(wrong, f"{kind} without {column}")
    documented = pc.is_in(table["event"], value_set=pa.array(sorted(DOCUMENTED_EVENTS)))
    report(
        pc.xor(documented, pc.is_null(table["payload"])),
        "exactly the undocumented events have a payload",
    )
    times = table["time_ms"].to_numpy()
    median = 0.0
    if len(times):
        median = float(np.median(times))
    if unit_of_time(median) is MILLISECONDS and median >= DAY_MS:
        # A line is rejected if its time is more than a day from the median of the whole log. The
        # median of the accepted lines can be up to a day from that median. Therefore, this check
        # allows two days.
        far = np.abs(times - median) > 2 * DAY_MS
        report(pa.chunked_array([pa.array(far)]), "its time is days from the others")
    return problems


def count_lines(log: Path) -> int:
    """Counts the lines of a file, including a last line without a line end."""
    count = 0
    last = b"\n"
    with log.open("rb") as stream:
        while chunk := stream.read(2**20):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def require_events(summary: Mapping[str, Any]) -> list[Problem]:
    """Returns a problem if no line of the log could be read as an event."""
    if summary["events"]:
        return []
    first = summary["first_rejected"][0] if summary["first_rejected"] else f"{LOG_FILE}: is empty"
    message = f"no line could be read; the first problem: {first}"
    remedy = "upload the log again"
    return [Problem("no_events", LOG_FILE, message, line=1, byte=0, remedy=remedy)]


def check_recording_time(folder: Path, recorded_at: datetime) -> list[Problem]:
    """Returns a problem if the times of the log are a day or more away from `recorded_at`.

    `recorded_at` is meta.timestamp, and is compared with the median of the times.
    """
    events = read_table(folder / EVENTS_FILE, columns=["event_index", "time_ms"])
    if not events.num_rows:
        return []
    median = sorted(events["time_ms"].to_pylist())[events.num_rows // 2]
    if abs(median - recorded_at.timestamp() * 1000) < DAY_MS:
        return []
    middle = datetime.fromtimestamp(median / 1000, UTC)
    message = (
        f"time: the events are from {middle:%Y-%m-%d %H:%M} UTC (the median), but meta.timestamp "
        f"is {recorded_at:%Y-%m-%d %H:%M} UTC"
    )
    remedy = "upload the log and the meta.json of the same recording, or correct meta.timestamp"
    first = events["event_index"][0].as_py()
    return [Problem("log_not_of_this_recording", LOG_FILE, message, line=first, remedy=remedy)]


def rejected_lines(folder: Path) -> list[Problem]:
    """Returns a problem for each of the first `_MAX_REPORTED_LINES` rejected lines."""
    with open_rows(folder / REJECTED_FILE, _MAX_REPORTED_LINES) as (_, rejected):
        rows = list(islice(rejected, _MAX_REPORTED_LINES))
    remedy = "all other lines were read; upload an intact log to include this line"
    return [
        Problem(code, LOG_FILE, message, line=line, byte=byte, remedy=remedy)
        for line, byte, _, code, message in map(itemgetter(*REJECTED_SCHEMA.names), rows)
    ]
