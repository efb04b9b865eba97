"""Predictions that people put into the store, and their scores as outputs of the store.

Belongs here: finding `evaluations/<name>/predictions.jsonl` in a folder or a bucket, and scoring it
when it, its settings or the trajectories changed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_pipeline.evaluation.requests import readable_by_others
from demo_pipeline.evaluation.score_tables import ALL_STEPS
from demo_pipeline.evaluation.scoring import ScoreReport, failures_preview, failures_sheet
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.committed_trajectories import committed_trajectories
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.evaluations import (
    DEFAULT_FORM,
    DEFAULT_PRESETS,
    DEFAULT_SPLIT,
    REPORT_SUMMARY,
    Evaluation,
    EvaluationError,
    report_summary,
    score_file,
)
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.stage import Summary
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.objects.folder_objects import FolderObjects
from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe

EVALUATIONS_FOLDER, EVALUATION_OUTPUT = "evaluations", "evaluation_scores"
PREDICTIONS_FILE, EVALUATION_FILE = "predictions.jsonl", "evaluation.json"
FAILURES_FILE, PREVIEW_FILE = "failures.jpg", "failures_preview.jpg"
EVALUATION_CODE_VERSION = "2"
COVERAGE, PRIVATE = "coverage", "private"


@dataclass(frozen=True, slots=True)
class DroppedEvaluation:
    """Predictions in the store.

    Attributes:
        name: of their folder, a safe id.
        predictions: the file.
        settings: `evaluation.json`; None without one.
    """

    name: str
    predictions: ObjectInfo
    settings: ObjectInfo | None = None

    @property
    def fingerprint(self) -> str:
        """Changes when one of the files does."""
        etags = [self.predictions.etag, self.settings.etag if self.settings else ""]
        return ":".join(etags)

    @property
    def modified(self) -> float:
        """Epoch seconds of the last change."""
        files = [self.predictions, *([self.settings] if self.settings else [])]
        return max(file.modified for file in files)


@dataclass(frozen=True, slots=True)
class ListedEvaluations:
    """The folders of predictions in the store.

    Attributes:
        found: those with predictions, by name.
        unreadable: name → why, for folders whose files cannot be read now.
    """

    found: tuple[DroppedEvaluation, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def predictions_path(name: str) -> str:
    """Where the predictions of this name are in the store."""
    return f"{EVALUATIONS_FOLDER}/{name}/{PREDICTIONS_FILE}"


def store_objects(url: str) -> Objects:
    """The objects of a store: what people put beside its outputs."""
    if not is_bucket(url):
        return FolderObjects(local_path(url))
    from demo_pipeline.storage.objects.s3_objects import S3Objects  # noqa: PLC0415 - costs 0.6 s

    return S3Objects(url)


def list_evaluations(workspace: Workspace) -> ListedEvaluations:
    """The folders of predictions; those whose name is no safe id are left out.

    One folder that cannot be read hides no other.

    Raises:
        StorageError: the store cannot be read.
    """
    url = workspace.store.url
    if not is_bucket(url) and not (local_path(url) / EVALUATIONS_FOLDER).is_dir():
        return ListedEvaluations()
    objects = store_objects(url)
    found, unreadable = list[DroppedEvaluation](), dict[str, str]()
    for name in sorted(_folder_names(objects)):
        try:
            dropped = find_evaluation(objects, name)
        except StorageError as error:
            unreadable[name] = str(error)
            continue
        if dropped is not None:
            found.append(dropped)
    return ListedEvaluations(tuple(found), unreadable)


def _folder_names(objects: Objects) -> Iterator[str]:
    token: str | None = None
    while True:
        page = objects.list_prefixes(f"{EVALUATIONS_FOLDER}/", token)
        for prefix in page.prefixes:
            name = prefix.rstrip("/").rpartition("/")[2]
            if is_safe_id(name):
                yield name
        token = page.token
        if token is None:
            return


def find_evaluation(objects: Objects, name: str) -> DroppedEvaluation | None:
    """The predictions in the folder of this name; None without the file.

    Raises:
        StorageError: one of its files cannot be read.
    """
    predictions = objects.head(predictions_path(name))
    if predictions is None:
        return None
    settings = objects.head(f"{EVALUATIONS_FOLDER}/{name}/{EVALUATION_FILE}")
    return DroppedEvaluation(name, predictions, settings)


def run_evaluation(workspace: Workspace, name: str, *, force: bool = False) -> BuildResult:
    """Score the predictions in `evaluations/<name>/`, unless nothing changed.

    Raises:
        EvaluationError: there are none, or `evaluation.json` cannot be used.
        StorageError: the store cannot be read.
    """
    objects = store_objects(workspace.store.url)
    dropped = find_evaluation(objects, name) if is_safe_id(name) else None
    if dropped is None:
        raise EvaluationError(
            f"{predictions_path(name)} is not in the store; put the predictions there"
        )
    with TemporaryDirectory(prefix="demo_pipeline-") as folder:
        predictions = Path(folder) / PREDICTIONS_FILE
        asked = _asked(objects, dropped, Path(folder))
        is_open = _is_open(workspace, dropped)

        def build(staging: Staging) -> Summary:
            objects.fetch(dropped.predictions.key, dropped.predictions.etag, predictions)
            os.chmod(predictions, 0o600)  # noqa: PTH101 - the copy is this process's own
            report = score_file(workspace, predictions, asked, staging.path)
            (staging.path / FAILURES_FILE).write_bytes(failures_sheet(report.failures))
            (staging.path / PREVIEW_FILE).write_bytes(failures_preview(report.failures))
            return _summary(report, asked)

        def check(out: Path) -> Sequence[CheckOutcome]:
            return [_coverage(out), _privacy(dropped, is_open=is_open)]

        output = f"{EVALUATION_OUTPUT}/{name}"
        recipe = _recipe(workspace, dropped)
        return build_if_stale(workspace.store, output, recipe, build, check, force=force)


def _recipe(workspace: Workspace, dropped: DroppedEvaluation) -> Recipe:
    with committed_trajectories(workspace) as committed:
        inputs = {key: version.content for key, version in committed.versions.items()}
    inputs[f"{EVALUATIONS_FOLDER}/{dropped.name}"] = dropped.fingerprint
    section = workspace.settings.datasets.fingerprint()
    return Recipe(EVALUATION_OUTPUT, EVALUATION_CODE_VERSION, section, inputs)


def _asked(objects: Objects, dropped: DroppedEvaluation, folder: Path) -> Evaluation:
    """Form, split and rules of `evaluation.json`; the defaults without one."""
    if dropped.settings is None:
        return Evaluation()
    place = f"{EVALUATIONS_FOLDER}/{dropped.name}/{EVALUATION_FILE}"
    file = folder / EVALUATION_FILE
    objects.fetch(dropped.settings.key, dropped.settings.etag, file)
    try:
        return _evaluation(load_json(file, place))
    except JsonFileError as error:
        raise EvaluationError(f"{place}: {error.message}") from None
    except EvaluationError as error:
        raise EvaluationError(f"{place}: {error}") from None


def _evaluation(value: Any) -> Evaluation:
    if not isinstance(value, Mapping) or value.keys() - {"form", "split", "presets", "seed"}:
        raise EvaluationError("must be an object with form, split, presets and seed, or some")
    presets, seed = value.get("presets", DEFAULT_PRESETS), value.get("seed", 0)
    form, split = value.get("form", DEFAULT_FORM), value.get("split", DEFAULT_SPLIT)
    names: list[Any] = list(presets) if isinstance(presets, list | tuple) else [None]
    if not all(isinstance(name, str) for name in (form, split, *names)):
        raise EvaluationError("form and split must be names, presets a list of names")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise EvaluationError("seed must be a whole number from 0")
    return Evaluation(form, split, tuple(names), seed)


def _summary(report: ScoreReport, asked: Evaluation) -> dict[str, Any]:
    """What the manifest keeps: counts, and the rows over all steps."""
    rows = [row for row in report.rows if row["dimension"] == ALL_STEPS]
    headline = report.row(asked.presets[0])
    return {
        **report_summary(report, asked),
        "presets": list(asked.presets),
        "score": headline["score"],
        "rows": rows,
    }


def _coverage(out: Path) -> CheckOutcome:
    counts = load_json(out / REPORT_SUMMARY)
    problems = [
        _problem(f"{number} steps: {reason}") for reason, number in counts["unusable_steps"].items()
    ]
    problems += [
        _problem(f"{number} lines: {reason}") for reason, number in counts["unusable_lines"].items()
    ]
    return CheckOutcome(COVERAGE, not problems, tuple(problems), blocking=False)


def _problem(message: str) -> Problem:
    remedy = "send the requests again; what has no usable answer counts as wrong"
    return Problem(COVERAGE, PREDICTIONS_FILE, message, remedy=remedy)


def _is_open(workspace: Workspace, dropped: DroppedEvaluation) -> bool:
    """Whether others may read the predictions in a folder; of a bucket nothing is known."""
    if is_bucket(workspace.store.url):
        return False
    try:
        return readable_by_others(local_path(workspace.store.url) / dropped.predictions.key)
    except OSError as error:
        raise StorageError(f"{dropped.predictions.key}: {error.strerror}") from None


def _privacy(dropped: DroppedEvaluation, *, is_open: bool) -> CheckOutcome:
    problem = Problem(
        PRIVATE,
        dropped.predictions.key,
        "others can read the predictions, which may hold what people typed",
        remedy="chmod 600",
        severity=Severity.WARNING,
    )
    return CheckOutcome(PRIVATE, not is_open, (problem,) if is_open else (), blocking=False)
