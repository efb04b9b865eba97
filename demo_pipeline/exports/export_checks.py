"""What every training export is compared with: the trajectories that it was made of.

Belongs here: its pictures and trees, and what its rows say of a trajectory as a whole. What a
record must hold by itself is its form's matter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from demo_pipeline.datasets.export_loop import plan_splits
from demo_pipeline.exports.cudag.models import cudag_id
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.parquet import read_table
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

_TRAJECTORIES = "trajectories"
_REMEDY = "build the export again"
_SAID = pa.schema(
    [(name, pa.string()) for name in ("trajectory_id", "split", "application", "task_id")]
)


def linked_file_problems(
    out: Path, trajectories: Sequence[DatasetTrajectory], besides: str
) -> list[Problem]:
    """The files below `trajectories/` are those of the trajectories, and no others lie there.

    Args:
        out: the folder of the export.
        trajectories: that it was made of.
        besides: a regular expression that the paths of its other files fit.
    """
    folders = {source.id: source.path for source in trajectories}
    expected, others = dict[str, bytes | Path](), list[str]()
    for path in out.rglob("*"):
        name = path.relative_to(out).as_posix()
        top, key, *file = (*name.split("/", 2), "")[:3]
        if top == _TRAJECTORIES and key in folders and (folders[key] / file[0]).is_file():
            expected[name] = folders[key] / file[0]
        elif re.fullmatch(besides, name) and path.is_file():
            others.append(name)
    return differing_files(out, expected, others)


def numbered_picture_problems(
    folder: Path, trajectories: Sequence[DatasetTrajectory]
) -> Iterator[Problem]:
    """Yield each PNG that is not the screenshot which `<id>_<step>.png` names; CUDAG's form."""
    folders = {cudag_id(source.id): source.path for source in trajectories}
    expected: dict[str, bytes | Path] = {}
    pictures = sorted(folder.glob("*.png"))
    for path in pictures:
        key, _, number = path.stem.rpartition("_")
        if key in folders and number.isdecimal():
            source = folders[key] / "steps" / number / "screenshot.png"
            final = folders[key] / "final_screenshot.png"
            expected[path.name] = source if source.is_file() else final
    jpegs = [path.name for path in folder.glob("*.jpg")]
    yield from differing_files(folder, expected, jpegs)


def trajectory_problems(
    tables: Mapping[str, Path], trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> Iterator[Problem]:
    """Yield the first row of each table that says of its trajectory what is not so.

    Args:
        tables: the split that all rows of a table are in, or where they say it "" → the table.
        trajectories: that the export was made of.
        settings: what takes part, and the splits.
    """
    selection, plan = plan_splits(trajectories, settings)
    facts = {
        one.source.id: (plan.splits[one.source.id].value, one.application, one.task_id)
        for one in selection.chosen
    }
    for split, path in tables.items():
        if not path.is_file():
            continue
        rows = read_table(path, _SAID).to_pylist()
        for number, (key, *said) in enumerate((row.values() for row in rows), start=1):
            told = [split or said[0], *said[1:]]
            wrong = [
                name
                for name, value, fact in zip(
                    _SAID.names[1:], told, facts.get(key, ()), strict=False
                )
                if value is not None and value != replace_surrogates(fact)
            ]
            if wrong or key not in facts:
                message = f"row {number}: differs from its trajectory: {', '.join(wrong)}"
                yield Problem("trajectory_differs", path.name, message, remedy=_REMEDY)
                break
