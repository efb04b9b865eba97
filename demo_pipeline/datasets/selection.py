"""Which trajectories a dataset is made of, and what is left out of training exports and why.

Belongs here: reading committed trajectories one at a time, and the rules for whole trajectories.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.provenance import (
    PROVENANCE_SCHEMA,
    ProvenanceRow,
    read_provenance,
)
from demo_pipeline.formats.desktopd.models import Result, Task
from demo_pipeline.formats.desktopd.reader import Trajectory, read_document, read_trajectory
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.settings import DatasetSettings

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUIRED = frozenset(column.name for column in PROVENANCE_SCHEMA if not column.nullable)
_HEAD = ("split_group", "status", "recorded_at")


@dataclass(frozen=True, slots=True)
class DatasetTrajectory:
    """One committed trajectory.

    Attributes:
        id: trajectory_id.
        path: its folder (seed 001), or a link to it.
        provenance: its provenance.parquet.
    """

    id: str
    path: Path
    provenance: Path


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that goes into a training export, with what the splits need to know."""

    source: DatasetTrajectory
    instruction: str
    application: str
    split_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a training export is made from.

    Attributes:
        chosen: the trajectories that go in, by id.
        excluded: how many were left out, by reason: failed, aborted, contaminated, unreadable.
        problems: why the unreadable ones are.
        newest: see `newest_recording`.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training (formats notes, sections 2 and 3).

    Failed and aborted demonstrations and those of a benchmark task are left out unless the settings
    say otherwise, each counted under the first reason that holds. One that cannot be read is left
    out too and costs the others nothing.
    """
    chosen: list[Candidate] = []
    problems: list[Problem] = []
    newest = EPOCH
    excluded: Counter[str] = Counter(failed=0, aborted=0, contaminated=0, unreadable=0)
    for source in sorted_by_id(trajectories):
        try:
            rows = load_provenance(source, _HEAD)
            newest = max([newest, *(_moment(row["recorded_at"]) for row in rows[:1])])
            task, result = _read_head(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            excluded["unreadable"] += 1
            continue
        if reason := _left_out(task, result, rows, settings):
            excluded[reason] += 1
        else:
            named = tuple(sorted({row["split_group"] for row in rows})) or (task.task_id,)
            chosen.append(Candidate(source, task.instruction, task.application, named))
    return Selection(tuple(chosen), excluded, tuple(problems), newest)


def _left_out(
    task: Task, result: Result, rows: Sequence[ProvenanceRow], settings: DatasetSettings
) -> str:
    """Why a trajectory takes no part; empty when it does.

    A demonstration that was not completed is aborted, whatever its reason says (seed 000, status).
    """
    aborted = bool(rows) and rows[0]["status"] != "completed"
    wanted = settings.include_aborted if aborted else settings.include_failed
    if not result.success and not wanted:
        return "aborted" if aborted else "failed"
    if task.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return ""


def sorted_by_id(trajectories: Sequence[DatasetTrajectory]) -> list[DatasetTrajectory]:
    """By id, so that the order of discovery changes no byte."""
    return sorted(trajectories, key=lambda trajectory: trajectory.id)


def load(
    source: DatasetTrajectory, columns: Sequence[str] | None = None
) -> tuple[Trajectory, dict[int, ProvenanceRow]]:
    """A trajectory under the id it is committed as, and its provenance by step index.

    Args:
        source: the trajectory.
        columns: of the provenance, beside `step_index`; all of them when None.

    Raises:
        DemonstrationError: unreadable, or a step without provenance.
    """
    try:
        trajectory = replace(read_trajectory(source.path), id=source.id)
    except DemonstrationError as error:
        raise DemonstrationError(_named(error.problems, source)) from None
    named = None if columns is None else ("step_index", *columns)
    rows: dict[int, ProvenanceRow] = {
        row["step_index"]: row for row in load_provenance(source, named)
    }
    for step in trajectory.steps:
        if step.index not in rows:
            message = f"step {step.index} has no row"
            raise DemonstrationError(_problem(source, "provenance_step", message))
    return trajectory, rows


def load_provenance(
    source: DatasetTrajectory, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The provenance of a trajectory, a row a step; of all columns when `columns` is None.

    Raises:
        DemonstrationError: the file is missing, no provenance table, or lacks a required value.
    """
    try:
        rows = read_provenance(source.provenance, columns)
    except (OSError, pa.ArrowException) as error:
        message = f"cannot be read ({type(error).__name__})"
        raise DemonstrationError(_problem(source, "provenance", message)) from None
    for name in sorted(_REQUIRED.intersection(rows[0] if rows else ())):
        if any(row[name] is None for row in rows):
            message = f"column {name} has no value"
            raise DemonstrationError(_problem(source, "provenance", message))
    return rows


def newest_recording(trajectories: Sequence[DatasetTrajectory]) -> datetime:
    """When the newest of the recordings was made, UTC; the epoch when none says so."""
    newest = EPOCH
    for source in trajectories:
        try:
            rows = load_provenance(source, _HEAD)
        except DemonstrationError:
            continue
        newest = max([newest, *(_moment(row["recorded_at"]) for row in rows[:1])])
    return newest


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return EPOCH
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _read_head(source: DatasetTrajectory) -> tuple[Task, Result]:
    task, problems = read_document(Task, source.path / "task.json", "task.json")
    result, found = read_document(Result, source.path / "result.json", "result.json")
    if task is None or result is None:
        raise DemonstrationError(_named(errors([*problems, *found]), source))
    return task, result


def _named(problems: Sequence[Problem], source: DatasetTrajectory) -> list[Problem]:
    return [replace(problem, demonstration=source.id) for problem in problems]


def _problem(source: DatasetTrajectory, code: str, message: str) -> Problem:
    remedy = "materialise the trajectory again"
    return Problem(code, "provenance.parquet", message, remedy=remedy, demonstration=source.id)
