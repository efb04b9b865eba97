"""Stores annotations as `annotations/<demonstration>/<key>.json`.

A document contains annotations from one answer of a model, one imported line or one rule, and never
changes. The key of a model's answer is a hash of the judged content, the model and the prompt. If
the key exists, the question is not asked again.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from demo_pipeline.annotations.annotations import (
    MOST_ANNOTATED,
    VARIANTS,
    Annotation,
    AnnotationKind,
    RefusedValueError,
    checked_annotation,
    human_annotations,
    judged_digests,
    judged_rows,
    row_notes,
    value_text,
)
from demo_pipeline.desktopd.models import Count, Text
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.privacy.redaction_stage import cleaner, open_shown
from demo_pipeline.review.decisions import Decision, Subject, corrected, judge
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.store.documents import DamagedDocument, unsealed
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, load

ANNOTATIONS = "annotations"
_LOG = logging.getLogger(__package__)


class AnnotationDocument(Document):
    """Stored annotations from an answer of a model, a line of an import, or a rule.

    Attributes:
        step: as `step_index` in `Annotation`.
        judged, source, author, prompt, time: as in `Annotation`.
        asked: whether the document is an answer from a server. The key of an answer depends only on
            the question. The keys of all other documents also depend on the values.
        values: maps kinds of annotations to values. For a rewording of the instruction, the key is
            a name in `VARIANTS` instead of the kind.
        escaped: number of escapes in all values, counted as in `clean_text`.
        refused: a word with the reason for each refused answer. If all answers to the question were
            refused, `values` is empty.
        answer: the last answer, shortened, if all answers were refused. Otherwise empty.
    """

    demonstration: Text
    step: Count | None
    judged: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    source: Literal["human", "model", "rule"]
    author: Annotated[Text, Field(max_length=200)]
    prompt: Annotated[str, Field(max_length=200)] = ""
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
    asked: bool = False
    values: dict[str, Any]
    escaped: Count = 0
    refused: list[str] = Field(default_factory=list)
    answer: Annotated[str, Field(max_length=MOST_ANNOTATED)] = ""

    @property
    def key(self) -> str:
        """The key of the document in the store."""
        parts: list[Any] = [self.step, self.judged, self.source, self.author, self.prompt]
        if not self.asked:
            parts.append(self.values)
        return _key(self.demonstration, *parts)

    def annotations(self) -> Iterator[Annotation]:
        """Yields the annotations in the document, without values that are not valid."""
        for name, value in self.values.items():
            try:
                checked, _ = checked_annotation(kind_of(name), value, self.step)
            except RefusedValueError:
                continue
            yield Annotation(
                self.step,
                kind_of(name),
                value_text(checked),
                source=self.source,
                author=self.author,
                judged=self.judged,
                time=self.time,
                prompt=self.prompt or None,
                variant=name if name in VARIANTS else None,
            )


def _key(demonstration: str, *parts: Any) -> str:
    digest = sha256(json_bytes(parts, compact=True)).hexdigest()[:32]
    return f"{ANNOTATIONS}/{demonstration}/{digest}.json"


def kind_of(name: str) -> str:
    """Returns the kind of annotation for a name in `AnnotationDocument.values`.

    All names in `VARIANTS` have the same kind.
    """
    if name in VARIANTS:
        return AnnotationKind.INSTRUCTION_VARIANT.value
    return name


@dataclass(frozen=True)
class JudgedDemonstration:
    """A demonstration with people's corrections, ready to be annotated.

    Attributes:
        id: id of the demonstration.
        trajectory: the trajectory with the corrections. `open_judged` also sets `notes` to the
            effective annotations.
        digests: hashes of the content that annotations judge, as returned by `judged_digests`.
        decided: annotations that people made on the review page.
        documents: keys of the stored annotation documents.
        bad_steps: numbers of the steps that people marked as bad.
    """

    id: str
    trajectory: Trajectory
    digests: Mapping[int | None, str]
    decided: tuple[Annotation, ...] = ()
    documents: frozenset[str] = frozenset()
    bad_steps: frozenset[int] = field(default=frozenset())

    def asked_key(self, step: int | None, author: str, prompt: str) -> str:
        """Returns the key of a model's answer about the current content.

        `step` is the number of the step, or None for a question about the whole demonstration.
        """
        return _key(self.id, step, self.digests[step], "model", author, prompt)

    def document(
        self, step: int | None, values: Mapping[str, Any], **members: Any
    ) -> AnnotationDocument:
        """Returns a new document about the current content of the demonstration.

        Args:
            step: number of the step. The end of the demonstration has the number after the last
                step. None means the whole demonstration.
            values: values as in `AnnotationDocument`. Their texts will be escaped.
            members: other members of the document, at least `source` and `author`.

        Raises:
            RefusedValueError: the step does not exist, or a value is not valid for its kind.
            ValidationError: another member is not valid.
        """
        if not isinstance(step, int | None) or step not in self.digests:
            raise RefusedValueError("wrong_step")
        clean_values = dict[str, Any]()
        escaped = 0
        for name, value in values.items():
            clean_values[name], escaped_in_value = checked_annotation(kind_of(name), value, step)
            escaped += escaped_in_value
        for subtask in clean_values.get("subtask", ()):
            if subtask["first"] not in self.digests or subtask["last"] not in self.digests:
                raise RefusedValueError("wrong_step")
        if not clean_values and not members.get("refused"):
            raise RefusedValueError("empty")
        document = {
            "demonstration": self.id,
            "step": step,
            "judged": self.digests[step],
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
            "values": clean_values,
            "escaped": escaped,
        }
        return AnnotationDocument.model_validate(document | members)

    def rows(self, documents: Iterable[AnnotationDocument]) -> list[dict[str, Any]]:
        """Returns the rows of annotations.parquet for these documents and for `decided`."""
        annotations = list[Annotation]()
        for document in documents:
            annotations += document.annotations()
        return judged_rows(self.id, [*annotations, *self.decided], self.digests)


def judge_demonstration(
    folder: Path, subject: Subject, decisions: Iterable[Decision]
) -> JudgedDemonstration:
    """Reads a trajectory and applies people's corrections, but adds no annotations to it.

    Args:
        folder: folder of the trajectory, either original or redacted.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    judgement = judge(decisions, subject)
    trajectory, rows = load(DatasetTrajectory(subject.id, str(folder)))
    correction = corrected(trajectory, judgement.corrections, rows)
    digests = judged_digests(subject, judgement, correction.trajectory)
    decided = tuple(human_annotations(judgement, digests))
    return JudgedDemonstration(
        subject.id, correction.trajectory, digests, decided, bad_steps=correction.bad_steps
    )


def document_keys(store: Store, demonstration: str) -> list[str]:
    """Returns the sorted keys of the documents of a demonstration."""
    return store.list_documents(f"{ANNOTATIONS}/{demonstration}")


def read_documents(store: Store, keys: Collection[str]) -> list[AnnotationDocument]:
    """Reads annotation documents.

    Damaged documents, and documents that do not match their key, are left out with a warning.
    """
    documents = list[AnnotationDocument]()
    for key in keys:
        document = None
        with suppress(DamagedDocument, ValidationError):  # these errors may quote private text
            value = unsealed(store.get_document(key) or b"", key)
            document = AnnotationDocument.model_validate(value)
        if document is not None and document.key == key:
            documents.append(document)
        else:
            _LOG.warning("%s is damaged and is ignored", key)
    return documents


def open_judged(
    store: Store, demonstration: str, reviews: Reviews, privacy: PrivacySettings
) -> JudgedDemonstration:
    """Opens the current trajectory of a demonstration with its annotations, both redacted.

    Raises:
        MissingOutput: the demonstration has no trajectory that may be shown; see `open_shown`.
        DemonstrationError: the trajectory cannot be read.
    """
    folder, version = open_shown(store, demonstration, privacy)
    reviews.refresh(demonstration)
    subject = subject_of(version, demonstration)
    decisions = reviews.about(demonstration)
    keys = document_keys(store, demonstration)
    documents = read_documents(store, keys)
    if decisions or documents:
        clean: Any = cleaner(store, privacy, demonstration)
        decisions = [*map(clean, decisions)]
        documents = [*map(clean, documents)]
    judged = judge_demonstration(folder, subject, decisions)
    notes = row_notes(judged.rows(documents))
    trajectory = replace(judged.trajectory, notes=notes)
    return replace(judged, trajectory=trajectory, documents=frozenset(keys))
