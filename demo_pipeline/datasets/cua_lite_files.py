"""Writes the folder of CUA-Lite datasets: images by content, and a Parquet file per split.

Belongs here: the layout. CUA-Lite has the splits train and validation; what must not be trained on
is a dataset of its own beside it, whose rows are its validation split.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.parquet import TableWriter
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cua_lite.models import LITE_ROOT
from demo_pipeline.formats.cua_lite.validator import LITE_SCHEMA

VARIANT = "demonstrations"
# Split → what is added to the dataset's name, and CUA-Lite's split.
_PLACES: Mapping[Split, tuple[str, str]] = {
    Split.TRAIN: ("", "train"),
    Split.VAL: ("", "validation"),
    Split.TEST: ("-test", "validation"),
    Split.HELD_OUT: ("-held-out", "validation"),
}
_ROWS_IN_MEMORY = 64


class CuaLiteFiles:
    """Writes rows of one platform and task type. The training file is written even when empty.

    Args:
        out: folder that gets `cua-lite/`; it is created.
        name: of the dataset.
        dims: platform and task type.
    """

    def __init__(self, out: Path, name: str, dims: tuple[str, str]) -> None:
        self._out, self._name, self._dims = out, name, dims
        self._stack = ExitStack()
        self._tables: dict[Split, TableWriter] = {}

    def __enter__(self) -> Self:
        self._open(Split.TRAIN)
        return self

    def _open(self, split: Split) -> None:
        added, folder = _PLACES[split]
        home = self._out / LITE_ROOT / f"{self._name}{added}"
        path = home.joinpath(*self._dims, folder, f"{VARIANT}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        table = TableWriter(path, LITE_SCHEMA, _ROWS_IN_MEMORY)
        self._tables[split] = self._stack.enter_context(table)

    def write(
        self,
        split: Split,
        images: Sequence[Path],
        messages: Sequence[Mapping[str, Any]],
        others: Mapping[str, Any],
    ) -> None:
        """Add a row.

        Args:
            split: ours.
            images: PNG files in the order of their indexes; they are linked, each content once.
            messages: the turns.
            others: what is known about the row: `id`, `resolution`, `os` and so on.
        """
        if split not in self._tables:
            self._open(split)
        metadata = {
            "metadata_kind": "cua",
            "dims": list(self._dims),
            "extra_tool_schemas": [],
            "valid_actions": None,
            "others": others,
        }
        row = {
            "images": [self._link(split, image) for image in images],
            "messages": replace_surrogates(json.dumps(messages, ensure_ascii=False)),
            "metadata": replace_surrogates(json.dumps(metadata, ensure_ascii=False)),
        }
        self._tables[split].append_row(row)

    def _link(self, split: Split, image: Path) -> str:
        digest = hashlib.sha256(image.read_bytes()).hexdigest()
        folder = f"{LITE_ROOT}/{self._name}{_PLACES[split][0]}/images/{digest[:2]}"
        path = self._out / folder / f"{digest}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(image, path)
        return f"{folder}/{path.name}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
