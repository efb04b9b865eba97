"""Reviewers' decisions: verdicts, corrections, notes and boxes around private data.

`judge` finds the decisions that apply to a version of a trajectory, and `corrected` applies their
corrections. A decision is never changed or removed, but can be undone by another decision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from demo_pipeline.desktopd.models import Count, StepAction, Text
from demo_pipeline.desktopd.target_box import TARGET_BOX
from demo_pipeline.desktopd.trajectory_reader import StepFiles, Trajectory
from demo_pipeline.desktopd.validator import Nodes, check_action, check_tree_bytes
from demo_pipeline.files.base_model import Document, explain, field_name, unknown_fields
from demo_pipeline.files.json_files import read_bytes
from demo_pipeline.osworld.task_text import visible_text
from demo_pipeline.problems import errors
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.step_sentences import step_sentence

WHOLE = "all"
"""The key of `Decision.judged` in decisions about the whole demonstration."""
MOST_TEXT = 10_000  # maximum number of characters of a text that a reviewer writes
REJECT_REASONS = (
    *("wrong_task", "unfinished", "wrong_result", "many_errors"),
    *("private_data", "broken_recording", "duplicate", "other"),
)

DecisionId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Words = Annotated[Text, Field(max_length=MOST_TEXT, pattern=r"\S")]


class Value(Document):
    """The content of a decision; each kind of decision has a subclass."""


class Approval(Value):
    """A verdict that the demonstration may be used for training."""


class Rejection(Value):
    """A verdict that the demonstration must not be used for training."""

    reason: Literal[REJECT_REASONS]  # type: ignore[valid-type]
    text: Annotated[str, Field(max_length=MOST_TEXT)] = ""


class OutcomeValue(Value):
    """Whether the task was done; replaces the outcome that the recorder noted."""

    success: bool


class InstructionValue(Value):
    """The instruction that the task should have had."""

    text: _Words


class Trim(Value):
    """The first and the last step to keep. The steps before and after them are cut off."""

    first: Count
    last: Count

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first > self.last:
            raise ValueError("first is after last")
        return self


class BadStep(Value):
    """A step to exclude from training. It stays in the history of later steps."""

    step: Count


class Note(Value):
    """A remark for other reviewers, about a step or the whole demonstration."""

    step: Count | None = None
    text: Annotated[Text, Field(max_length=MOST_TEXT)]


class StepThought(Value):
    """A thought that a reviewer wrote for a step, used as an annotation of the kind `thought`."""

    step: Count
    text: _Words


class StepVerdict(Value):
    """Whether a step leads to the goal, and whether the step is redundant (None if not answered).

    The answers become annotations of the kinds `step_correct` and `step_redundant`.
    """

    step: Count
    correct: bool
    redundant: bool | None = None


class ActionValue(Value):
    """The corrected action of a step, with another target or other parameters."""

    action: StepAction


class PrivateBox(Value):
    """A box in a step's screenshot, in pixels, and whether it is private.

    `private` is False if a detector covered the box by mistake, or if a person withdraws an earlier
    mark.
    """

    step: Count
    x: Count
    y: Count
    width: Annotated[Count, Field(gt=0)]
    height: Annotated[Count, Field(gt=0)]
    private: bool = True


class Undo(Value):
    """Takes back another decision. If an undo is undone, the original decision applies again."""

    decision: DecisionId


VALUES: Mapping[str, type[Value]] = {
    "approve": Approval,
    "reject": Rejection,
    "outcome": OutcomeValue,
    "instruction": InstructionValue,
    "bad_step": BadStep,
    "trim": Trim,
    "action": ActionValue,
    "note": Note,
    "thought": StepThought,
    "step_verdict": StepVerdict,
    "private_box": PrivateBox,
    "undo": Undo,
}
"""The class of `Decision.value` for each kind of decision."""


def steps_of(value: Value) -> frozenset[int]:
    """Returns the numbers of the steps that the value of a decision names."""
    match value:
        case Trim(first=first, last=last):
            return frozenset({first, last})
        case ActionValue(action=action):
            return frozenset({action.step_index})
        case BadStep() | Note() | StepThought() | StepVerdict() | PrivateBox() if (
            value.step is not None
        ):
            return frozenset({value.step})
    return frozenset()


class Decision(Document):
    """A decision, stored as `reviews/<demonstration>/<id>.json`.

    Attributes:
        id: 32 hex digits, chosen by the review page, so that a decision that is sent twice is
            stored once.
        time: ISO 8601, UTC, with milliseconds; later than every decision about this demonstration
            that the author could see.
        trajectory: id of the judged version of the trajectory.
        judged: maps the number of the judged step, or `all`, to a SHA-256 over the judged files.
            Empty for an undo.
        kind: a key of `VALUES`.
        value: an instance of `VALUES[kind]`.
    """

    id: DecisionId
    demonstration: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    author: Annotated[Text, Field(max_length=200)]
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
    trajectory: Text
    judged: dict[str, _Digest]
    kind: Literal[tuple(VALUES)]  # type: ignore[valid-type]
    value: SerializeAsAny[Value]

    @field_validator("value", mode="plain")
    @classmethod
    def _by_kind(cls, value: Any, info: Any) -> Value:
        try:
            return VALUES.get(info.data.get("kind", ""), Value).model_validate(value)
        except ValidationError as error:
            raise ValueError("; ".join(faults(error))) from None

    @property
    def step(self) -> int | None:
        """The number of the judged step; None for a decision about the whole demonstration."""
        if isinstance(self.value, Trim):
            return None
        return next(iter(steps_of(self.value)), None)

    @property
    def order(self) -> tuple[str, str]:
        """A sort key for decisions: by time, and by id if the times are equal."""
        return self.time, self.id


class DecisionError(ValueError):
    """Raised for an invalid decision. `args` are the reasons, without the reviewer's text."""

    def __str__(self) -> str:
        return "; ".join(self.args)


def faults(error: ValidationError) -> list[str]:
    """Returns a message for each invalid field. The messages never quote values."""
    return [f"{field_name(place) or 'value'}: {message}" for place, message in explain(error)]


@dataclass(frozen=True, slots=True)
class Subject:
    """A version of a trajectory, with the ids and hashes that decisions refer to.

    Attributes:
        steps: maps step numbers to a SHA-256 over the step's screenshot, tree and action.
    """

    id: str
    version: str
    steps: Mapping[int, str]

    def judged(self, decision: Decision) -> dict[str, str]:
        """Returns `Decision.judged` for a decision about this version; empty for an undo."""
        if isinstance(decision.value, Undo):
            return {}
        if decision.step is not None:
            return {str(decision.step): self.steps[decision.step]}
        return {WHOLE: sha256(repr(sorted(self.steps.items())).encode()).hexdigest()}

    def is_same(self, decision: Decision) -> bool:
        """Returns whether everything that the decision judged is unchanged in this version."""
        if not steps_of(decision.value) <= self.steps.keys():
            return False
        return decision.trajectory == self.version or decision.judged == self.judged(decision)


class Corrections(Document):
    """People's corrections of a trajectory, stored as `corrections.json`.

    Attributes:
        instruction, success: the corrected values; None if not corrected.
        bad_steps: numbers of steps to exclude from training, ascending.
        trim: the first and the last step to keep; None if all steps are kept.
        actions: corrected actions, in the order of their steps.
        decisions: ids of the decisions that make these corrections.
    """

    instruction: str | None = None
    success: bool | None = None
    bad_steps: list[Count] = Field([])
    trim: Trim | None = None
    actions: list[StepAction] = Field([])
    decisions: list[DecisionId] = Field([])

    def keeps(self, step: int) -> bool:
        """Returns whether `trim` keeps a step."""
        return self.trim is None or self.trim.first <= step <= self.trim.last


NO_CORRECTIONS = Corrections()


@dataclass(frozen=True)
class Judgement:
    """The decisions that apply to a version, and the resulting corrections.

    If decisions contradict each other, the latest determines `verdict` and `corrections`.

    Attributes:
        verdict: the latest approval or rejection; None if there is none.
        corrections: the corrections that are applied when the records are built.
        applied: all decisions that apply to this version, in time order.
        stale: decisions that do not apply, because their steps differ in this version.
        undone: decisions that were taken back.
    """

    verdict: Decision | None = None
    corrections: Corrections = NO_CORRECTIONS
    applied: tuple[Decision, ...] = ()
    stale: tuple[Decision, ...] = ()
    undone: tuple[Decision, ...] = ()

    @property
    def replaced(self) -> tuple[Decision, ...]:
        """The decisions in `applied` that are replaced by later decisions.

        A later decision replaces an earlier one if both have the same kind and step.

        Approvals and rejections replace each other. Notes and bad steps are never replaced. A
        private box is only replaced by a decision about the same box.
        """
        kinds = {"approve": "verdict", "reject": "verdict"}
        latest: dict[tuple[object, ...], Decision] = {}
        replaced = []
        for decision in self.applied:
            if decision.kind in {"note", "bad_step"}:
                continue
            subject: tuple[object, ...] = (kinds.get(decision.kind, decision.kind), decision.step)
            if isinstance(decision.value, PrivateBox):
                box = decision.value
                subject = (*subject, box.x, box.y, box.width, box.height)
            if subject in latest:
                replaced.append(latest[subject])
            latest[subject] = decision
        return tuple(sorted(replaced, key=lambda decision: decision.order))

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        """The state of the review; `datasets.require_review` sets which state datasets require."""
        if self.verdict is None:
            return "open"
        if isinstance(self.verdict.value, Rejection):
            return "rejected"
        return "approved"

    @property
    def rejected_for(self) -> str:
        """The reason for the rejection, from `REJECT_REASONS`, or an empty string."""
        if self.verdict is None or not isinstance(self.verdict.value, Rejection):
            return ""
        return str(self.verdict.value.reason)


@dataclass(frozen=True)
class _UnreadableJudgement(Judgement):
    """The judgement of a demonstration with a decision that cannot be read.

    Because that decision may be a rejection, the demonstration counts as rejected.
    """

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        return "rejected"

    @property
    def rejected_for(self) -> str:
        return "other"


UNREADABLE_JUDGEMENT = _UnreadableJudgement()


def judge(decisions: Iterable[Decision], subject: Subject) -> Judgement:
    """Determines the verdict and the corrections for a version of a trajectory.

    Args:
        decisions: all decisions about the demonstration, in any order. Duplicates are allowed.
    """
    by_id = {decision.id: decision for decision in decisions}
    in_order = sorted(by_id.values(), key=lambda decision: decision.order)
    undone_ids: set[str] = set()
    # In reversed order, every undo is processed before the decision that it takes back.
    for decision in reversed(in_order):
        if isinstance(decision.value, Undo) and decision.id not in undone_ids:
            undone_ids.add(decision.value.decision)
    applied: list[Decision] = []
    stale: list[Decision] = []
    undone: list[Decision] = []
    for decision in in_order:
        if isinstance(decision.value, Undo):
            continue
        if decision.id in undone_ids:
            undone.append(decision)
        elif subject.is_same(decision):
            applied.append(decision)
        else:
            stale.append(decision)
    verdict = None
    for decision in applied:
        if isinstance(decision.value, Approval | Rejection):
            verdict = decision
    return Judgement(verdict, _corrections(applied), tuple(applied), tuple(stale), tuple(undone))


def _corrections(applied: Iterable[Decision]) -> Corrections:
    """Combines the corrections of decisions, which are given in time order."""
    latest = dict[str, Any]()
    decision_ids = []
    bad_steps = set[int]()
    actions = dict[int, StepAction]()
    for decision in applied:
        match decision.value:
            case OutcomeValue(success=success):
                latest["success"] = success
            case InstructionValue(text=text):
                latest["instruction"] = visible_text(text) or text
            case Trim() as trim:
                latest["trim"] = trim
            case BadStep(step=step):
                bad_steps.add(step)
            case ActionValue(action=action):
                actions[action.step_index] = action
            case _:
                continue
        decision_ids.append(decision.id)
    return Corrections(
        **latest,
        bad_steps=sorted(bad_steps),
        actions=[actions[step] for step in sorted(actions)],
        decisions=sorted(decision_ids),
    )


def next_time(seen: Iterable[Decision], now: datetime) -> str:
    """Returns the time for a new decision: `now`, but at least 1 ms after every decision in `seen`.

    Args:
        seen: all decisions about the demonstration that the author could see.
        now: the current time in UTC.
    """
    last = max((decision.time for decision in seen), default="")
    if _iso(now) > last:
        return _iso(now)
    return _iso(datetime.fromisoformat(last) + timedelta(milliseconds=1))


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def completed_action(value: Mapping[str, Any], recorded: StepAction, nodes: Nodes) -> StepAction:
    """Completes and checks a reviewer's correction of an action.

    The role and name of the target are taken from the step's UI tree. The reasoning sentence is
    generated again unless the reviewer wrote one.

    Args:
        value: fields of the action, including those that the reviewer changed.
        recorded: the recorded action, which supplies the missing fields. The correction must have
            the same step index and action type.
        nodes: maps ids to the nodes of the step's UI tree.

    Raises:
        DecisionError: the correction is not a valid action.
    """
    members = {**recorded.model_dump(mode="json"), **value}
    target = members.get("target_element")
    if isinstance(target, dict) and (node := nodes.get(str(target.get("id")))):
        members["target_element"] = {key: getattr(node, key) for key in ("id", "role", "name")}
    try:
        action = StepAction.model_validate(members)
    except ValidationError as error:
        raise DecisionError(*faults(error)) from None
    same = (recorded.step_index, recorded.action_type)
    if (action.step_index, action.action_type) != same:
        raise DecisionError("action: a correction keeps the step and the type of its action")
    if unknown_fields(action):
        raise DecisionError("action: has unknown keys")
    if problems := errors(check_action(action, nodes, "action.json")):
        raise DecisionError(*(problem.message for problem in problems))
    if action.reasoning == recorded.reasoning:
        kind = action.action_type
        parameters = action.parameters
        sentence = step_sentence(kind, parameters, action.target_element, _box(action, nodes))
        action = action.model_copy(update={"reasoning": sentence})
    return action


def _box(action: StepAction, nodes: Nodes) -> tuple[int, int, int, int] | None:
    """Returns x, y, width and height of an action's target in screenshot pixels.

    Returns None if the action has no target in the UI tree.
    """
    target = action.target_element
    if target is None or target.id not in nodes:
        return None
    bounds = nodes[target.id].bounds
    return bounds.x, bounds.y, bounds.width, bounds.height


@dataclass(frozen=True)
class Corrected:
    """A trajectory with people's corrections, from which records are built.

    Attributes:
        trajectory: the corrected trajectory, without the steps that people cut off. Steps keep
            their numbers. The first step that was cut off at the end supplies the final screenshot.
        rows: maps step numbers to rows of provenance.parquet, with boxes of corrected targets.
        bad_steps: numbers of steps that stay in the history of later steps, but produce no training
            records of their own.
    """

    trajectory: Trajectory
    rows: Mapping[int, ProvenanceRow]
    bad_steps: frozenset[int] = frozenset()


def corrected(
    trajectory: Trajectory, corrections: Corrections, rows: Mapping[int, ProvenanceRow]
) -> Corrected:
    """Applies people's corrections to a trajectory and its provenance.

    Args:
        rows: maps step numbers to rows of provenance.parquet.

    Raises:
        JsonFileError: the UI tree with a corrected target cannot be read.
    """
    if corrections == NO_CORRECTIONS:
        return Corrected(trajectory, rows)
    actions = {action.step_index: action for action in corrections.actions}
    steps = list[StepFiles]()
    for step in trajectory.steps:
        if corrections.keeps(step.index):
            steps.append(replace(step, action=actions.get(step.index, step.action)))
    first = steps[0].index
    last = steps[-1].index
    cut_off_at_end = [step for step in trajectory.steps if step.index > last]
    final_screenshot = trajectory.final_screenshot
    if cut_off_at_end:
        final_screenshot = cut_off_at_end[0].screenshot
    task = dict[str, Any]()
    result = dict[str, Any]()
    if corrections.instruction is not None:
        task["instruction"] = corrections.instruction
    if corrections.success not in {None, trajectory.result.success}:
        result["success"] = corrections.success
        result["error_message"] = None
        if not corrections.success:
            result["error_message"] = "a reviewer found the task not done"
    if len(steps) < len(trajectory.steps):
        task["expected_steps"] = result["total_steps"] = len(steps)
        result["completion_time_ms"] = max(0, rows[last]["end_ms"] - rows[first]["press_ms"])
    changed = replace(
        trajectory,
        task=trajectory.task.model_copy(update=task),
        result=trajectory.result.model_copy(update=result),
        steps=tuple(steps),
        final_screenshot=final_screenshot,
    )
    corrected_rows = {step.index: _row(step, rows[step.index], actions) for step in steps}
    bad_steps = frozenset(filter(corrections.keeps, corrections.bad_steps))
    return Corrected(changed, corrected_rows, bad_steps)


def _row(step: StepFiles, row: ProvenanceRow, actions: Mapping[int, StepAction]) -> ProvenanceRow:
    """Returns a step's row of provenance.parquet, with the box of the target if it was corrected.

    Args:
        step: the step, with its corrected action if there is one.
        row: the row before corrections.
        actions: maps step numbers to corrected actions.
    """
    if step.index not in actions:
        return row
    nodes, _ = check_tree_bytes(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
    box = _box(step.action, nodes) or (None,) * len(TARGET_BOX)
    return {**row, **dict(zip(TARGET_BOX, box, strict=True))}
