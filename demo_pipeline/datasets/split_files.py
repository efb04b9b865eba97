"""The files of a training export: a line and a row a sample, together and by split.

Belongs here: opening, filling and closing them. What a sample says is the export's business.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.datasets.splits import Split

ALWAYS_WRITTEN = (Split.TRAIN, Split.VAL, Split.TEST)
_ROWS_IN_MEMORY = 512


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A record as `SplitFiles` writes it.

    Attributes:
        line: for the JSON Lines.
        row: for the tables.
        prompt: what is asked about the picture.
        screenshot: the picture, a file of the trajectory.
    """

    line: Mapping[str, Any]
    row: Mapping[str, Any]
    prompt: str
    screenshot: Path


def replace_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, which no trainer's reader takes, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


class SplitFiles:
    """Writes `<split>.jsonl` and `<split>.parquet`, and the same for all splits together.

    Train, val and test are written even when empty; held_out only when it has a sample. When the
    body raises, no Parquet file is left: the writer would end a partial one properly.

    Args:
        out: folder to write into; it is made.
        schema: of the Parquet files.
        whole: stem of the files that hold every split; empty for none.
    """

    def __init__(self, out: Path, schema: pa.Schema, whole: str = "") -> None:
        self._out, self._schema, self._whole = out, schema, whole
        self._stack = ExitStack()
        self._tables: dict[str, _Table] = {}
        self._lines: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        for stem in (*ALWAYS_WRITTEN, *([self._whole] if self._whole else [])):
            self._open(stem)
        return self

    def _open(self, stem: str) -> None:
        path = self._out / f"{stem}.jsonl"
        file = path.open("w", encoding="utf-8", errors="replace", newline="\n")
        self._lines[stem] = self._stack.enter_context(file)
        self._tables[stem] = _Table(self._out / f"{stem}.parquet", self._schema)

    def write(self, split: Split, line: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Add one sample: `line` to the JSON Lines, `row` to the tables."""
        if split not in self._tables:
            self._open(split)
        text = json.dumps(line, ensure_ascii=False) + "\n"
        for stem in (split, *([self._whole] if self._whole else [])):
            self._lines[stem].write(text)
            self._tables[stem].add(row)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        for table in self._tables.values():
            table.close(keep=kind is None)


class _Table:
    """One Parquet file, written some rows at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._rows: list[Mapping[str, Any]] = []
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=3)

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _ROWS_IN_MEMORY:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def close(self, *, keep: bool) -> None:
        if keep:
            self._flush()
        self._writer.close()
        if not keep:
            self._path.unlink(missing_ok=True)
