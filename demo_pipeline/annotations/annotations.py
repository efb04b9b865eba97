"""Defines the kinds of annotations, their values, and the columns of their table.

An annotation is a statement of a person, a model or a rule about a step or a whole demonstration.
For each step, kind and variant, datasets use at most one annotation, called the effective
annotation. Each annotation contains a hash of the judged content. If the content changes, the
annotation is stale and not used.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from typing import Any

import pyarrow as pa

from demo_pipeline.desktopd.trajectory_reader import AnnotatedValue, Notes, Trajectory
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.json_files import json_bytes, parse_json
from demo_pipeline.files.parquet import COUNT, TEXT, described_schema, fitting, one_of
from demo_pipeline.files.shown_text import plain_characters, replace_surrogates
from demo_pipeline.review.decisions import (
    BadStep,
    Decision,
    Judgement,
    OutcomeValue,
    StepThought,
    StepVerdict,
    Subject,
    Value,
)

# Maximum number of characters of a text. People's thoughts have a few hundred characters.
MOST_ANNOTATED = 10_000


class AnnotationKind(StrEnum):
    """The kinds of annotations.

    The kinds before `reflection` are about a step or the end of a demonstration. The kinds after
    `reflection` are about a whole demonstration. `reflection` may be about either. If it is about a
    whole demonstration, it gives the reason for the scores. Scores are integers from 0 to 10.
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


SOURCES = ("human", "model", "rule")  # a source overrides the sources after it
VARIANTS = ("brief", "plain", "detailed", "actual", "natural")
"""Names of rewordings of the instruction: three degrees of detail, and two types from AgentNet."""
VERDICTS = frozenset({"step_correct", "step_redundant", "task_completed"})
SCORES = frozenset({"alignment", "efficiency", "difficulty"})
_OF_STEPS = frozenset(list(AnnotationKind)[:6])
_OF_WHOLE = frozenset(list(AnnotationKind)[5:])
_TAG = re.compile(r"<([/!?|A-Za-z][^<>]*)>")


class RefusedValueError(ValueError):
    """The value of an annotation is not valid. `reason` is a word that never quotes the value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation, with the columns of the table that do not depend on other annotations.

    Attributes:
        step_index: number of the step. The end of the demonstration has the number after the last
            step. None means the whole demonstration.
        kind: one of `AnnotationKind`.
        variant: one of `VARIANTS` for the kind `instruction_variant`, None for other kinds.
        value: JSON text of a boolean, a score, a text or the subtasks.
        source: one of `SOURCES`.
        author: a person, a model with its version, or a rule.
        judged: SHA-256 of the judged content.
        time: time of the annotation, ISO 8601 in UTC.
        prompt: name, version and hash of the prompt, if there was a prompt.
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
    def topic(self) -> tuple[int, str, str]:
        """Step, kind and variant. Datasets use at most one annotation for each topic.

        The step is -1 for the whole demonstration.
        """
        step = self.step_index
        if step is None:
            step = -1
        return step, self.kind, self.variant or ""

    @property
    def rank(self) -> tuple[Any, ...]:
        """A sort key. The annotation with the greatest rank for a topic is effective."""
        return (
            -SOURCES.index(self.source),
            self.time,
            self.author,
            self.prompt or "",
            self.judged,
            self.value,
        )


def value_text(value: Any) -> str:
    """Returns the JSON text of a value for `Annotation.value`."""
    return json_bytes(value, compact=True).decode().strip()


def judged_rows(
    demonstration: str, annotations: Iterable[Annotation], digests: Mapping[int | None, str]
) -> list[dict[str, Any]]:
    """Returns the rows of annotations.parquet, with the effective annotations marked.

    For the same step, kind and variant, a human's annotation overrides a model's, and a model's
    overrides a rule's. Among annotations of the same source, the latest is effective. Equal
    annotations become one row.

    Args:
        digests: hashes of the current content, see `judged_digests`. Annotations with another hash
            are stale.
    """
    ordered = sorted(set(annotations), key=attrgetter("topic", "rank"))
    effective: dict[tuple[int, str, str], Annotation] = {}
    for annotation in ordered:  # the last annotation of a topic has the greatest rank
        if digests.get(annotation.step_index) == annotation.judged:
            effective[annotation.topic] = annotation
    rows = []
    for annotation in ordered:
        is_stale = digests.get(annotation.step_index) != annotation.judged
        best = None
        if not is_stale:
            best = effective[annotation.topic]
        is_comparable = annotation.kind in VERDICTS | SCORES
        rows.append(
            {
                "trajectory_id": demonstration,
                **asdict(annotation),
                "stale": is_stale,
                "effective": best is annotation,
                "disagrees": is_comparable and best is not None and best.value != annotation.value,
            }
        )
    return rows


def checked_annotation(kind: str, value: Any, step: int | None) -> tuple[Any, int]:
    """Checks a value and escapes special characters in its texts.

    Args:
        step: number of a step, or the result of `end_of` for the end of the demonstration, or None
            for the whole demonstration.

    Returns:
        The value to store, and the number of escapes (see `clean_text`).

    Raises:
        RefusedValueError: a step, or the whole demonstration, cannot have an annotation of this
            kind, or the value is not valid for the kind.
    """
    kinds = _OF_WHOLE if step is None else _OF_STEPS
    if kind not in kinds:
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
    subtasks = list[dict[str, Any]]()
    escaped = 0
    for subtask in value:
        text, escaped_in_text = clean_text(subtask["text"])
        subtasks.append({**subtask, "text": text})
        escaped += escaped_in_text
    return subtasks, escaped


def _is_subtask(value: Any) -> bool:
    types = {"first": int, "last": int, "text": str}
    if not isinstance(value, dict) or value.keys() != types.keys():
        return False
    return all(type(value[key]) is type_ for key, type_ in types.items())


def _in_order(subtasks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is at least one subtask, and the subtasks are in order without overlap."""
    next_step = 0
    for subtask in subtasks:
        if not next_step <= subtask["first"] <= subtask["last"]:
            return False
        next_step = subtask["last"] + 1
    return bool(subtasks)


def clean_text(value: Any) -> tuple[str, int]:
    """Escapes tags, special tokens of models and invisible characters in a text.

    Returns:
        The escaped text, and the number of escapes. Each escaped tag counts as one, and all other
        escaped characters together as one.

    Raises:
        RefusedValueError: the value is not a text, is empty, or exceeds `MOST_ANNOTATED`.
    """
    if not isinstance(value, str):
        raise RefusedValueError("wrong_schema")
    if len(value) > MOST_ANNOTATED:
        raise RefusedValueError("too_long")
    text = value.replace("\r\n", "\n").strip()
    escaped = 0
    while True:  # once an inner tag is escaped, the text around it may form another tag
        text, tags = _TAG.subn(r"[\1]", text)
        if not tags:
            break
        escaped += tags
    plain = plain_characters(replace_surrogates(text.replace("\t", " ")))
    if not plain:
        raise RefusedValueError("empty")
    return plain, escaped + (plain != text.replace("\t", " "))


def judged_digests(
    subject: Subject, judgement: Judgement, trajectory: Trajectory
) -> dict[int | None, str]:
    """Returns SHA-256 hashes of the content that annotations judge.

    The hash of a step covers the screenshot, the UI tree and the action of the step. The hash of
    the end of the demonstration covers the final screenshot. The hash of the whole demonstration
    covers all steps, the final screenshot and the outcome. All hashes also cover the instruction.

    Args:
        judgement: reviewers' judgement of the trajectory, with their corrections.
        trajectory: the corrected trajectory.

    Returns:
        A dictionary from step numbers to hashes. The key of the end is the number that `end_of`
        returns. The key of the whole demonstration is None.
    """

    def digest(*parts: object) -> str:
        content = repr((trajectory.task.instruction, *parts))
        return sha256(content.encode(errors="replace")).hexdigest()

    corrected_actions = {action.step_index: action for action in judgement.corrections.actions}
    digests: dict[int | None, str] = {}
    for step in trajectory.steps:
        parts: list[object] = [subject.steps[step.index]]
        if action := corrected_actions.get(step.index):
            parts.append(json_bytes(action))
        digests[step.index] = digest(*parts)
    final_digest = ""
    if trajectory.final_screenshot.is_file():
        final_digest = file_digest(trajectory.final_screenshot).sha256
    whole = digest(sorted(digests.items()), final_digest, trajectory.result.success)
    digests[end_of(trajectory)] = digest(final_digest)
    digests[None] = whole
    return digests


def end_of(trajectory: Trajectory) -> int:
    """Returns the number after the last step, which annotations use for the end."""
    if not trajectory.steps:
        return 0
    return trajectory.steps[-1].index + 1


def human_annotations(
    judgement: Judgement, digests: Mapping[int | None, str]
) -> Iterator[Annotation]:
    """Converts decisions on the review page to annotations.

    Args:
        digests: hashes of the current content, see `judged_digests`. Annotations from stale
            decisions keep the decision's hash.
    """
    for decision in judgement.applied:
        yield from _decision_annotations(decision, digests.get(decision.step))
    for decision in judgement.stale:
        yield from _decision_annotations(decision, None)


def _decision_annotations(decision: Decision, digest: str | None) -> Iterator[Annotation]:
    """Yields the annotations of a decision.

    Args:
        digest: hash of the judged content, or None to use the hash in the decision.
    """
    judged = digest or next(iter(decision.judged.values()), "")
    for kind, value in _kinds_and_values(decision.value):
        yield Annotation(
            decision.step,
            kind,
            value_text(value),
            source="human",
            author=decision.author,
            judged=judged,
            time=decision.time,
        )


def _kinds_and_values(value: Value) -> list[tuple[str, Any]]:
    """Returns kind and value of each annotation that follows from the value of a decision."""
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
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        (
            "step_index",
            pa.int32(),
            True,
            (
                "number of the step as in steps/NNN, or last step + 1 for the end; null "
                "for the whole demonstration"
            ),
        ),
        (
            "kind",
            pa.string(),
            False,
            "kind of the annotation, such as thought, step_correct or alignment",
        ),
        (
            "variant",
            pa.string(),
            True,
            "name of the rewording of the instruction, such as brief; null for other kinds",
        ),
        (
            "value",
            pa.string(),
            False,
            "value as JSON: true or false, a score from 0 to 10, a text, or a list of subtasks",
        ),
        ("source", pa.string(), False, "human, model or rule; each overrides the sources after it"),
        (
            "author",
            pa.string(),
            False,
            "name of a person, of a model with its version, or of a rule",
        ),
        (
            "prompt",
            pa.string(),
            True,
            "name, version and hash of the prompt; null without a prompt",
        ),
        ("judged", pa.string(), False, "SHA-256 of the content that was judged"),
        ("time", pa.string(), False, "time of the annotation, ISO 8601 in UTC"),
        (
            "stale",
            pa.bool_(),
            False,
            "whether the judged content has changed since; datasets ignore stale annotations",
        ),
        (
            "effective",
            pa.bool_(),
            False,
            (
                "whether datasets use this annotation, which overrides all others of "
                "its step, kind and variant"
            ),
        ),
        (
            "disagrees",
            pa.bool_(),
            False,
            "whether this verdict or score differs from the effective one",
        ),
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
    """Returns the effective annotations, structured like `Trajectory.notes`.

    Args:
        rows: rows of annotations.parquet.
    """
    notes: dict[int | None, dict[str, AnnotatedValue]] = {}
    for row in rows:
        if row["effective"]:
            value = parse_json(row["value"], ANNOTATIONS_FILE)
            name = row["variant"] or row["kind"]
            notes.setdefault(row["step_index"], {})[name] = AnnotatedValue(value, row["source"])
    return notes


def written_notes(notes: Notes) -> bytes:
    """Serializes notes of a trajectory as one line of JSON, which `parsed_notes` reads."""
    rows = list[tuple[Any, ...]]()
    for step, notes_of_step in notes.items():
        for name, note in notes_of_step.items():
            rows.append((step, name, note.value, note.source))
    return json_bytes(rows, compact=True)


def parsed_notes(line: bytes) -> Notes:
    """Reads a line that `written_notes` wrote."""
    notes: dict[int | None, dict[str, AnnotatedValue]] = {}
    for step, name, value, source in parse_json(line.decode(), ANNOTATIONS_FILE):
        notes.setdefault(step, {})[name] = AnnotatedValue(value, source)
    return notes


def wordings(notes: Notes) -> Iterator[tuple[str, str, str]]:
    """Yields name, text and source of each annotation that is a rewording of the instruction."""
    for name, note in notes.get(None, {}).items():
        if name in VARIANTS:
            yield name, note.value, note.source


# The kind of annotation for each field name in AgentNet.
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
    """Returns the annotations of a step under AgentNet's field names, which CUA-Lite also uses.

    Args:
        step: number of the step, or None for annotations of the whole demonstration.
        names: the kind of annotation for each field name in AgentNet.
    """
    fields = dict[str, Any]()
    for name, kind in names.items():
        value = trajectory.note(step, kind)
        if value is not None:
            fields[name] = value
    return fields


def annotation_sources(trajectory: Trajectory, step: int | None) -> dict[str, Any]:
    """Returns `{"annotation_sources": {kind: "human", "model" or "rule"}}` for a row of an export.

    `step` is None for the whole demonstration. If there are no annotations, the result is empty.
    """
    sources = {name: note.source for name, note in trajectory.notes.get(step, {}).items()}
    if not sources:
        return {}
    return {"annotation_sources": dict(sorted(sources.items()))}
