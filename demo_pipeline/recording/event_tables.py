"""The rows and Parquet schemas of the `events` stage.

A column of events.parquet, rejected.parquet or trees.parquet is declared once, as an annotated
field of `Event` or `Rejected`. How a line of the log is parsed is in input_log.py.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Annotated, get_args, get_type_hints

import msgspec
import pyarrow as pa
from msgspec import Meta

from demo_pipeline.common.parquet import described_schema

_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_POSITION = "screen pixels (points on macOS), origin of the main display"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One accepted line of the input log; `EVENTS_SCHEMA` and `SCANS_SCHEMA` derive from it."""

    event_index: Annotated[int, Meta(description="1-based line number in input_log.jsonl")]
    byte_offset: Annotated[int, Meta(description="of the line's first byte in the file")]
    byte_length: Annotated[int, Meta(description="of the line without its line end")]
    event: Annotated[str, Meta(description="the event's name as logged")]
    time_ms: Annotated[int, Meta(description="epoch milliseconds by the recorder's clock")]
    x: Annotated[float | None, Meta(description=_POSITION)] = None
    y: Annotated[float | None, Meta(description=_POSITION)] = None
    raw_x: Annotated[float | None, Meta(description="where x was cut to the main display")] = None
    raw_y: Annotated[float | None, Meta(description="where y was cut to the main display")] = None
    button: Annotated[str | None, Meta(description="button name as logged")] = None
    delta: Annotated[float | None, Meta(description="of the wheel, unit and sign as logged")] = None
    key: Annotated[str | None, Meta(description="key name as logged")] = None
    actual_char: Annotated[str | None, Meta(description="typed character, in any logged form")] = (
        None
    )
    payload: Annotated[str | None, Meta(description="raw JSON of an undocumented event's data")] = (
        None
    )
    duration_ms: Annotated[int | None, Meta(description="of a scan, milliseconds")] = None


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """One line that could not be read; `REJECTED_SCHEMA` derives from it."""

    line: Annotated[int, Meta(description="1-based line number in input_log.jsonl")]
    byte_offset: Annotated[int, Meta(description="of the line's first byte in the file")]
    byte_length: Annotated[int, Meta(description="of the line without its line end")]
    code: Annotated[str, Meta(description="stable name of the reason")]
    message: Annotated[str, Meta(description="what is wrong; never quotes the line")]


def _schema_of(row: type[msgspec.Struct], columns: Sequence[str]) -> pa.Schema:
    """The schema of a table with these fields of `row` as columns."""
    annotations = get_type_hints(row, include_extras=True)
    described = []
    for name in columns:
        kind, meta = get_args(annotations[name])
        types = set(get_args(kind) or (kind,))
        nullable = NoneType in types
        [plain] = types - {NoneType}
        described.append((name, _ARROW_TYPES[plain], nullable, meta.description))
    return described_schema(described)


EVENTS_SCHEMA = _schema_of(Event, [n for n in Event.__struct_fields__ if n != "duration_ms"])
SCANS_SCHEMA = _schema_of(
    Event, ("event_index", "byte_offset", "byte_length", "time_ms", "duration_ms")
)
REJECTED_SCHEMA = _schema_of(Rejected, Rejected.__struct_fields__)
