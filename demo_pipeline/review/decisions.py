"""Decisions: the judgements of people about a demonstration, and how they change a trajectory.

Defines the document of a decision, the pure function `judge` from decisions to the ones in force,
and the corrected trajectory. A decision is never changed or removed: another decision undoes it.
`review_store` reads and writes the documents.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from demo_pipeline.desktopd.models import Count, StepAction, Text
from demo_pipeline.desktopd.trajectory_reader import StepFiles, Trajectory
from demo_pipeline.desktopd.validator import Nodes, check_action, check_tree_bytes
from demo_pipeline.files.base_model import Document, explain, field_name, unknown_fields
from demo_pipeline.files.json_files import read_bytes
from demo_pipeline.osworld.task_text import visible_text
from demo_pipeline.problems import errors
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.step_sentences import step_sentence

_BOX = ("target_x", "target_y", "target_width", "target_height")  # of the provenance
WHOLE = "all"
"""The key of `Decision.judged` for decisions about all steps."""
MOST_TEXT = 10_000  # characters of a note or an instruction
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
    """The demonstration is good."""


class Rejection(Value):
    """The demonstration must not be trained on."""

    reason: Literal[REJECT_REASONS]  # type: ignore[valid-type]
    text: Annotated[str, Field(max_length=MOST_TEXT)] = ""


class OutcomeValue(Value):
    """Whether the task was done; replaces the outcome that the recorder noted."""

    success: bool


class InstructionValue(Value):
    """The instruction that the task should have had."""

    text: _Words


class Trim(Value):
    """The first and the last step that are kept."""

    first: Count
    last: Count

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first > self.last:
            raise ValueError("first is after last")
        return self


class BadStep(Value):
    """A step that no model should learn; it stays in the history of later steps."""

    step: Count


class Note(Value):
    """A remark for other reviewers, about a step or the whole demonstration."""

    step: Count | None = None
    text: Annotated[Text, Field(max_length=MOST_TEXT)]


class StepThought(Value):
    """The thought before a step. It becomes an annotation, as `StepVerdict` does."""

    step: Count
    text: _Words


class StepVerdict(Value):
    """Whether the step leads to the goal, and whether it is redundant (None: not judged)."""

    step: Count
    correct: bool
    redundant: bool | None = None


class ActionValue(Value):
    """The action.json that a step should have had: another target, or other parameters."""

    action: StepAction


class PrivateBox(Value):
    """A part of a step's screenshot that is private, or that a detector took for private.

    `x`, `y`, `width` and `height` are canvas pixels. `private` is False for a detector's mistake.
    """

    step: Count
    x: Count
    y: Count
    width: Annotated[Count, Field(gt=0)]
    height: Annotated[Count, Field(gt=0)]
    private: bool = True


class Undo(Value):
    """Takes a decision back. Undoing an undo puts the first decision into force again."""

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
"""Kind of a decision → its value."""


def steps_of(value: Value) -> frozenset[int]:
    """The steps that a value names."""
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
    """`reviews/<demonstration>/<id>.json`.

    Attributes:
        id: 32 hex digits, chosen by the page before it sends the decision, so that sending it twice
            gives one decision.
        author: who decided.
        time: ISO 8601, UTC, milliseconds; later than that of every decision the author saw.
        trajectory: id of the version that was judged.
        judged: step number, or `all` → SHA-256 over the judged files.
        kind: one of `VALUES`.
        value: an instance of the class that `VALUES` has for `kind`.
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
        """The step that it is about; None for the whole demonstration."""
        if isinstance(self.value, Trim):
            return None
        return next(iter(steps_of(self.value)), None)

    @property
    def order(self) -> tuple[str, str]:
        """Sorts decisions by time; the id decides between equal times."""
        return self.time, self.id


class DecisionError(ValueError):
    """A decision that is not valid. `args` are sentences that never repeat the reviewer's text."""

    def __str__(self) -> str:
        return "; ".join(self.args)


def faults(error: ValidationError) -> list[str]:
    """One sentence for each fault of a value. The sentences never contain the value."""
    return [f"{field_name(place) or 'value'}: {message}" for place, message in explain(error)]


@dataclass(frozen=True, slots=True)
class Subject:
    """A version of a trajectory, as decisions refer to it.

    Attributes:
        id: of the demonstration.
        version: id of the version.
        steps: step number → SHA-256 over its screenshot, its tree and its action.
    """

    id: str
    version: str
    steps: Mapping[int, str]

    def judged(self, decision: Decision) -> dict[str, str]:
        """The value of `Decision.judged` for a decision: about one step, about all, or an undo."""
        if isinstance(decision.value, Undo):
            return {}
        if decision.step is not None:
            return {str(decision.step): self.steps[decision.step]}
        return {WHOLE: sha256(repr(sorted(self.steps.items())).encode()).hexdigest()}

    def is_same(self, decision: Decision) -> bool:
        """Whether the judged steps all exist and are byte-identical in this version."""
        if not steps_of(decision.value) <= self.steps.keys():
            return False
        return decision.trajectory == self.version or decision.judged == self.judged(decision)


class Corrections(Document):
    """The corrections of a trajectory, which its records keep as `corrections.json`.

    Attributes:
        instruction, success: None: as recorded.
        bad_steps: numbers of steps that no model should learn, ascending.
        trim: the first and the last step that are kept; None: all steps.
        actions: corrected actions, in order of their steps.
        decisions: ids of the decisions that these corrections come from.
    """

    instruction: str | None = None
    success: bool | None = None
    bad_steps: list[Count] = Field([])
    trim: Trim | None = None
    actions: list[StepAction] = Field([])
    decisions: list[DecisionId] = Field([])

    def keeps(self, step: int) -> bool:
        """Whether a step is not trimmed off."""
        return self.trim is None or self.trim.first <= step <= self.trim.last


NO_CORRECTIONS = Corrections()


@dataclass(frozen=True)
class Judgement:
    """The decisions that are in force for a trajectory, and the corrections that they make.

    If decisions contradict each other, the latest is in force.

    Attributes:
        verdict: the approval or rejection; None: not reviewed.
        corrections: applied when the records are built.
        applied: every decision that applies to this version, in time order.
        stale: about another version whose judged steps differ; not applied.
        undone: decisions that were taken back.
    """

    verdict: Decision | None = None
    corrections: Corrections = NO_CORRECTIONS
    applied: tuple[Decision, ...] = ()
    stale: tuple[Decision, ...] = ()
    undone: tuple[Decision, ...] = ()

    @property
    def replaced(self) -> tuple[Decision, ...]:
        """Decisions of `applied` that a later decision on the same subject replaces."""
        kinds = {"approve": "verdict", "reject": "verdict"}
        latest: dict[tuple[str, int | None], Decision] = {}
        replaced = []
        for decision in self.applied:
            if decision.kind in {"note", "bad_step"}:
                continue
            subject = (kinds.get(decision.kind, decision.kind), decision.step)
            if subject in latest:
                replaced.append(latest[subject])
            latest[subject] = decision
        return tuple(sorted(replaced, key=lambda decision: decision.order))

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        """The state that the setting `datasets.require_review` compares."""
        if self.verdict is None:
            return "open"
        if isinstance(self.verdict.value, Rejection):
            return "rejected"
        return "approved"

    @property
    def rejected_for(self) -> str:
        """The reason for the rejection, one of `REJECT_REASONS`; empty: not rejected."""
        if self.verdict is None or not isinstance(self.verdict.value, Rejection):
            return ""
        return str(self.verdict.value.reason)


@dataclass(frozen=True)
class _UnreadableJudgement(Judgement):
    """Stands for the judgement while a decision is damaged: nobody trains on the demonstration."""

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        return "rejected"

    @property
    def rejected_for(self) -> str:
        return "other"


UNREADABLE_JUDGEMENT = _UnreadableJudgement()


def judge(decisions: Iterable[Decision], subject: Subject) -> Judgement:
    """The judgement of a version. The order and repetition of `decisions` do not matter."""
    by_id = {decision.id: decision for decision in decisions}
    in_order = sorted(by_id.values(), key=lambda decision: decision.order)
    undone_ids: set[str] = set()
    for decision in reversed(in_order):  # an undo is later than the decision that it takes back
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
    """The corrections that decisions in time order make together."""
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
    """The time of a new decision: now, but later than every decision that its author saw."""
    last = max((decision.time for decision in seen), default="")
    if _iso(now) > last:
        return _iso(now)
    return _iso(datetime.fromisoformat(last) + timedelta(milliseconds=1))


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def completed_action(value: Mapping[str, Any], recorded: StepAction, nodes: Nodes) -> StepAction:
    """The whole action of a correction, with the checks of a written step.

    Step and type stay. A target that is given by its id alone gets its role and name from the
    tree. The sentence is written again unless the reviewer wrote one.

    Args:
        value: some members of an action.json; the others come from the recording.
        recorded: the step's action.
        nodes: of the step's tree.

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
    target = action.target_element
    if target is None or target.id not in nodes:
        return None
    bounds = nodes[target.id].bounds
    return bounds.x, bounds.y, bounds.width, bounds.height


@dataclass(frozen=True)
class Corrected:
    """A trajectory as records use it.

    Attributes:
        trajectory: with the corrected words, outcome and actions; without the steps trimmed off.
            Steps keep their numbers. After a trim, the final screenshot is that of the step that
            followed.
        rows: its provenance by step, with the boxes of corrected targets.
        bad_steps: of these steps, those that stay in the history and give no record of their own.
    """

    trajectory: Trajectory
    rows: Mapping[int, ProvenanceRow]
    bad_steps: frozenset[int] = frozenset()


def corrected(
    trajectory: Trajectory, corrections: Corrections, rows: Mapping[int, ProvenanceRow]
) -> Corrected:
    """The trajectory with its corrections applied; records are built from it.

    Raises:
        JsonFileError: the tree of a corrected target cannot be read.
    """
    if corrections == NO_CORRECTIONS:
        return Corrected(trajectory, rows)
    actions = {action.step_index: action for action in corrections.actions}
    steps = tuple(
        replace(step, action=actions.get(step.index, step.action))
        for step in trajectory.steps
        if corrections.keeps(step.index)
    )
    first = steps[0].index
    last = steps[-1].index
    following = [step.screenshot for step in trajectory.steps if step.index > last]
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
        steps=steps,
        final_screenshot=following[0] if following else trajectory.final_screenshot,
    )
    corrected_rows = {step.index: _row(step, rows[step.index], actions) for step in steps}
    bad_steps = frozenset(filter(corrections.keeps, corrections.bad_steps))
    return Corrected(changed, corrected_rows, bad_steps)


def _row(step: StepFiles, row: ProvenanceRow, actions: Mapping[int, StepAction]) -> ProvenanceRow:
    """The provenance of a step, with the box of its corrected target."""
    if step.index not in actions:
        return row
    nodes, _ = check_tree_bytes(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
    box = _box(step.action, nodes) or (None,) * len(_BOX)
    return {**row, **dict(zip(_BOX, box, strict=True))}
