"""The commands `demo-pipeline eval requests`, `eval truth`, `eval run` and `eval score`.

Requests and answers are never printed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_json, print_line
from demo_pipeline.cli.environment import INVALID, OK, open_workspace, refuse

if TYPE_CHECKING:
    from demo_pipeline.evaluation.scoring import ScoreReport

eval_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Ask a model about the steps of a split, and score its answers.",
)

_FORM = "Format of requests and answers: messages, qwen3vl, cudag or opencua."
_SPLIT = "Split whose steps are used: test, val, train, held_out, or any."


@eval_app.command("requests")
def write_requests(
    dest: Annotated[Path, typer.Argument(help="The file to write (JSON Lines, mode 0600).")],
    *,
    form: Annotated[str, typer.Option(help=_FORM)] = "messages",
    split: Annotated[str, typer.Option(help=_SPLIT)] = "test",
    model: Annotated[str, typer.Option(help="The model's name in every request.")] = "model",
    images: Annotated[
        str,
        typer.Option(
            help="Screenshots: `data` (inside the requests) or `path` (in `DEST_images`)."
        ),
    ] = "data",
    system_prompt: Annotated[
        Path | None, typer.Option(help="A file with a system prompt that replaces the default.")
    ] = None,
) -> None:
    """Write a request for every step of a split, in the format of OpenAI batches.

    vLLM's `run-batch` and hosted endpoints read this format. As in the datasets, the history in a
    request lists the earlier actions of the person, not those of the model (teacher forcing).
    """
    from demo_pipeline.runs.evaluations import Evaluation, write_evaluation_requests

    with explained():
        number = write_evaluation_requests(
            open_workspace(),
            dest,
            Evaluation(form=form, split=split),
            model=model,
            system=system_prompt.read_text(encoding="utf-8") if system_prompt else None,
            images=images,
        )
    print_line(f"{dest}: {number} requests, form {form}, split {split}, history teacher-forced")
    print_line("they contain screens and typed text; only you can read the file")


@eval_app.command("truth")
def write_truth(
    dest: Annotated[Path, typer.Argument(help="The file to write (JSON Lines, mode 0600).")],
    *,
    form: Annotated[str, typer.Option(help=_FORM)] = "messages",
    split: Annotated[str, typer.Option(help=_SPLIT)] = "test",
) -> None:
    """Write the correct answers for all steps of a split, to try the scoring without a model."""
    from demo_pipeline.runs.evaluations import Evaluation, write_right_answers

    with explained():
        asked = Evaluation(form=form, split=split)
        number = write_right_answers(open_workspace(), dest, asked)
    print_line(f"{dest}: {number} right answers, form {form}, split {split}")


@eval_app.command("run")
def run_endpoint(
    requests: Annotated[
        Path, typer.Argument(help="A file that `demo-pipeline eval requests` wrote.")
    ],
    dest: Annotated[
        Path,
        typer.Argument(
            help="File for the answers. Requests that it answers already are not sent again."
        ),
    ],
    *,
    endpoint: Annotated[str, typer.Option(help="URL of the server, up to /v1.")],
    model: Annotated[str, typer.Option(help="Name of the model on the server.")],
    at_once: Annotated[int, typer.Option(min=1, max=256, help="Requests at a time.")] = 4,
    attempts: Annotated[int, typer.Option(min=1, max=20, help="Attempts per request.")] = 5,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for an attempt.")] = 600,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send the requests to a host other than this machine.")
    ] = False,
) -> None:
    """Send requests to an OpenAI-compatible server and store its answers.

    The key of the server is read from the variable `OPENAI_API_KEY` only. A server on another
    machine needs `--yes`. Redirects are not followed, and proxies are not used.
    """
    from demo_pipeline.annotations.chat_server import KEY_VARIABLE, Endpoint
    from demo_pipeline.evaluation.requests import count_requests, send_requests

    with explained():
        key = os.environ.get(KEY_VARIABLE, "")
        server = Endpoint(endpoint, key, attempts=attempts, timeout=timeout)
        total, before = count_requests(requests, dest)
        print_line(f"{server.url}: {total} requests, {before} answered before")
        server.require_consent(yes=yes)
        from demo_pipeline.cli.tables import progress_bar

        with progress_bar() as bar:
            task = bar.add_task("answers", total=total - before)
            answered, failed = send_requests(
                requests, dest, server, model, at_once=at_once, on_answer=lambda: bar.advance(task)
            )
    print_line(f"{dest}: {answered} answered, {failed} failed, {before} before")
    raise typer.Exit(INVALID if failed else OK)


@eval_app.command("score")
def score(
    predictions: Annotated[
        Path, typer.Argument(help="File of answers, such as `eval run` writes.")
    ],
    *,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="A scoring rule; may be repeated. [default: strict, agentnetbench]"),
    ] = None,
    form: Annotated[str, typer.Option(help=_FORM)] = "messages",
    split: Annotated[str, typer.Option(help=_SPLIT)] = "test",
    dest: Annotated[
        Path | None,
        typer.Option("--out", help="A folder to which the tables are written as Parquet."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the bootstrap for the confidence intervals.")
    ] = 0,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Also score simple answers that need no model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Score the answers of a model, and print a table for each scoring rule."""
    from demo_pipeline.evaluation.requests import readable_by_others
    from demo_pipeline.evaluation.rules import FOOTNOTES
    from demo_pipeline.evaluation.scoring import PREDICTIONS
    from demo_pipeline.runs.evaluations import Evaluation, report_summary, score_file

    with explained():
        chosen = {"presets": tuple(preset)} if preset else {}
        asked = Evaluation(form=form, split=split, seed=seed, **chosen)
        if predictions.is_file() and readable_by_others(predictions):
            print_error(f"{predictions}: others can read it; `chmod 600` keeps answers private")
        report = score_file(open_workspace(), predictions, asked, dest)
    rows = [row for row in report.rows if baselines or row["answers"] == PREDICTIONS]
    if as_json:
        print_json({**report_summary(report, asked), "scores": rows}, indent=None)
        return
    from demo_pipeline.cli.tables import print_scores

    for name in asked.presets:
        print_scores(name, [row for row in rows if row["preset"] == name])
        if name in FOOTNOTES:
            print_line(FOOTNOTES[name])
    _print_counts(report, split)


def _print_counts(report: "ScoreReport", split: str) -> None:
    unusable = sum(report.unusable_steps.values())
    print_line(
        f"split {split}: {report.steps} steps, {report.answered} answered, {unusable} without a "
        f"usable answer; {report.lines} lines; history teacher-forced"
    )
    for reason, number in report.unusable_steps.items():
        print_line(f"  {number} steps: {reason}")
    for reason, number in report.unusable_lines.items():
        print_line(f"  {number} lines: {reason}")


@contextmanager
def explained() -> Iterator[None]:
    """Ends the command with a message after a StorageError, ValueError or OSError."""
    from demo_pipeline.runs.damage import storage_message
    from demo_pipeline.store.errors import StorageError

    try:
        yield
    except StorageError as error:
        message = storage_message(error)
    except ValueError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    else:
        return
    refuse(message)
