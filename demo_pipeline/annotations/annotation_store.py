"""Where annotations are kept: `annotations/<demonstration>/<key>.json` in the store.

Belongs here: the document of one answer, its key, reading and writing them, and what of a
demonstration is judged. A document is written once and never changed, and its key follows from what
was judged, by whom and with which prompt: what did not change is never asked twice.
"""

import logging
from collections import Counter
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
    effective_notes,
    human_annotations,
    judged_digests,
    standing,
)
from demo_pipeline.desktopd.models import Count, Text
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.review.decisions import Decision, Judgement, Subject, corrected, judge
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load

ANNOTATIONS = "annotations"
_LOG = logging.getLogger(__package__)
_NOTHING: Mapping[str, Any] = {}


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
        asked = [self.step, self.judged, self.source, self.author, self.prompt]
        said = [] if self.asked else [self.values]
        digest = sha256(json_bytes([*asked, *said], compact=True)).hexdigest()[:32]
        return f"{ANNOTATIONS}/{self.demonstration}/{digest}.json"

    def annotations(self) -> Iterator[Annotation]:
        """Yield what it says; a value that its kind cannot have is left out."""
        for name, value in self.values.items():
            variant = name if name in VARIANTS else ""
            kind = AnnotationKind.INSTRUCTION_VARIANT if variant else name
            try:
                checked, _ = checked_annotation(kind, value, self.step)
            except RefusedValueError:
                continue
            who = (self.source, self.author, self.judged, self.time, self.prompt)
            yield Annotation(self.step, AnnotationKind(kind), checked, *who, variant)


def new_document(
    judged: "JudgedDemonstration",
    step: int | None,
    values: Mapping[str, Any],
    by: tuple[str, str, str],
    more: Mapping[str, Any] = _NOTHING,
) -> AnnotationDocument:
    """A document about what is there now.

    Args:
        judged: the demonstration.
        step: that it is about; see `Annotation`.
        values: see `AnnotationDocument`; a value is cleaned.
        by: source, author and prompt.
        more: further members.

    Raises:
        RefusedValueError: there is no such step, or a value is none of its kind.
        ValidationError: another member is not valid.
    """
    if not isinstance(step, int | None) or step not in judged.digests:
        raise RefusedValueError("wrong_step")
    kept, escaped = {}, 0
    for name, value in values.items():
        kind = AnnotationKind.INSTRUCTION_VARIANT if name in VARIANTS else name
        kept[name], found = checked_annotation(kind, value, step)
        escaped += found
    ends = {one[end] for one in kept.get("subtask", ()) for end in ("first", "last")}
    if not ends <= judged.digests.keys():
        raise RefusedValueError("wrong_step")
    if not kept and not more.get("refused"):
        raise RefusedValueError("empty")
    known = {"demonstration": judged.id, "step": step, "judged": judged.digests[step]}
    known |= dict(zip(("source", "author", "prompt"), by, strict=True))
    known |= {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z", "escaped": escaped}
    return AnnotationDocument.model_validate({**known, **more, "values": kept})


@dataclass(frozen=True)
class JudgedDemonstration:
    """A demonstration as people have corrected it, which is what annotations judge.

    Attributes:
        trajectory: its notes are what counts now.
        digests: see `judged_digests`.
        documents: keys of those that are there.
    """

    id: str
    trajectory: Trajectory
    digests: Mapping[int | None, str]
    documents: frozenset[str] = frozenset()
    bad_steps: frozenset[int] = field(default=frozenset())


def judge_demonstration(
    folder: Path, subject: Subject, decisions: Iterable[Decision]
) -> tuple[JudgedDemonstration, Judgement]:
    """What is judged of a version of a trajectory, and what people decided.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    judgement = judge(decisions, subject)
    trajectory, rows = load(DatasetTrajectory(subject.id, str(folder)))
    found = corrected(trajectory, judgement.corrections, rows)
    digests = judged_digests(subject, judgement, found.trajectory)
    judged = JudgedDemonstration(subject.id, found.trajectory, digests, bad_steps=found.bad_steps)
    return judged, judgement


def document_keys(store: Store, demonstration: str) -> list[str]:
    """Keys of the documents of a demonstration, sorted."""
    return store.list_documents(f"{ANNOTATIONS}/{demonstration}")


def read_documents(store: Store, keys: Iterable[str]) -> tuple[list[AnnotationDocument], int]:
    """The documents, and how many are damaged or lie under another key."""
    found, damaged = [], 0
    for key in keys:
        document = _read_document(store, key)
        if document is None or document.key != key:
            _LOG.warning("%s is not as it was written, and is not used", key)
            damaged += 1
        else:
            found.append(document)
    return found, damaged


def _read_document(store: Store, key: str) -> AnnotationDocument | None:
    try:
        value = parse_json(store.get_document(key) or b"", key)
        return AnnotationDocument.model_validate(value)
    except (JsonFileError, ValidationError):  # its text is private
        return None


def all_annotations(
    documents: Iterable[AnnotationDocument], judgement: Judgement, judged: JudgedDemonstration
) -> list[Annotation]:
    """What documents and decisions say."""
    said = [one for document in documents for one in document.annotations()]
    return [*said, *human_annotations(judgement, judged.digests)]


def open_judged(store: Store, demonstration: str, reviews: Reviews) -> JudgedDemonstration:
    """The current trajectory with its notes.

    Raises:
        MissingOutput: it has no trajectory.
        DemonstrationError: it cannot be read.
    """
    with store.open(f"trajectories/{demonstration}") as (folder, version):
        reviews.refresh(demonstration)
        subject = subject_of(version, demonstration)
        judged, judgement = judge_demonstration(folder, subject, reviews.of(demonstration))
    keys = document_keys(store, demonstration)
    said = all_annotations(read_documents(store, keys)[0], judgement, judged)
    notes = effective_notes(standing(said, judged.digests))
    trajectory = replace(judged.trajectory, notes=notes)
    return replace(judged, trajectory=trajectory, documents=frozenset(keys))


def refusals(documents: Collection[AnnotationDocument]) -> Counter[str]:
    """How often an answer was refused, by reason."""
    return Counter(reason for one in documents for reason in one.refused)
