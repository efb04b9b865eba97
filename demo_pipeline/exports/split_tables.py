"""Validating an export that is Parquet tables by split and the pictures that their rows name.

Belongs here: what holds for every such export: rows fit their model, ids are unique, no trajectory
is in two splits, pictures open, and no picture lies there that no row names.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from demo_pipeline.files.base_model import Document, check, limited
from demo_pipeline.files.image_header import ImageInfo, probe_image
from demo_pipeline.files.json_files import JsonFileError, read_bytes
from demo_pipeline.files.parquet import open_rows
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

REQUIRED_SPLITS, OPTIONAL_SPLITS = ("train", "val", "test"), ("held_out",)
_PICTURE_FOLDER = "trajectories"
_ROWS_IN_MEMORY = 64
_REBUILD = "build the export again"

Fault = tuple[str, str, str]
"""Code, message and remedy of a problem of a row."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """One table per split.

    Attributes:
        model: of a row; it has `id` and `trajectory_id`.
        pictures: the paths that a row names, below the folder.
        faults: what a model cannot express; the second argument is the size of each picture.
        folder: of the tables, below that of the export; empty: the same.
    """

    model: type[Document]
    pictures: Callable[[Any], Sequence[str]]
    faults: Callable[[Any, Sequence[ImageInfo]], Iterator[Fault]]
    folder: str = ""


@dataclass(slots=True)
class _Seen:
    """What was read until now."""

    root: Path
    pictures: dict[str, ImageInfo | str] = field(default_factory=dict)
    split_of: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


def validate_split_tables(root: Path, formats: Sequence[RowFormat]) -> list[Problem]:
    """The problems of the tables and pictures of an export, with numbers of rows as lines."""
    seen, problems = _Seen(root), []
    for rows in formats:
        seen.ids.clear()
        for split in (*REQUIRED_SPLITS, *OPTIONAL_SPLITS):
            name = str(PurePosixPath(rows.folder, f"{split}.parquet"))
            if (root / name).is_file():
                problems += limited(list(_table_problems(name, split, rows, seen)))
            elif split in REQUIRED_SPLITS:
                problems.append(
                    Problem("missing_file", name, "the file is missing", remedy=_REBUILD)
                )
    return [*problems, *limited(list(_unnamed_pictures(seen)))]


def _table_problems(name: str, split: str, rows: RowFormat, seen: _Seen) -> Iterator[Problem]:
    try:
        with open_rows(seen.root / name, _ROWS_IN_MEMORY) as (_, values):
            for number, value in enumerate(values, start=1):
                yield from _row_problems(name, number, split, value, rows, seen)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        message = f"cannot be read as Parquet: {type(error).__name__}"
        yield Problem("unreadable_table", name, message, remedy=_REBUILD)


def _row_problems(  # noqa: PLR0917 - a row, its place, and what is known
    name: str, number: int, split: str, value: Any, rows: RowFormat, seen: _Seen
) -> Iterator[Problem]:
    row, problems = check(rows.model, value, name, line=number)
    yield from problems
    if row is None:
        return
    place = f"{name}:{number}"
    faults: list[Fault] = []
    members = row.members()
    if (first := seen.ids.setdefault(members["id"], place)) != place:
        faults.append(("duplicate_id", f"id: is not unique, first at {first}", "change an id"))
    if (other := seen.split_of.setdefault(members["trajectory_id"], split)) != split:
        message = f"trajectory_id: the trajectory is in the split {other} too"
        faults.append(("split_leak", message, _REBUILD))
    found = [_picture(path, seen) for path in rows.pictures(row)]
    faults += [("image", f"image: {fault}", _REBUILD) for fault in found if isinstance(fault, str)]
    sizes = [info for info in found if isinstance(info, ImageInfo)]
    if len(sizes) == len(found):
        faults += rows.faults(row, sizes)
    for code, message, remedy in faults:
        yield Problem(code, name, message, number, remedy=remedy)


def _picture(path: str, seen: _Seen) -> ImageInfo | str:
    """What a picture declares, or why it cannot be used; each file is read once."""
    if path not in seen.pictures:
        seen.pictures[path] = _probed(path, seen.root)
    return seen.pictures[path]


def _probed(path: str, root: Path) -> ImageInfo | str:
    parts = PurePosixPath(path)
    if not path or parts.is_absolute() or ".." in parts.parts or "\\" in path or "\0" in path:
        return "is not a path below the folder"
    try:
        return probe_image(read_bytes(root / path, parts.name))
    except JsonFileError as error:
        return error.message
    except ValueError as error:
        return str(error)


def _unnamed_pictures(seen: _Seen) -> Iterator[Problem]:
    """Yield a problem for each file below the folder of pictures that no row names."""
    for path in sorted((seen.root / _PICTURE_FOLDER).rglob("*")):
        name = path.relative_to(seen.root).as_posix()
        if path.is_file() and name not in seen.pictures:
            yield Problem("unnamed_file", name, "no row names the file", remedy="remove it")
