"""The commands `demo-pipeline register` and `demo-pipeline run`.

Belongs here: which demonstrations a run processes, and its exit code. The runs themselves are
launched by defs/local_execution.py.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from demo_pipeline.cli.console import print_error, print_line, progress_bar, report_run
from demo_pipeline.cli.environment import INVALID, USAGE, usable_settings, use_dagster_home

if TYPE_CHECKING:
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.outcomes import DatasetOutcome, DemonstrationOutcome


@dataclass(frozen=True)
class _Selection:
    """The ids that a run processes, those still in quarantine, and how many are up to date."""

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


def register() -> None:
    """Register every recording in the uploads root as a Dagster partition.

    Required once before `dagster asset materialize --partition ID`; `run` does it itself.
    """
    from demo_pipeline.defs.local_execution import register_uploads
    from demo_pipeline.pipeline.context import Workspace

    workspace = Workspace.open(usable_settings())
    use_dagster_home()
    ids, new = register_uploads(workspace)
    for key in new:
        print_line(f"registered {key}")
    print_line(f"{len(ids)} demonstrations in {workspace.uploads.url}, {len(new)} newly registered")


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Process only these demonstrations (default: all new or changed)."),
    ] = None,
    *,
    force: Annotated[
        bool, typer.Option(help="Build every output again, even if nothing changed.")
    ] = False,
    retry: Annotated[
        bool, typer.Option(help="Retry quarantined demonstrations whose upload did not change.")
    ] = False,
    strict: Annotated[
        bool, typer.Option(help="Exit with 1 if any demonstration is quarantined.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    A quarantined demonstration is skipped until its upload changes, unless it is named here or
    `--retry` is given.
    """
    from demo_pipeline.defs.local_execution import process, read_tasks, register_uploads
    from demo_pipeline.pipeline.context import Workspace

    settings = usable_settings()
    workspace = Workspace.open(settings)
    use_dagster_home()
    start = time.monotonic()
    known, _ = register_uploads(workspace)
    _require_known(workspace, ids or (), known)
    failed = read_tasks(settings, force=force)
    selection = _select(workspace, ids, known, force=force, retry=retry)
    outcomes: list[DemonstrationOutcome] = []
    with progress_bar() as progress:
        if selection.todo:
            task = progress.add_task("demonstrations", total=len(selection.todo))
            processes = workers or settings.execution.workers
            for outcome in process(settings, selection.todo, processes, force=force):
                outcomes.append(outcome)
                progress.advance(task)
        datasets, errors = _build_datasets(workspace, progress, force=force)
    report_run(outcomes, selection.up_to_date, datasets, time.monotonic() - start)
    _exit(outcomes, selection.quarantined, [*failed, *errors], strict=strict)


def _require_known(workspace: "Workspace", ids: Sequence[str], known: Sequence[str]) -> None:
    unknown = [key for key in ids if key not in known]
    if unknown:
        print_error(f"no recording {', '.join(unknown)} in {workspace.uploads.url}")
        raise typer.Exit(USAGE)


def _select(
    workspace: "Workspace",
    ids: Sequence[str] | None,
    known: Sequence[str],
    *,
    force: bool,
    retry: bool,
) -> _Selection:
    from demo_pipeline.pipeline.quarantine import is_quarantined
    from demo_pipeline.pipeline.staleness import is_up_to_date

    chosen = list(dict.fromkeys(ids or known))
    stale = [key for key in chosen if force or not _holds(is_up_to_date, workspace, key)]
    skip = not (force or retry or ids)
    quarantined = [key for key in stale if skip and _holds(is_quarantined, workspace, key)]
    todo = [key for key in stale if key not in quarantined]
    return _Selection(todo, quarantined, len(chosen) - len(stale))


def _holds(
    question: Callable[["Workspace", str], bool], workspace: "Workspace", demonstration: str
) -> bool:
    """The answer about one demonstration; no when it cannot be had, since its run reports why."""
    try:
        return question(workspace, demonstration)
    except Exception:  # noqa: BLE001 - the other demonstrations are processed whatever it is
        return False


def _build_datasets(
    workspace: "Workspace", progress: Progress, *, force: bool
) -> tuple[list["DatasetOutcome"], list[str]]:
    """Build the datasets; without a committed trajectory this does nothing."""
    from demo_pipeline.defs.local_execution import build_datasets
    from demo_pipeline.pipeline.demonstration_stages import TRAJECTORIES_STAGE

    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        print_line("no trajectory is committed yet: no dataset to build")
        return [], []
    task = progress.add_task("datasets", total=1)
    built = build_datasets(workspace.settings, force=force)
    progress.advance(task)
    return built


def _exit(
    outcomes: Sequence["DemonstrationOutcome"],
    quarantined: Sequence[str],
    errors: Sequence[str],
    *,
    strict: bool,
) -> None:
    """Print what failed; exit with 1 when a run or a dataset failed."""
    if quarantined:
        count = len(quarantined)
        print_line(f"{count} more still quarantined: `demo-pipeline quarantine` shows the reasons")
    for line in errors:
        print_error(f"datasets: {line}")
    statuses = {outcome.status for outcome in outcomes}
    incomplete = quarantined or statuses & {"quarantined", "superseded"}
    if "crashed" in statuses or errors or (strict and incomplete):
        raise typer.Exit(INVALID)
