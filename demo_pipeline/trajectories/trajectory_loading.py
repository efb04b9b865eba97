"""Reads a trajectory from the store: its steps, provenance and hidden actions.

All errors name the demonstration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from demo_pipeline.desktopd.trajectory_reader import Trajectory, read_trajectory
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    PROVENANCE_SCHEMA,
    HiddenActions,
    ProvenanceRow,
    read_hidden_actions,
    read_provenance,
)

_PROVENANCE = "provenance.parquet"
# Columns that have a value in every row.
_REQUIRED = frozenset(column.name for column in PROVENANCE_SCHEMA if not column.nullable)


@dataclass(frozen=True, slots=True)
class DatasetTrajectory:
    """A trajectory in the store, with its review, its split and other facts.

    Paths are strings, because a `Path` takes a kilobyte.

    Attributes:
        folder: path of the OSWorld-Desktopd folder, or of a link to it.
        content: a text that changes if a file of the trajectory changes. Empty if unknown.
        table: path of provenance.parquet, absolute or relative to `folder`.
        records: path of the folder with stored records for exports. If empty, exports compute the
            records.
        digests: maps the name of each file in `records` to its SHA-256.
        rejected_for: why reviewers rejected the demonstration, or empty.
        group: the task group; empty for a new task.
        split: the split; empty for a new task.
        duplicate_of: id of an earlier demonstration with the same video or log, or empty.
        read: a cache of data that was read from the trajectory. All exports share it.
    """

    id: str
    folder: str
    content: str = ""
    table: str = _PROVENANCE
    records: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    review: Literal["open", "approved", "rejected"] = "open"
    rejected_for: str = ""
    group: str = ""
    split: str = ""
    duplicate_of: str = ""
    read: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """The path of the trajectory."""
        return Path(self.folder)

    @property
    def provenance(self) -> Path:
        """The path of provenance.parquet."""
        return Path(self.folder, self.table)


def sorted_by_id(trajectories: Sequence[DatasetTrajectory]) -> list[DatasetTrajectory]:
    """Sorts trajectories by id."""
    return sorted(trajectories, key=lambda trajectory: trajectory.id)


def load(
    source: DatasetTrajectory, rows: Sequence[ProvenanceRow] | None = None
) -> tuple[Trajectory, dict[int, ProvenanceRow]]:
    """Reads a trajectory with its provenance.

    Args:
        rows: the rows of its provenance. If None, they are read.

    Returns:
        The trajectory with its id from the store, and a dictionary from step indexes to rows of
        provenance.

    Raises:
        DemonstrationError: the trajectory cannot be read, or a step has no provenance.
    """
    try:
        trajectory = replace(read_trajectory(source.path), id=source.id)
    except DemonstrationError as error:
        raise DemonstrationError(of_demonstration(error.problems, source)) from None
    row_of = {row["step_index"]: row for row in rows or load_provenance(source)}
    for step in trajectory.steps:
        if step.index not in row_of:
            message = f"step {step.index} has no row"
            raise DemonstrationError(_problem(source, "provenance_step", message))
    return trajectory, row_of


def load_provenance(source: DatasetTrajectory) -> list[dict[str, Any]]:
    """Reads a provenance row for each step of a trajectory.

    Raises:
        DemonstrationError: the file is missing or damaged, or a required value is missing.
    """
    try:
        rows = read_provenance(source.provenance)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        message = f"cannot be read ({type(error).__name__})"
        raise DemonstrationError(_problem(source, "provenance", message)) from None
    for name in sorted(_REQUIRED.intersection(rows[0] if rows else ())):
        if any(row[name] is None for row in rows):
            message = f"column {name} has no value"
            raise DemonstrationError(_problem(source, "provenance", message))
    return rows


def load_hidden_actions(source: DatasetTrajectory) -> HiddenActions:
    """Reads the hidden actions of a trajectory.

    Raises:
        DemonstrationError: the file is damaged.
    """
    try:
        return read_hidden_actions(source.path)
    except (OSError, pa.ArrowException) as error:
        message = f"cannot be read ({type(error).__name__})"
        problem = _problem(source, "hidden_actions", message)
        raise DemonstrationError(replace(problem, file=HIDDEN_ACTIONS_FILE)) from None


def of_demonstration(problems: Sequence[Problem], source: DatasetTrajectory) -> list[Problem]:
    """Returns the problems, with the id of the demonstration added to each."""
    return [replace(problem, demonstration=source.id) for problem in problems]


def _problem(source: DatasetTrajectory, code: str, message: str) -> Problem:
    remedy = "build the trajectory again"
    return Problem(code, _PROVENANCE, message, remedy=remedy, demonstration=source.id)
