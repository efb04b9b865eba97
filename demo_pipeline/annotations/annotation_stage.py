"""The stage `annotations`: what is said about a demonstration, and which of it counts, as Parquet.

Belongs here: its declaration, reading what it is built from, and its check. It reads what is stored
and asks no server.
"""

from collections import Counter
from collections.abc import Mapping
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
from demo_pipeline.annotations.annotations import ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA
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
class _Said:
    """What is stored about a version; documents, which never change, are read by the build."""

    store: Store
    privacy: PrivacySettings
    trajectory: Version
    documents: tuple[str, ...]
    decisions: tuple[Decision, ...]


def _said(workspace: Any, demonstration: str, versions: Mapping[str, Version]) -> SourceInput:
    workspace.reviews.refresh(demonstration)
    workspace.reviews.require_whole(demonstration)
    decisions = tuple(workspace.reviews.of(demonstration))
    documents = tuple(document_keys(workspace.store, demonstration))
    read = {"stored_annotations": documents, REVIEWS: sorted(one.id for one in decisions)}
    privacy = workspace.settings.privacy
    rules = json_bytes(privacy).decode()
    hashes = {n: sha256("\n".join([*keys, rules]).encode()) for n, keys in read.items() if keys}
    value = _Said(workspace.store, privacy, versions[_TRAJECTORIES], documents, decisions)
    return SourceInput(value, {name: found.hexdigest() for name, found in hashes.items()})


def _run(inputs: RecordingInputs, out: Path) -> Summary:
    """Write annotations.parquet; the summary has no text."""
    said = inputs.source
    rows = list[dict[str, Any]]()
    documents = read_documents(said.store, said.documents)
    if documents or said.decisions:
        folder = inputs.folders[_TRAJECTORIES]
        clean: Any = cleaner(said.store, said.privacy, inputs.demonstration)
        subject = subject_of(said.trajectory, inputs.demonstration)
        judged = judge_demonstration(folder, subject, map(clean, said.decisions))
        rows = judged.rows(map(clean, documents))
    write_rows(out / ANNOTATIONS_FILE, rows, ANNOTATIONS_SCHEMA)
    refused = Counter(reason for one in documents for reason in one.refused)
    return _summary(rows) | {
        "refused": dict(sorted(refused.items())),
        "escaped": sum(one.escaped for one in documents),
        "damaged": len(said.documents) - len(documents),
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


def _check(_inputs: RecordingInputs, out: Path) -> list[Problem]:
    """The table has its columns and values, and of what is said about the same one counts."""
    problems = differing_files(out, {}, {ANNOTATIONS_FILE})
    problems = problems or schema_problems(out / ANNOTATIONS_FILE, ANNOTATIONS_SCHEMA)
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
    kinds=frozenset({"parquet"}),
    code_version="3",
    inputs=(_TRAJECTORIES, REDACTIONS),
    source=_said,
    build=_run,
    checks=(
        Check(
            "annotations_table",
            "The table has its declared columns and values, and one annotation of each kind "
            "counts for a step or the whole.",
            _check,
            compared=("annotations",),
        ),
    ),
    columns=ANNOTATIONS_SCHEMA,
)
