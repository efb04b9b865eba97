"""Which split each trajectory of an export of whole trajectories is in, from its written files.

Belongs here: one reader per format, the counts of records, and the check that no task is torn.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from demo_pipeline.exports.atif import ATIF_LIST
from demo_pipeline.exports.cua_lite_models import LITE_ROOT
from demo_pipeline.files.parquet import read_table
from demo_pipeline.problems import Problem
from demo_pipeline.trajectories.provenance import read_provenance

_SPLIT_FILES = ("train", "val", "test", "held_out")
Place = tuple[str, str]
"""A trajectory, and the part of the export that one of its records is in."""


def cua_lite_record_counts(folder: Path) -> Mapping[str, int]:
    """Records by trajectory of a CUA-Lite export."""
    return Counter(trajectory for trajectory, _ in cua_lite_places(folder))


def agentnet_record_counts(folder: Path) -> Mapping[str, int]:
    """The same for an AgentNet export; the two forms of a line are one record."""
    return Counter(trajectory for trajectory, _ in agentnet_places(folder))


def atif_record_counts(folder: Path) -> Mapping[str, int]:
    """The same for an ATIF export."""
    return Counter(trajectory for trajectory, _ in atif_places(folder))


def cua_lite_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every row; it is the name of the dataset and CUA-Lite's split."""
    for table in sorted((folder / LITE_ROOT).glob("*/*/*/*/*.parquet")):
        name = f"{table.relative_to(folder / LITE_ROOT).parts[0]} {table.parent.name}"
        for text in read_table(table, columns=["metadata"])["metadata"].to_pylist():
            yield json.loads(text)["others"]["id"], name


def agentnet_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every line of the full form."""
    for split in _SPLIT_FILES:
        for line in _lines(folder / f"{split}.jsonl"):
            yield str(line["task_id"]), split


def atif_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every file."""
    for line in _lines(folder / ATIF_LIST):
        yield str(line["trajectory_id"]), str(line["split"])


def _lines(path: Path) -> Iterator[Mapping[str, object]]:
    if path.is_file():
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def torn_task_problems(
    places: Iterator[Place], provenance: Sequence[Path], file: str
) -> list[Problem]:
    """A problem for every task group in two places.

    Args:
        places: of every record.
        provenance: provenance.parquet of the trajectories; files that cannot be read are skipped.
        file: the file that the problems name.
    """
    groups = dict(_groups(provenance))
    found: dict[str, set[str]] = {}
    for trajectory, place in places:
        for group in groups.get(trajectory, ()):
            found.setdefault(group, set()).add(place)
    return [
        Problem(
            "torn_task",
            file,
            f"task {group!r} is in more than one split: {', '.join(sorted(splits))}",
            remedy="build the dataset again",
        )
        for group, splits in sorted(found.items())
        if len(splits) > 1
    ]


def _groups(provenance: Sequence[Path]) -> Iterator[tuple[str, set[str]]]:
    for path in provenance:
        try:
            rows = read_provenance(path, ("trajectory_id", "split_group"))
        except (OSError, pa.ArrowException):
            continue
        if rows:
            yield rows[0]["trajectory_id"], {row["split_group"] for row in rows}
