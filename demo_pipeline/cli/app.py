"""Registers the commands of the console script `demo-pipeline`, and prints its errors.

The commands import other packages only when they run, so that `--help` is fast.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline import __version__
from demo_pipeline.cli import (
    annotate_commands,
    dataset_commands,
    demonstration_commands,
    eval_commands,
    forget_commands,
    import_commands,
    privacy_commands,
    project_commands,
    review_commands,
    run_commands,
)
from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    INTERRUPTED,
    USAGE,
    CommandInterrupt,
    failure_sentence,
    interruptible,
)
from demo_pipeline.files.logs import LOG_LEVELS, show_log
from demo_pipeline.files.processes import reduced_python_gc, save_memory, spare_existing_objects

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Turn recorded demonstrations of people using computers into training data.\n\n"
    "Reads recordings from `$DEMO_PIPELINE_UPLOADS` (default `data/recordings`) and writes all "
    "outputs to `$DEMO_PIPELINE_STORE` (default `data/store`). Compares demonstrations with the "
    "OSWorld task files in `$DEMO_PIPELINE_OSWORLD_TASKS` (default `data/osworld`).",
)


def main() -> None:
    """Runs the command line. An error is printed as one sentence and sets the exit code 2."""
    save_memory()
    try:
        Path.cwd()
    except FileNotFoundError:
        print_error("demo-pipeline: the working directory was removed; change to another one")
        sys.exit(USAGE)
    try:
        with reduced_python_gc(), interruptible():
            app()
    except CommandInterrupt:
        print_error("demo-pipeline: interrupted")
        sys.exit(INTERRUPTED)
    # Prints a sentence instead of a traceback, whose messages may quote typed text.
    except Exception as error:  # noqa: BLE001
        print_error(f"demo-pipeline: {failure_sentence(error)}")
        sys.exit(USAGE)
    finally:
        spare_existing_objects()  # so that Python's final garbage collection is fast


def _version(requested: bool) -> None:
    if requested:
        print_line(f"demo-pipeline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[  # noqa: ARG001 - used by the callback of the option
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Write a log to standard error: which outputs are built, and how long each takes. "
            "`-vv` adds the reasons for decisions. The log never contains typed text.",
        ),
    ] = 0,
) -> None:
    show_log(LOG_LEVELS[min(verbose, len(LOG_LEVELS) - 1)])


app.command("init")(project_commands.init)
app.command("ui")(project_commands.ui)
app.command("register")(run_commands.register)
app.command("import")(import_commands.import_from)
app.command("run")(run_commands.run)
app.command("inspect")(demonstration_commands.inspect)
app.command("quarantine")(demonstration_commands.show_quarantine)
app.command("privacy")(privacy_commands.show_private)
app.command("validate")(dataset_commands.validate_path)
app.command("doctor")(project_commands.doctor)
app.command("stats")(dataset_commands.stats)
app.command("export")(dataset_commands.export)
app.command("diff")(dataset_commands.diff)
app.command("report")(dataset_commands.report)
app.command("revalidate")(dataset_commands.revalidate)
app.command("prune")(dataset_commands.prune)
app.add_typer(eval_commands.eval_app, name="eval")
app.command("review")(review_commands.review)
app.add_typer(review_commands.reviews_app, name="reviews")
app.command("annotate")(annotate_commands.annotate_demonstrations)
app.command("forget")(forget_commands.forget)

if __name__ == "__main__":
    main()
