"""Evaluations over a store: the requests for a split, and the scores of predictions.

Belongs here: opening the committed trajectories for evaluation/. Nothing is committed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.export_loop import ExportPlan, plan_export
from demo_pipeline.datasets.splits import Split
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS
from demo_pipeline.evaluation.predictions import Predictions, read_predictions, rows_as_predictions
from demo_pipeline.evaluation.requests import ImageForm, RequestWriter, private_file
from demo_pipeline.evaluation.rules import PRESETS
from demo_pipeline.evaluation.score_tables import SCORES_SCHEMA, STEPS_SCHEMA
from demo_pipeline.evaluation.scoring import Scorer, ScoreReport
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.files.json_files import dump_json, json_bytes
from demo_pipeline.files.parquet import TableWriter, write_rows
from demo_pipeline.pipeline.committed_trajectories import committed_trajectories
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.storage.errors import StorageError

ANY_SPLIT = "any"
EVALUATION_SPLITS = (*(split.value for split in Split), ANY_SPLIT)
SCORES_FILE, STEP_SCORES_FILE, REPORT_SUMMARY = "scores.parquet", "steps.parquet", "summary.json"
DEFAULT_FORM, DEFAULT_SPLIT, DEFAULT_PRESETS = "messages", "test", ("strict", "agentnetbench")
_ROWS = 4096  # of the table of steps in memory
PredictionRows = Iterable[tuple[Any, Any, Any]]


class EvaluationError(StorageError):
    """An evaluation that cannot be made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is asked and how it is judged.

    Attributes:
        form: of the questions and answers, a key of `ANSWER_FORMS`.
        split: whose steps are asked about; `any`: all.
        presets: the rules, keys of `PRESETS`.
        seed: of the bootstrap.
    """

    form: str = DEFAULT_FORM
    split: str = DEFAULT_SPLIT
    presets: tuple[str, ...] = DEFAULT_PRESETS
    seed: int = 0

    def __post_init__(self) -> None:
        _known("form", [self.form], ANSWER_FORMS)
        _known("split", [self.split], EVALUATION_SPLITS)
        _known("preset", self.presets, PRESETS)
        if not self.presets:
            raise EvaluationError(f"no preset is named; choose from {', '.join(PRESETS)}")


def _known(what: str, names: Sequence[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise EvaluationError(f"there is no such {what}; choose from {', '.join(allowed)}")


def write_evaluation_requests(
    workspace: Workspace,
    out: Path,
    asked: Evaluation,
    *,
    model: str,
    system: str | None = None,
    images: ImageForm = "data",
) -> int:
    """Write the requests for a split, mode 0600; returns their number.

    Args:
        workspace: the store and its settings.
        out: the file of lines; pictures as paths are in a folder beside it, `<stem>_images`, and
            those of an earlier run are removed from there.
        asked: form and split.
        model: its name in every request.
        system: replaces the system prompt of the form.
        images: inside the lines, or as paths.

    Raises:
        EvaluationError: the split holds no step.
    """
    folder = out.with_name(f"{out.stem}_images")
    if images == "path":
        folder.mkdir(mode=0o700, exist_ok=True)
    with private_file(out) as file:
        writer = RequestWriter(
            out=file,
            form=ANSWER_FORMS[asked.form].question,
            settings=workspace.settings.datasets,
            model=model,
            system=system,
            images=images,
            folder=folder,
        )
        with _planned(workspace) as plan:
            _each_step(workspace, plan, asked, writer.add)
        if not writer.written:
            raise _no_step(asked)
    if images == "path":
        writer.remove_old_pictures()
    return writer.written


def write_right_answers(workspace: Workspace, out: Path, asked: Evaluation) -> int:
    """Write what a model that is always right answers, mode 0600; returns the number of lines.

    Raises:
        EvaluationError: the split holds no step.
    """
    right, number = ANSWER_FORMS[asked.form].right, 0

    def add(record: StepRecord) -> None:
        nonlocal number
        number += 1
        step = record.step
        line = {
            "trajectory_id": step.trajectory_id,
            "step_index": step.step_index,
            "response": right(record, workspace.settings.datasets),
        }
        file.write(json_bytes(line, compact=True))

    with private_file(out) as file:
        with _planned(workspace) as plan:
            _each_step(workspace, plan, asked, add)
        if not number:
            raise _no_step(asked)
    return number


def score_file(
    workspace: Workspace, predictions: Path, asked: Evaluation, out: Path | None = None
) -> ScoreReport:
    """Score the predictions in a file.

    Args:
        workspace: the store and its settings.
        predictions: plain JSON Lines, or results of an OpenAI batch.
        asked: form, split and rules.
        out: a folder for the tables; it is made. None: they are not written.

    Raises:
        EvaluationError: the split holds no step.
        OSError: a file cannot be read or written.
    """
    with _planned(workspace) as plan:
        known = {candidate.source.id for candidate in plan.selection.chosen}
        with read_predictions(predictions, known) as found:
            return _score(workspace, plan, found, asked, out)


def score_rows(workspace: Workspace, rows: PredictionRows, asked: Evaluation) -> ScoreReport:
    """Score predictions given as rows of trajectory id, step index and response.

    Raises:
        EvaluationError: the split holds no step.
    """
    with _planned(workspace) as plan:
        known = {candidate.source.id for candidate in plan.selection.chosen}
        with rows_as_predictions(rows, known) as found:
            return _score(workspace, plan, found, asked, None)


@contextmanager
def _planned(workspace: Workspace) -> Iterator[ExportPlan]:
    """The plan of the exports of steps, while the trajectories are open."""
    with committed_trajectories(workspace) as committed:
        yield plan_export(committed.trajectories, workspace.settings.datasets)


def _each_step(
    workspace: Workspace,
    plan: ExportPlan,
    asked: Evaluation,
    receive: Callable[[StepRecord], None],
) -> None:
    splits = list(Split) if asked.split == ANY_SPLIT else [Split(asked.split)]
    each_true_step(plan, workspace.settings.datasets, splits, receive)


def _score(
    workspace: Workspace,
    plan: ExportPlan,
    predictions: Predictions,
    asked: Evaluation,
    out: Path | None,
) -> ScoreReport:
    presets = [PRESETS[name] for name in asked.presets]
    decode = ANSWER_FORMS[asked.form].decoder(workspace.settings.datasets)
    with Scorer(presets, decode, predictions) as scorer:
        if out is None:
            _each_step(workspace, plan, asked, lambda record: scorer.add(record.step))
        else:
            out.mkdir(parents=True, exist_ok=True)
            with TableWriter(out / STEP_SCORES_FILE, STEPS_SCHEMA, batch_rows=_ROWS) as writer:
                scorer.keep = writer.append_row
                _each_step(workspace, plan, asked, lambda record: scorer.add(record.step))
        report = scorer.report(asked.seed)
    if out is not None:
        write_rows(out / SCORES_FILE, report.rows, SCORES_SCHEMA)
        dump_json(out / REPORT_SUMMARY, report_summary(report, asked))
    if not report.steps:
        raise _no_step(asked)
    return report


def report_summary(report: ScoreReport, asked: Evaluation) -> dict[str, Any]:
    """What an evaluation asked and counted; no word of an answer."""
    return {
        **asdict(asked),
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
