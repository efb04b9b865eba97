"""Selects the trajectories of a training export, and reads committed trajectories.

Belongs here: the rules that leave out a whole trajectory. The rules that leave out a single step
are in the exporters.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.datasets.hidden_actions import (
    HIDDEN_ACTIONS_FILE,
    NOTHING_HIDDEN,
    HiddenActions,
    read_hidden_actions,
)
from demo_pipeline.datasets.provenance import (
    PROVENANCE_SCHEMA,
    ProvenanceRow,
    read_provenance,
)
from demo_pipeline.formats.desktopd.models import Result, Task
from demo_pipeline.formats.desktopd.reader import Trajectory, read_document, read_trajectory
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.problems import DemonstrationError, Problem, errors

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUIRED = frozenset(column.name for column in PROVENANCE_SCHEMA if not column.nullable)
_HEAD_COLUMNS = ("split_group", "status", "recorded_at")
_SELECTING_COLUMNS = (*_HEAD_COLUMNS, "action_type")
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class DatasetTrajectory:
    """One committed trajectory.

    Attributes:
        id: trajectory_id.
        path: its folder, in the OSWorld-Desktopd layout, or a link to it.
        provenance: its provenance.parquet.
        content: changes whenever a file of it does; empty: not known.
    """

    id: str
    path: Path
    provenance: Path
    content: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that may take part in a training export, with what decides its split.

    Attributes:
        source: where it is.
        instruction: of task.json.
        application: of task.json.
        split_groups: of its provenance.
        hidden: its hidden actions.
        gives_steps: few enough actions are hidden for exports of steps.
        stretch: the steps that an export of whole trajectories takes; None: too few without a gap.
    """

    source: DatasetTrajectory
    instruction: str
    application: str
    split_groups: tuple[str, ...]
    hidden: HiddenActions = NOTHING_HIDDEN
    gives_steps: bool = True
    stretch: range | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A trajectory that takes no part: why, and the group that its split would be decided by."""

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories of a training export.

    Attributes:
        chosen: the trajectories that take part, in the order of their ids.
        excluded: how many were left out, by reason: failed, aborted, contaminated, incomplete,
            unreadable.
        problems: why unreadable trajectories could not be read.
        newest: see `newest_recording`.
        left_out: trajectory → why it takes no part; the unreadable ones are not in it.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training.

    Failed and aborted demonstrations and those of a benchmark task are left out unless the settings
    include them; each is counted under the first reason that holds. A trajectory that cannot be
    read is left out and reported; the others are not affected. Which of the chosen have too many
    hidden actions depends on the export; `export_loop.plan_export` leaves them out.
    """
    chosen: list[Candidate] = []
    problems: list[Problem] = []
    left_out: dict[str, LeftOut] = {}
    newest = EPOCH
    reasons = ("failed", "aborted", "contaminated", "incomplete", "unreadable")
    excluded: Counter[str] = Counter(dict.fromkeys(reasons, 0))
    for source in sorted_by_id(trajectories):
        try:
            rows = load_provenance(source, _SELECTING_COLUMNS)
            newest = max([newest, *(_utc(row["recorded_at"]) for row in rows[:1])])
            task, result = _read_head(source)
            hidden = load_hidden_actions(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            excluded["unreadable"] += 1
            _LOG.debug("%s takes no part: unreadable", source.id)
            continue
        if reason := _left_out(task, result, rows, settings):
            excluded[reason] += 1
            left_out[source.id] = LeftOut(reason, _split_groups(task, rows)[0])
            _LOG.debug("%s takes no part: %s", source.id, reason)
        else:
            chosen.append(_candidate(source, task, rows, hidden, settings))
    return Selection(tuple(chosen), excluded, tuple(problems), newest, left_out)


def _candidate(
    source: DatasetTrajectory,
    task: Task,
    rows: Sequence[ProvenanceRow],
    hidden: HiddenActions,
    settings: DatasetSettings,
) -> Candidate:
    visible = sum(row["action_type"] != ActionType.WAIT for row in rows)
    return Candidate(
        source=source,
        instruction=task.instruction,
        application=task.application,
        split_groups=_split_groups(task, rows),
        hidden=hidden,
        gives_steps=hidden.share(visible) <= settings.max_hidden_share,
        stretch=hidden.whole_stretch(len(rows), settings.min_steps),
    )


def _split_groups(task: Task, rows: Sequence[ProvenanceRow]) -> tuple[str, ...]:
    return tuple(sorted({row["split_group"] for row in rows})) or (task.task_id,)


def _left_out(
    task: Task, result: Result, rows: Sequence[ProvenanceRow], settings: DatasetSettings
) -> str:
    """Why a trajectory takes no part; empty when it does.

    A demonstration whose `status` is not `completed` is aborted, whatever its `reason` is.
    """
    aborted = bool(rows) and rows[0]["status"] != "completed"
    included = settings.include_aborted if aborted else settings.include_failed
    if not result.success and not included:
        return "aborted" if aborted else "failed"
    if task.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return ""


def sorted_by_id(trajectories: Sequence[DatasetTrajectory]) -> list[DatasetTrajectory]:
    """The trajectories by id, so that outputs do not depend on the order of discovery."""
    return sorted(trajectories, key=lambda trajectory: trajectory.id)


def load(
    source: DatasetTrajectory, columns: Sequence[str] | None = None
) -> tuple[Trajectory, dict[int, ProvenanceRow]]:
    """Read a trajectory, under the id it is committed as, and its provenance by step index.

    Args:
        source: the trajectory.
        columns: columns of the provenance beside `step_index`; all of them when None.

    Raises:
        DemonstrationError: it cannot be read, or a step has no provenance.
    """
    try:
        trajectory = replace(read_trajectory(source.path), id=source.id)
    except DemonstrationError as error:
        raise DemonstrationError(_of_demonstration(error.problems, source)) from None
    wanted = None if columns is None else ("step_index", *columns)
    rows: dict[int, ProvenanceRow] = {
        row["step_index"]: row for row in load_provenance(source, wanted)
    }
    for step in trajectory.steps:
        if step.index not in rows:
            message = f"step {step.index} has no row"
            raise DemonstrationError(_problem(source, "provenance_step", message))
    return trajectory, rows


def load_provenance(
    source: DatasetTrajectory, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The provenance of a trajectory, one row per step; all columns when `columns` is None.

    Raises:
        DemonstrationError: the file is missing or damaged, or lacks a required value.
    """
    try:
        rows = read_provenance(source.provenance, columns)
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
    """The hidden actions of a trajectory.

    Raises:
        DemonstrationError: the file is damaged.
    """
    try:
        return read_hidden_actions(source.path)
    except (OSError, pa.ArrowException) as error:
        message = f"cannot be read ({type(error).__name__})"
        problem = _problem(source, "hidden_actions", message)
        raise DemonstrationError(replace(problem, file=HIDDEN_ACTIONS_FILE)) from None


def newest_recording(trajectories: Sequence[DatasetTrajectory]) -> datetime:
    """When the newest recording was made, in UTC; the epoch when no recording has a time."""
    newest = EPOCH
    for source in trajectories:
        try:
            rows = load_provenance(source, _HEAD_COLUMNS)
        except DemonstrationError:
            continue
        newest = max([newest, *(_utc(row["recorded_at"]) for row in rows[:1])])
    return newest


def _utc(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return EPOCH
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _read_head(source: DatasetTrajectory) -> tuple[Task, Result]:
    task, problems = read_document(Task, source.path / "task.json", "task.json")
    result, more = read_document(Result, source.path / "result.json", "result.json")
    if task is None or result is None:
        raise DemonstrationError(_of_demonstration(errors([*problems, *more]), source))
    return task, result


def _of_demonstration(problems: Sequence[Problem], source: DatasetTrajectory) -> list[Problem]:
    return [replace(problem, demonstration=source.id) for problem in problems]


def _problem(source: DatasetTrajectory, code: str, message: str) -> Problem:
    remedy = "build the trajectory again"
    return Problem(code, "provenance.parquet", message, remedy=remedy, demonstration=source.id)
