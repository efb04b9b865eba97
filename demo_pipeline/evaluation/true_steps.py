"""The steps that a model is asked about, with the answer that counts as right.

They are chosen by the loop of the training exports, so that they are the steps of the datasets.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.datasets.selection import BAD_STEP, Candidate, load_corrected
from demo_pipeline.datasets.splits import ExportPlan, Split
from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    HotkeyParameters,
    points,
)
from demo_pipeline.desktopd.trajectory_reader import StepFiles, Trajectory
from demo_pipeline.exports.answers import Answer, AnsweredAction, ForeignAction, answered_key
from demo_pipeline.exports.assemble import ExportSummary, each_row
from demo_pipeline.exports.cudag.records import DRAFT_EXCLUSIONS, RecordDraft, record_drafts
from demo_pipeline.exports.form import Excluded, Source, question
from demo_pipeline.exports.native_pictures import natively
from demo_pipeline.exports.step_facts import hovered_places
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

OTHER_SPLIT = "other_split"
TERMINATE = "terminate"  # the kind of the last step, which ends the task
TargetBox = tuple[float, float, float, float]
ScreenPoint = tuple[float, float]


@dataclass(frozen=True, slots=True)
class TrueStep:
    """A step with its right answer.

    Attributes:
        step_index: 0-based; the number of steps for the closing `terminate`.
        task: the task group; demonstrations of the same task are in one group.
        size: width and height of the screenshot, pixels.
        answer: what the person did: one action, or a status and no action.
        box: left, top, width and height of the target, pixels; None: not known.
        tolerance: of the CUDAG test, RU (1000 per axis).
        centre: place that the CUDAG test expects, pixels; None: that of the action.
    """

    trajectory_id: str
    step_index: int
    task: str
    application: str
    platform: str
    difficulty: str
    size: tuple[int, int]
    answer: Answer
    box: TargetBox | None = None
    tolerance: tuple[int, int] = (0, 0)
    centre: tuple[int, int] | None = None
    screenshot: Path = Path()

    @property
    def action(self) -> AnsweredAction | None:
        """What the person did; None for the step that ends the task."""
        first = self.answer.actions[0] if self.answer.actions else None
        return first if isinstance(first, AnsweredAction) else None

    @property
    def kind(self) -> str:
        """What the person did, in one word; see `action_kind`."""
        return action_kind(self.action) if self.action else TERMINATE


def action_kind(action: AnsweredAction | ForeignAction) -> str:
    """`left_click`, `triple_click`, `scroll` and so on; of a foreign action its own name.

    A click with the right button and a `right_click` are the same.
    """
    if isinstance(action, ForeignAction):
        return action.name
    if action.action_type is ActionType.CLICK and isinstance(action.parameters, ClickParameters):
        triple = action.parameters.clicks == 3 and action.parameters.button == "left"
        return "triple_click" if triple else f"{action.parameters.button}_click"
    return action.action_type.value


def places(action: AnsweredAction | ForeignAction) -> tuple[ScreenPoint, ...]:
    """The points of an action, pixels: none, one, or both ends of a drag."""
    if isinstance(action, ForeignAction):
        return () if action.point is None else (action.point,)
    return tuple(points(action))


def in_box(point: ScreenPoint, box: TargetBox) -> bool:
    """Whether a point is in a box or on its edge."""
    left, top, width, height = box
    return left <= point[0] <= left + width and top <= point[1] <= top + height


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A true step and the record that the training exports make of it."""

    step: TrueStep
    draft: RecordDraft
    candidate: Candidate
    trajectory: Trajectory


def each_true_step(
    plan: ExportPlan,
    settings: DatasetSettings,
    splits: Collection[Split],
    receive: Callable[[StepRecord], None],
    *,
    absolute: bool = False,
    native: bool = False,
) -> ExportSummary:
    """Call `receive` with every step of the splits, by trajectory id and step.

    They are the steps that the messages export and the CUDAG dataset hold. One trajectory is in
    memory at a time. `absolute`: see `record_drafts`; `native`: with the screen's own pictures.
    """

    def take(_candidate: Candidate, split: Split, record: StepRecord) -> str:
        if split not in splits:
            return OTHER_SPLIT
        receive(record)
        return ""

    def records(candidate: Candidate) -> tuple[Mapping[str, int], Iterator[StepRecord]]:
        loaded = load_corrected(candidate.source)
        made_of = Source(candidate, loaded.trajectory, loaded.rows, settings)
        task = plan.splits.members[candidate.source.id]
        return _records(natively(made_of) if native else made_of, task, absolute=absolute)

    tally = each_row(
        plan,
        records,
        lambda record: question(record.draft.prompt, file_digest(record.draft.screenshot)),
        take,
    )
    return tally.summary(plan, "steps", (*DRAFT_EXCLUSIONS, OTHER_SPLIT))


def _records(
    made_of: Source, task: str, *, absolute: bool
) -> tuple[Mapping[str, int], Iterator[StepRecord]]:
    """A record of every step that the exports of steps write, and what is left out by reason."""
    candidate = made_of.candidate
    trajectory = made_of.trajectory
    rows = made_of.rows
    steps = {step.index: step for step in trajectory.steps}
    excluded = Counter[str]()
    found = list[StepRecord]()
    for draft in record_drafts(made_of, absolute=absolute):
        if isinstance(draft, Excluded):
            excluded[draft.reason] += 1
        elif draft.metadata.step_index in candidate.bad_steps:
            excluded[BAD_STEP] += 1
        else:
            files = steps.get(draft.metadata.step_index)
            step = _true_step(draft, files, task, trajectory, rows)
            found.append(StepRecord(step, draft, candidate, trajectory))
    return excluded, iter(found)


def _true_step(
    draft: RecordDraft,
    files: StepFiles | None,
    task: str,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
) -> TrueStep:
    known = draft.metadata
    row = rows.get(known.step_index) or (rows[min(rows)] if rows else {})
    answer = Answer((), draft.calls[-1].arguments.get("status"))
    box = None
    if files is not None:
        parameters = files.action.parameters
        if isinstance(parameters, HotkeyParameters):  # named as the decoders name those of answers
            keys = list(map(answered_key, parameters.keys))
            parameters = parameters.model_copy(update={"keys": keys})
        action = AnsweredAction(files.action.action_type, parameters, hovered_places(row))
        sides = [row[f"target_{side}"] for side in ("x", "y", "width", "height")]
        answer = Answer((action,))
        box = None if None in sides else tuple(sides)
    return TrueStep(
        trajectory_id=trajectory.id,
        step_index=known.step_index,
        task=task,
        application=trajectory.task.application,
        platform=str(row.get("platform") or "unknown"),
        difficulty=str(trajectory.task.difficulty),
        size=known.image_size,
        answer=answer,
        box=box,
        tolerance=draft.tested.tolerance if draft.tested else known.tolerance,
        centre=draft.tested.point if draft.tested else None,
        screenshot=draft.screenshot,
    )
