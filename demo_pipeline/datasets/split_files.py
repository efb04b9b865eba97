"""The files of a training export: a line and a row a sample, together and by split.

Belongs here: opening, filling and closing them. What a sample says is the export's business.
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa

from demo_pipeline.common.parquet import TableWriter
from demo_pipeline.datasets.splits import Split

ALWAYS = (Split.TRAIN, Split.VAL, Split.TEST)
_ROWS_IN_MEMORY = 512


def plain(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, which no trainer's reader takes, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


class SplitFiles:
    """Writes `<split>.jsonl` and `<split>.parquet`, and the same for all splits together.

    Train, val and test are written even when empty; held_out only when it has a sample. When the
    body raises, no Parquet file is left.

    Args:
        out: folder to write into; it is made.
        schema: of the Parquet files.
        whole: stem of the files that hold every split; empty for none.

    Attributes:
        counts: samples by split.
    """

    def __init__(self, out: Path, schema: pa.Schema, whole: str = "") -> None:
        self.counts: Counter[Split] = Counter()
        self._out, self._schema, self._whole = out, schema, whole
        self._stack = ExitStack()
        self._tables: dict[str, TableWriter] = {}
        self._lines: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        for stem in (*ALWAYS, *([self._whole] if self._whole else [])):
            self._open(stem)
        return self

    def _open(self, stem: str) -> None:
        path = self._out / f"{stem}.jsonl"
        file = path.open("w", encoding="utf-8", errors="replace", newline="\n")
        self._lines[stem] = self._stack.enter_context(file)
        table = TableWriter(
            self._out / f"{stem}.parquet", self._schema, _ROWS_IN_MEMORY, batch_characters=None
        )
        self._tables[stem] = self._stack.enter_context(table)

    def write(self, split: Split, line: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Add one sample: `line` to the JSON Lines, `row` to the tables."""
        if split not in self._tables:
            self._open(split)
        text = json.dumps(line, ensure_ascii=False) + "\n"
        for stem in (split, *([self._whole] if self._whole else [])):
            self._lines[stem].write(text)
            self._tables[stem].append_row(row)
        self.counts[split] += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
