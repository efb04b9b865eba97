"""The stage `annotations`: what is said about a demonstration, and which of it counts, as Parquet.

Belongs here: its declaration, reading what it is built from, and its check. It reads what is stored
and asks no server.
"""

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotation_store import (
    ANNOTATIONS,
    AnnotationDocument,
    all_annotations,
    document_keys,
    judge_demonstration,
    read_documents,
    refusals,
)
from demo_pipeline.annotations.annotations import (
    ANNOTATIONS_FILE,
    ANNOTATIONS_SCHEMA,
    annotation_row,
    standing,
)
from demo_pipeline.files.parquet import read_rows, schema_problems, write_rows
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.review.decisions import Decision, Subject
from demo_pipeline.review.review_store import REVIEWS, Reviews, subject_of
from demo_pipeline.stage import DEMONSTRATION_JOB, Check, SourceInput, Stage, Summary, built_again
from demo_pipeline.store.store import Store

_TRAJECTORIES = "trajectories"


@dataclass(frozen=True)
class StoredAnnotations:
    """What is stored about a version: keys of documents, which never change."""

    store: Store
    subject: Subject
    documents: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()

    def read(self) -> tuple[list[AnnotationDocument], int, list[Decision]]:
        """The documents, how many are damaged, and the decisions."""
        documents, damaged = read_documents(self.store, self.documents)
        if not self.decisions:
            return documents, damaged, []
        reviews = Reviews(self.store)
        reviews.refresh(self.subject.id)
        known = {key.rpartition("/")[2].removesuffix(".json") for key in self.decisions}
        decisions = [one for one in reviews.of(self.subject.id) if one.id in known]
        return documents, damaged, decisions


def stored_annotations(store: Store, subject: Subject) -> SourceInput:
    """What the stage reads of a demonstration; lists keys and reads no document."""
    documents = tuple(document_keys(store, subject.id))
    decisions = tuple(store.list_documents(f"{REVIEWS}/{subject.id}"))
    value = StoredAnnotations(store, subject, documents, decisions)
    ids = sorted(key.rpartition("/")[2].removesuffix(".json") for key in decisions)
    read = {"stored_annotations": documents, REVIEWS: ids}
    hashes = {name: sha256("\n".join(keys).encode()) for name, keys in read.items() if keys}
    return SourceInput(value, {name: found.hexdigest() for name, found in hashes.items()})


def build_annotations(source: StoredAnnotations, trajectory: Path, out: Path) -> Summary:
    """Write annotations.parquet; the summary has no text.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    documents, damaged, decisions = source.read()
    rows: list[dict[str, Any]] = []
    if documents or decisions:
        judged, judgement = judge_demonstration(trajectory, source.subject, decisions)
        said = all_annotations(documents, judgement, judged)
        rows = [annotation_row(judged.id, one) for one in standing(said, judged.digests)]
    write_rows(out / ANNOTATIONS_FILE, rows, ANNOTATIONS_SCHEMA)
    return _summary(rows) | {
        "refused": dict(sorted(refusals(documents).items())),
        "escaped": sum(one.escaped for one in documents),
        "damaged": damaged,
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    used = [row for row in rows if row["effective"]]
    return {
        "annotations": len(rows),
        "effective": len(used),
        "stale": sum(row["stale"] for row in rows),
        "disagreements": sum(row["disagrees"] for row in rows),
        "sources": dict(sorted(Counter(row["source"] for row in used).items())),
        "kinds": dict(sorted(Counter(row["kind"] for row in used).items())),
    }


def _run(inputs: RecordingInputs, out: Path) -> Summary:
    return build_annotations(inputs.source, inputs.folders[_TRAJECTORIES], out)


def _check(_inputs: RecordingInputs, out: Path) -> list[Problem]:
    """The table has its columns and values, and of what is said about the same one counts."""
    problems = schema_problems(out / ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA)
    rows = [] if problems else read_rows(out / ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA)
    used = Counter(
        (row["step_index"], row["kind"], row["variant"]) for row in rows if row["effective"]
    )
    for (step, kind, _), number in used.items():
        if number > 1:
            message = f"{number} annotations {kind} of step {step} count"
            remedy = "build it again"
            problems.append(Problem("annotations", ANNOTATIONS_FILE, message, remedy=remedy))
    return problems


ANNOTATIONS_STAGE: Stage[RecordingInputs] = Stage(
    name=ANNOTATIONS,
    folder="annotated",
    description="Verdicts, grades, thoughts and other wordings by people, models and rules, and "
    "which of them count: human over model over rule, none about what has changed since. It reads "
    "what is stored; `demo-pipeline annotate` alone asks a server.",
    group="trajectories",
    kinds=frozenset({"parquet"}),
    code_version="1",
    job=DEMONSTRATION_JOB,
    exported=False,
    inputs=(_TRAJECTORIES,),
    source=lambda workspace, demonstration, versions: stored_annotations(
        workspace.store, subject_of(versions[_TRAJECTORIES], demonstration)
    ),
    build=_run,
    checks=(
        Check(
            "annotations_table",
            "The table has its declared columns and values, and one annotation of each kind "
            "counts for a step or the whole.",
            built_again(_run, _check),
            compared=("annotations",),
        ),
    ),
    columns=ANNOTATIONS_SCHEMA,
)
