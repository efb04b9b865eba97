"""Parquet files that are filled one after the other, each up to a number of bytes.

Belongs here: rows with pictures in them, which neither fit into memory together nor into one file.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_ROWS = 64
_GROUP_BYTES = 32 * 2**20  # in memory; a reader that streams holds a row group too
_FOOTER_BYTES = 256 * 1024  # of a file with the row groups that fit into it
_OPTIONS = {"compression": "zstd", "compression_level": 3}


class ShardWriter:
    """Writes `<stem>-00000-of-00002.parquet`, …; nothing without a row.

    Args:
        folder: it exists.
        stem: of the names.
        schema: the columns.
        max_bytes: of a file; a single row that is larger gets a file of its own.

    Attributes:
        rows: number of rows.
    """

    def __init__(self, folder: Path, stem: str, schema: pa.Schema, max_bytes: int) -> None:
        self._folder, self._stem, self._schema, self._max = folder, stem, schema, max_bytes
        self._pending: list[Mapping[str, Any]] = []
        self._pending_bytes = 0
        self._drafts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row: column name → value."""
        size = _bytes_of(row)
        full = len(self._pending) >= _GROUP_ROWS
        if self._pending and (full or self._pending_bytes + size > min(_GROUP_BYTES, self._max)):
            self._flush()
        self._pending.append(row)
        self._pending_bytes += size
        self.rows += 1

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_pylist(self._pending, schema=self._schema)
        written = self._drafts[-1].stat().st_size if self._writer else 0
        if self._writer and written + self._pending_bytes + _FOOTER_BYTES > self._max:
            self._close()
        if self._writer is None:
            self._drafts.append(self._folder / f".{self._stem}-{len(self._drafts):05d}")
            strings = [field.name for field in self._schema if pa.types.is_string(field.type)]
            self._writer = pq.ParquetWriter(
                self._drafts[-1], self._schema, use_dictionary=strings, **_OPTIONS
            )
        self._writer.write_table(table)
        self._pending, self._pending_bytes = [], 0

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._close()
        if kind is None:
            for number, draft in enumerate(self._drafts):
                count = len(self._drafts)
                draft.rename(self._folder / f"{self._stem}-{number:05d}-of-{count:05d}.parquet")


def _bytes_of(value: Any) -> int:
    """About the bytes of a value, without compression."""
    if isinstance(value, Mapping):
        return sum(map(_bytes_of, value.values()))
    if isinstance(value, list):
        return sum(map(_bytes_of, value)) + 4
    return len(value) if isinstance(value, bytes | str) else 8
