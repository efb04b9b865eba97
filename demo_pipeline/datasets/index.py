"""Writes the index of a trajectory dataset.

OSWorld-Desktopd defines `index.json` and `metadata.json`. The Parquet tables contain the same facts
and more, for queries. The index includes failed trajectories, even if training exports leave them
out.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from demo_pipeline.datasets.selection import (
    TRAJECTORY_FILE,
    Head,
    facts_of,
    judged_success,
    load_corrected,
)
from demo_pipeline.datasets.splits import Split, plan_splits
from demo_pipeline.desktopd.models import Creator, Difficulty, Index, Metadata
from demo_pipeline.files.json_files import dump_json, dump_long_json
from demo_pipeline.files.parquet import (
    COUNT,
    TEXT,
    TableWriter,
    described_schema,
    fitting,
    one_of,
    rows_table,
    whole_table,
)
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import EXPORT_NAME, DatasetSettings, TrajectorySettings
from demo_pipeline.trajectories.pointer_leaks import LeakRates, check_leak_rates, leak_rates
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    PROVENANCE_SCHEMA,
    QUEST_COLUMNS,
    QUEST_NAMES,
    HiddenReason,
    ProvenanceRow,
    has_picture,
    hidden_rows,
    recorded_outcome,
)
from demo_pipeline.trajectories.trajectory_loading import (
    DatasetTrajectory,
    sorted_by_id,
)

INDEX_FILE = "index.json"
METADATA_FILE = "metadata.json"
EXPORTS_FILE = "exports.json"
EXPORTS_TABLE = "exports.parquet"
ExportStatus = Literal["built", "outdated", "failed", "missing", "disabled"]
EXPORTS_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        (
            "split",
            pa.string(),
            True,
            "train, val, test or held_out; null if no training export contains the trajectory",
        ),
        (
            "split_group",
            pa.string(),
            False,
            "group of trajectories that are always in the same split",
        ),
        (
            "left_out",
            pa.string(),
            True,
            "why exports of single steps leave out the trajectory; null if they contain it",
        ),
        ("export", pa.string(), False, "name of the export, as in the setting datasets.exports"),
        (
            "status",
            pa.string(),
            False,
            "status of the export: built, outdated, failed, missing or disabled",
        ),
        (
            "output",
            pa.string(),
            True,
            "name of the export's output in the store; null if no version exists",
        ),
        (
            "version",
            pa.string(),
            True,
            "id of the version whose records were counted; null if no version exists",
        ),
        (
            "bytes",
            pa.int64(),
            True,
            "size of all files of this version in bytes; null if no version exists",
        ),
        ("records", pa.int32(), False, "number of records of this trajectory in the export"),
    ),
    {
        "trajectory_id split_group left_out": TEXT,
        "split": one_of(*Split),
        "export": fitting(EXPORT_NAME),
        "status": one_of(*get_args(ExportStatus)),
        "version": TEXT.where("output"),
        "bytes": COUNT.where("output"),
        "records": COUNT,
    },
)
# Number of trajectories whose rows of `exports.parquet` are built at once, to limit the memory.
_MEMBERS_IN_MEMORY = 256


@dataclass(frozen=True, slots=True)
class ExportState:
    """The state of a training export in the store.

    Attributes:
        name: name of the export in the setting `datasets.exports`.
        asset: name of the Dagster asset of the export.
        status: `built` if the export was built from the current trajectories and settings.
            `outdated` if trajectories, settings or code have changed since the build. `failed` if
            the last build failed; an earlier version may still exist. `missing` if the export was
            never built, or if a file of its version is missing or damaged. `disabled` if the export
            is not in `datasets.exports`.
        output: name of the output in the store, or empty if no version is committed.
        version: id of the committed version, or empty if no version is committed.
        size: size of all files of the version in bytes.
        records: maps trajectory ids to the number of records in the version.
        reason: reason why the last build failed, either the name of a check or the kind of error.
    """

    name: str
    asset: str
    status: ExportStatus
    output: str = ""
    version: str = ""
    size: int = 0
    records: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def fingerprint(self) -> str:
        """A text that changes if the status, the version or the reason changes."""
        return " ".join(filter(None, (self.status, self.output, self.version, self.reason)))

    def as_dict(self) -> dict[str, Any]:
        """Returns the state as it is written to `exports.json`."""
        return {
            "asset": self.asset,
            "status": self.status,
            "reason": self.reason or None,
            "output": self.output or None,
            "version": self.version or None,
            "bytes": self.size,
            "trajectories": len(self.records),
            "records": sum(self.records.values()),
        }


def write_exports(
    out: Path,
    exports: Sequence[ExportState],
    members: Sequence["_Member"],
) -> None:
    """Writes `exports.json` and `exports.parquet`."""
    document = {
        "exports": {state.name: state.as_dict() for state in exports},
        "trajectories": {},
    }
    entries = ((member.trajectory, _as_json(member, exports)) for member in members)
    dump_long_json(out / EXPORTS_FILE, document, "trajectories", entries)
    tables = []
    if exports:
        for start in range(0, len(members), _MEMBERS_IN_MEMORY):
            some_members = members[start : start + _MEMBERS_IN_MEMORY]
            tables.append(rows_table(_columns(some_members, exports), EXPORTS_SCHEMA))
    with whole_table(out / EXPORTS_TABLE, EXPORTS_SCHEMA) as writer:
        if tables:
            writer.write(pa.concat_tables(tables).combine_chunks())


class _Member(NamedTuple):
    """A trajectory of the index, and whether training exports contain it.

    Attributes:
        trajectory: id of the trajectory.
        split: the split of the trajectory in all exports, or None if no export contains it.
        split_group: the group of the trajectory. All trajectories of a group are in one split.
        left_out: reason why exports of steps leave out the trajectory, or None if they contain it.
    """

    trajectory: str
    split: str | None
    split_group: str
    left_out: str | None


def _as_json(member: _Member, exports: Sequence[ExportState]) -> dict[str, Any]:
    """Returns a trajectory as it is written to `exports.json`."""
    records = {}
    for state in exports:
        if state.version:
            records[state.name] = state.records.get(member.trajectory, 0)
    return {
        "split": member.split,
        "split_group": member.split_group,
        "left_out": member.left_out,
        "records": records,
    }


def _columns(members: Sequence[_Member], exports: Sequence[ExportState]) -> list[list[Any]]:
    """Returns the columns of `exports.parquet`, with a row for each trajectory and export."""
    columns: list[list[Any]] = [[] for _ in EXPORTS_SCHEMA.names]
    for member in members:
        for state in exports:
            records = state.records.get(member.trajectory, 0)
            row = (*member, *_columns_of_export(state), records)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    return columns


def _columns_of_export(state: ExportState) -> tuple[Any, ...]:
    """Returns the values of an export for the columns from `export` to `bytes`."""
    size = state.size if state.version else None
    return (state.name, state.status, state.output or None, state.version or None, size)


def _members(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> list[_Member]:
    """Returns all trajectories that can be read, sorted by id."""
    selection, plan = plan_splits(trajectories, settings)
    members = []
    for candidate in selection.chosen:
        key = candidate.source.id
        group = replace_surrogates(plan.members[key])
        left_out = None if candidate.gives_steps else "incomplete"
        members.append(_Member(key, plan.splits[key].value, group, left_out))
    for key, excluded in selection.left_out.items():
        group = replace_surrogates(excluded.split_group)
        members.append(_Member(key, None, group, excluded.reason))
    return sorted(members, key=attrgetter("trajectory"))


def _trajectory_row(trajectory: str, head: Head, rows: Sequence[ProvenanceRow]) -> dict[str, Any]:
    """Returns the row of a trajectory in `trajectories.parquet`.

    Args:
        head: facts about the trajectory. `success` already includes a reviewer's verdict.
    """
    task = head.osworld_task_id
    quest = {}
    for name in QUEST_NAMES:
        quest[name] = rows[0][name] if rows else None
    return {
        "trajectory_id": trajectory,
        "task_id": replace_surrogates(head.task_id),
        "osworld_task_id": None if task is None else replace_surrogates(task),
        "application": replace_surrogates(head.application),
        "difficulty": head.difficulty,
        "success": head.success,
        "steps": head.steps,
        "completion_time_ms": head.completion_time_ms,
        "complete": not head.hidden,
        "hidden_actions": len(head.hidden),
        "hidden_reasons": dict.fromkeys(HiddenReason, 0) | head.hidden.by_reason(),
        **quest,
    }


def _shared_columns(
    trajectory: str, head: Head, splits: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Returns the values of `steps.parquet` that all steps of a trajectory share."""
    return {
        "application": replace_surrogates(head.application),
        "instruction": replace_surrogates(head.instruction),
        "outcome": recorded_outcome(head.status, success=head.success),
        "split": splits.get(trajectory),
    }


def _screenshot(row: ProvenanceRow) -> str:
    return f"trajectories/{row['trajectory_id']}/steps/{row['step_index']:03d}/screenshot.png"


_ROWS_IN_MEMORY = 8192  # number of rows (0.5 kB each) that are buffered before writing
STEPS_FILE = "steps.parquet"
TRAJECTORIES_FILE = "trajectories.parquet"
_REASONS = pa.struct([pa.field(reason, pa.int32(), nullable=False) for reason in HiddenReason])
TRAJECTORIES_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        ("task_id", pa.string(), False, "id of the task, as in task.json"),
        (
            "osworld_task_id",
            pa.string(),
            True,
            "id of the matching OSWorld task; null if no task matches",
        ),
        ("application", pa.string(), False, "application of the task, as in task.json"),
        ("difficulty", pa.string(), False, "difficulty of the task: easy, medium or hard"),
        (
            "success",
            pa.bool_(),
            False,
            "whether the task was completed, as recorded or as a reviewer decided",
        ),
        ("steps", pa.int32(), False, "number of steps"),
        (
            "completion_time_ms",
            pa.int64(),
            False,
            "time from the first to the last event of the log, milliseconds",
        ),
        (
            "complete",
            pa.bool_(),
            False,
            "whether screenshots show all actions of the demonstration",
        ),
        ("hidden_actions", pa.int32(), False, "number of actions that no screenshot shows"),
        ("hidden_reasons", _REASONS, False, "number of hidden actions by reason"),
        *QUEST_COLUMNS,
    ),
    {
        "trajectory_id task_id application": TEXT,
        "difficulty": one_of(*Difficulty),
        "steps completion_time_ms hidden_actions": COUNT,
    },
)

INDEX_STEPS_SCHEMA = pa.schema(
    [
        *PROVENANCE_SCHEMA,
        *described_schema(
            (
                ("application", pa.string(), False, "application of the task, as in task.json"),
                ("instruction", pa.string(), False, "instruction of the task, as in task.json"),
                (
                    "outcome",
                    pa.string(),
                    False,
                    "recorded outcome of the demonstration: done, failed, aborted or unknown",
                ),
                (
                    "split",
                    pa.string(),
                    True,
                    "train, val, test or held_out; null if no export contains the trajectory",
                ),
                (
                    "screenshot",
                    pa.string(),
                    False,
                    "path of the step's screenshot, relative to the dataset's folder",
                ),
            ),
            {
                "application instruction screenshot": TEXT,
                "outcome": one_of("done", "failed", "aborted", "unknown"),
                "split": one_of(*Split),
            },
        ),
    ]
)


def build_index(
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    created_by: tuple[str, str],
    exports: Sequence[ExportState] = (),
) -> dict[str, Any]:
    """Writes the JSON files and tables of the index, but not the folder `trajectories`.

    - `trajectories.parquet` has a row per trajectory.
    - `steps.parquet` has a row per step: its provenance, and facts about its trajectory.
    - `hidden_actions.parquet` has a row per action that is not a step because no screenshot shows
      it.

    A reviewer's verdict on success replaces the recorded success in `index.json`,
    `metadata.json` and `trajectories.parquet`.

    Args:
        trajectories: committed and valid trajectories, in any order.
        out: directory to write into, which is created.
        settings: settings of the datasets, written to `metadata.json` as the configuration.
        created_by: name and version of the program.
        exports: the current states of all training exports.

    Returns:
        The summary of the stage: the number of trajectories and steps, counts and rates of leaks
        (see `check_dataset_leaks`), the counts of `metadata.json`, problems of unreadable
        trajectories, and the status of each training export.
    """
    out.mkdir(parents=True, exist_ok=True)
    tally = IndexTally()
    members = _members(trajectories, settings)
    splits = {member.trajectory: member.split for member in members}
    _write_tables(trajectories, splits, out, tally)
    index = Index.model_validate(
        {"total_trajectories": len(tally.entries), "trajectories": [], **tally.outcomes()}
    )
    entries = map(json.loads, tally.entries.values())
    dump_long_json(out / INDEX_FILE, index.model_dump(mode="json"), "trajectories", entries)
    dump_json(out / METADATA_FILE, _metadata(tally, settings, created_by))
    indexed = [member for member in members if member.trajectory in tally.entries]
    write_exports(out, exports, indexed)
    return {
        "trajectories": len(tally.entries),
        **tally.outcomes(),
        "steps": tally.steps,
        "counts": tally.counts(),
        "problems": tuple(tally.problems),
        "exports": {state.name: state.status for state in exports},
        **tally.leaks.as_dict(),
    }


def _write_tables(
    trajectories: Sequence[DatasetTrajectory],
    splits: Mapping[str, str | None],
    out: Path,
    tally: "IndexTally",
) -> None:
    """Writes the tables of trajectories, steps and hidden actions.

    Args:
        splits: maps trajectory ids to splits, or to None for trajectories in `Selection.left_out`.
        tally: counts the trajectories, and collects the problems of unreadable trajectories.
    """
    with (
        TableWriter(out / STEPS_FILE, INDEX_STEPS_SCHEMA, _ROWS_IN_MEMORY) as steps,
        TableWriter(out / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA, _ROWS_IN_MEMORY) as hidden,
        whole_table(out / TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA) as rows,
    ):
        for source in sorted_by_id(trajectories):
            try:
                if TRAJECTORY_FILE not in source.digests:
                    # Without the output of the stage `records`, only a full read finds a missing
                    # file.
                    load_corrected(source)
                head, provenance = facts_of(source)
                verdict = judged_success(source)
            except DemonstrationError as error:
                tally.problems += error.problems
                tally.unreadable += 1
                continue
            shared_columns = _shared_columns(source.id, head, splits)
            if verdict is not None:
                head = replace(head, success=verdict)
            tally.add(source.id, head, provenance)
            for row in provenance:
                steps.append_row(row | shared_columns | {"screenshot": _screenshot(row)})
            for action in hidden_rows(source.id, head.hidden.actions):
                hidden.append_row(action)
            rows.append_row(_trajectory_row(source.id, head, provenance))


_COUNTED = ("actions", "applications", "platforms", "reasons", "freshness", "hidden", "flags")


@dataclass(slots=True)
class IndexTally:
    """Collects the entries of `index.json` and the counts of `metadata.json`.

    Attributes:
        entries: maps trajectory ids to entries of `index.json`. The entries are kept as JSON text,
            which takes a tenth of the memory of objects.
        problems: problems of the unreadable trajectories.
        unreadable: number of trajectories that could not be read.
        successful: number of trajectories whose task was done.
        complete: number of trajectories in which every action is shown by a screenshot.
        steps: number of steps of all readable trajectories.
        by_name: a counter for each item of `_COUNTED`. For example, `actions` counts action types.
        leaks: counts and rates of leaks; see `check_dataset_leaks`.
    """

    entries: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0
    successful: int = 0
    complete: int = 0
    steps: int = 0
    by_name: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in _COUNTED}
    )
    leaks: LeakRates = field(default_factory=LeakRates)

    def add(self, trajectory: str, head: Head, rows: Sequence[ProvenanceRow]) -> None:
        """Adds a trajectory to all counts.

        Args:
            head: facts about the trajectory. `success` already includes a reviewer's verdict.
        """
        count = self.by_name
        entry = {
            "id": trajectory,
            "task_id": head.task_id,
            "success": head.success,
            "steps": head.steps,
            "application": head.application,
        }
        self.entries[trajectory] = json.dumps(entry)
        self.successful += head.success
        self.complete += not head.hidden
        self.steps += len(rows)
        self.leaks += leak_rates(rows)
        count["hidden"].update(head.hidden.by_reason())
        count["applications"][head.application] += 1
        count["flags"]["contaminated"] += head.osworld_task_id is not None
        if rows:
            count["platforms"][rows[0]["platform"]] += 1
        for row in rows:
            count["actions"][row["action_type"]] += 1
            count["reasons"][row["reason_code"]] += 1
            count["freshness"][row["freshness"]] += 1
            count["flags"]["off_screen"] += row["off_screen"]
            count["flags"]["missing_frames"] += not has_picture(row)

    def outcomes(self) -> dict[str, int]:
        """Returns the number of successful trajectories and the number of failed trajectories."""
        return {"successful": self.successful, "failed": len(self.entries) - self.successful}

    def counts(self) -> dict[str, Any]:
        """Returns the counts for `metadata.json`."""
        names = {}
        for subject, counter in self.by_name.items():
            names[subject] = dict(sorted(counter.items()))
        flags = dict.fromkeys(("off_screen", "missing_frames", "contaminated"), 0)
        return {
            "trajectories": len(self.entries),
            **self.outcomes(),
            "complete": self.complete,
            "incomplete": len(self.entries) - self.complete,
            "unreadable": self.unreadable,
            "steps": self.steps,
            "hidden_actions": names["hidden"],
            "actions": names["actions"],
            "applications": names["applications"],
            "platforms": names["platforms"],
            "frame_reasons": names["reasons"],
            "tree_freshness": names["freshness"],
            **self.leaks.as_dict(),
            **flags,
            **names["flags"],
        }


def _metadata(
    tally: IndexTally, settings: DatasetSettings, created_by: tuple[str, str]
) -> Metadata:
    name, version = created_by
    return Metadata(
        name=settings.name_prefix,
        description="Recorded demonstrations of people using computers, one step per action",
        created_by=Creator(name=name, version=version),
        configuration=settings.model_dump(mode="json"),
        counts=tally.counts(),
    )


def check_dataset_leaks(out: Path, settings: TrajectorySettings) -> list[Problem]:
    """Returns a warning for each leak rate of the dataset that is above its limit.

    A screenshot leaks if it already shows the pointer at the target of its step.
    """
    return check_leak_rates(out / STEPS_FILE, settings)
