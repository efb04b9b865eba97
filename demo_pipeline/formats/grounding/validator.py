"""Validating a grounding export: its rows, and what a model of a row cannot express.

Also the task files in ScreenSpot-Pro's form, which must have an entry for every row, and the rows
in CUA-Lite's form.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.common.image_header import ImageInfo
from demo_pipeline.common.json_files import JsonFileError, load_json
from demo_pipeline.common.parquet_rows import open_rows
from demo_pipeline.formats.base_model import check, limited
from demo_pipeline.formats.cua_lite.validator import validate_cua_lite
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.formats.desktopd.vocabulary import Role
from demo_pipeline.formats.grounding.models import (
    LITE_FOLDER,
    SCREENSPOT_FOLDER,
    GroundingRow,
    ScreenSpotEntry,
)
from demo_pipeline.formats.split_tables import (
    OPTIONAL_SPLITS,
    REQUIRED_SPLITS,
    Fault,
    RowFormat,
    validate_split_tables,
)
from demo_pipeline.problems import Problem, errors

_REBUILD = "build the export again"


def validate_grounding(root: Path) -> list[Problem]:
    """The problems of a grounding export."""
    rows = RowFormat(GroundingRow, lambda row: [row.image], _faults)
    problems = validate_split_tables(root, [rows])
    if errors(problems):
        return problems
    for split in (*REQUIRED_SPLITS, *OPTIONAL_SPLITS):
        if (root / f"{split}.parquet").is_file():
            problems += limited(list(_entry_problems(root, split)))
    return [*problems, *validate_cua_lite(root / LITE_FOLDER)]


def _faults(row: GroundingRow, sizes: Sequence[ImageInfo]) -> Iterator[Fault]:
    left, top, right, bottom = row.box
    if [sizes[0].width, sizes[0].height] != row.image_size:
        yield "image_size", "image_size: differs from the size of the picture", _REBUILD
    if left > right or top > bottom:
        yield "box", "box: ends before it begins", _REBUILD
    if right >= row.image_size[0] or bottom >= row.image_size[1]:
        yield "box", "box: is not in the picture", _REBUILD
    if not (left <= row.point[0] <= right and top <= row.point[1] <= bottom):
        yield "point", "point: is not in the box", _REBUILD
    if row.role not in set(Role):
        yield "role", "role: is not known", _REBUILD
    if not row.image.startswith(f"trajectories/{row.trajectory_id}/steps/{row.step_index:03d}/"):
        yield "wrong_step", "image: is of another step", _REBUILD


def _entry_problems(root: Path, split: str) -> Iterator[Problem]:
    """Yield how a task file differs from the table of its split."""
    name = f"{SCREENSPOT_FOLDER}/{split}.json"
    try:
        entries = load_json(root / name, name)
    except JsonFileError as error:
        yield json_problem(error, exists=(root / name).is_file())
        return
    with open_rows(root / f"{split}.parquet", 512) as (count, rows):
        if not isinstance(entries, list) or len(entries) != count:
            message = f"must be a list of {count} entries, one per row of the table"
            yield Problem("entries_differ", name, message, remedy=_REBUILD)
            return
        for number, (value, row) in enumerate(zip(entries, rows, strict=True), start=1):
            entry, problems = check(ScreenSpotEntry, value, name, line=number)
            yield from problems
            if entry is not None and _told(entry) != _asked(row):
                message = f"entry {number}: differs from row {number} of the table"
                yield Problem("entries_differ", name, message, number, remedy=_REBUILD)


def _told(entry: ScreenSpotEntry) -> list[Any]:
    return [entry.id, entry.img_filename, entry.img_size, entry.bbox, entry.instruction]


def _asked(row: Mapping[str, Any]) -> list[Any]:
    return [row[name] for name in ("id", "image", "image_size", "box", "text")]
