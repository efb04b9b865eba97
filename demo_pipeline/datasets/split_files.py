"""Writes and validates the files of a training export: JSON Lines and Parquet by split.

Belongs here: opening, filling and closing the files. What a record holds is decided by the
exporter.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa

from demo_pipeline.datasets.export_parts import (
    HeldRecords,
    Part,
    RecordSpan,
    Segment,
    linked_folders,
    make_links,
    pack_segments,
    unpack_segment,
)
from demo_pipeline.datasets.splits import Split
from demo_pipeline.files import json_files
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.parquet import TableWriter

ALWAYS_WRITTEN = (Split.TRAIN, Split.VAL, Split.TEST)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A record as `SplitFiles` writes it.

    Attributes:
        line: for the JSON Lines.
        row: for the tables.
        prompt: what is asked about the screenshot.
        screenshot: a file of the trajectory.
        files: path below the export's folder that the record names → file of the trajectory.
    """

    line: Mapping[str, Any]
    row: Mapping[str, Any]
    prompt: str
    screenshot: Path
    files: Mapping[str, Path]


def json_text(value: Any) -> str:
    """JSON on one line, of any depth: a tree inside a record can be deep."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return json_files.encode(value, lambda item: item, indent=None)


class SplitFiles:
    """Writes `<split>.jsonl` and `<split>.parquet`, and the same for all splits together.

    Train, val and test are written even when empty; held_out only when it has a record. When the
    body raises, no Parquet file is left.

    Args:
        out: folder to write into; it is created.
        schema: schema of the Parquet files.
        combined: stem of the files that hold all splits; empty for no such files.
        batch_characters: number of characters of text that end a row group; None: no limit.
        json_lines: whether the JSON Lines are written beside the tables.
        rows_in_memory: rows of a table that are held in memory and become a row group.
    """

    def __init__(
        self,
        out: Path,
        schema: pa.Schema,
        combined: str = "",
        *,
        batch_characters: int | None = None,
        json_lines: bool = True,
        rows_in_memory: int = 512,
    ) -> None:
        self._out, self._schema, self._combined = out, schema, combined
        self._batch_characters = batch_characters
        self._json_lines, self._rows_in_memory = json_lines, rows_in_memory
        self._stack = ExitStack()
        self._tables: dict[str, TableWriter] = {}
        self._lines: dict[str, BinaryIO] = {}
        self._held: HeldRecords | None = None
        self._made = ""  # the folder that was made last

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        for stem in (*ALWAYS_WRITTEN, *([self._combined] if self._combined else [])):
            self._open(stem)
        return self

    def _open(self, stem: str) -> None:
        if self._json_lines:
            path = self._out / f"{stem}.jsonl"
            self._lines[stem] = self._stack.enter_context(path.open("wb"))
        table = TableWriter(
            self._out / f"{stem}.parquet",
            self._schema,
            self._rows_in_memory,
            batch_characters=self._batch_characters,
        )
        self._tables[stem] = self._stack.enter_context(table)

    def write(self, split: Split, line: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Add a record: `line` to the JSON Lines, `row` to the tables."""
        text = json_text(line) + "\n" if self._json_lines else ""
        if self._held is not None:
            self._held.append(split.value, text.encode("utf-8", "replace"), row)
            return
        for stem in self._stems(split):
            if self._json_lines:
                self._lines[stem].write(text.encode("utf-8", "replace"))
            self._tables[stem].append_row(row)

    def _stems(self, split: str) -> tuple[str, ...]:
        """The files that a record of a split is written to."""
        if split not in self._tables:
            self._open(split)
        return (split, self._combined) if self._combined else (split,)

    def hold(self) -> None:
        """See `PartSink`."""
        self._held = HeldRecords(self._schema)

    def take(self, trajectory: str, folder: str) -> Segment:
        """See `PartSink`."""
        held, self._held = self._held or HeldRecords(self._schema), None
        return held.segment(trajectory, folder)

    def add(self, segment: Segment, folders: Mapping[str, str]) -> None:
        """See `PartSink`."""
        out = str(self._out)
        for stem, spans in self._spans(segment).items():
            if self._json_lines:
                for span in spans:
                    self._lines[stem].write(segment.lines[span.start : span.end])
            slices = [segment.rows.slice(span.row, span.records) for span in spans]
            rows = pa.concat_tables(slices).combine_chunks()
            if len(slices) == 1 and rows.num_rows < segment.rows.num_rows:
                # A slice keeps the memory of the whole part until its row group is full.
                rows = rows.take(pa.array(np.arange(rows.num_rows)))
            self._tables[stem].append_table(rows)
        for run in segment.runs:
            self._made = make_links(out, folders[run.trajectory], run.links, self._made)

    def _spans(self, segment: Segment) -> dict[str, list[RecordSpan]]:
        """The successive records of each file, in as few spans as there are."""
        spans: dict[str, list[RecordSpan]] = {}
        start = row = 0
        for run in segment.runs:
            for stem in self._stems(run.split):
                known = spans.setdefault(stem, [])
                if known and known[-1].end == start and known[-1].row + known[-1].records == row:
                    known[-1].end += run.size
                    known[-1].records += run.records
                else:
                    known.append(RecordSpan(start, start + run.size, row, run.records))
            start, row = start + run.size, row + run.records
        return spans

    def pack(self, segments: Sequence[Segment]) -> Part:
        """See `PartSink`."""
        return pack_segments(segments, self._schema)

    def unpack(self, part: Part) -> Segment:
        """See `PartSink`."""
        return unpack_segment(part)

    def linked(self, segment: Segment) -> Sequence[str]:
        """See `PartSink`."""
        return linked_folders(segment)

    def link_files(self, files: Mapping[str, Path]) -> None:
        """Make the files that a record names (`FileRecord.files`), each once, as hard links."""
        if self._held is not None:
            self._held.links[-1].update(files)
            return
        for name, source in files.items():
            path = self._out / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(source, path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
