"""The index of a trajectory dataset: `index.json`, `metadata.json` and tables of both levels.

Belongs here: the files that OSWorld-Desktopd defines for many trajectories together. Failed
trajectories are included; only training exports leave them out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.common.parquet import TableWriter, described_schema, write_rows
from demo_pipeline.datasets.exports_table import ExportState, write_exports
from demo_pipeline.datasets.hidden_actions import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    HiddenActions,
    HiddenReason,
    hidden_rows,
)
from demo_pipeline.datasets.pointer_leaks import LeakRates, check_leak_rates, leak_rates
from demo_pipeline.datasets.provenance import PROVENANCE_SCHEMA, ProvenanceRow
from demo_pipeline.datasets.selection import (
    DatasetTrajectory,
    load,
    load_hidden_actions,
    sorted_by_id,
)
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.formats.desktopd.models import Creator, Index, IndexEntry, Metadata
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import TrajectorySettings

STEPS_FILE = "steps.parquet"
_REASONS = pa.struct([pa.field(reason, pa.int32(), nullable=False) for reason in HiddenReason])
TRAJECTORIES_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("task_id", pa.string(), False, "of task.json"),
        ("osworld_task_id", pa.string(), True, "of task.json; null: no benchmark task"),
        ("application", pa.string(), False, "of task.json"),
        ("difficulty", pa.string(), False, "easy, medium or hard"),
        ("success", pa.bool_(), False, "of result.json"),
        ("steps", pa.int32(), False, "number of steps"),
        ("completion_time_ms", pa.int64(), False, "first event to last, milliseconds"),
        ("complete", pa.bool_(), False, "no action of the demonstration is hidden"),
        ("hidden_actions", pa.int32(), False, "number of actions that no screenshot shows"),
        ("hidden_reasons", _REASONS, False, "their numbers by reason"),
    )
)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What was indexed.

    Attributes:
        trajectories: number of trajectories in the index.
        successful: how many of them succeeded.
        failed: how many of them failed.
        steps: number of steps of all of them.
        leaks: counts and rates of leaks, as in `metadata.json`.
        counts: the counts of `metadata.json`.
        problems: why unreadable trajectories are not in the index.
        exports: training export → its state, see `ExportState`.
    """

    trajectories: int
    successful: int
    failed: int
    steps: int
    leaks: LeakRates
    counts: dict[str, Any]
    problems: tuple[Problem, ...]
    exports: dict[str, str]


def build_index(
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    created_by: tuple[str, str],
    exports: Sequence[ExportState] = (),
) -> IndexSummary:
    """Write the JSON files of the index and its tables; the caller links the trajectories.

    `steps.parquet` holds the provenance of all steps, `hidden_actions.parquet` all actions that are
    no steps because no screenshot shows them, `trajectories.parquet` one row per trajectory.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: written to `metadata.json` as the configuration.
        created_by: name and version of the program.
        exports: the training exports as they are committed now.
    """
    out.mkdir(parents=True, exist_ok=True)
    tally = _Tally()
    with (
        TableWriter(out / STEPS_FILE, PROVENANCE_SCHEMA) as steps,
        TableWriter(out / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA) as hidden,
    ):
        for source in sorted_by_id(trajectories):
            _index_trajectory(source, tally, steps, hidden)
    _write_index(out, tally)
    dump_json(out / "metadata.json", _metadata(tally, settings, created_by))
    indexed = {entry.id for entry in tally.entries}
    known = [source for source in trajectories if source.id in indexed]
    write_exports(out, exports, known, settings)
    return IndexSummary(
        trajectories=len(tally.entries),
        successful=tally.successful,
        failed=len(tally.entries) - tally.successful,
        steps=tally.steps,
        leaks=tally.leaks,
        counts=tally.counts(),
        problems=tuple(tally.problems),
        exports={state.name: state.status for state in exports},
    )


def _write_index(out: Path, tally: "_Tally") -> None:
    index = Index(
        total_trajectories=len(tally.entries),
        successful=tally.successful,
        failed=len(tally.entries) - tally.successful,
        trajectories=tally.entries,
    )
    dump_json(out / "index.json", index)
    write_rows(out / "trajectories.parquet", tally.rows, TRAJECTORIES_SCHEMA)


@dataclass(slots=True)
class _Tally:
    """The counts over the trajectories so far."""

    entries: list[IndexEntry] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    applications: Counter[str] = field(default_factory=Counter)
    platforms: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    freshness: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(
        default_factory=lambda: Counter(off_screen=0, missing_frames=0, contaminated=0)
    )
    leaks: LeakRates = field(default_factory=LeakRates)

    @property
    def steps(self) -> int:
        return sum(entry.steps for entry in self.entries)

    @property
    def successful(self) -> int:
        return sum(entry.success for entry in self.entries)

    @property
    def complete(self) -> int:
        return sum(row["complete"] for row in self.rows)

    def add(
        self, trajectory: Trajectory, rows: Sequence[ProvenanceRow], hidden: HiddenActions
    ) -> None:
        task = trajectory.task
        self.entries.append(
            IndexEntry(
                id=trajectory.id,
                task_id=task.task_id,
                success=trajectory.result.success,
                steps=len(trajectory.steps),
                application=task.application,
            )
        )
        self.rows.append(_trajectory_row(trajectory, hidden))
        self.hidden.update(hidden.by_reason())
        self.applications[task.application] += 1
        self.flags["contaminated"] += task.osworld_task_id is not None
        self.actions.update(step.action.action_type.value for step in trajectory.steps)
        self.platforms.update(row["platform"] for row in rows[:1])
        self.leaks += leak_rates(rows)
        for row in rows:
            self.reasons[row["reason_code"]] += 1
            self.freshness[row["freshness"]] += 1
            self.flags["off_screen"] += row["off_screen"]
            self.flags["missing_frames"] += row["pts"] is None

    def counts(self) -> dict[str, Any]:
        return {
            "trajectories": len(self.entries),
            "successful": self.successful,
            "failed": len(self.entries) - self.successful,
            "complete": self.complete,
            "incomplete": len(self.entries) - self.complete,
            "unreadable": self.unreadable,
            "steps": self.steps,
            "hidden_actions": dict(sorted(self.hidden.items())),
            "actions": dict(sorted(self.actions.items())),
            "applications": dict(sorted(self.applications.items())),
            "platforms": dict(sorted(self.platforms.items())),
            "frame_reasons": dict(sorted(self.reasons.items())),
            "tree_freshness": dict(sorted(self.freshness.items())),
            **self.leaks.as_dict(),
            **self.flags,
        }


def _trajectory_row(trajectory: Trajectory, hidden: HiddenActions) -> dict[str, Any]:
    """A trajectory as a row of `TRAJECTORIES_SCHEMA`."""
    task, result = trajectory.task, trajectory.result
    return {
        "trajectory_id": trajectory.id,
        "task_id": replace_surrogates(task.task_id),
        "osworld_task_id": None
        if task.osworld_task_id is None
        else replace_surrogates(task.osworld_task_id),
        "application": replace_surrogates(task.application),
        "difficulty": task.difficulty,
        "success": result.success,
        "steps": len(trajectory.steps),
        "completion_time_ms": result.completion_time_ms,
        "complete": not hidden,
        "hidden_actions": len(hidden),
        "hidden_reasons": dict.fromkeys(HiddenReason, 0) | hidden.by_reason(),
    }


def _index_trajectory(
    source: DatasetTrajectory, tally: _Tally, steps: TableWriter, hidden_table: TableWriter
) -> None:
    try:
        trajectory, by_step = load(source)
        hidden = load_hidden_actions(source)
    except DemonstrationError as error:
        tally.problems.extend(error.problems)
        tally.unreadable += 1
        return
    rows = [by_step[index] for index in sorted(by_step)]
    tally.add(trajectory, rows, hidden)
    steps.write(pa.Table.from_pylist(rows, schema=PROVENANCE_SCHEMA))
    for row in hidden_rows(trajectory.id, hidden.actions):
        hidden_table.append_row(row)


def _metadata(tally: _Tally, settings: DatasetSettings, created_by: tuple[str, str]) -> Metadata:
    name, version = created_by
    return Metadata(
        name=settings.name_prefix,
        description="Recorded demonstrations of people using computers, one step per action",
        created_by=Creator(name=name, version=version),
        configuration=settings.model_dump(mode="json"),
        counts=tally.counts(),
    )


def check_dataset_leaks(out: Path, settings: TrajectorySettings) -> list[Problem]:
    """A warning for every leak rate of the whole dataset that is above its limit."""
    return check_leak_rates(out / STEPS_FILE, settings)
