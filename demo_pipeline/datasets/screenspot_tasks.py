"""Writes the task files of a grounding export in the form of ScreenSpot-Pro.

Belongs here: a JSON list per split, written entry by entry.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TextIO

from demo_pipeline.datasets.split_files import ALWAYS_WRITTEN
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.grounding.models import SCREENSPOT_FOLDER, ScreenSpotEntry

_WORDS = frozenset(
    {
        *("label", "menuitem", "menu", "link", "tab", "listitem", "treeitem", "tablecell"),
        *("checkbox", "radiobutton"),
    }
)
_PICTURES = frozenset({"icon", "image"})


class ScreenSpotFiles:
    """Writes `screenspot/<split>.json`; those of train, val and test also when they are empty."""

    def __init__(self, out: Path) -> None:
        self._folder = out / SCREENSPOT_FOLDER
        self._stack = ExitStack()
        self._files: dict[str, TextIO] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for split in ALWAYS_WRITTEN:
            self._open(split)
        return self

    def _open(self, split: Split) -> None:
        path = self._folder / f"{split.value}.json"
        file = path.open("w", encoding="utf-8", newline="\n")
        self._files[split] = self._stack.enter_context(file)
        self._counts[split] = 0

    def write(self, split: Split, row: Mapping[str, Any]) -> None:
        """Add a row of the grounding export."""
        if split not in self._files:
            self._open(split)
        entry = screenspot_entry(row).model_dump(mode="json")
        self._files[split].write(",\n" if self._counts[split] else "[\n")
        self._files[split].write(json.dumps(entry, ensure_ascii=False))
        self._counts[split] += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            for split, file in self._files.items():
                file.write("\n]\n" if self._counts[split] else "[]\n")


def screenspot_entry(row: Mapping[str, Any]) -> ScreenSpotEntry:
    """A row of the grounding export as an entry; pictures are named below the export's folder."""
    return ScreenSpotEntry(
        id=row["id"],
        img_filename=row["image"],
        img_size=row["image_size"],
        bbox=row["box"],
        instruction=row["text"],
        platform=row["platform"],
        application=row["application"],
        group=row["application"],
        ui_type=_shown_as(row["role"]),
    )


def _shown_as(role: str) -> Literal["text", "icon", "unknown"]:
    """Whether an element shows its name; a button may show either."""
    if role in _WORDS:
        return "text"
    return "icon" if role in _PICTURES else "unknown"
