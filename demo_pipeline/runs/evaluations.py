"""Evaluations over a store: requests for a split, and the scores of predictions.

Belongs here: opening the committed trajectories for evaluation/; finding predictions that people
put into `evaluations/<name>/` of the store, and scoring them when something changed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from demo_pipeline.datasets.selection import CORRECTIONS_FILE, NOTES_FILE
from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS, is_absolute, is_native
from demo_pipeline.evaluation.predictions import read_predictions
from demo_pipeline.evaluation.requests import (
    batch_request,
    copy_picture,
    data_url,
    private_file,
    readable_by_others,
    remove_old_pictures,
)
from demo_pipeline.evaluation.rules import PRESETS
from demo_pipeline.evaluation.scoring import (
    ALL_STEPS,
    SCORES_SCHEMA,
    STEPS_SCHEMA,
    ScoreReport,
    failures_sheet,
    score_steps,
)
from demo_pipeline.evaluation.true_steps import StepRecord, TrueStep, each_true_step
from demo_pipeline.files.json_files import JsonFileError, dump_json, json_bytes, load_json
from demo_pipeline.files.parquet import TableWriter, write_rows
from demo_pipeline.problems import Problem
from demo_pipeline.runs.committed_trajectories import (
    committed_trajectories,
    trajectory_fingerprints,
)
from demo_pipeline.runs.failures import UnusableInputError
from demo_pipeline.runs.graph import BuildPlan, Output
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, Inputs, Stage, Summary
from demo_pipeline.store.bucket import Objects
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import ObjectInfo
from demo_pipeline.store.names import is_bucket, is_safe_id, local_path
from demo_pipeline.store.versions import Recipe, Staging

ANY_SPLIT = "any"
EVALUATION_SPLITS = (*(split.value for split in Split), ANY_SPLIT)
SCORES_FILE, STEP_SCORES_FILE, REPORT_SUMMARY = "scores.parquet", "steps.parquet", "summary.json"
_ROWS = 4096  # of the table of steps in memory
PredictionRows = Iterable[tuple[Any, Any, Any]]


class EvaluationError(StorageError):
    """An evaluation that cannot be made; the message says what to do."""


class Evaluation(BaseModel):
    """What is asked, in a form of `ANSWER_FORMS`, and judged, by rules of `PRESETS`.

    `split`: whose steps are asked about, `any`: all; `seed`: of the bootstrap.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    form: StrictStr = "messages"
    split: StrictStr = "test"
    presets: tuple[StrictStr, ...] = ("strict", "agentnetbench")
    seed: Annotated[StrictInt, Field(ge=0)] = 0

    def model_post_init(self, _: Any) -> None:
        """Raise an `EvaluationError` for a name that does not exist."""
        asked: dict[str, tuple[Sequence[str], Collection[str]]] = {
            "form": ([self.form], ANSWER_FORMS),
            "split": ([self.split], EVALUATION_SPLITS),
            "preset": (self.presets, PRESETS),
        }
        for what, (names, allowed) in asked.items():
            if not names or not set(names) <= set(allowed):
                raise EvaluationError(f"there is no such {what}; choose from {', '.join(allowed)}")

    @property
    def splits(self) -> list[Split]:
        """Whose steps are asked about."""
        return list(Split) if self.split == ANY_SPLIT else [Split(self.split)]


def write_evaluation_requests(
    workspace: Workspace,
    out: Path,
    asked: Evaluation,
    *,
    model: str,
    system: str | None,
    images: str,
) -> int:
    """Write the requests for a split, mode 0600; returns their number.

    Pictures are inside the lines (`data`), or as paths in a folder beside the file (`path`),
    `<stem>_images`, from which those of an earlier run are removed; `system` replaces the prompt
    of the form.

    Raises:
        EvaluationError: the split holds no step, or there is no such way to show pictures.
    """
    if images not in ("data", "path"):
        raise EvaluationError("--images is data or path")
    form, settings = ANSWER_FORMS[asked.form].question, workspace.settings.datasets
    folder, made = out.with_name(f"{out.stem}_images"), set[str]()
    if images == "path":
        folder.mkdir(mode=0o700, exist_ok=True)

    def line(record: StepRecord) -> dict[str, Any]:
        def copied(picture: Path) -> str:
            place = picture.relative_to(record.candidate.source.path).as_posix()
            copy = folder / f"{record.step.trajectory_id}_{place.replace('/', '_')}"
            copy_picture(picture, copy)
            made.add(copy.name)
            return copy.resolve().as_uri()

        own, words = form(record, settings)
        told = own if system is None else system
        return batch_request(record, told, words, model, copied if images == "path" else data_url)

    number = _write_lines(workspace, out, asked, line)
    if images == "path":
        remove_old_pictures(folder, made)
    return number


def write_right_answers(workspace: Workspace, out: Path, asked: Evaluation) -> int:
    """Write what a model that is always right answers, mode 0600; returns the number of lines.

    Raises:
        EvaluationError: the split holds no step.
    """

    def line(record: StepRecord) -> dict[str, Any]:
        key = {"trajectory_id": record.step.trajectory_id, "step_index": record.step.step_index}
        return {**key, "response": ANSWER_FORMS[asked.form].right(record)}

    return _write_lines(workspace, out, asked, line)


def _write_lines(
    workspace: Workspace, out: Path, asked: Evaluation, line: Callable[[StepRecord], dict[str, Any]]
) -> int:
    """Write a line for every step of a split; returns their number."""
    written = 0

    def add(record: StepRecord) -> None:
        nonlocal written
        file.write(json_bytes(line(record), compact=True))
        written += 1

    with private_file(out) as file:
        committed = committed_trajectories(workspace)
        settings = workspace.settings.datasets
        plan = plan_export(committed.trajectories, settings)
        absolute = is_absolute(asked.form, settings)
        native = is_native(asked.form)
        each_true_step(plan, settings, asked.splits, add, absolute=absolute, native=native)
        if not written:
            raise _no_step(asked)
    return written


def score_rows(workspace: Workspace, rows: PredictionRows, asked: Evaluation) -> ScoreReport:
    """Score predictions given as rows of trajectory id, step index and response.

    Raises:
        EvaluationError: the split holds no step.
    """
    names = ("trajectory_id", "step_index", "response")
    with TemporaryDirectory(prefix="demo_pipeline-") as folder:
        path = Path(folder) / PREDICTIONS_FILE
        with path.open("wb") as file:
            for row in rows:
                known = {name: _plain(value) for name, value in zip(names, row, strict=True)}
                file.write(json_bytes(known, compact=True))
        return score_file(workspace, path, asked)


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it; None for what no answer and no key is."""
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if is_number or isinstance(value, str) else None


def score_file(
    workspace: Workspace, predictions: Path, asked: Evaluation, out: Path | None = None
) -> ScoreReport:
    """Score a file of plain JSON Lines, or results of an OpenAI batch; with `out`, write tables.

    Raises:
        EvaluationError: the split holds no step.
        OSError: a file cannot be read or written.
    """
    settings = workspace.settings.datasets
    decode = ANSWER_FORMS[asked.form].decoder(settings)
    with ExitStack() as stack:
        committed = committed_trajectories(workspace)
        plan = plan_export(committed.trajectories, settings)
        known = {candidate.source.id for candidate in plan.selection.chosen}
        answers = stack.enter_context(read_predictions(predictions, known))
        keep: Callable[[Mapping[str, Any]], None] = lambda _: None  # noqa: E731
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            table = TableWriter(out / STEP_SCORES_FILE, STEPS_SCHEMA, batch_rows=_ROWS)
            keep = stack.enter_context(table).append_row

        def each_step(add: Callable[[TrueStep], None]) -> None:
            take = lambda record: add(record.step)  # noqa: E731
            each_true_step(plan, settings, asked.splits, take, native=is_native(asked.form))

        report = score_steps(each_step, asked.presets, decode, answers, keep=keep, seed=asked.seed)
    if out is not None:
        write_rows(out / SCORES_FILE, report.rows, SCORES_SCHEMA)
        dump_json(out / REPORT_SUMMARY, report_summary(report, asked))
    if not report.steps:
        raise _no_step(asked)
    return report


def report_summary(report: ScoreReport, asked: Evaluation) -> dict[str, Any]:
    """What an evaluation asked and counted; no word of an answer."""
    return {
        **asked.model_dump(),
        "history": "teacher-forced",
        "steps": report.steps,
        "answered": report.answered,
        "lines": report.lines,
        "unusable_steps": dict(report.unusable_steps),
        "unusable_lines": dict(report.unusable_lines),
    }


def _no_step(asked: Evaluation) -> EvaluationError:
    if asked.split == ANY_SPLIT:
        return EvaluationError(
            "the store holds no steps to ask about; build its datasets first: `demo-pipeline run`"
        )
    return EvaluationError(
        f"no step is in the split {asked.split}: with few tasks a split can be empty; choose "
        "another, or `any` for all steps"
    )


EVALUATIONS_FOLDER = "evaluations"
PREDICTIONS_FILE, EVALUATION_FILE = "predictions.jsonl", "evaluation.json"
FAILURES_FILE = "failures.jpg"


@dataclass(frozen=True, slots=True)
class DroppedEvaluation:
    """Predictions in the store: the name of their folder, the file, and `evaluation.json`."""

    name: str
    predictions: ObjectInfo
    settings: ObjectInfo | None = None

    @property
    def fingerprint(self) -> str:
        """Changes when one of the files does."""
        return f"{self.predictions.etag}:{self.settings.etag if self.settings else ''}"

    @property
    def modified(self) -> float:
        """Epoch seconds of the last change."""
        return max(file.modified for file in (self.predictions, self.settings) if file)


def predictions_path(name: str) -> str:
    """Where the predictions of this name are in the store."""
    return f"{EVALUATIONS_FOLDER}/{name}/{PREDICTIONS_FILE}"


def list_evaluations(workspace: Workspace) -> tuple[list[DroppedEvaluation], dict[str, str]]:
    """The predictions in the store by name; of other folders, why they cannot be read now.

    Folders whose name is not a safe id are left out. One that cannot be read hides no other.

    Raises:
        StorageError: the store cannot be read.
    """
    url = workspace.store.url
    if not is_bucket(url) and not (local_path(url) / EVALUATIONS_FOLDER).is_dir():
        return [], {}
    objects = workspace.store.objects
    found, unreadable = list[DroppedEvaluation](), dict[str, str]()
    for name in sorted(filter(is_safe_id, objects.folders(f"{EVALUATIONS_FOLDER}/"))):
        try:
            dropped = find_evaluation(objects, name)
        except StorageError as error:
            unreadable[name] = str(error)
        else:
            found += [dropped] if dropped else []
    return found, unreadable


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


@dataclass(frozen=True, kw_only=True)
class EvaluationInputs(Inputs):
    """What scoring reads.

    Attributes:
        workspace: with the committed trajectories.
        dropped: the predictions in the store.
        predictions: a private copy of their file.
        asked: form, split and rules.
    """

    workspace: Workspace
    dropped: DroppedEvaluation
    predictions: Path
    asked: Evaluation


class EvaluationOutput(Output[EvaluationInputs]):
    """The scores of the predictions in a folder `evaluations/<name>/` of the store."""

    def plan(self) -> BuildPlan[EvaluationInputs]:
        """From the predictions, and from every trajectory that they may be about.

        Raises:
            EvaluationError: there are no such predictions.
        """
        workspace = self.graph.workspace
        objects = workspace.store.objects
        dropped = find_evaluation(objects, self.key) if is_safe_id(self.key) else None
        if dropped is None:
            message = f"{predictions_path(self.key)} is not in the store; put the predictions there"
            raise EvaluationError(message)
        settings = workspace.settings.datasets
        files = (CORRECTIONS_FILE, NOTES_FILE)
        inputs = trajectory_fingerprints(self.graph.trajectories, files, settings.require_review)
        inputs[f"{EVALUATIONS_FOLDER}/{self.key}"] = dropped.fingerprint
        fingerprint = self.graph.fingerprint_of_settings(self.stage)
        return BuildPlan(
            recipe=Recipe(self.stage.name, self.stage.code_version, fingerprint, inputs),
            open_inputs=partial(self._open_inputs, dropped),
        )

    def names_of_inputs(self) -> list[str]:
        """Every trajectory with its records."""
        committed = self.graph.trajectories
        versions = (*committed.versions.values(), *committed.records.values())
        return [version.output for version in versions]

    def attempt(self, build_once: Callable[[], BuildResult]) -> BuildResult:
        """Score, without trajectories that turn out to be damaged."""
        try:
            return self.graph.attempt_without_damaged(build_once)
        except EvaluationError as error:
            place = f"{EVALUATIONS_FOLDER}/{self.key}"
            raise UnusableInputError(Problem("evaluation", place, str(error))) from None

    @contextmanager
    def _open_inputs(
        self, dropped: DroppedEvaluation, _staging: Staging
    ) -> Iterator[EvaluationInputs]:
        """A private copy of the predictions, which may hold what people typed."""
        workspace = self.graph.workspace
        objects = workspace.store.objects
        with TemporaryDirectory(prefix="demo_pipeline-") as folder:
            predictions = Path(folder) / PREDICTIONS_FILE
            asked = _asked(objects, dropped, Path(folder))
            objects.fetch(dropped.predictions.key, dropped.predictions.etag, predictions)
            predictions.chmod(0o600)
            yield EvaluationInputs(
                settings=workspace.settings,
                workspace=workspace,
                dropped=dropped,
                predictions=predictions,
                asked=asked,
            )


def _asked(objects: Objects, dropped: DroppedEvaluation, folder: Path) -> Evaluation:
    """Form, split and rules of `evaluation.json`; the defaults without one."""
    if dropped.settings is None:
        return Evaluation()
    place = f"{EVALUATIONS_FOLDER}/{dropped.name}/{EVALUATION_FILE}"
    file = folder / EVALUATION_FILE
    objects.fetch(dropped.settings.key, dropped.settings.etag, file)
    try:
        return Evaluation.model_validate(load_json(file, place))
    except JsonFileError as error:
        raise EvaluationError(f"{place}: {error.message}") from None
    except ValidationError:
        message = (
            "must be an object with form and split (names), presets (a list of names) and seed (a "
            "whole number from 0), or some of them"
        )
        raise EvaluationError(f"{place}: {message}") from None
    except EvaluationError as error:
        raise EvaluationError(f"{place}: {error}") from None


def _score(inputs: EvaluationInputs, out: Path) -> Summary:
    """Write the scores; the summary holds counts, and the rows over all steps."""
    asked = inputs.asked
    report = score_file(inputs.workspace, inputs.predictions, asked, out)
    (out / FAILURES_FILE).write_bytes(failures_sheet(report.failures))
    return {
        **report_summary(report, asked),
        "presets": list(asked.presets),
        "score": report.row(asked.presets[0])["score"],
        "rows": [row for row in report.rows if row["dimension"] == ALL_STEPS],
    }


def _check_coverage(_inputs: EvaluationInputs, out: Path) -> list[Problem]:
    counts = load_json(out / REPORT_SUMMARY)
    remedy = "send the requests again; what has no usable answer counts as wrong"
    problems = []
    for unit in ("steps", "lines"):
        for reason, number in counts[f"unusable_{unit}"].items():
            message = f"{number} {unit}: {reason}"
            problems.append(Problem("coverage", PREDICTIONS_FILE, message, remedy=remedy))
    return problems


def _check_privacy(inputs: EvaluationInputs, _out: Path) -> list[Problem]:
    """Whether others may read the predictions in a folder; a bucket does not tell."""
    url, file = inputs.workspace.store.url, inputs.dropped.predictions.key
    if is_bucket(url):
        return []
    try:
        is_open = readable_by_others(local_path(url) / file)
    except OSError as error:
        raise StorageError(f"{file}: {error.strerror}") from None
    if not is_open:
        return []
    message = "others can read the predictions, which may hold what people typed"
    return [Problem("private", file, message, remedy="chmod 600")]


EVALUATION_STAGE: Stage[EvaluationInputs] = Stage(
    name="evaluation_scores",
    folder="evaluation_scores",
    description="Scores of a model's answers in `evaluations/<name>/predictions.jsonl` of the "
    "store, by action type, application, platform and difficulty, beside baselines that need no "
    "model; the page of failures shows steps that were answered wrong.",
    kinds=frozenset({"parquet"}),
    code_version="4",
    inputs=(),
    section=lambda settings: settings.datasets,
    build=_score,
    checks=(
        Check(
            "coverage",
            "Every step has one usable answer, and every line belongs to a step.",
            _check_coverage,
            blocking=False,
            compared=("steps",),
        ),
        Check(
            "private",
            "Only their owner can read the predictions in a folder.",
            _check_privacy,
            blocking=False,
            compared=("steps",),
        ),
    ),
    columns=SCORES_SCHEMA,
)
