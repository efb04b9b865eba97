"""The rows and Parquet schemas of the `events` stage, and how Parquet tables are read and written.

A column of events.parquet, rejected.parquet or trees.parquet is declared once, as an annotated
field of `Event` or `Rejected`. How a line of the log is parsed is in input_log.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, TracebackType
from typing import Annotated, Any, Self, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

# Arrow's own allocators keep freed memory: 25 MB after writing one recording's tables.
pa.set_memory_pool(pa.system_memory_pool())

_BATCH_CHARACTERS = 8 * 2**20  # raw payloads can be megabytes each
_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_POSITION = "screen pixels (points on macOS), origin of the main display"


def described_schema(columns: Iterable[tuple[str, pa.DataType, bool, str]]) -> pa.Schema:
    """A schema from (name, type, nullable, description with unit) of each column."""
    return pa.schema(
        [
            pa.field(name, kind, nullable=nullable, metadata={"description": text})
            for name, kind, nullable, text in columns
        ]
    )


class Event(msgspec.Struct, frozen=True, gc=False):
    """One accepted line of the input log; `EVENTS_SCHEMA` and `SCANS_SCHEMA` derive from it."""

    event_index: Annotated[int, Meta(description="1-based line number in input_log.jsonl")]
    byte_offset: Annotated[int, Meta(description="of the line's first byte in the file")]
    byte_length: Annotated[int, Meta(description="of the line without its line end")]
    event: Annotated[str, Meta(description="the event's name as logged")]
    time_ms: Annotated[int, Meta(description="epoch milliseconds by the recorder's clock")]
    x: Annotated[float | None, Meta(description=_POSITION)] = None
    y: Annotated[float | None, Meta(description=_POSITION)] = None
    button: Annotated[str | None, Meta(description="button name as logged")] = None
    delta: Annotated[float | None, Meta(description="of the wheel, unit and sign as logged")] = None
    key: Annotated[str | None, Meta(description="key name as logged")] = None
    actual_char: Annotated[str | None, Meta(description="the character that was typed")] = None
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


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read one Parquet file.

    Args:
        path: the file.
        schema: the schema of the result: a column that the file lacks is filled with nulls, a
            column that the schema lacks is left out, other types are cast. None: as in the file.
        columns: names of the columns to read; None: all.

    Raises:
        pa.ArrowInvalid: the file is not valid Parquet, or a value does not fit the schema's type.
        OSError: the file is missing or cannot be read.
    """
    # `pq.read_table` plans for many files and threads: importing that alone takes 0.3 s.
    with pq.ParquetFile(path) as file:
        target = file.schema_arrow if schema is None else schema
        fields = [field for field in target if columns is None or field.name in columns]
        in_file = set(file.schema_arrow.names)
        names = [field.name for field in fields if field.name in in_file]
        table = file.read(columns=names, use_threads=False)
    arrays = [
        table[field.name].cast(field.type)
        if field.name in in_file
        else pa.nulls(table.num_rows, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


class TableWriter:
    """Streams rows into one Parquet file in batches; removes the file after an error."""

    def __init__(self, path: Path, schema: pa.Schema, batch_rows: int = 32_768) -> None:
        self._path = path
        self._schema = schema
        self._batch_rows = batch_rows
        self._columns: list[list[Any]] = [[] for _ in schema.names]
        self._characters = 0
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=3)
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row, its values in schema order."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
            if isinstance(value, str):
                self._characters += len(value)
        self.rows += 1
        if len(self._columns[0]) >= self._batch_rows or self._characters >= _BATCH_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        if not self._columns[0]:
            return
        arrays = [
            pa.array(values, type=field.type)
            for values, field in zip(self._columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._columns = [[] for _ in self._columns]
        self._characters = 0


def column_descriptions(schema: pa.Schema) -> Mapping[str, str]:
    """Column name → description, as declared in the schema."""
    return {field.name: field.metadata[b"description"].decode() for field in schema}
