"""The console script `demo-pipeline`.

Belongs here: arguments and exit codes. What the commands do lies elsewhere, and is imported only by
the command that needs it, so that `--help` is quick.
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from demo_pipeline import __version__
from demo_pipeline.cli.console import print_error, print_line, progress_bar, report_run
from demo_pipeline.cli.environment import INVALID, OK, USAGE, usable_settings, use_dagster_home
from demo_pipeline.pipeline.validation import PathKind, kind_of, validate
from demo_pipeline.problems import Severity

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Turn recorded demonstrations of people using computers into training data.\n\n"
    "Recordings are looked for in `$DEMO_PIPELINE_UPLOADS` (default `data/recordings`); what is "
    "made goes to `$DEMO_PIPELINE_STORE` (default `data/store`). Demonstrations are compared "
    "with the OSWorld task files in `$DEMO_PIPELINE_OSWORLD_TASKS` (default `data/osworld`).",
)


def main() -> None:
    """Run the command line; unusable settings and roots are a usage error."""
    from demo_pipeline.pipeline.rebuild import storage_message  # noqa: PLC0415 - see the module's note
    from demo_pipeline.storage.errors import StorageError  # noqa: PLC0415

    try:
        app()
    except StorageError as error:
        print_error(f"demo-pipeline: {storage_message(error)}")
        sys.exit(USAGE)


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"demo-pipeline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def register() -> None:
    """Make every recording in the uploads root known to Dagster as a partition.

    Needed once before `dagster asset materialize --partition ID`; `run` does it by itself.
    """
    from demo_pipeline.defs.local_execution import register_uploads  # noqa: PLC0415
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415

    pipeline = Workspace.open(usable_settings())
    use_dagster_home()
    ids, new = register_uploads(pipeline)
    for key in new:
        print_line(f"registered {key}")
    print_line(f"{len(ids)} demonstrations in {pipeline.uploads.url}, {len(new)} newly registered")


@app.command()
def run(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Only these demonstrations (default: all new ones).")
    ] = None,
    *,
    force: Annotated[bool, typer.Option(help="Make everything again, changed or not.")] = False,
    retry: Annotated[bool, typer.Option(help="Try the quarantined again, changed or not.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 when any is quarantined.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    What is quarantined waits for another upload, `--retry`, or being named here.
    """
    from demo_pipeline.defs.local_execution import process, read_tasks, register_uploads  # noqa: PLC0415
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415
    from demo_pipeline.pipeline.runner import is_quarantined, is_up_to_date  # noqa: PLC0415

    settings = usable_settings()
    pipeline = Workspace.open(settings)
    use_dagster_home()
    begun, cores = time.monotonic(), settings.execution.workers
    known, _ = register_uploads(pipeline)
    unknown = [key for key in ids or () if key not in known]
    if unknown:
        print_error(f"no recording {', '.join(unknown)} in {pipeline.uploads.url}")
        raise typer.Exit(USAGE)
    failed = read_tasks(settings, force=force)
    chosen = list(dict.fromkeys(ids or known))
    todo = [key for key in chosen if force or not is_up_to_date(pipeline, key)]
    held = [key for key in todo if not (force or retry or ids) and is_quarantined(pipeline, key)]
    todo = [key for key in todo if key not in held]
    unchanged = len(chosen) - len(todo) - len(held)
    outcomes: list[Any] = []
    with progress_bar() as progress:
        if todo:
            task = progress.add_task("demonstrations", total=len(todo))
            for outcome in process(settings, todo, workers or cores, force=force):
                outcomes.append(outcome)
                progress.advance(task)
        made, unmade = _datasets(pipeline, progress, force=force)
    report_run(outcomes, unchanged, made, time.monotonic() - begun)
    if held:
        print_line(f"{len(held)} more still quarantined: `demo-pipeline quarantine` says why")
    failed += unmade
    for line in failed:
        print_error(f"datasets: {line}")
    crashed = any(outcome.status == "crashed" for outcome in outcomes)
    stuck = held or any(outcome.status in {"quarantined", "superseded"} for outcome in outcomes)
    if crashed or failed or (strict and stuck):
        raise typer.Exit(INVALID)


def _datasets(
    pipeline: Any, progress: Progress, *, force: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Build the datasets; nothing to do while no trajectory is committed."""
    from demo_pipeline.defs.local_execution import build_datasets  # noqa: PLC0415
    from demo_pipeline.pipeline.dataset_stages import TRAJECTORIES  # noqa: PLC0415

    if not pipeline.store.outputs(TRAJECTORIES):
        print_line("no trajectory is committed yet: no dataset to build")
        return {}, []
    task = progress.add_task("datasets", total=1)
    built = build_datasets(pipeline.settings, force=force)
    progress.advance(task)
    return built


@app.command()
def inspect(
    demonstration: Annotated[str, typer.Argument(help="Id of a processed demonstration.")],
) -> None:
    """Tell a demonstration's story: its actions, repairs, rejected lines, and the ledger.

    What was typed is not shown, only how long it is.
    """
    from contextlib import ExitStack  # noqa: PLC0415

    from demo_pipeline.actions.timeline import build_timeline  # noqa: PLC0415
    from demo_pipeline.actions.timeline_text import render  # noqa: PLC0415
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415
    from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME  # noqa: PLC0415
    from demo_pipeline.recording.manifest import read_manifest  # noqa: PLC0415
    from demo_pipeline.storage.ids import safe_id  # noqa: PLC0415

    store = Workspace.open(usable_settings()).store
    key = safe_id(demonstration)
    with ExitStack() as stack:
        raw, events, actions = (
            stack.enter_context(store.open(STAGE_BY_NAME[name].output(key)))[0]
            for name in ("raw_recordings", "events", "actions")
        )
        for line in render(build_timeline(events, actions, read_manifest(raw))):
            print_line(line)


@app.command()
def quarantine() -> None:
    """List the demonstrations that cannot go on, why, and what to do."""
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415
    from demo_pipeline.pipeline.quarantine import list_quarantine  # noqa: PLC0415

    records = list_quarantine(Workspace.open(usable_settings()).store)
    for record in records:
        for problem in record.problems:
            where = f"{problem['file']}" + (f":{problem['line']}" if problem.get("line") else "")
            todo = problem.get("remedy") or "correct the upload"
            tries = f" [{record.attempts} times]" if record.attempts > 1 else ""
            what = f"{problem['message']} ({todo}){tries}"
            print_line(f"{record.demonstration} {record.stage} {where}: {what}")
    print_line(f"{len(records)} quarantined")


@app.command(name="validate")
def validate_path(
    path: Annotated[Path, typer.Argument(help="A file or directory.")],
    *,
    kind: Annotated[
        PathKind | None, typer.Option(help="What it is; default: by its files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable report.")] = False,
) -> None:
    """Check a recording, trajectory, dataset, CUDAG directory, SFT file, messages or OSWorld task.

    Exits with 0 when valid (warnings allowed), 1 when invalid, 2 when it cannot be checked.
    """
    if not path.exists():
        print_error(f"{path}: does not exist")
        raise typer.Exit(USAGE)
    found = kind or kind_of(path)
    if found is None:
        kinds = ", ".join(PathKind)
        print_error(f"{path}: none of {kinds}; say which with --kind")
        raise typer.Exit(USAGE)
    problems = validate(path.absolute(), found, usable_settings())
    invalid = sum(problem.severity is Severity.ERROR for problem in problems)
    if as_json:
        report = {"path": str(path), "kind": found, "valid": not invalid}
        report["problems"] = [problem.as_dict() for problem in problems]
        sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    else:
        for problem in problems:
            print_line(f"{problem.severity}: {problem}")
        verdict = f"invalid: {invalid} errors" if invalid else "valid"
        warned = len(problems) - invalid
        print_line(f"{path}: {found} {verdict}, {warned} warnings")
    raise typer.Exit(INVALID if invalid else OK)


@app.command()
def stats(
    query: Annotated[
        str | None, typer.Argument(help="SQL over the views (default: the tables of statistics).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable answer.")] = False,
    views: Annotated[bool, typer.Option("--views", help="Print the views as a script.")] = False,
) -> None:
    """Count what is in the datasets with SQL, or ask DuckDB a question of your own."""
    from demo_pipeline.cli.stats import print_views, show  # noqa: PLC0415

    settings = usable_settings()
    raise typer.Exit(print_views(settings) if views else show(settings, query, as_json=as_json))


@app.command()
def export(
    dest: Annotated[Path, typer.Argument(help="A directory that is empty or not there yet.")],
) -> None:
    """Write the datasets as plain directories without links, whole or not at all."""
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415
    from demo_pipeline.pipeline.export import export_datasets as write  # noqa: PLC0415

    for name in write(Workspace.open(usable_settings()).store, dest):
        print_line(f"{dest}/{name}")


@app.command()
def revalidate() -> None:
    """Read every committed output again and compare each file with its manifest."""
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415
    from demo_pipeline.pipeline.rebuild import damage_problem  # noqa: PLC0415

    store = Workspace.open(usable_settings()).store
    names = store.outputs()
    problems = [(name, damage) for name in names for damage in store.verify(name)]
    for name, damage in problems:
        print_line(f"{name}: {damage_problem(damage)}")
    print_line(f"{len(names)} outputs, {len(problems)} problems")
    raise typer.Exit(INVALID if problems else OK)


@app.command()
def prune(
    *,
    grace_hours: Annotated[
        float, typer.Option(min=0, help="Keep what was in use this recently.")
    ] = 24.0,
) -> None:
    """Remove old versions of outputs that nothing refers to any more."""
    from demo_pipeline.pipeline.context import Workspace  # noqa: PLC0415

    removed = Workspace.open(usable_settings()).store.collect(grace_hours * 3600, time.time())
    print_line(f"{len(removed)} old versions removed")


if __name__ == "__main__":
    main()
