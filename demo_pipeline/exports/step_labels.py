"""Exports labels for reward models: of whole demonstrations, and of the steps of good ones.

Belongs here: the model of a row, from which its JSON Schema is made, which demonstrations take
part, and the rows. `<split>.parquet` has labels of steps, `outcome/<split>.parquet` one label per
demonstration.

A recording says whether its task was done, and nothing about single steps. That a task was done
shows that it could still be done after every step on the way, also after one that was undone; that
a task was not done shows nothing about any step. So of demonstrations that nobody reviewed only
those that did their task have labels of steps, all of them true, and the others have a label as a
whole. A step that a reviewer marked as bad, or an annotation calls incorrect, is false. Of a
demonstration that did not do its task the first such step ends the labels: those before it passed
the review or have verdicts, of those after it nothing is known. Rejected
demonstrations take part unless they are of no use at all.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from demo_pipeline.datasets.selection import NOT_APPROVED, Candidate
from demo_pipeline.datasets.splits import (
    ExportPlan,
    Split,
    assign_splits,
    connected_groups,
    plan_export,
    plan_splits,
)
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.exports.answers import action_text
from demo_pipeline.exports.cudag.models import cudag_id
from demo_pipeline.exports.form import Excluded, File, Form, KeptRow, Row, Source, Table, of_row
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    row_schema,
    schema_file,
)
from demo_pipeline.exports.step_facts import CANVAS, is_off_screen
from demo_pipeline.files.base_model import Document
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import INCOMPLETE, has_picture, recorded_outcome
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

STEP_LABELS_SCHEMA_FILE = "step_labels.schema.json"
OUTCOME_FOLDER = "outcome"


class StepLabelsRow(Document):
    """A demonstration with labels.

    In `<split>.parquet` a completion is a step, and its label says whether the task could still be
    done after it: the person went on to do it, or a reviewer found the step bad. In `outcome/` the
    one completion is the whole demonstration, and its label says whether the task was done.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    application: str
    outcome: Literal["success", "failed", "aborted", "unknown"] = Field(
        description="as recorded or reviewed"
    )
    steps: int = Field(ge=1, description="number of steps, of those with labels")
    prompt: str = Field(min_length=1, description="the instruction")
    completions: list[str] = Field(min_length=1)
    labels: list[bool] = Field(min_length=1)
    images: list[str] = Field(
        description="the screenshot before every step, and in `outcome/` the last one: paths below"
        " the folder"
    )


def _pictures(row: StepLabelsRow) -> Iterator[tuple[str, str]]:
    return ((f"images[{number}]", name) for number, name in enumerate(row.images))


def _step_faults(row: StepLabelsRow, _files: NamedFiles) -> Iterator[Fault]:
    if not len(row.completions) == len(row.labels) == len(row.images) == row.steps:
        yield Fault("lengths", "completions, labels and images must have one item per step")
    if row.outcome != "success" and (all(row.labels) or not all(row.labels[:-1])):
        message = "labels: of a task that was not done, only the first bad step and those before it"
        yield Fault("unknown_label", message)


def _outcome_faults(row: StepLabelsRow, _files: NamedFiles) -> Iterator[Fault]:
    if len(row.completions) != 1 or len(row.labels) != 1 or len(row.images) != row.steps + 1:
        message = "there must be one completion with one label, and a picture more than steps"
        yield Fault("lengths", message)
    if row.labels != [row.outcome == "success"]:
        yield Fault("wrong_label", "labels: differs from the outcome")
    actions = [line for line in row.completions[0].split("\n") if line.startswith("{")]
    if len(actions) != row.steps:
        yield Fault("lengths", "completions[0]: must have a line of JSON per step")


STEP_LABELS_FORMAT = RecordFormat(StepLabelsRow, _pictures, _step_faults)
OUTCOME_FORMAT = RecordFormat(StepLabelsRow, _pictures, _outcome_faults)


_NOT_DONE = {"wrong_task", "unfinished", "wrong_result"}  # reasons that say so
_USELESS = {"private_data", "broken_recording", "duplicate", "other"}  # reasons to use nothing
TORN_TASK = "torn_task"  # it would join tasks that other exports have in two splits


def plan_labels(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> ExportPlan:
    """The plan of all other exports, with the failed demonstrations added.

    Demonstrations that were completed without doing their task take part, whatever
    `include_failed` is, and rejected ones but those of `_USELESS`. Aborted ones do not unless
    `include_aborted` is set: that the person did not say that the task was done does not say that
    it was not.

    The added ones get the split of their task and change no other's split. One whose task groups
    are in two splits is left out as `torn_task`.
    """
    selection, splits = plan_splits(trajectories, settings)
    known = {candidate.source.id for candidate in selection.chosen}
    unwanted = {key for key, one in selection.left_out.items() if one.reason == NOT_APPROVED}
    if settings.require_review != "none":
        unwanted |= {one.id for one in trajectories if one.rejected_for in _USELESS}
    wider = settings.model_copy(update={"include_failed": True, "require_review": "none"})
    plan = plan_export([one for one in trajectories if one.id not in unwanted], wider)
    others = [one for one in plan.selection.chosen if one.source.id not in known]
    known_groups = {one.source.id: one.split_groups for one in (*selection.chosen, *others)}
    groups = connected_groups(known_groups)
    placed: dict[str, set[Split]] = {}
    for key in known:
        placed.setdefault(groups[key], set()).add(splits.splits[key])
    members = {one.source.id: groups[one.source.id] for one in plan.selection.chosen}
    applications = {one.source.id: one.application for one in plan.selection.chosen}
    # By hash and application alone: no empty split is filled.
    hashed = assign_splits(members, settings, applications, besides=frozenset(members)).splits
    assigned = {
        key: split
        for key, group in members.items()
        if (split := splits.splits.get(key) or _joined(hashed[key], placed.get(group, set())))
    }
    chosen = tuple(one for one in plan.selection.chosen if one.source.id in assigned)
    excluded = Counter(plan.selection.excluded)
    excluded.update(one.reason for key, one in selection.left_out.items() if key in unwanted)
    excluded[TORN_TASK] = len(plan.selection.chosen) - len(chosen)
    members = {key: group for key, group in members.items() if key in assigned}
    groups_of = {group: assigned[key] for key, group in members.items()}
    return replace(
        plan,
        selection=replace(plan.selection, chosen=chosen, excluded=excluded),
        splits=replace(splits, splits=assigned, groups=groups_of, members=members),
    )


def _joined(hashed: Split, placed: Collection[Split]) -> Split | None:
    """The split of a demonstration that other exports do not have; None: it fits no split.

    Args:
        hashed: the split by hash and application.
        placed: the splits of its task in other exports.
    """
    wanted = {*placed} or {hashed}
    if len(wanted) > 1 or (hashed is Split.HELD_OUT and wanted != {hashed}):
        return None
    return next(iter(wanted))


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yield the record of a demonstration: one that did its task gives two rows."""
    trajectory = source.trajectory
    candidate = source.candidate
    reason = _exclusion(source)
    end = trajectory.steps[-1].index + 1 if trajectory.steps else 0
    if not reason and end in candidate.incomplete:  # a row is all or nothing
        reason = INCOMPLETE
    if reason:
        yield Excluded(reason)
        return
    pictures = [step.screenshot for step in trajectory.steps] + [trajectory.final_screenshot]
    files = {source.name(path): path for path in pictures}
    row = _labelled(source) | {"images": list(files)}
    done = row["outcome"] == "success"
    trailing = map(hidden_words, candidate.hidden.before(end))
    whole = "\n".join([*row["completions"], *trailing])
    parts = {"outcome": row | {"completions": [whole], "labels": [done]}}
    said = {step.index: trajectory.note(step.index, "step_correct") for step in trajectory.steps}
    labels = [said[n] is not False and n not in candidate.bad_steps for n in said]
    if done or (not all(labels) and _passed_before(trajectory, labels.index(False))):
        steps = row | {"labels": labels, "images": row["images"][:-1]}
        parts["steps"] = steps if done else _until_bad(steps)
    yield Row(row["id"], row["prompt"], pictures[0], parts, files)


def _passed_before(trajectory: Trajectory, place: int) -> bool:
    """Whether it is known that the steps before a bad one are good: by a review, or by verdicts."""
    number = trajectory.steps[place].index
    found = trajectory.notes.get(number, {}).get("step_correct")
    reviewed = found is None or found.source == "human"
    before = (trajectory.note(step.index, "step_correct") for step in trajectory.steps[:place])
    return reviewed or all(before)


def _until_bad(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of steps up to the first bad one."""
    steps = row["labels"].index(False) + 1
    cut = {name: row[name][:steps] for name in ("completions", "labels", "images")}
    return {**row, **cut, "steps": steps}


def _exclusion(source: Source) -> str:
    """Why a demonstration has no row; empty when it has."""
    steps = source.trajectory.steps
    rows = source.rows
    if not steps:
        return "no_step"
    if any(is_off_screen(step.action, rows[step.index], CANVAS) for step in steps):
        return "off_screen"
    files = [step.screenshot for step in steps] + [source.trajectory.final_screenshot]
    without = not all(has_picture(rows[step.index]) for step in steps)
    return "missing_frame" if without or not all(file.is_file() for file in files) else ""


def _labelled(source: Source) -> dict[str, Any]:
    """The row of all steps without labels and pictures."""
    trajectory = source.trajectory
    hidden = source.candidate.hidden
    completions = []
    for step in trajectory.steps:
        text = action_text(step.action.action_type, step.action.parameters)
        completions.append("\n".join([*map(hidden_words, hidden.before(step.index)), text]))
    status = source.rows[trajectory.steps[0].index]["status"]
    outcome = recorded_outcome(status, success=trajectory.result.success)
    return {
        "id": cudag_id(trajectory.id),
        "trajectory_id": source.id,
        "application": source.application,
        "outcome": "success" if outcome == "done" else outcome,
        "steps": len(trajectory.steps),
        "prompt": source.instruction,
        "completions": completions,
    }


def _table(_settings: DatasetSettings) -> Table:
    return Table(row_schema(StepLabelsRow))


class StepLabelsForm(Form):
    """Takes failed and rejected demonstrations too, whose rows depend on reviews."""

    def plan(
        self, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
    ) -> ExportPlan:
        """The plan of step labels, which has failed demonstrations."""
        return plan_labels(trajectories, settings)

    def skips(self, _screenshot: Path, _bad_steps: AbstractSet[Path]) -> bool:
        """A bad step is a label, so its row stays."""
        return False

    def parts_of(
        self, candidate: Candidate, row: KeptRow, settings: DatasetSettings
    ) -> Mapping[str, Any]:
        """The parts without what the review of a rejected demonstration contradicts.

        Its task was not done, and a step without a mark has no label.
        """
        if settings.require_review == "none" or not candidate.source.rejected_for:
            return row.parts
        parts = dict(row.parts)
        if candidate.source.rejected_for in _NOT_DONE and parts["outcome"]["outcome"] == "success":
            failed = {"outcome": "failed"}
            parts["outcome"] = {**parts["outcome"], **failed, "labels": [False]}
            if "steps" in parts and not all(parts["steps"]["labels"]):
                parts["steps"] = _until_bad(parts["steps"]) | failed
        if "steps" in parts and all(parts["steps"]["labels"]):
            del parts["steps"]
        return parts


FORM = StepLabelsForm(
    name="step_labels",
    asset="step_labels_dataset",
    folder="step_labels",
    description="Demonstrations for reward models, in TRL's form of stepwise supervision: a label "
    "per step of those that did their task or were reviewed, and a label per demonstration of all. "
    "Failed and rejected demonstrations are in this export, and in no other.",
    code_version="14",
    kinds=frozenset({"parquet"}),
    settings=("max_hidden_share",),
    exclusions=("off_screen", "missing_frame", "no_step", INCOMPLETE),
    rows=_rows,
    files=(
        File("steps", "{split}.parquet", _table, checked=STEP_LABELS_FORMAT, config="default"),
        File(
            "outcome",
            f"{OUTCOME_FOLDER}/{{split}}.parquet",
            _table,
            checked=OUTCOME_FORMAT,
            config="outcome",
        ),
    ),
    check="step_labels_schema",
    kind_of=of_row("outcome", "outcome"),
    marks=(STEP_LABELS_SCHEMA_FILE,),
    side_files=schema_file(STEP_LABELS_SCHEMA_FILE, StepLabelsRow),
    hub=(
        HubTable(
            "step_labels",
            "a demonstration, as TRL's stepwise supervision: true says that the task could still "
            "be done after the step, false that a reviewer found it bad; without pictures",
            without=("images",),
            task_categories=("text-classification",),
        ),
        HubTable(
            "outcome_labels",
            "a demonstration, also one that failed, with one label: whether its task was done; "
            "without pictures",
            folder=OUTCOME_FOLDER,
            without=("images",),
            task_categories=("text-classification",),
        ),
    ),
)
