"""Validating a folder of CUA-Lite datasets: its layout, every row, every image, every id.

Belongs here: files. What one row must hold is in row_rules.py.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.parquet import read_schema
from demo_pipeline.common.parquet_rows import open_rows
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.formats.base_model import limited
from demo_pipeline.formats.cua_lite.models import (
    LITE_COLUMNS,
    LITE_ROOT,
    LITE_SPLITS,
    PLATFORMS,
    TASK_TYPES,
    LiteMetadata,
)
from demo_pipeline.formats.cua_lite.row_rules import parse_column, row_faults
from demo_pipeline.problems import Problem

LITE_SCHEMA = pa.schema(
    [
        pa.field("images", pa.list_(pa.string())),
        pa.field("messages", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)
_ROWS_IN_MEMORY = 64
_REMEDY = "build the export again"
_IMAGES = "images"


@dataclass(slots=True)
class _Seen:
    """What the rows read so far have: ids with their places, and images that were looked at."""

    root: Path
    ids: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)


def validate_cua_lite(root: Path) -> list[Problem]:
    """The problems of the datasets below `cua-lite/`, with the numbers of the rows from 1.

    Args:
        root: the folder that the paths of images are relative to.
    """
    home = root / LITE_ROOT
    names = sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    if not names:
        return [Problem("missing_file", LITE_ROOT, "has no dataset", remedy=_REMEDY)]
    seen = _Seen(root)
    problems: list[Problem] = []
    for dataset in names:
        tables = sorted(path for path in dataset.rglob("*.parquet") if path.is_file())
        for table in tables:
            problems += limited(list(_table_problems(table, dataset, seen)))
        problems += _unused_images(dataset, seen)
    return problems


def _table_problems(table: Path, dataset: Path, seen: _Seen) -> Iterator[Problem]:
    file = table.relative_to(seen.root).as_posix()
    parts = PurePosixPath(table.relative_to(dataset)).parts
    if len(parts) != 4 or not _is_known(parts):
        message = "is not at <platform>/<task type>/<split>/<variant>.parquet"
        yield Problem("layout", file, message, remedy=_REMEDY)
        return
    try:
        columns = read_schema(table)
        if columns.names != list(LITE_COLUMNS) or not _are_texts(columns.types):
            message = "the columns must be images (list of text), messages and metadata (text)"
            yield Problem("columns", file, message, remedy=_REMEDY)
            return
        with open_rows(table, _ROWS_IN_MEMORY) as (_, rows):
            for number, row in enumerate(rows, start=1):
                yield from _row_problems(row, (file, number), (parts[:2], dataset.name), seen)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        message = f"cannot be read as Parquet: {type(error).__name__}"
        yield Problem("unreadable_table", file, message, remedy=_REMEDY)


def _are_texts(kinds: Sequence[pa.DataType]) -> bool:
    """Whether the first column is a list of text, and the others are text, of any width."""
    first, *others = kinds
    is_list = pa.types.is_list(first) or pa.types.is_large_list(first)
    plain = [first.value_type if is_list else pa.null(), *others]
    return all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in plain)


def _is_known(parts: tuple[str, ...]) -> bool:
    platform, task_type, split, _ = parts
    return platform in PLATFORMS and task_type in TASK_TYPES and split in LITE_SPLITS


def _row_problems(
    row: Mapping[str, Any],
    place: tuple[str, int],
    folder: tuple[tuple[str, ...], str],
    seen: _Seen,
) -> Iterator[Problem]:
    file, number = place
    for code, message in row_faults(row, *folder):
        yield Problem(code, file, message, number, remedy=_REMEDY)
    metadata = parse_column(LiteMetadata, row["metadata"])
    if isinstance(metadata, LiteMetadata):
        here = f"{file}:{number}"
        if (first := seen.ids.setdefault(metadata.others.id, here)) != here:
            message = f"metadata.others.id: is not unique, first at {first}"
            yield Problem("duplicate_id", file, message, number, remedy=_REMEDY)
    for image in row["images"] or ():
        if fault := _image_fault(image, seen):
            yield Problem("image", file, f"an image {fault}", number, remedy=_REMEDY)


def _image_fault(image: str | None, seen: _Seen) -> str:
    """Why an image cannot be used; empty if it opens and has the content that its name says."""
    if image is None or PurePosixPath(image).is_absolute() or ".." in PurePosixPath(image).parts:
        return "is not a path below the folder"
    if image not in seen.images:
        seen.images[image] = _file_fault(seen.root / image)
    return seen.images[image]


def _file_fault(path: Path) -> str:
    try:
        data = path.read_bytes()
        probe_image(data)
    except OSError as error:
        raise_system_trouble(error)
        return "is missing"
    except ValueError as error:
        return f"does not open: {error}"
    same = hashlib.sha256(data).hexdigest() == path.stem
    return "" if same else "has another content than its name says"


def _unused_images(dataset: Path, seen: _Seen) -> Iterator[Problem]:
    """Yield a problem for the images that no row names: nothing else may be handed on."""
    files = (path.relative_to(seen.root).as_posix() for path in (dataset / _IMAGES).rglob("*.*"))
    if unused := sorted(set(files) - set(seen.images)):
        message = f"no row names {len(unused)} of the images"
        yield Problem("unused_image", f"{LITE_ROOT}/{dataset.name}", message, remedy=_REMEDY)
