"""Defines the stage `records`, which makes the records of a demonstration for all exports.

The stage applies people's corrections and annotations to the trajectory, makes the records from it,
and stores the corrections and annotations next to the records.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotation_store import ANNOTATIONS
from demo_pipeline.annotations.annotations import ANNOTATIONS_FILE, row_notes, written_notes
from demo_pipeline.datasets.selection import CORRECTIONS_FILE, NOTES_FILE
from demo_pipeline.exports.form import Form, KeptRow, form_of, write_form_rows, written_rows
from demo_pipeline.exports.record_checks import kept_problems
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.comparison import differing_files, files_below
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.privacy.redaction_stage import REDACTIONS, cleaner, privacy_summary
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.review.decisions import NO_CORRECTIONS, judge
from demo_pipeline.review.review_store import REVIEWS, subject_of
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.stage import RECORDS, Check, Need, SourceInput, Stage, Summary
from demo_pipeline.store.versions import Version
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_TRAJECTORIES = "trajectories"
RECORD_DIGESTS = "files.sha256"  # SHA-256 of all other files of the stage
WITHOUT_FORM = frozenset({"agentnetbench"})  # exports without records


def built_forms(settings: Settings) -> list[Form]:
    """Returns the selected export forms that need this stage's records."""
    return [form_of(name) for name in settings.datasets.exports if name not in WITHOUT_FORM]


def record_fingerprints(settings: Settings) -> Mapping[str, str]:
    """Returns, for each file of records, a text that changes with the form's code or settings."""
    return _record_fingerprints(settings.datasets)


@lru_cache(maxsize=2)
def _record_fingerprints(settings: DatasetSettings) -> Mapping[str, str]:
    forms = (form_of(name) for name in settings.exports if name not in WITHOUT_FORM)
    return {form.file: form.fingerprint(settings) for form in forms}


def _corrections(
    workspace: Any, demonstration: str, versions: Mapping[str, Version]
) -> SourceInput:
    """Returns a `SourceInput` with people's corrections to the current trajectory version.

    Its value is None if there are no corrections. Otherwise, the value is a function that returns
    the content of `corrections.json` without private text.
    """
    workspace.reviews.refresh(demonstration)
    workspace.reviews.require_whole(demonstration)
    decisions = workspace.reviews.about(demonstration)
    fingerprints = record_fingerprints(workspace.settings)
    if not decisions:  # avoids `subject_of`, which is slow for thousands of demonstrations
        return SourceInput(None, fingerprints)
    subject = subject_of(versions[_TRAJECTORIES], demonstration)
    data = json_bytes(judge(decisions, subject).corrections, compact=True)
    if data == json_bytes(NO_CORRECTIONS, compact=True):
        return SourceInput(None, fingerprints)
    privacy = workspace.settings.privacy

    def corrections_without_private_text() -> bytes:
        cleaned = map(cleaner(workspace.store, privacy, demonstration), decisions)
        return json_bytes(judge(cleaned, subject).corrections, compact=True)

    fingerprint = hashlib.sha256(data + json_bytes(privacy)).hexdigest()
    return SourceInput(corrections_without_private_text, {**fingerprints, REVIEWS: fingerprint})


def _trajectory(inputs: RecordingInputs, out: Path) -> DatasetTrajectory:
    """Returns the trajectory with the corrections and annotations that were written to `out`."""
    added = [out / name for name in (CORRECTIONS_FILE, NOTES_FILE)]
    digests = {path.name: read_digest(path).sha256 for path in added if path.is_file()}
    folder = str(inputs.folders[_TRAJECTORIES])
    return DatasetTrajectory(inputs.demonstration, folder, records=str(out), digests=digests)


def _run_records(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the corrections, the annotations, and the records of all selected exports."""
    if inputs.source:
        (out / CORRECTIONS_FILE).write_bytes(inputs.source())
    if notes := row_notes(read_rows(inputs.folders[ANNOTATIONS] / ANNOTATIONS_FILE)):
        (out / NOTES_FILE).write_bytes(written_notes(notes))
    source = _trajectory(inputs, out)
    forms = built_forms(inputs.settings)
    records = write_form_rows(source, forms, out, inputs.settings.datasets)
    (out / RECORD_DIGESTS).write_text(_digests(out), encoding="utf-8")
    return {
        "records": records,
        **privacy_summary(inputs.folders[REDACTIONS], inputs.settings.privacy),
    }


def _digests(out: Path) -> str:
    """Returns the content of `files.sha256`: a line per file in the format of `sha256sum`."""
    names = sorted(name for name, _ in files_below(out) if name != RECORD_DIGESTS)
    return "".join(f"{read_digest(out / name).sha256}  {name}\n" for name in names)


def _verify_records(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Returns a problem for each changed file or, if no file changed, for each invalid record."""
    if damage := differing_files(out, {RECORD_DIGESTS: _digests(out).encode()}, None):
        return damage
    trajectory = _trajectory(inputs, out)
    problems = []
    for form in built_forms(inputs.settings):
        rows = _NumberedRows(out / form.file)
        problems += kept_problems(form, rows, form.file, trajectory)
    return problems


@dataclass(frozen=True)
class _NumberedRows:
    """Iterates over the records in a file with their line numbers; line 1 is the `RowsHead`."""

    path: Path

    def __iter__(self) -> Iterator[tuple[int, KeptRow]]:
        return enumerate(written_rows(self.path), start=2)


RECORDS_STAGE: Stage[RecordingInputs] = Stage(
    name=RECORDS,
    folder=RECORDS,
    description="The records that a trajectory contributes to each training export, and the "
    "images that they name. Their splits are not yet known. The datasets select, "
    "split and concatenate these records.",
    kinds=frozenset({"json"}),
    code_version="11",
    inputs=(_TRAJECTORIES, REDACTIONS, ANNOTATIONS),
    needs=frozenset({Need.LINKS}),
    source=_corrections,
    build=_run_records,
    checks=(
        Check(
            "records_valid",
            "Every record is valid in the format of its export, and no file was changed "
            "after it was written.",
            _verify_records,
            compared=("records",),
        ),
    ),
)
