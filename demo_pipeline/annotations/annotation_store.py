"""Where annotations are kept: `annotations/<demonstration>/<key>.json` in the store.

Belongs here: the document of one answer, its key, reading and writing them, and what of a
demonstration is judged. A document is written once and never changed, and its key follows from what
was judged, by whom and with which prompt: what did not change is never asked twice.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    """One answer, or one line of an import.

    Attributes:
        step, judged, source, author, prompt, time: see `Annotation`.
        asked: a server was asked, so that its key says what was asked and not what it says.
        values: kind, or wording of the instruction → value.
        escaped: how many tags and unseen characters in the values were escaped.
        refused: why answers were refused, one word an attempt; the values are those of the last
            attempt, or none.
        answer: what was refused last, cut.
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
        """Of the document."""
        said = [] if self.asked else [self.values]
        by = (self.source, self.author, self.prompt)
        return _key(self.demonstration, self.step, self.judged, *by, *said)

    def annotations(self) -> Iterator[Annotation]:
        """Yield what it says; a value that its kind cannot have is left out."""
        for name, value in self.values.items():
            try:
                checked, _ = checked_annotation(kind_of(name), value, self.step)
            except RefusedValueError:
                continue
            who = (self.source, self.author, self.judged, self.time, self.prompt or None)
            variant = name if name in VARIANTS else None
            yield Annotation(self.step, kind_of(name), value_text(checked), *who, variant)


def _key(demonstration: str, *parts: Any) -> str:
    digest = sha256(json_bytes(parts, compact=True)).hexdigest()[:32]
    return f"{ANNOTATIONS}/{demonstration}/{digest}.json"


def kind_of(name: str) -> str:
    """The kind of a value, which may have the name of a wording of the instruction."""
    return AnnotationKind.INSTRUCTION_VARIANT.value if name in VARIANTS else name


@dataclass(frozen=True)
class JudgedDemonstration:
    """A demonstration as people have corrected it, which is what annotations judge.

    Attributes:
        trajectory: its notes are what counts now.
        digests: see `judged_digests`.
        decided: what people said.
        documents: keys of those that are there.
        bad_steps: see `Judgement`.
    """

    id: str
    trajectory: Trajectory
    digests: Mapping[int | None, str]
    decided: tuple[Annotation, ...] = ()
    documents: frozenset[str] = frozenset()
    bad_steps: frozenset[int] = field(default=frozenset())

    def asked_key(self, step: int | None, author: str, prompt: str) -> str:
        """The key of the answer of a model."""
        return _key(self.id, step, self.digests[step], "model", author, prompt)

    def document(
        self, step: int | None, values: Mapping[str, Any], **members: Any
    ) -> AnnotationDocument:
        """A document about what is there now.

        Args:
            step: that it is about; see `Annotation`.
            values: see `AnnotationDocument`; a value is cleaned.
            members: `source`, `author`, and further ones.

        Raises:
            RefusedValueError: there is no such step, or a value is none of its kind.
            ValidationError: another member is not valid.
        """
        if not isinstance(step, int | None) or step not in self.digests:
            raise RefusedValueError("wrong_step")
        checked = {name: checked_annotation(kind_of(name), values[name], step) for name in values}
        kept = {name: value for name, (value, _) in checked.items()}
        if not {part[end] for part in kept.get("subtask", ()) for end in ("first", "last")} <= (
            self.digests.keys()
        ):
            raise RefusedValueError("wrong_step")
        if not kept and not members.get("refused"):
            raise RefusedValueError("empty")
        known = {
            "demonstration": self.id,
            "step": step,
            "judged": self.digests[step],
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
            "values": kept,
            "escaped": sum(escaped for _, escaped in checked.values()),
        }
        return AnnotationDocument.model_validate(known | members)

    def rows(self, documents: Iterable[AnnotationDocument]) -> list[dict[str, Any]]:
        """Rows of `ANNOTATIONS_SCHEMA`: what documents and people say, and which of it counts."""
        said = (one for document in documents for one in document.annotations())
        return judged_rows(self.id, [*said, *self.decided], self.digests)


def judge_demonstration(
    folder: Path, subject: Subject, decisions: Iterable[Decision]
) -> JudgedDemonstration:
    """What is judged of a version of a trajectory, without its notes.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    judgement = judge(decisions, subject)
    trajectory, rows = load(DatasetTrajectory(subject.id, str(folder)))
    found = corrected(trajectory, judgement.corrections, rows)
    digests = judged_digests(subject, judgement, found.trajectory)
    decided = tuple(human_annotations(judgement, digests))
    return JudgedDemonstration(
        subject.id, found.trajectory, digests, decided, bad_steps=found.bad_steps
    )


def document_keys(store: Store, demonstration: str) -> list[str]:
    """Keys of the documents of a demonstration, sorted."""
    return store.list_documents(f"{ANNOTATIONS}/{demonstration}")


def read_documents(store: Store, keys: Collection[str]) -> list[AnnotationDocument]:
    """The documents; one that is damaged or lies under another key is named in the log instead."""
    found = []
    for key in keys:
        try:
            value = unsealed(store.get_document(key) or b"", key)
            document = AnnotationDocument.model_validate(value)
        except (DamagedDocument, ValidationError):  # its text is private
            document = None
        if document is not None and document.key == key:
            found.append(document)
        else:
            _LOG.warning("%s is not as it was written, and is not used", key)
    return found


def open_judged(
    store: Store, demonstration: str, reviews: Reviews, privacy: PrivacySettings
) -> JudgedDemonstration:
    """The current trajectory with its notes, without what is private in either.

    Raises:
        MissingOutput: it has no trajectory.
        DemonstrationError: it cannot be read.
    """
    folder, version = open_shown(store, demonstration, privacy)
    reviews.refresh(demonstration)
    subject = subject_of(version, demonstration)
    decisions = reviews.of(demonstration)
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
