"""Evaluates models on the trajectories in a store: writes requests, and scores predictions.

The scoring itself is in the package `evaluation`, which does not depend on a store.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS, is_absolute, is_native
from demo_pipeline.evaluation.predictions import read_predictions
from demo_pipeline.evaluation.requests import (
    batch_request,
    copy_picture,
    data_url,
    private_file,
    remove_old_pictures,
)
from demo_pipeline.evaluation.rules import PRESETS
from demo_pipeline.evaluation.scoring import (
    SCORES_SCHEMA,
    STEPS_SCHEMA,
    ScoreReport,
    failures_sheet,
    score_steps,
)
from demo_pipeline.evaluation.true_steps import StepRecord, TrueStep, each_true_step
from demo_pipeline.files.json_files import dump_json, json_bytes
from demo_pipeline.files.parquet import TableWriter, write_rows
from demo_pipeline.runs.committed_trajectories import committed_trajectories
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError

ANY_SPLIT = "any"  # value of `Evaluation.split` that means all splits
EVALUATION_SPLITS = (*(split.value for split in Split), ANY_SPLIT)
SCORES_FILE = "scores.parquet"
STEP_SCORES_FILE = "steps.parquet"
REPORT_SUMMARY = "summary.json"
FAILURES_FILE = "failures.jpg"
_PREDICTIONS_FILE = "predictions.jsonl"
_ROWS = 4096  # maximum number of rows of scores in memory before they are written
PredictionRows = Iterable[tuple[Any, Any, Any]]
"""Predictions as rows of (trajectory id, step index, response)."""


class EvaluationError(StorageError):
    """Raised if an evaluation is impossible. The message says how to correct it."""


class Evaluation(BaseModel):
    """The options of an evaluation: what the model is asked, and how its answers are judged.

    Attributes:
        form: the format of questions and answers, a key of `ANSWER_FORMS`.
        split: the split whose steps the model is asked about, or `any` for all splits.
        presets: the sets of rules that judge the answers, keys of `PRESETS`.
        seed: the seed of the bootstrap that estimates confidence intervals.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    form: StrictStr = "messages"
    split: StrictStr = "test"
    presets: tuple[StrictStr, ...] = ("strict", "agentnetbench")
    seed: Annotated[StrictInt, Field(ge=0)] = 0

    def model_post_init(self, _: Any) -> None:
        """Raises an `EvaluationError` if an option has an unknown name."""
        asked: dict[str, tuple[Sequence[str], Collection[str]]] = {
            "form": ([self.form], ANSWER_FORMS),
            "split": ([self.split], EVALUATION_SPLITS),
            "preset": (self.presets, PRESETS),
        }
        for option, (names, allowed) in asked.items():
            if not names or not set(names) <= set(allowed):
                raise EvaluationError(
                    f"there is no such {option}; choose from {', '.join(allowed)}"
                )

    @property
    def splits(self) -> list[Split]:
        """The splits whose steps the model is asked about."""
        if self.split == ANY_SPLIT:
            return list(Split)
        return [Split(self.split)]


def write_evaluation_requests(
    workspace: Workspace,
    out: Path,
    asked: Evaluation,
    *,
    model: str,
    system: str | None,
    images: str,
) -> int:
    """Writes a model request for each step of a split, and returns the number of requests.

    Args:
        out: the JSON Lines file to write, which only its owner can read (mode 0600).
        system: the system prompt. If None, the usual prompt for the answer format is used.
        images: `data` writes the screenshots into the lines. `path` copies them to the folder
            `<stem>_images` next to the file, and removes the copies of an earlier run.

    Raises:
        EvaluationError: the split has no steps, or `images` is neither `data` nor `path`.
    """
    if images not in ("data", "path"):
        raise EvaluationError("--images is data or path")
    form = ANSWER_FORMS[asked.form].question
    settings = workspace.settings.datasets
    folder = out.with_name(f"{out.stem}_images")
    copies: set[str] = set()
    if images == "path":
        folder.mkdir(mode=0o700, exist_ok=True)

    def line(record: StepRecord) -> dict[str, Any]:
        def copied_url(picture: Path) -> str:
            place = picture.relative_to(record.candidate.source.path).as_posix()
            copy = folder / f"{record.step.trajectory_id}_{place.replace('/', '_')}"
            copy_picture(picture, copy)
            copies.add(copy.name)
            return copy.resolve().as_uri()

        prompt_of_form, words = form(record, settings)
        prompt = prompt_of_form if system is None else system
        url = copied_url if images == "path" else data_url
        return batch_request(record, prompt, words, model, url)

    number = _write_lines(workspace, out, asked, line)
    if images == "path":
        remove_old_pictures(folder, copies)
    return number


def write_right_answers(workspace: Workspace, out: Path, asked: Evaluation) -> int:
    """Writes the correct answer for each step of a split, and returns the number of answers.

    Only the owner can read the written file (mode 0600).

    Raises:
        EvaluationError: the split has no steps.
    """

    def line(record: StepRecord) -> dict[str, Any]:
        key = {"trajectory_id": record.step.trajectory_id, "step_index": record.step.step_index}
        return {**key, "response": ANSWER_FORMS[asked.form].right(record)}

    return _write_lines(workspace, out, asked, line)


def _write_lines(
    workspace: Workspace, out: Path, asked: Evaluation, line: Callable[[StepRecord], dict[str, Any]]
) -> int:
    """Writes a line of JSON for every step of a split, and returns the number of lines."""
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
    """Scores predictions given as rows of (trajectory id, step index, response).

    Raises:
        EvaluationError: the split has no steps.
    """
    names = ("trajectory_id", "step_index", "response")
    with TemporaryDirectory(prefix="demo_pipeline-") as folder:
        path = Path(folder) / _PREDICTIONS_FILE
        with path.open("wb") as file:
            for row in rows:
                values = zip(names, map(_plain, row), strict=True)
                file.write(json_bytes(dict(values), compact=True))
        return score_file(workspace, path, asked)


def _plain(value: Any) -> Any:
    """Returns a text or a finite number unchanged, and None for any other value, such as NaN."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def score_file(
    workspace: Workspace, predictions: Path, asked: Evaluation, out: Path | None = None
) -> ScoreReport:
    """Scores predictions from a file.

    Args:
        predictions: plain JSON Lines, or the results of an OpenAI batch.
        out: a folder for tables of scores, a summary and an image of failures. If None, no files
            are written.

    Raises:
        EvaluationError: the split has no steps.
        OSError: a file cannot be read or written.
    """
    settings = workspace.settings.datasets
    decode = ANSWER_FORMS[asked.form].decoder(settings)
    with ExitStack() as stack:
        committed = committed_trajectories(workspace)
        plan = plan_export(committed.trajectories, settings)
        ids = {candidate.source.id for candidate in plan.selection.chosen}
        answers = stack.enter_context(read_predictions(predictions, ids))
        keep: Callable[[Mapping[str, Any]], None] = _discard
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            table = TableWriter(out / STEP_SCORES_FILE, STEPS_SCHEMA, batch_rows=_ROWS)
            keep = stack.enter_context(table).append_row

        def each_step(add: Callable[[TrueStep], None]) -> None:
            def take(record: StepRecord) -> None:
                add(record.step)

            each_true_step(plan, settings, asked.splits, take, native=is_native(asked.form))

        report = score_steps(each_step, asked.presets, decode, answers, keep=keep, seed=asked.seed)
    if out is not None:
        write_rows(out / SCORES_FILE, report.rows, SCORES_SCHEMA)
        dump_json(out / REPORT_SUMMARY, report_summary(report, asked))
        (out / FAILURES_FILE).write_bytes(failures_sheet(report.failures))
    if not report.steps:
        raise _no_step(asked)
    return report


def _discard(_row: Mapping[str, Any]) -> None:
    """Ignores a row of scores; used if no table is written."""


def report_summary(report: ScoreReport, asked: Evaluation) -> dict[str, Any]:
    """Returns the options and the counts of an evaluation, without the text of answers."""
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
