"""Exports labels for reward models: one per demonstration and, where known, one per step.

`outcome/<split>.parquet` has a label for each demonstration: whether its task was done.

`<split>.parquet` has labels of steps: whether the task could still be done after the step.

- If the task was done, bad steps are labelled false and all others true, even steps that were
  undone later.
- If the task was not done, labels exist only if there is a bad step and the steps before it are
  known to be good. They are known to be good if a person marked the bad step, or if annotations
  call the earlier steps correct. The labels end with the first bad step.

A step is bad if a reviewer marked it as bad, or if an annotation calls it incorrect.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from demo_pipeline.datasets.selection import NOT_APPROVED, Candidate, Selection
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
    """A demonstration with labels, in the format of TRL's stepwise supervision.

    In `<split>.parquet`, each completion is a step. In `outcome/<split>.parquet`, the only
    completion is the whole demonstration.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    application: str
    outcome: Literal["success", "failed", "aborted", "unknown"] = Field(
        description="outcome of the task, as recorded or as a reviewer decided"
    )
    steps: int = Field(ge=1, description="number of steps in this row")
    prompt: str = Field(min_length=1, description="the instruction of the task")
    completions: list[str] = Field(min_length=1)
    labels: list[bool] = Field(min_length=1)
    images: list[str] = Field(
        description="paths of the screenshots before each step, relative to the folder of the "
        "export; in `outcome/`, also the path of the final screenshot"
    )


def _pictures(row: StepLabelsRow) -> Iterator[tuple[str, str]]:
    return ((f"images[{number}]", name) for number, name in enumerate(row.images))


def _step_faults(row: StepLabelsRow, _files: NamedFiles) -> Iterator[Fault]:
    """Yields the faults of a row with labels of steps."""
    if not len(row.completions) == len(row.labels) == len(row.images) == row.steps:
        yield Fault("lengths", "completions, labels and images must have one item per step")
    if row.outcome != "success" and (all(row.labels) or not all(row.labels[:-1])):
        message = "labels: of a task that was not done, only the first bad step and those before it"
        yield Fault("unknown_label", message)


def _outcome_faults(row: StepLabelsRow, _files: NamedFiles) -> Iterator[Fault]:
    """Yields the faults of a row with the label of a demonstration."""
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


# If a demonstration was rejected for one of these reasons, its task was not done.
_NOT_DONE = {"wrong_task", "unfinished", "wrong_result"}
# A demonstration that was rejected for one of these reasons is never exported.
_USELESS = {"private_data", "broken_recording", "duplicate", "other"}
# Reason to leave out a demonstration for which `_split_of_task` finds no split.
TORN_TASK = "torn_task"


def plan_labels(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> ExportPlan:
    """Returns which demonstrations are exported, and in which split.

    The plan contains the demonstrations that exports of steps contain. It also contains failed
    demonstrations and, unless the reason is in `_USELESS`, rejected demonstrations. Demonstrations
    that lack a required approval are left out. Aborted demonstrations count as not done, although
    their task may have been done. Therefore they are included only if `include_aborted` is set.

    A demonstration that no other export contains gets the split of its task in other exports. If
    no other export has its task, its hash and application decide the split. A demonstration is
    left out as `torn_task` if other exports have its task in two splits, or if they have its task
    in train, val or test, although an application of its group is held out.
    """
    selection, splits = plan_splits(trajectories, settings)
    unwanted_ids = _unwanted_ids(trajectories, settings, selection)
    wanted = [trajectory for trajectory in trajectories if trajectory.id not in unwanted_ids]
    wider = settings.model_copy(update={"include_failed": True, "require_review": "none"})
    plan = plan_export(wanted, wider)
    chosen = plan.selection.chosen
    groups = connected_groups(
        {candidate.source.id: candidate.split_groups for candidate in (*selection.chosen, *chosen)}
    )
    splits_of_tasks: dict[str, set[Split]] = {}
    for candidate in selection.chosen:
        name = candidate.source.id
        splits_of_tasks.setdefault(groups[name], set()).add(splits.splits[name])
    members = {candidate.source.id: groups[candidate.source.id] for candidate in chosen}
    applications = {candidate.source.id: candidate.application for candidate in chosen}
    # `besides` keeps `assign_splits` from moving demonstrations to empty splits. Therefore
    # the split of a demonstration depends only on its hash and application.
    hashed = assign_splits(members, settings, applications, besides=frozenset(members)).splits
    assigned = dict[str, Split]()
    for name, group in members.items():
        split = splits.splits.get(name)
        if split is None:
            split = _split_of_task(hashed[name], splits_of_tasks.get(group, set()))
        if split is not None:
            assigned[name] = split
    placed = tuple(candidate for candidate in chosen if candidate.source.id in assigned)
    excluded = Counter(plan.selection.excluded)
    for name, left_out in selection.left_out.items():
        if name in unwanted_ids:
            excluded[left_out.reason] += 1
    excluded[TORN_TASK] = len(chosen) - len(placed)
    members = {name: group for name, group in members.items() if name in assigned}
    split_of_group = {group: assigned[name] for name, group in members.items()}
    return replace(
        plan,
        selection=replace(plan.selection, chosen=placed, excluded=excluded),
        splits=replace(splits, splits=assigned, groups=split_of_group, members=members),
    )


def _unwanted_ids(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings, selection: Selection
) -> set[str]:
    """Returns the ids of demonstrations that must not be exported."""
    ids = set[str]()
    for name, left_out in selection.left_out.items():
        if left_out.reason == NOT_APPROVED:
            ids.add(name)
    if settings.require_review == "none":
        return ids
    for trajectory in trajectories:
        if trajectory.rejected_for in _USELESS:
            ids.add(trajectory.id)
    return ids


def _split_of_task(hashed: Split, splits_of_task: Collection[Split]) -> Split | None:
    """Returns the split of a demonstration that is in no other export; None if no split fits.

    Args:
        hashed: the split that follows from the demonstration's hash and application.
        splits_of_task: the splits of the demonstration's task in other exports.
    """
    if not splits_of_task:
        return hashed
    if len(splits_of_task) > 1:
        return None
    (split,) = splits_of_task
    if hashed is Split.HELD_OUT and split is not Split.HELD_OUT:
        return None
    return split


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields the row of a demonstration, or the reason to leave it out.

    `Row.parts` has the key `steps` only if labels of steps are known.
    """
    trajectory = source.trajectory
    candidate = source.candidate
    if reason := _exclusion(source):
        yield Excluded(reason)
        return
    screenshots = [step.screenshot for step in trajectory.steps] + [trajectory.final_screenshot]
    files = {source.name(path): path for path in screenshots}
    row = _unlabelled_row(source) | {"images": list(files)}
    is_done = row["outcome"] == "success"
    end = trajectory.steps[-1].index + 1
    trailing = map(hidden_words, candidate.hidden.before(end))
    whole = "\n".join([*row["completions"], *trailing])
    parts = {"outcome": row | {"completions": [whole], "labels": [is_done]}}
    labels = list[bool]()
    for step in trajectory.steps:
        is_wrong = trajectory.note(step.index, "step_correct") is False
        labels.append(not is_wrong and step.index not in candidate.bad_steps)
    labelled = row | {"labels": labels, "images": row["images"][:-1]}
    if is_done:
        parts["steps"] = labelled
    elif not all(labels) and _are_known_good(trajectory, labels.index(False)):
        parts["steps"] = _until_bad(labelled)
    yield Row(row["id"], row["prompt"], screenshots[0], parts, files)


def _are_known_good(trajectory: Trajectory, place: int) -> bool:
    """Returns whether the steps before the first bad step are known to be good.

    Args:
        place: position of the first bad step in `trajectory.steps`.
    """
    index = trajectory.steps[place].index
    verdict = trajectory.notes.get(index, {}).get("step_correct")
    if verdict is None or verdict.source == "human":
        return True  # a reviewer marked the bad step, and so has seen the steps before it
    return all(trajectory.note(step.index, "step_correct") for step in trajectory.steps[:place])


def _until_bad(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a row without the steps after the first bad step."""
    steps = row["labels"].index(False) + 1
    shortened = {name: row[name][:steps] for name in ("completions", "labels", "images")}
    return {**row, **shortened, "steps": steps}


def _exclusion(source: Source) -> str:
    """Returns why a demonstration cannot have a row; empty if it can."""
    trajectory = source.trajectory
    steps = trajectory.steps
    if not steps:
        return "no_step"
    if any(is_off_screen(step.action, source.rows[step.index], CANVAS) for step in steps):
        return "off_screen"
    for step in steps:
        if not has_picture(source.rows[step.index]) or not step.screenshot.is_file():
            return "missing_frame"
    if not trajectory.final_screenshot.is_file():
        return "missing_frame"
    if steps[-1].index + 1 in source.candidate.incomplete:
        return INCOMPLETE
    return ""


def _unlabelled_row(source: Source) -> dict[str, Any]:
    """Returns a row with all steps, but without the columns for labels and images."""
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
    """Exports labels. Failed and rejected demonstrations are exported, too."""

    def plan(
        self, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
    ) -> ExportPlan:
        """Returns the plan that includes failed and rejected demonstrations; see `plan_labels`."""
        return plan_labels(trajectories, settings)

    def skips(self, _screenshot: Path, _bad_steps: AbstractSet[Path]) -> bool:
        """Returns False, because rows contain bad steps with the label false."""
        return False

    def parts_of(
        self, candidate: Candidate, row: KeptRow, settings: DatasetSettings
    ) -> Mapping[str, Any]:
        """Returns the parts of a row, corrected if a reviewer rejected the demonstration.

        If the reviewer found that the task was not done, the demonstration's label becomes false,
        and the labels of steps end with the first bad step. After any rejection, the labels of
        steps are removed if no step is bad. If the setting `require_review` is `none`, rejections
        are ignored.
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
    description="Demonstrations for training reward models, in TRL's format for stepwise "
    "supervision: a label for each step of successful or reviewed demonstrations,"
    " and a label for the outcome of every demonstration. By default, other "
    "exports leave out failed and rejected demonstrations.",
    code_version="15",
    kinds=frozenset({"parquet"}),
    settings=(),
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
            "a demonstration with a label for each step, in TRL's format: true if the task could "
            "still be done after the step, false if the step was judged bad; without images",
            without=("images",),
            task_categories=("text-classification",),
        ),
        HubTable(
            "outcome_labels",
            "a demonstration, successful or not, with a label that says whether the task was done; "
            "without images",
            folder=OUTCOME_FOLDER,
            without=("images",),
            task_categories=("text-classification",),
        ),
    ),
)
