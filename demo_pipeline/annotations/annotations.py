"""Annotations: what a person, a model or a rule says about a step or a whole demonstration.

Belongs here: the kinds and their values, the table, and which of several statements counts. What
was judged is named by its hash: when it changes, the annotation is stale, shown and not used.
Where annotations are kept is in `annotation_store`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

import pyarrow as pa

from demo_pipeline.desktopd.trajectory_reader import AnnotatedValue, Notes, Trajectory
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.json_files import json_bytes, parse_json
from demo_pipeline.files.parquet import COUNT, TEXT, described_schema, fitting, one_of
from demo_pipeline.files.shown_text import plain_characters, replace_surrogates
from demo_pipeline.review.decisions import (
    BadStep,
    Judgement,
    OutcomeValue,
    StepThought,
    StepVerdict,
    Subject,
    Value,
)

MOST_ANNOTATED = 10_000  # of a text; people's thoughts have a few hundred


class AnnotationKind(StrEnum):
    """What an annotation says: the first six of a step, or of the end; the others of the whole.

    `reflection` of the whole is the reason of its grade. Scores are 0 to 10.
    """

    OBSERVATION = "observation"
    THOUGHT = "thought"
    CAPTION = "caption"
    STEP_CORRECT = "step_correct"
    STEP_REDUNDANT = "step_redundant"
    REFLECTION = "reflection"
    TASK_COMPLETED = "task_completed"
    ALIGNMENT = "alignment"
    EFFICIENCY = "efficiency"
    DIFFICULTY = "difficulty"
    SUBTASK = "subtask"
    INSTRUCTION_VARIANT = "instruction_variant"


SOURCES = ("human", "model", "rule")  # the first that says something counts
VARIANTS = ("brief", "plain", "detailed", "actual", "natural")
"""Wordings of an instruction: three degrees of detail, and the two of AgentNet's grades."""
VERDICTS = frozenset({"step_correct", "step_redundant", "task_completed"})
SCORES = frozenset({"alignment", "efficiency", "difficulty"})
_OF_STEPS = frozenset(list(AnnotationKind)[:6])
_OF_WHOLE = frozenset(list(AnnotationKind)[5:])
_TAG = re.compile(r"<([/!?|A-Za-z][^<>]*)>")


class RefusedValueError(ValueError):
    """A value that its kind cannot have. `reason` is one of a few words; never the value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Annotation:
    """One statement, with the columns of `ANNOTATIONS_SCHEMA` that do not depend on others.

    Attributes:
        step_index: of the step; that of the last plus one: the end; None: the whole demonstration.
        variant: one of `VARIANTS` for `instruction_variant`; None for other kinds.
        value: JSON text: true or false, a score, a text, or the subtasks.
        source: one of `SOURCES`.
        author: a person, a model with its version, or a rule.
        judged: SHA-256 over what was judged.
        time: ISO 8601, UTC.
        prompt: name, version and hash of the prompt; None without one.
    """

    step_index: int | None
    kind: str
    value: str
    source: str
    author: str
    judged: str
    time: str
    prompt: str | None = None
    variant: str | None = None

    @property
    def about(self) -> tuple[int, str, str]:
        """What it says something about; of statements about the same, one counts."""
        return (-1 if self.step_index is None else self.step_index, self.kind, self.variant or "")

    @property
    def rank(self) -> tuple[Any, ...]:
        """Of statements about the same, the one with the greatest counts."""
        said = (self.author, self.prompt or "", self.judged, self.value)
        return (-SOURCES.index(self.source), self.time, *said)


def value_text(value: Any) -> str:
    """A value as an annotation and its table have it."""
    return json_bytes(value, compact=True).decode().strip()


def judged_rows(
    demonstration: str, annotations: Iterable[Annotation], digests: Mapping[int | None, str]
) -> list[dict[str, Any]]:
    """Rows of `ANNOTATIONS_SCHEMA`: which count, human over model over rule, then the latest.

    The order and repetition of `annotations` do not matter.

    Args:
        demonstration: that they are about.
        annotations: what is said.
        digests: step, or None for the whole → SHA-256 over what would be judged now.
    """
    known = sorted(set(annotations), key=lambda one: (one.about, one.rank))
    used: dict[tuple[int, str, str], Annotation] = {}
    for one in known:  # the best of those about the same comes last
        if digests.get(one.step_index) == one.judged:
            used[one.about] = one
    rows = []
    for one in known:
        stale = digests.get(one.step_index) != one.judged
        best = None if stale else used[one.about]
        disagrees = best is not None and one.kind in VERDICTS | SCORES and best.value != one.value
        stands = {"stale": stale, "effective": best is one, "disagrees": disagrees}
        rows.append({"trajectory_id": demonstration, **asdict(one), **stands})
    return rows


def checked_annotation(kind: str, value: Any, step: int | None) -> tuple[Any, int]:
    """The value as it is kept, and how many characters or tags in it were escaped.

    Raises:
        RefusedValueError: there is no such kind of this, or the value is none of its kind.
    """
    if kind not in (_OF_WHOLE if step is None else _OF_STEPS):
        raise RefusedValueError("wrong_kind")
    if kind in VERDICTS:
        if not isinstance(value, bool):
            raise RefusedValueError("wrong_schema")
        return value, 0
    if kind in SCORES:
        if type(value) is not int or not 0 <= value <= 10:
            raise RefusedValueError("wrong_schema")
        return value, 0
    if kind != AnnotationKind.SUBTASK:
        return clean_text(value)
    if not isinstance(value, list) or not all(map(_is_subtask, value)) or not _in_order(value):
        raise RefusedValueError("wrong_schema")
    texts = [clean_text(one["text"]) for one in value]
    kept = [{**one, "text": text} for one, (text, _) in zip(value, texts, strict=True)]
    return kept, sum(escaped for _, escaped in texts)


def _is_subtask(value: Any) -> bool:
    keys = {"first": int, "last": int, "text": str}
    fits = isinstance(value, dict) and value.keys() == keys.keys()
    return fits and all(type(value[key]) is kind for key, kind in keys.items())


def _in_order(subtasks: Sequence[Mapping[str, Any]]) -> bool:
    places = [place for one in subtasks for place in (one["first"], one["last"] + 1)]
    ranges = all(0 <= one["first"] <= one["last"] for one in subtasks)
    return bool(subtasks) and ranges and places == sorted(places)


def clean_text(value: Any) -> tuple[str, int]:
    """A text without markup, markers of models and unseen characters, and how many were escaped.

    Raises:
        RefusedValueError: it is not a text, is empty, or has more than `MOST_ANNOTATED`.
    """
    if not isinstance(value, str):
        raise RefusedValueError("wrong_schema")
    if len(value) > MOST_ANNOTATED:
        raise RefusedValueError("too_long")
    text = value.replace("\r\n", "\n").strip()
    escaped = 0
    while found := _TAG.subn(r"[\1]", text)[1]:  # what is left may be a tag again
        text = _TAG.sub(r"[\1]", text)
        escaped = escaped + found
    plain = plain_characters(replace_surrogates(text.replace("\t", " ")))
    if not plain:
        raise RefusedValueError("empty")
    return plain, escaped + (plain != text.replace("\t", " "))


def judged_digests(
    subject: Subject, judgement: Judgement, trajectory: Trajectory
) -> dict[int | None, str]:
    """Step, the end, and None for the whole → SHA-256 over what is judged.

    Of a step: its screenshot, tree and action, and the instruction; of the end: the final
    screenshot; of the whole: all of these.

    Args:
        subject: the version.
        judgement: its corrections.
        trajectory: as they correct it.
    """

    def digest(*parts: object) -> str:
        return sha256(
            repr((trajectory.task.instruction, *parts)).encode(errors="replace")
        ).hexdigest()

    actions = {action.step_index: action for action in judgement.corrections.actions}
    found: dict[int | None, str] = {}
    for step in trajectory.steps:
        action = actions.get(step.index)
        parts = [subject.steps[step.index], *([json_bytes(action)] if action else [])]
        found[step.index] = digest(*parts)
    final = trajectory.final_screenshot
    last = file_digest(final).sha256 if final.is_file() else ""
    whole = digest(sorted(found.items()), last, trajectory.result.success)
    return found | {end_of(trajectory): digest(last), None: whole}


def end_of(trajectory: Trajectory) -> int:
    """The number that stands for the end: that of the last step plus one."""
    return trajectory.steps[-1].index + 1 if trajectory.steps else 0


def human_annotations(
    judgement: Judgement, digests: Mapping[int | None, str]
) -> Iterator[Annotation]:
    """Yield what people decided; what is stale judges what has changed since."""
    for judged, decisions in ((digests, judgement.applied), ({}, judgement.stale)):
        for one in decisions:
            digest = judged.get(one.step) or next(iter(one.judged.values()), "")
            for kind, value in _said(one.value):
                who = (SOURCES[0], one.author, digest, one.time)
                yield Annotation(one.step, kind, value_text(value), *who)


def _said(value: Value) -> list[tuple[str, Any]]:
    match value:
        case BadStep():
            return [("step_correct", False)]
        case OutcomeValue(success=success):
            return [("task_completed", success)]
        case StepThought(text=text):
            return [("thought", clean_text(text)[0])]
        case StepVerdict(correct=correct, redundant=None):
            return [("step_correct", correct)]
        case StepVerdict(correct=correct, redundant=redundant):
            return [("step_correct", correct), ("step_redundant", redundant)]
    return []


ANNOTATIONS_FILE = "annotations.parquet"
ANNOTATIONS_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("step_index", pa.int32(), True, "as in steps/NNN; last + 1: the end; null: the whole"),
        ("kind", pa.string(), False, "what it says"),
        ("variant", pa.string(), True, "which wording of the instruction"),
        ("value", pa.string(), False, "JSON: true or false, 0 to 10, a text, or the subtasks"),
        ("source", pa.string(), False, "the first of human, model and rule counts"),
        ("author", pa.string(), False, "a person, a model with its version, or a rule"),
        ("prompt", pa.string(), True, "name, version and hash of the prompt"),
        ("judged", pa.string(), False, "SHA-256 over what was judged"),
        ("time", pa.string(), False, "ISO 8601, UTC"),
        ("stale", pa.bool_(), False, "what was judged has changed since; not used"),
        ("effective", pa.bool_(), False, "it is the one that datasets use"),
        ("disagrees", pa.bool_(), False, "another verdict or score than the one used"),
    ),
    {
        "trajectory_id value author time": TEXT,
        "step_index": COUNT,
        "kind": one_of(*AnnotationKind),
        "variant": one_of(*VARIANTS).where("kind", AnnotationKind.INSTRUCTION_VARIANT),
        "source": one_of(*SOURCES),
        "judged": fitting(r"[0-9a-f]{64}"),
    },
)


def row_notes(rows: Iterable[Mapping[str, Any]]) -> Notes:
    """What counts, from rows of the table; see `Trajectory.notes`."""
    used = (row for row in rows if row["effective"])
    return _notes(
        (row["step_index"], row["variant"] or row["kind"], _parsed(row["value"]), row["source"])
        for row in used
    )


def _parsed(text: str) -> Any:
    return parse_json(text, ANNOTATIONS_FILE)


def _notes(said: Iterable[tuple[int | None, str, Any, str]]) -> Notes:
    notes: dict[int | None, dict[str, AnnotatedValue]] = {}
    for step, name, value, source in said:
        notes.setdefault(step, {})[name] = AnnotatedValue(value, source)
    return notes


def written_notes(notes: Notes) -> bytes:
    """Notes as one line of JSON, for `parsed_notes`."""
    rows = [(step, name, *note) for step, of in notes.items() for name, note in of.items()]
    return json_bytes(rows, compact=True)


def parsed_notes(line: bytes) -> Notes:
    """Notes from their line."""
    return _notes(_parsed(line.decode()))


def wordings(notes: Notes) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and source of each other wording of the instruction."""
    for name, note in notes.get(None, {}).items():
        if name in VARIANTS:
            yield name, note.value, note.source


AGENTNET_STEP_FIELDS = {
    **{name: name for name in ("observation", "thought", "reflection")},
    "last_step_correct": "step_correct",
    "last_step_redundant": "step_redundant",
}
AGENTNET_TASK_FIELDS = {
    "alignment_score": "alignment",
    "efficiency_score": "efficiency",
    "task_difficulty": "difficulty",
    "reason": "reflection",
    "actual_task": "actual",
    "natural_language_task": "natural",
}


def agentnet_fields(
    trajectory: Trajectory, step: int | None, names: Mapping[str, str]
) -> dict[str, Any]:
    """What is said about a step or the whole, under AgentNet's names, which CUA-Lite takes over."""
    said = {name: trajectory.note(step, kind) for name, kind in names.items()}
    return {name: value for name, value in said.items() if value is not None}


def annotation_sources(trajectory: Trajectory, step: int | None) -> dict[str, Any]:
    """Where words, verdicts and grades of a step or the whole come from, as a member of its row.

    Kind → human, model or rule. Without annotations there is no such member.
    """
    sources = {name: note.source for name, note in trajectory.notes.get(step, {}).items()}
    return {"annotation_sources": dict(sorted(sources.items()))} if sources else {}
