"""Validating the index.json of an OSWorld-Desktopd dataset.

Belongs here: totals, duplicates, and agreement between index, folders and results.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from demo_pipeline.common.deep_json import Location, column_numbers, line_numbers
from demo_pipeline.common.json_files import JsonFileError, decode_text, read_bytes
from demo_pipeline.formats.base_model import line_of
from demo_pipeline.formats.desktopd.models import Index, IndexEntry
from demo_pipeline.formats.desktopd.reader import read_document
from demo_pipeline.problems import Problem, Severity

IndexFault = tuple[str, Location, str]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An `IndexEntry` without a fault, in a fifth of its memory."""

    id: _Text
    task_id: _Text
    success: bool
    steps: _Count
    application: _Text


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    """An `Index` without anything to report; `Index` accepts the same values."""

    version: Literal["1.0"]
    total_trajectories: _Count
    successful: _Count
    failed: _Count
    trajectories: list[_Entry]


_DECODER = msgspec.json.Decoder(_Index)


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """What an index must agree with; None for what is in a file that could not be read.

    Attributes:
        steps: number of step folders.
        task_id, application: of task.json.
        success: of result.json.
    """

    steps: int
    task_id: str | None = None
    application: str | None = None
    success: bool | None = None


def check_index(path: Path, summaries: Mapping[str, IndexCounts]) -> list[Problem]:
    """The problems of index.json, each with the line of its entry.

    Args:
        path: the file.
        summaries: folder name → content of each trajectory folder.
    """
    index, problems = _read(path)
    if index is None:
        return problems
    faults = [*_counts(index), *_against_folders(index, summaries)]
    # Only for faults: the lines of many thousand entries need much memory.
    text = decode_text(read_bytes(path, "index.json"), "index.json") if faults else "{}"
    lines, columns = line_numbers(text), column_numbers(text)
    problems += [
        Problem(
            code,
            "index.json",
            message,
            line_of(lines, where),
            remedy="build the index again",
            column=line_of(columns, where),
        )
        for code, where, message in faults
    ]
    if isinstance(index, _Index):
        return problems
    if "version" not in index.model_fields_set:
        message = 'version: is missing; "1.0" is assumed'
        problems.append(Problem("missing_field", "index.json", message, severity=Severity.WARNING))
    if index.version != "1.0":
        message = "version: only 1.0 is supported"
        problems.append(Problem("version", "index.json", message, severity=Severity.WARNING))
    return problems


def _read(path: Path) -> tuple[_Index | Index | None, list[Problem]]:
    """The index, with warnings; or None with the errors."""
    try:
        return _DECODER.decode(read_bytes(path, "index.json")), []
    except (JsonFileError, msgspec.DecodeError, UnicodeDecodeError):  # the models say what is wrong
        return read_document(Index, path, "index.json")


def _counts(index: _Index | Index) -> Iterator[IndexFault]:
    successful = sum(entry.success for entry in index.trajectories)
    entries = len(index.trajectories)
    actual = {
        "total_trajectories": entries,
        "successful": successful,
        "failed": entries - successful,
    }
    for key, count in actual.items():
        stated = getattr(index, key)
        if stated != count:
            yield "index_count", (key,), f"{key}: {stated}, but the entries give {count}"


def _against_folders(
    index: _Index | Index, summaries: Mapping[str, IndexCounts]
) -> Iterator[IndexFault]:
    entries: Sequence[_Entry | IndexEntry] = index.trajectories
    times = Counter(entry.id for entry in entries)
    for number, entry in enumerate(entries):
        where: Location = ("trajectories", number)
        if times[entry.id] > 1:
            yield (
                "index_duplicate",
                (*where, "id"),
                f"{entry.id!r} is listed {times[entry.id]} times",
            )
        if entry.id not in summaries:
            yield "index_folder", (*where, "id"), f"{entry.id!r} has no folder in trajectories/"
            continue
        for key, stated, actual in _disagreements(entry, summaries[entry.id]):
            name = f"trajectories[{number}].{key}"
            yield (
                "index_differs",
                (*where, key),
                f"{name}: {stated!r}, but the files of the trajectory have {actual!r}",
            )
    for name in sorted(summaries.keys() - times.keys()):
        yield "index_missing", ("trajectories",), f"trajectories/{name} is not listed"


def _disagreements(
    entry: _Entry | IndexEntry, summary: IndexCounts
) -> Iterator[tuple[str, object, object]]:
    for key in ("steps", "success", "task_id", "application"):
        actual = getattr(summary, key)
        if actual is not None and getattr(entry, key) != actual:
            yield key, getattr(entry, key), actual
