"""Decisions: what people say about a demonstration, and what of it holds for a trajectory.

Belongs here: the document of a decision, the pure function from decisions and a trajectory to what
holds now, and the corrected trajectory. A decision is never changed or removed: another one undoes
it. Where decisions are kept is in `review_store`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from demo_pipeline.desktopd.models import Count, StepAction, Text
from demo_pipeline.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.desktopd.tree_validator import Nodes, check_action, check_tree_bytes
from demo_pipeline.files.base_model import Document, explain, field_name
from demo_pipeline.files.json_files import read_bytes
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
_Words = Annotated[str, Field(max_length=MOST_TEXT)]


class Kind(StrEnum):
    """What a decision says."""

    APPROVE = "approve"
    REJECT = "reject"
    OUTCOME = "outcome"
    INSTRUCTION = "instruction"
    BAD_STEP = "bad_step"
    TRIM = "trim"
    ACTION = "action"
    NOTE = "note"
    THOUGHT = "thought"
    STEP_VERDICT = "step_verdict"
    UNDO = "undo"


_CORRECTING = {Kind.OUTCOME, Kind.INSTRUCTION, Kind.BAD_STEP, Kind.TRIM, Kind.ACTION}


class Value(Document):
    """The value of a decision; that of `approve` is empty."""


class Rejection(Value):
    """The demonstration is of no use."""

    reason: Literal[REJECT_REASONS]  # type: ignore[valid-type]
    text: _Words = ""


class OutcomeValue(Value):
    """Whether the task was done, whatever the recorder says."""

    success: bool
    text: _Words = ""


class InstructionValue(Value):
    """The words that the task should have had."""

    text: Annotated[Text, Field(max_length=MOST_TEXT, pattern=r"\S")]


class BadStep(Value):
    """A step nobody should learn; it stays in the history of later steps."""

    step: Count
    text: _Words = ""


class Trim(Value):
    """The first and the last step that are kept."""

    first: Count
    last: Count

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first > self.last:
            raise ValueError("first is after last")
        return self


class ActionValue(Value):
    """The action.json that a step should have had: another target, or other parameters."""

    action: StepAction


class Note(Value):
    """Words for other reviewers, about a step or the whole."""

    text: Annotated[Text, Field(max_length=MOST_TEXT)]
    step: Count | None = None


class StepThought(Value):
    """What somebody thinks before the step: an annotation, as the next one."""

    step: Count
    text: Annotated[Text, Field(max_length=MOST_TEXT, pattern=r"\S")]


class StepVerdict(Value):
    """Whether the step leads to the goal, and whether it is needless; None: not said."""

    step: Count
    correct: bool
    redundant: bool | None = None


class Undo(Value):
    """Takes a decision back; also an undo, which then holds again."""

    decision: DecisionId


VALUES: Mapping[Kind, type[Value]] = {
    Kind.APPROVE: Value,
    Kind.REJECT: Rejection,
    Kind.OUTCOME: OutcomeValue,
    Kind.INSTRUCTION: InstructionValue,
    Kind.BAD_STEP: BadStep,
    Kind.TRIM: Trim,
    Kind.ACTION: ActionValue,
    Kind.NOTE: Note,
    Kind.THOUGHT: StepThought,
    Kind.STEP_VERDICT: StepVerdict,
    Kind.UNDO: Undo,
}


class Decision(Document):
    """`reviews/<demonstration>/<id>.json`.

    Attributes:
        id: 32 hex digits, chosen by the page before it sends the decision, so that sending it twice
            gives one decision.
        author: who decided.
        time: ISO 8601, UTC, milliseconds; later than that of every decision the author saw.
        trajectory: id of the version that was judged.
        judged: step number, or `all` → SHA-256 over what was judged.
        value: the model that belongs to `kind`.
    """

    id: DecisionId
    demonstration: Text
    author: Annotated[Text, Field(max_length=200)]
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
    trajectory: Text
    judged: dict[str, _Digest]
    kind: Annotated[Kind, Field(strict=False)]
    value: SerializeAsAny[Value]

    @field_validator("value", mode="plain")
    @classmethod
    def _by_kind(cls, value: Any, info: Any) -> Value:
        model = VALUES.get(info.data.get("kind", ""))
        if model is None or isinstance(value, model):
            return value if isinstance(value, Value) else Value()
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise ValueError("; ".join(faults(error))) from None

    @property
    def step(self) -> int | None:
        """The step that it is about; None for the whole demonstration."""
        if isinstance(self.value, ActionValue):
            return self.value.action.step_index
        of_step = isinstance(self.value, BadStep | Note | StepThought | StepVerdict)
        return getattr(self.value, "step", None) if of_step else None

    @property
    def steps(self) -> frozenset[int]:
        """The steps that it names."""
        if isinstance(self.value, Trim):
            return frozenset({self.value.first, self.value.last})
        return frozenset() if self.step is None else frozenset({self.step})

    @property
    def order(self) -> tuple[str, str]:
        """Decisions with a greater one came later."""
        return self.time, self.id


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

    @property
    def whole(self) -> str:
        """SHA-256 over all steps."""
        return sha256(repr(sorted(self.steps.items())).encode()).hexdigest()

    def judged(self, step: int | None) -> dict[str, str]:
        """The value of `Decision.judged` for a decision about one step, or about all."""
        return {WHOLE: self.whole} if step is None else {str(step): self.steps[step]}

    def is_same(self, decision: Decision) -> bool:
        """Whether what was judged is what the steps are now."""
        if decision.trajectory == self.version or decision.kind is Kind.UNDO:
            return True
        now = {str(number): digest for number, digest in self.steps.items()} | {WHOLE: self.whole}
        return all(now.get(name) == digest for name, digest in decision.judged.items())


def step_digest(digests: Mapping[str, str], folder: str) -> str:
    """SHA-256 over the files of a step: path → SHA-256 of a trajectory's files, its folder."""
    files = sorted(pair for pair in digests.items() if pair[0].startswith(f"{folder}/"))
    return sha256(repr(files).encode()).hexdigest()


@dataclass(frozen=True)
class Judgement:
    """What holds for a trajectory; without decisions, nothing does.

    Of contradicting decisions the latest holds.

    Attributes:
        verdict: the approval or rejection; None: not reviewed.
        success: the corrected outcome; None: as recorded.
        instruction: the corrected instruction; None: as recorded.
        bad_steps: steps that nobody should learn.
        trim: the first and the last step that are kept; None: all.
        actions: step number → its corrected action.
        notes: of people, in time order.
        applied: every decision that holds, notes included.
        stale: of another version whose judged steps differ; not applied.
        undone: taken back.
    """

    verdict: Decision | None = None
    success: bool | None = None
    instruction: str | None = None
    bad_steps: frozenset[int] = frozenset()
    trim: tuple[int, int] | None = None
    actions: Mapping[int, StepAction] = field(default_factory=dict)
    notes: tuple[Decision, ...] = ()
    applied: tuple[Decision, ...] = ()
    stale: tuple[Decision, ...] = ()
    undone: tuple[Decision, ...] = ()

    @property
    def status(self) -> Literal["approved", "rejected", "open"]:
        """What `datasets.require_review` asks for."""
        if self.verdict is None:
            return "open"
        return "approved" if self.verdict.kind is Kind.APPROVE else "rejected"

    @property
    def rejected_for(self) -> str:
        """Why it is rejected, one of `REJECT_REASONS`; empty: it is not."""
        value = self.verdict.value if self.verdict else None
        return value.reason if isinstance(value, Rejection) else ""

    @property
    def corrections(self) -> "Corrections":
        """What the records are made with; approval, rejection and notes are no part of it."""
        return Corrections(
            instruction=self.instruction,
            success=self.success,
            bad_steps=sorted(self.bad_steps),
            trim=Trim(first=self.trim[0], last=self.trim[1]) if self.trim else None,
            actions=[action for _, action in sorted(self.actions.items())],
            decisions=sorted(one.id for one in self.applied if one.kind in _CORRECTING),
        )


def judge(decisions: Iterable[Decision], subject: Subject) -> Judgement:
    """What holds now. The order and repetition of `decisions` do not matter."""
    known = sorted({one.id: one for one in decisions}.values(), key=lambda one: one.order)
    undone = _undone(known)
    standing = [one for one in known if one.id not in undone and one.kind is not Kind.UNDO]
    # One that was made elsewhere can name steps that are not there.
    named = [one for one in standing if one.steps <= subject.steps.keys()]
    applied = [one for one in named if subject.is_same(one)]
    latest: dict[Kind, Any] = {}
    bad: set[int] = set()
    actions: dict[int, StepAction] = {}
    for one in applied:
        latest[one.kind] = one.value
        if isinstance(one.value, BadStep):
            bad.add(one.value.step)
        elif isinstance(one.value, ActionValue):
            actions[one.value.action.step_index] = one.value.action
    verdicts = [one for one in applied if one.kind in {Kind.APPROVE, Kind.REJECT}]
    outcome, instruction = latest.get(Kind.OUTCOME), latest.get(Kind.INSTRUCTION)
    trim = latest.get(Kind.TRIM)
    return Judgement(
        verdict=verdicts[-1] if verdicts else None,
        success=outcome.success if outcome else None,
        instruction=" ".join(instruction.text.split()) if instruction else None,
        bad_steps=frozenset(bad),
        trim=(trim.first, trim.last) if trim else None,
        actions=actions,
        notes=tuple(one for one in applied if one.kind is Kind.NOTE),
        applied=tuple(applied),
        stale=tuple(one for one in standing if one not in applied),
        undone=tuple(one for one in known if one.id in undone and one.kind is not Kind.UNDO),
    )


def _undone(known: Sequence[Decision]) -> frozenset[str]:
    """Ids of the decisions that an undo takes back which is not itself taken back."""
    gone: set[str] = set()
    for one in reversed(known):  # an undo is later than what it takes back
        if isinstance(one.value, Undo) and one.id not in gone:
            gone.add(one.value.decision)
    return frozenset(gone)


def next_time(seen: Iterable[Decision], now: datetime) -> str:
    """The time of a new decision: now, but after all that were seen, whatever the clocks say."""
    last = max((one.time for one in seen), default="")
    text = _iso(now)
    if text > last:
        return text
    return _iso(datetime.fromisoformat(last).replace(tzinfo=UTC), after=True)


def _iso(time: datetime, *, after: bool = False) -> str:
    milliseconds = int(time.timestamp() * 1000 + 0.5) + after
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def checked_action(
    value: Any, recorded: StepAction, nodes: Nodes
) -> tuple[StepAction | None, list[str]]:
    """The action of a correction, validated as a written step is, or why it cannot be one.

    It keeps the step and the type. A target named by its id alone gets its role and name from the
    tree. The sentence is made anew unless the reviewer wrote another one.

    Args:
        value: an action.json with some members; the others are those of the recording.
        recorded: the step's action.
        nodes: of the step's tree.
    """
    if not isinstance(value, dict):
        return None, ["action: Input should be an object"]
    members = recorded.model_dump(mode="json") | value
    target = members.get("target_element")
    if isinstance(target, dict) and (node := nodes.get(str(target.get("id")))):
        members["target_element"] = {key: getattr(node, key) for key in ("id", "role", "name")}
    try:
        action = StepAction.model_validate(members)
    except ValidationError as error:
        return None, faults(error)
    same = (recorded.step_index, recorded.action_type)
    if (action.step_index, action.action_type) != same:
        return None, ["action: a correction keeps the step and the type of its action"]
    if action.parameters.__pydantic_extra__ or action.__pydantic_extra__:
        return None, ["action: has unknown keys"]
    if found := errors(check_action(action, nodes, "action.json")):
        return None, [problem.message for problem in found]
    if action.reasoning == recorded.reasoning:
        kind, parameters = action.action_type, action.parameters
        sentence = step_sentence(kind, parameters, action.target_element, _box(action, nodes))
        action = action.model_copy(update={"reasoning": sentence})
    return action, []


def _box(action: StepAction, nodes: Nodes) -> tuple[int, int, int, int] | None:
    target = action.target_element
    if target is None or target.id not in nodes:
        return None
    bounds = nodes[target.id].bounds
    return bounds.x, bounds.y, bounds.width, bounds.height


class Corrections(Document):
    """What people corrected in a trajectory, as its records keep it: `corrections.json`.

    Attributes:
        instruction, success: see `Judgement`.
        bad_steps: numbers of steps, in order.
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
    trajectory: Trajectory,
    corrections: Corrections,
    rows: Mapping[int, ProvenanceRow],
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
    first, last = steps[0].index, steps[-1].index
    following = [step.screenshot for step in trajectory.steps if step.index > last]
    asked, told = dict[str, Any](), dict[str, Any]()
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


def by_demonstration(decisions: Iterable[Decision]) -> dict[str, list[Decision]]:
    """Demonstration → its decisions."""
    found: defaultdict[str, list[Decision]] = defaultdict(list)
    for one in decisions:
        found[one.demonstration].append(one)
    return dict(found)
