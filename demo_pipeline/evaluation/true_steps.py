"""Selects the steps that a model is asked about, with their correct answers.

Training exports contain the same steps.
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
from demo_pipeline.exports.assemble import each_row
from demo_pipeline.exports.cudag.records import DRAFT_EXCLUSIONS, RecordDraft, record_drafts
from demo_pipeline.exports.export_summary import ExportSummary
from demo_pipeline.exports.form import Excluded, Source, question
from demo_pipeline.exports.native_pictures import with_native_screenshots
from demo_pipeline.exports.step_facts import hovered_places
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

OTHER_SPLIT = "other_split"
TERMINATE = "terminate"  # kind of the additional last step, in which a model ends the task
TargetBox = tuple[float, float, float, float]
"""Left, top, width and height, in pixels of a screenshot."""
ScreenPoint = tuple[float, float]
"""x and y, in pixels of a screenshot."""


@dataclass(frozen=True, slots=True)
class TrueStep:
    """A step with its correct answer.

    Attributes:
        step_index: index from 0; for the additional step `terminate`, the number of recorded steps.
        task: the task group, which demonstrations of the same task share.
        size: width and height of the screenshot, pixels.
        answer: the person's action, or the status with which the task ended.
        box: the target's box, pixels; None if the target is unknown.
        tolerance: maximum distance in x and y that the CUDAG test accepts, in RU (thousandths of
            the screen's width or height).
        centre: the position that the CUDAG test expects, pixels; None means the action's position.
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
        """The person's action; None for the additional step `terminate`."""
        if not self.answer.actions:
            return None
        first = self.answer.actions[0]
        return first if isinstance(first, AnsweredAction) else None

    @property
    def kind(self) -> str:
        """The kind of the person's action; see `action_kind`."""
        if self.action is None:
            return TERMINATE
        return action_kind(self.action)


def action_kind(action: AnsweredAction | ForeignAction) -> str:
    """Returns the kind of an action, such as `left_click`, `triple_click` or `scroll`.

    A click with the right button and a `right_click` have the same kind. Actions that
    OSWorld-Desktopd does not define keep the name that the model's answer format uses.
    """
    if isinstance(action, ForeignAction):
        return action.name
    parameters = action.parameters
    if action.action_type is ActionType.CLICK and isinstance(parameters, ClickParameters):
        if parameters.clicks == 3 and parameters.button == "left":
            return "triple_click"
        return f"{parameters.button}_click"
    return action.action_type.value


def places(action: AnsweredAction | ForeignAction) -> tuple[ScreenPoint, ...]:
    """Returns the positions of an action in pixels: two for `ActionType.DRAG`, else at most one."""
    if not isinstance(action, ForeignAction):
        return tuple(points(action))
    if action.point is None:
        return ()
    return (action.point,)


def in_box(point: ScreenPoint, box: TargetBox) -> bool:
    """Whether a point is in a box or on its edge."""
    left, top, width, height = box
    return left <= point[0] <= left + width and top <= point[1] <= top + height


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step with its correct answer, and the record of the step in the training exports."""

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
    """Calls `receive` with every step of the splits, in the order of trajectory id and step.

    The messages export and the CUDAG dataset contain the same steps. One trajectory is in memory at
    a time.

    Args:
        plan: assigns demonstrations to splits.
        settings: determine which steps are excluded.
        splits: the splits whose steps are passed to `receive`.
        absolute: see `record_drafts`.
        native: whether to use screenshots in the resolution of the screen instead of those on the
            canvas.

    Returns:
        The counts of the passed and of the excluded steps.
    """

    def take(_candidate: Candidate, split: Split, record: StepRecord) -> str:
        if split not in splits:
            return OTHER_SPLIT
        receive(record)
        return ""

    def records(candidate: Candidate) -> tuple[Mapping[str, int], Iterator[StepRecord]]:
        loaded = load_corrected(candidate.source)
        source = Source(candidate, loaded.trajectory, loaded.rows, settings)
        if native:
            source = with_native_screenshots(source)
        task = plan.splits.members[candidate.source.id]
        return _records(source, task, absolute=absolute)

    def question_of(record: StepRecord) -> str:
        return question(record.draft.prompt, file_digest(record.draft.screenshot))

    tally = each_row(plan, records, question_of, take)
    return tally.summary(plan, "steps", (*DRAFT_EXCLUSIONS, OTHER_SPLIT))


def _records(
    source: Source, task: str, *, absolute: bool
) -> tuple[Mapping[str, int], Iterator[StepRecord]]:
    """Returns the number of excluded steps by reason, and the records of all other steps."""
    candidate = source.candidate
    trajectory = source.trajectory
    rows = source.rows
    steps = {step.index: step for step in trajectory.steps}
    excluded = Counter[str]()
    records = list[StepRecord]()
    for draft in record_drafts(source, absolute=absolute):
        if isinstance(draft, Excluded):
            excluded[draft.reason] += 1
        elif draft.metadata.step_index in candidate.bad_steps:
            excluded[BAD_STEP] += 1
        else:
            files = steps.get(draft.metadata.step_index)
            step = _true_step(draft, files, task, trajectory, rows)
            records.append(StepRecord(step, draft, candidate, trajectory))
    return excluded, iter(records)


def _true_step(
    draft: RecordDraft,
    files: StepFiles | None,
    task: str,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
) -> TrueStep:
    """Returns a step with its correct answer.

    Args:
        draft: the step's record in the training exports.
        files: the step's files; None for the additional step `terminate`.
        rows: the provenance of each step, by step index.
    """
    metadata = draft.metadata
    row: ProvenanceRow = rows.get(metadata.step_index) or {}
    if not row and rows:
        row = rows[min(rows)]
    answer = Answer((), draft.calls[-1].arguments.get("status"))
    box = None
    if files is not None:
        parameters = files.action.parameters
        if isinstance(parameters, HotkeyParameters):  # use the key names that decoders return
            keys = list(map(answered_key, parameters.keys))
            parameters = parameters.model_copy(update={"keys": keys})
        action = AnsweredAction(files.action.action_type, parameters, hovered_places(row))
        sides = [row[f"target_{side}"] for side in ("x", "y", "width", "height")]
        answer = Answer((action,))
        if None not in sides:
            box = tuple(sides)
    tolerance = metadata.tolerance
    centre = None
    if draft.tested:
        tolerance = draft.tested.tolerance
        centre = draft.tested.point
    return TrueStep(
        trajectory_id=trajectory.id,
        step_index=metadata.step_index,
        task=task,
        application=trajectory.task.application,
        platform=str(row.get("platform") or "unknown"),
        difficulty=str(trajectory.task.difficulty),
        size=metadata.image_size,
        answer=answer,
        box=box,
        tolerance=tolerance,
        centre=centre,
        screenshot=draft.screenshot,
    )
