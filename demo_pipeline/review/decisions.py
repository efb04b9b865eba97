"""Decisions: what people say about a demonstration, and what of it holds for a trajectory.

Belongs here: the document of a decision, the pure function from decisions and a trajectory to what
holds now, and the corrected trajectory. A decision is never changed or removed: another one undoes
it. Where decisions are kept is in `review_store`.
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
from demo_pipeline.osworld.task_text import told_text
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
_Said = Annotated[Text, Field(max_length=MOST_TEXT, pattern=r"\S")]


class Value(Document):
    """What a decision says."""


class Approval(Value):
    """The demonstration is good."""


class Rejection(Value):
    """The demonstration is of no use."""

    reason: Literal[REJECT_REASONS]  # type: ignore[valid-type]
    text: Annotated[str, Field(max_length=MOST_TEXT)] = ""


class OutcomeValue(Value):
    """Whether the task was done, whatever the recorder says."""

    success: bool


class InstructionValue(Value):
    """The words that the task should have had."""

    text: _Said


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
    """A step nobody should learn; it stays in the history of later steps."""

    step: Count


class Note(Value):
    """Words for other reviewers, about a step or the whole."""

    step: Count | None = None
    text: Annotated[Text, Field(max_length=MOST_TEXT)]


class StepThought(Value):
    """What somebody thinks before the step: an annotation, as the next one."""

    step: Count
    text: _Said


class StepVerdict(Value):
    """Whether the step leads to the goal, and whether it is needless; None: not said."""

    step: Count
    correct: bool
    redundant: bool | None = None


class ActionValue(Value):
    """The action.json that a step should have had: another target, or other parameters."""

    action: StepAction


class PrivateBox(Value):
    """A part of a step's screenshot that is private, or is not although it was found.

    `x` to `height` are a box on the canvas, pixels.
    """

    step: Count
    x: Count
    y: Count
    width: Annotated[Count, Field(gt=0)]
    height: Annotated[Count, Field(gt=0)]
    private: bool = True


class Undo(Value):
    """Takes a decision back; also an undo, which then holds again."""

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
        judged: step number, or `all` → SHA-256 over what was judged.
        kind: one of `VALUES`.
        value: the model that belongs to `kind`.
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
        return None if isinstance(self.value, Trim) else next(iter(steps_of(self.value)), None)

    @property
    def order(self) -> tuple[str, str]:
        """Decisions with a greater one came later."""
        return self.time, self.id


class DecisionError(ValueError):
    """A decision that cannot be made. `args` are sentences that never repeat its text."""

    def __str__(self) -> str:
        return "; ".join(self.args)


def faults(error: ValidationError) -> list[str]:
    """What a value lacks, one sentence a fault; never the value."""
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
        """Whether what was judged is what the steps are now; they are all there."""
        if not steps_of(decision.value) <= self.steps.keys():
            return False
        return decision.trajectory == self.version or decision.judged == self.judged(decision)


class Corrections(Document):
    """What people corrected in a trajectory, as its records keep it: `corrections.json`.

    Attributes:
        instruction, success: None: as recorded.
        bad_steps: numbers of steps that nobody should learn, in order.
        trim: the steps that are kept; None: all.
        actions: corrected ones, in order of their steps.
        decisions: ids of those that say all this.
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
    """What holds for a trajectory; without decisions, nothing does.

    Of contradicting decisions the latest holds.

    Attributes:
        verdict: the approval or rejection; None: not reviewed.
        corrections: what the records are made with.
        applied: every decision that holds, in time order.
        stale: of another version whose judged steps differ; not applied.
        undone: taken back.
    """

    verdict: Decision | None = None
    corrections: Corrections = NO_CORRECTIONS
    applied: tuple[Decision, ...] = ()
    stale: tuple[Decision, ...] = ()
    undone: tuple[Decision, ...] = ()

    @property
    def replaced(self) -> tuple[Decision, ...]:
        """Those of `applied` that a later one on the same subject replaces."""
        kinds = {"approve": "verdict", "reject": "verdict"}
        told = [one for one in self.applied if one.kind not in {"note", "bad_step"}]
        latest = {(kinds.get(one.kind, one.kind), one.step): one.id for one in told}
        return tuple(one for one in told if one.id not in latest.values())

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        """What `datasets.require_review` asks for."""
        if self.verdict is None:
            return "open"
        return "rejected" if isinstance(self.verdict.value, Rejection) else "approved"

    @property
    def rejected_for(self) -> str:
        """Why it is rejected, one of `REJECT_REASONS`; empty: it is not."""
        value = self.verdict.value if self.verdict else None
        return value.reason if isinstance(value, Rejection) else ""


@dataclass(frozen=True)
class _UnreadableJudgement(Judgement):
    """What holds while a decision is damaged: the demonstration is kept out of training."""

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        return "rejected"

    @property
    def rejected_for(self) -> str:
        return "other"


UNREADABLE_JUDGEMENT = _UnreadableJudgement()


def judge(decisions: Iterable[Decision], subject: Subject) -> Judgement:
    """What holds now. The order and repetition of `decisions` do not matter."""
    known = sorted({one.id: one for one in decisions}.values(), key=lambda one: one.order)
    gone: set[str] = set()  # taken back by an undo that is not itself taken back
    for one in reversed(known):  # an undo is later than what it takes back
        if isinstance(one.value, Undo) and one.id not in gone:
            gone.add(one.value.decision)
    said = [one for one in known if not isinstance(one.value, Undo)]
    standing = [one for one in said if one.id not in gone]
    applied = [one for one in standing if subject.is_same(one)]
    verdict = None
    told = dict[str, Any]()
    decided_by = list[str]()
    bad = set[int]()
    actions = dict[int, StepAction]()
    for one in applied:
        match one.value:
            case Approval() | Rejection():
                verdict = one
                continue
            case OutcomeValue(success=success):
                told["success"] = success
            case InstructionValue(text=text):
                told["instruction"] = told_text(text) or text
            case Trim() as trim:
                told["trim"] = trim
            case BadStep(step=step):
                bad.add(step)
            case ActionValue(action=action):
                actions[action.step_index] = action
            case _:
                continue
        decided_by.append(one.id)
    told |= {"bad_steps": sorted(bad), "actions": [actions[step] for step in sorted(actions)]}
    return Judgement(
        verdict,
        Corrections(**told, decisions=sorted(decided_by)),
        tuple(applied),
        tuple(one for one in standing if one not in applied),
        tuple(one for one in said if one.id in gone),
    )


def next_time(seen: Iterable[Decision], now: datetime) -> str:
    """The time of a new decision: now, but after all that were seen, whatever the clocks say."""
    last = max((one.time for one in seen), default="")
    if _iso(now) > last:
        return _iso(now)
    return _iso(datetime.fromisoformat(last) + timedelta(milliseconds=1))


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def completed_action(value: Mapping[str, Any], recorded: StepAction, nodes: Nodes) -> StepAction:
    """The action of a correction, validated as a written step is.

    It keeps the step and the type. A target named by its id alone gets its role and name from the
    tree. The sentence is made anew unless the reviewer wrote another one.

    Args:
        value: an action.json with some members; the others are those of the recording.
        recorded: the step's action.
        nodes: of the step's tree.

    Raises:
        DecisionError: it cannot be one.
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
    if found := errors(check_action(action, nodes, "action.json")):
        raise DecisionError(*(problem.message for problem in found))
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
    """The trajectory that records are made of.

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
    asked = dict[str, Any]()
    told = dict[str, Any]()
    if corrections.instruction is not None:
        asked["instruction"] = corrections.instruction
    if corrections.success not in {None, trajectory.result.success}:
        message = None if corrections.success else "a reviewer found the task not done"
        told = {"success": corrections.success, "error_message": message}
    if len(steps) < len(trajectory.steps):
        asked["expected_steps"] = told["total_steps"] = len(steps)
        told["completion_time_ms"] = max(0, rows[last]["end_ms"] - rows[first]["press_ms"])
    changed = replace(
        trajectory,
        task=trajectory.task.model_copy(update=asked),
        result=trajectory.result.model_copy(update=told),
        steps=steps,
        final_screenshot=following[0] if following else trajectory.final_screenshot,
    )
    shown = {step.index: _row(step, rows[step.index], actions) for step in steps}
    return Corrected(changed, shown, frozenset(filter(corrections.keeps, corrections.bad_steps)))


def _row(step: StepFiles, row: ProvenanceRow, actions: Mapping[int, StepAction]) -> ProvenanceRow:
    """The provenance of a step, whose target may be another one."""
    if step.index not in actions:
        return row
    nodes, _ = check_tree_bytes(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
    box = _box(step.action, nodes) or (None,) * len(_BOX)
    return {**row, **dict(zip(_BOX, box, strict=True))}
