"""Declares the pipeline stage `annotations`, which lists all annotations of a demonstration.

The table marks the annotations that datasets use. The stage sends no requests to a server.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotation_store import (
    ANNOTATIONS,
    document_keys,
    judge_demonstration,
    read_documents,
)
from demo_pipeline.annotations.annotations import (
    ANNOTATIONS_FILE,
    ANNOTATIONS_SCHEMA,
    checked_annotation,
)
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import read_rows, schema_problems, write_rows
from demo_pipeline.privacy.redaction_stage import REDACTIONS, cleaner
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.review.decisions import Decision
from demo_pipeline.review.review_store import REVIEWS, subject_of
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.stage import Check, SourceInput, Stage, Summary
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version

_TRAJECTORIES = "trajectories"


@dataclass(frozen=True)
class _StoredAnnotations:
    """The stored annotations of a demonstration, and people's decisions about it.

    Attributes:
        trajectory: version of the annotated trajectory in the store.
        documents: keys of the annotation documents. Documents never change, so the keys are enough
            to detect new documents.
    """

    store: Store
    privacy: PrivacySettings
    trajectory: Version
    documents: tuple[str, ...]
    decisions: tuple[Decision, ...]


def _stored_annotations(
    workspace: Any, demonstration: str, versions: Mapping[str, Version]
) -> SourceInput:
    """Lists annotations and decisions, with fingerprints that also cover the privacy settings."""
    workspace.reviews.refresh(demonstration)
    workspace.reviews.require_whole(demonstration)
    decisions = tuple(workspace.reviews.about(demonstration))
    documents = tuple(document_keys(workspace.store, demonstration))
    names_read = {
        "stored_annotations": documents,
        REVIEWS: sorted(decision.id for decision in decisions),
    }
    privacy = workspace.settings.privacy
    rules = json_bytes(privacy).decode()
    fingerprints = dict[str, str]()
    for source, names in names_read.items():
        if names:
            fingerprints[source] = sha256("\n".join([*names, rules]).encode()).hexdigest()
    trajectory = versions[_TRAJECTORIES]
    stored = _StoredAnnotations(workspace.store, privacy, trajectory, documents, decisions)
    return SourceInput(stored, fingerprints)


def _run(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes annotations.parquet, and returns counts without any text of an annotation."""
    stored: _StoredAnnotations = inputs.source
    rows = list[dict[str, Any]]()
    documents = read_documents(stored.store, stored.documents)
    if documents or stored.decisions:
        folder = inputs.folders[_TRAJECTORIES]
        clean: Any = cleaner(stored.store, stored.privacy, inputs.demonstration)
        subject = subject_of(stored.trajectory, inputs.demonstration)
        judged = judge_demonstration(folder, subject, map(clean, stored.decisions))
        rows = judged.rows(map(clean, documents))
    write_rows(out / ANNOTATIONS_FILE, rows, ANNOTATIONS_SCHEMA)
    refused = Counter[str]()
    for document in documents:
        refused.update(document.refused)
    return _summary(rows) | {
        "refused": dict(sorted(refused.items())),
        "escaped": sum(document.escaped for document in documents),
        "damaged": len(stored.documents) - len(documents),
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    effective = [row for row in rows if row["effective"]]
    return {
        "annotations": len(rows),
        "effective": len(effective),
        "stale": sum(row["stale"] for row in rows),
        "disagreements": sum(row["disagrees"] for row in rows),
        "sources": dict(sorted(Counter(row["source"] for row in effective).items())),
        "kinds": dict(sorted(Counter(row["kind"] for row in effective).items())),
    }


def _check(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks the file names, and the columns and values of annotations.parquet.

    For each step, kind and variant, at most one annotation may be effective.
    """
    problems = differing_files(out, {}, {ANNOTATIONS_FILE})
    problems = problems or schema_problems(out / ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA)
    if problems:
        return problems
    rows = read_rows(out / ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA)
    problems = list(_check_values(inputs, rows))
    effective = Counter[tuple[int | None, str, str | None]]()
    for row in rows:
        if row["effective"]:
            effective[row["step_index"], row["kind"], row["variant"]] += 1
    for (step, kind, _), number in effective.items():
        if number > 1:
            about = "the whole demonstration" if step is None else f"step {step}"
            message = f"{number} annotations of the kind {kind} are effective for {about}"
            remedy = "build it again"
            problems.append(Problem("annotations", ANNOTATIONS_FILE, message, remedy=remedy))
    return problems


def _check_values(inputs: RecordingInputs, rows: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yields a problem for each row whose step does not exist, or whose value is not valid."""
    end = len(list((inputs.folders[_TRAJECTORIES] / "steps").iterdir()))
    for number, row in enumerate(rows, start=1):
        step = row["step_index"]
        if step is not None and step > end and not row["stale"]:
            message = f"row {number}: step {step} does not exist; the end has the number {end}"
            yield Problem("annotations", ANNOTATIONS_FILE, message, remedy="build it again")
        try:
            checked_annotation(row["kind"], json.loads(row["value"]), step)
        except ValueError:
            message = f"row {number}: the value is not valid for the kind {row['kind']}"
            yield Problem("annotations", ANNOTATIONS_FILE, message, remedy="build it again")


ANNOTATIONS_STAGE: Stage[RecordingInputs] = Stage(
    name=ANNOTATIONS,
    folder="annotated",
    description="Verdicts, grades, thoughts and rewordings by people, models and rules. A "
    "human's annotation overrides a model's, and a model's overrides a rule's. If "
    "the judged content has changed since, the annotation is stale and ignored. "
    "The stage asks no model; `demo-pipeline annotate` does.",
    kinds=frozenset({"parquet"}),
    code_version="4",
    inputs=(_TRAJECTORIES, REDACTIONS),
    source=_stored_annotations,
    build=_run,
    checks=(
        Check(
            "annotations_table",
            "The table has the declared columns and values, and datasets use at most one "
            "annotation of each kind for a step or for the whole demonstration.",
            _check,
            compared=("annotations",),
        ),
    ),
    columns=ANNOTATIONS_SCHEMA,
)
