"""The Parquet schemas of the `events` stage, written down once, with units.

Belongs here: the columns of events.parquet, rejected.parquet and trees.parquet, the writer that
streams rows into them, and the one way to read a small table back. Not here: how a line is
understood (log.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

# Arrow's own allocators keep what was freed: 25 MB in a process that has made a recording's tables.
pa.set_memory_pool(pa.system_memory_pool())

_BATCH_CHARACTERS = 8 * 2**20  # raw payloads can be megabytes each


def described_schema(columns: Iterable[tuple[str, pa.DataType, bool, str]]) -> pa.Schema:
    """A schema from (name, type, nullable, meaning with its unit) of each column."""
    return pa.schema(
        [
            pa.field(name, kind, nullable=nullable, metadata={"description": text})
            for name, kind, nullable, text in columns
        ]
    )


EVENTS_SCHEMA = described_schema(
    [
        ("event_index", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("event", pa.string(), False, "the event's name as logged"),
        ("time_ms", pa.int64(), False, "epoch milliseconds, wall clock of the recorder"),
        ("x", pa.float64(), True, "screen pixels (points on macOS), origin of the main display"),
        ("y", pa.float64(), True, "screen pixels (points on macOS), origin of the main display"),
        ("button", pa.string(), True, "button name as logged"),
        ("delta", pa.float64(), True, "wheel, in the recorder's own unit and sign"),
        ("key", pa.string(), True, "key name as logged"),
        ("actual_char", pa.string(), True, "the character produced, where a recorder gives it"),
        ("payload", pa.string(), True, "raw JSON of `data` for events seed 000 does not list"),
    ]
)

REJECTED_SCHEMA = described_schema(
    [
        ("line", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("code", pa.string(), False, "stable name of the reason"),
        ("message", pa.string(), False, "what was wrong; never carries the line's text"),
    ]
)

SCANS_SCHEMA = described_schema(
    [
        ("event_index", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("time_ms", pa.int64(), False, "when the scan began, epoch milliseconds"),
        ("duration_ms", pa.int64(), True, "how long the scan took, milliseconds"),
    ]
)


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """One Parquet file.

    Args:
        path: the file.
        schema: what the table shall have: a column that the file lacks is null, one that the schema
            lacks is left out, other types are cast. None: as written.
        columns: names, all of them when None.

    Raises:
        pa.ArrowInvalid: the file is no Parquet, or a value has no place in the schema's type.
        OSError: the file is missing or cannot be read.
    """
    # `pq.read_table` plans for many files and threads: its imports alone take 0.3 s of a process.
    with pq.ParquetFile(path) as file:
        known = file.schema_arrow if schema is None else schema
        wanted = [field for field in known if columns is None or field.name in columns]
        here = set(file.schema_arrow.names)
        names = [field.name for field in wanted if field.name in here]
        table = file.read(columns=names, use_threads=False)
    arrays = [
        table[field.name].cast(field.type)
        if field.name in here
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(wanted))


class TableWriter:
    """Streams rows into one Parquet file in batches; a file left by an error is removed."""

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
    """What each column means, for people and for the UI's table schema."""
    return {field.name: field.metadata[b"description"].decode() for field in schema}
