"""The `events` stage: every line of the input log as a row, or as a rejected line with its reason.

Belongs here: running the parser into Parquet, the stage's own check, and reading the tables back.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.problems import Problem
from demo_pipeline.recording.event_tables import (
    EVENTS_SCHEMA,
    LOG_FILE,
    REJECTED_SCHEMA,
    SCANS_SCHEMA,
    TableWriter,
    read_table,
)
from demo_pipeline.recording.input_log import TREE, Event, Rejected, parse_log
from demo_pipeline.recording.log_lines import BUFFER_BYTES
from demo_pipeline.settings import RecordingSettings

EVENTS_FILE = "events.parquet"
REJECTED_FILE = "rejected.parquet"
SCANS_FILE = "trees.parquet"
SCHEMAS = {EVENTS_FILE: EVENTS_SCHEMA, REJECTED_FILE: REJECTED_SCHEMA, SCANS_FILE: SCANS_SCHEMA}
_REPORTED = 5
_REPORTED_LINES = 100


def build_events(log: Path, out: Path, settings: RecordingSettings) -> dict[str, Any]:
    """Parse `log` into the three tables in `out`; memory does not grow with the log."""
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    reported: list[str] = []
    with (
        log.open("rb", buffering=BUFFER_BYTES) as stream,
        TableWriter(out / EVENTS_FILE, EVENTS_SCHEMA) as events,
        TableWriter(out / REJECTED_FILE, REJECTED_SCHEMA) as rejected,
        TableWriter(out / SCANS_FILE, SCANS_SCHEMA) as trees,
    ):
        for item in parse_log(stream, settings):
            if isinstance(item, Rejected):
                reasons[item.code] += 1
                if rejected.rows < _REPORTED:
                    reported.append(f"{LOG_FILE}:{item.line}: {item.message}")
                rejected.append((item.line, item.offset, item.length, item.code, item.message))
                continue
            kinds[item.event] += 1
            events.append(_event_row(item))
            if item.event == TREE:
                trees.append((item.index, item.offset, item.length, item.time_ms, item.duration_ms))
        lines = events.rows + rejected.rows
    return {
        "lines": lines,
        "events": sum(kinds.values()),
        "rejected_lines": sum(reasons.values()),
        "rejected_by_reason": dict(sorted(reasons.items())),
        "first_rejected": reported,
        "by_event": dict(sorted(kinds.items())),
    }


def _event_row(event: Event) -> tuple[Any, ...]:
    return (
        event.index,
        event.offset,
        event.length,
        event.event,
        event.time_ms,
        event.x,
        event.y,
        event.button,
        event.delta,
        event.key,
        event.actual_char,
        event.payload,
    )


def read_events(folder: Path) -> pa.Table:
    """events.parquet of a committed output, in line order."""
    return read_table(folder / EVENTS_FILE, EVENTS_SCHEMA)


def read_scans(folder: Path) -> list[dict[str, Any]]:
    """Rows of trees.parquet: where each scan lies in the log and when it ran."""
    rows: list[dict[str, Any]] = read_table(folder / SCANS_FILE, SCANS_SCHEMA).to_pylist()
    return rows


def check_event_tables(folder: Path) -> list[Problem]:
    """The written tables have exactly the columns, types and nullability of `tables.py`."""
    problems = []
    for name, schema in SCHEMAS.items():
        problems.extend(schema_problems(folder / name, schema))
    return problems


def schema_problems(path: Path, schema: pa.Schema) -> list[Problem]:
    """How a Parquet file's schema or nulls differ from the declared ones."""
    remedy = "this is a defect of the pipeline: report it with the demonstration"
    if not path.is_file():
        return [Problem("missing_table", path.name, "was not written", remedy=remedy)]
    table = read_table(path)
    problems = []
    if not table.schema.equals(schema, check_metadata=False):
        message = f"expected columns {schema.names}, found {table.schema.names} (or other types)"
        problems.append(Problem("wrong_schema", path.name, message, remedy=remedy))
        return problems
    for field in schema:
        nulls = table.column(field.name).null_count
        if nulls and not field.nullable:
            message = f"column {field.name}: {nulls} nulls where none may be"
            problems.append(Problem("null_values", path.name, message, remedy=remedy))
    return problems


def check_accounting(folder: Path, log: Path) -> list[Problem]:
    """Every line of the log is an event or a rejected line, exactly once."""
    events = read_table(folder / EVENTS_FILE, columns=["event_index"])
    rejected = read_table(folder / REJECTED_FILE, columns=["line"])
    indexes = events.column(0).to_pylist() + rejected.column(0).to_pylist()
    lines = count_lines(log)
    if sorted(indexes) == list(range(1, lines + 1)):
        return []
    message = f"{lines} lines, but {len(indexes)} rows ({len(set(indexes))} distinct)"
    remedy = "this is a defect of the pipeline: report it with the demonstration"
    return [Problem("lines_unaccounted", LOG_FILE, message, remedy=remedy)]


def count_lines(log: Path) -> int:
    """Lines of a file, a last one without a line end included."""
    count, last = 0, b"\n"
    with log.open("rb") as stream:
        while chunk := stream.read(2**20):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def require_input(summary: dict[str, Any], demonstration: str) -> list[Problem]:
    """A log without one usable event cannot become a demonstration."""
    if summary["events"]:
        return []
    first = summary["first_rejected"][0] if summary["first_rejected"] else f"{LOG_FILE}: is empty"
    message = f"no line could be read; the first: {first}"
    remedy = "upload the log again"
    return [
        Problem(
            "no_events",
            LOG_FILE,
            message,
            line=1,
            byte=0,
            remedy=remedy,
            demonstration=demonstration,
        )
    ]


def rejected_lines(folder: Path) -> list[Problem]:
    """One problem a rejected line, the first hundred."""
    rows = read_table(folder / REJECTED_FILE, REJECTED_SCHEMA).to_pylist()
    remedy = "the rest of the log was read; upload a whole log to get this line too"
    return [
        Problem(
            row["code"],
            LOG_FILE,
            row["message"],
            line=row["line"],
            byte=row["byte_offset"],
            remedy=remedy,
        )
        for row in rows[:_REPORTED_LINES]
    ]
