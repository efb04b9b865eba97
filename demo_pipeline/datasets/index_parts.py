"""What a few trajectories, or all, add to the index: rows, steps and counts.

Belongs here: reading them, or taking them from a kept part. The files are written in `index`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.export_parts import (
    KeptParts,
    Part,
    kept_parts,
    table_bytes,
    table_of,
)
from demo_pipeline.datasets.hidden_actions import (
    HIDDEN_ACTIONS_SCHEMA,
    HiddenActions,
    HiddenReason,
    hidden_rows,
)
from demo_pipeline.datasets.pointer_leaks import LeakRates, leak_rates
from demo_pipeline.datasets.provenance import PROVENANCE_SCHEMA, ProvenanceRow
from demo_pipeline.datasets.selection import DatasetTrajectory, load, load_hidden_actions
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.problems import DemonstrationError, Problem

COUNTED = ("actions", "applications", "platforms", "reasons", "freshness", "hidden", "flags")


@dataclass(slots=True)
class CountedTrajectories:
    """Counts over some trajectories.

    Attributes:
        trajectories, successful, complete, steps: how many.
        by_name: of `COUNTED` → name → how many.
        leaks: counts and rates of leaks.
    """

    trajectories: int = 0
    successful: int = 0
    complete: int = 0
    steps: int = 0
    by_name: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in COUNTED}
    )
    leaks: LeakRates = field(default_factory=LeakRates)

    def add(self, other: "CountedTrajectories") -> None:
        """Add the counts over other trajectories."""
        self.trajectories += other.trajectories
        self.successful += other.successful
        self.complete += other.complete
        self.steps += other.steps
        self.leaks += other.leaks
        for name in COUNTED:
            self.by_name[name].update(other.by_name[name])

    def add_trajectory(
        self, trajectory: Trajectory, rows: Sequence[ProvenanceRow], hidden: HiddenActions
    ) -> None:
        """Add one trajectory with its provenance and hidden actions."""
        task, count = trajectory.task, self.by_name
        self.trajectories += 1
        self.successful += trajectory.result.success
        self.complete += not hidden
        self.steps += len(trajectory.steps)
        self.leaks += leak_rates(rows)
        count["hidden"].update(hidden.by_reason())
        count["applications"][task.application] += 1
        count["flags"]["contaminated"] += task.osworld_task_id is not None
        count["actions"].update(step.action.action_type.value for step in trajectory.steps)
        count["platforms"].update(row["platform"] for row in rows[:1])
        for row in rows:
            count["reasons"][row["reason_code"]] += 1
            count["freshness"][row["freshness"]] += 1
            count["flags"]["off_screen"] += row["off_screen"]
            count["flags"]["missing_frames"] += row["pts"] is None

    def as_header(self) -> dict[str, Any]:
        """The counts as JSON values."""
        numbers = (self.trajectories, self.successful, self.complete, self.steps)
        leaks = (self.leaks.pointer_actions, self.leaks.leaks, self.leaks.unavoidable_leaks)
        return {"numbers": numbers, "leaks": leaks, "by_name": self.by_name}

    @classmethod
    def of_header(cls, header: dict[str, Any]) -> "CountedTrajectories":
        """The counts that `as_header` gave."""
        by_name = {name: Counter(counts) for name, counts in header["by_name"].items()}
        leaks = LeakRates(*header["leaks"])
        trajectories, successful, complete, steps = header["numbers"]
        return cls(trajectories, successful, complete, steps, by_name, leaks)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """What some trajectories add to the index.

    Attributes:
        entries: of `index.json`, as JSON values.
        rows: of `trajectories.parquet`.
        steps: of `steps.parquet`.
        hidden: of `hidden_actions.parquet`.
        counts: over them.
        problems: why the others cannot be read.
        unreadable: how many these are.
    """

    entries: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    steps: pa.Table
    hidden: pa.Table
    counts: CountedTrajectories
    problems: tuple[Problem, ...] = ()
    unreadable: int = 0


def index_part(sources: Sequence[DatasetTrajectory]) -> IndexPart:
    """The part of a few trajectories, as it was kept or as their files have it."""
    parts = kept_parts()
    if parts is None or not all(source.content for source in sources):
        return _read_part(sources)
    key = parts.shared_key("index", [(source.id, source.content) for source in sources])
    kept = parts.get(key)
    if kept is not None:
        return IndexPart(
            kept.header["entries"],
            kept.header["rows"],
            table_of(kept.blobs["steps"]),
            table_of(kept.blobs["hidden"]),
            CountedTrajectories.of_header(kept.header["counts"]),
        )
    part = _read_part(sources)
    if not part.unreadable:
        _keep(part, key, parts)
    return part


def _keep(part: IndexPart, key: str, parts: KeptParts) -> None:
    header = {"entries": part.entries, "rows": part.rows, "counts": part.counts.as_header()}
    blobs = {"steps": table_bytes(part.steps), "hidden": table_bytes(part.hidden)}
    parts.put(key, Part(header, blobs))


def _read_part(sources: Sequence[DatasetTrajectory]) -> IndexPart:
    counts, problems, unreadable = CountedTrajectories(), list[Problem](), 0
    entries, table_rows = list[dict[str, Any]](), list[dict[str, Any]]()
    steps, hidden_actions = [PROVENANCE_SCHEMA.empty_table()], list[Any]()
    for source in sources:
        try:
            trajectory, by_step = load(source)
            hidden = load_hidden_actions(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            unreadable += 1
            continue
        rows = [by_step[index] for index in sorted(by_step)]
        counts.add_trajectory(trajectory, rows, hidden)
        entries.append(_entry(trajectory))
        table_rows.append(_trajectory_row(trajectory, hidden))
        steps.append(pa.Table.from_pylist(rows, schema=PROVENANCE_SCHEMA))
        hidden_actions += hidden_rows(trajectory.id, hidden.actions)
    return IndexPart(
        entries,
        table_rows,
        # Of one chunk: thirty columns of many small chunks take ten times the memory.
        pa.concat_tables(steps).combine_chunks(),
        pa.Table.from_pylist(hidden_actions, schema=HIDDEN_ACTIONS_SCHEMA),
        counts,
        tuple(problems),
        unreadable,
    )


def _entry(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "id": trajectory.id,
        "task_id": trajectory.task.task_id,
        "success": trajectory.result.success,
        "steps": len(trajectory.steps),
        "application": trajectory.task.application,
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
