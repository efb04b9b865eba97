"""The commands `demo-pipeline register` and `demo-pipeline run`.

Belongs here: the steps of a run, and its exit code. The runs themselves are launched by
defs/local_execution.py.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from demo_pipeline.cli.console import print_error, print_line, progress_bar, report_run
from demo_pipeline.cli.environment import (
    INVALID,
    require_dagster_home,
    require_store,
    set_dagster_home,
    usable_settings,
)
from demo_pipeline.cli.idle import find_idle, is_recorded
from demo_pipeline.cli.interruption import INTERRUPTED, CommandInterrupt, ignore_interrupts
from demo_pipeline.cli.run_selection import (
    RunSelection,
    print_hidden,
    require_known,
    select_demonstrations,
    uploaded_ids,
)
from demo_pipeline.files.recording_files import RECORDING_FILES

if TYPE_CHECKING:
    from demo_pipeline.defs.local_jobs import BuiltDatasets
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.outcomes import DemonstrationOutcome
    from demo_pipeline.settings import Settings

_NO_TRAJECTORY = "no trajectory is committed yet: no dataset to build"


def register() -> None:
    """Register every recording in the uploads root as a Dagster partition.

    Required once before `dagster asset materialize --partition ID`; `run` does it itself.
    """
    from demo_pipeline.pipeline.context import Workspace

    workspace = Workspace.open(usable_settings())
    home = set_dagster_home()
    ids = uploaded_ids(workspace)
    new: list[str] = []
    if not is_recorded(workspace, home, ids):
        from demo_pipeline.defs.local_execution import register_uploads

        require_dagster_home(home)
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
    verify: Annotated[
        bool,
        typer.Option(
            help="First compare the hash of every committed file with its manifest, and build "
            "damaged outputs again."
        ),
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: as `execution.workers`.")] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    A quarantined demonstration is skipped until its upload changes, unless it is named here or
    `--retry` is given.
    """
    settings = usable_settings()
    home = set_dagster_home()
    done: list[DemonstrationOutcome] = []
    try:
        _run(
            settings,
            home,
            ids,
            done,
            force=force,
            retry=retry,
            verify=verify,
            strict=strict,
            workers=workers or settings.execution.workers,
        )
    except (CommandInterrupt, KeyboardInterrupt):
        _report_interrupt(done)
        raise typer.Exit(INTERRUPTED) from None


def _reported_idle(
    settings: "Settings", home: Path, ids: Sequence[str] | None, *, retry: bool, strict: bool
) -> bool:
    """Report what there is, without Dagster, when a run would build nothing; false otherwise."""
    start = time.monotonic()
    found = find_idle(settings, home, ids, retry=retry)
    if found is None:
        return False
    selection, datasets = found
    _name_empty_inbox(settings, selection)
    if not datasets:
        print_line(_NO_TRAJECTORY)
    report_run([], selection.up_to_date, datasets, time.monotonic() - start)
    _exit([], selection.quarantined, [], strict=strict)
    return True


def _run(
    settings: "Settings",
    home: Path,
    ids: Sequence[str] | None,
    outcomes: list["DemonstrationOutcome"],
    *,
    force: bool,
    retry: bool,
    verify: bool,
    strict: bool,
    workers: int,
) -> None:
    """Process and report; `outcomes` has what is done so far, for a person who interrupts it."""
    from demo_pipeline.pipeline.context import Workspace

    print_hidden(Workspace.open(settings))
    again = force or verify
    if not again and _reported_idle(settings, home, ids, retry=retry, strict=strict):
        return
    workspace = Workspace.open(settings)
    require_store(workspace)
    require_dagster_home(home)
    from demo_pipeline.defs.local_execution import process, register_uploads
    from demo_pipeline.defs.local_instance import local_instance
    from demo_pipeline.defs.local_jobs import read_tasks

    start = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(local_instance())
        known, _ = register_uploads(workspace)
        require_known(workspace, ids or (), known)
        verified, remake = _verify(workspace, ids, known) if verify else (set[str](), False)
        failed = read_tasks(settings, _pause, force=force or remake)
        rebuilt = [key for key in ids or known if force or key in verified]
        selection = select_demonstrations(workspace, ids, known, forced=rebuilt, retry=retry)
        _name_empty_inbox(settings, selection)
        progress = stack.enter_context(progress_bar())
        running = process(settings, selection.todo, workers, _pause, forced=rebuilt)
        _follow(running, progress, len(selection.todo), outcomes)
        built = _build_datasets(workspace, progress, outcomes, force=force or remake)
        damaged = _damaged(built, known, outcomes)
        outcomes += process(settings, damaged, workers, _pause)
        if built.damage:  # with those that are whole again, and without the others in any dataset
            built = _build_datasets(workspace, progress, outcomes, force=False)
    up_to_date = selection.up_to_date - len({*damaged}.intersection(ids or known))
    report_run(outcomes, up_to_date, built.outcomes, time.monotonic() - start)
    errors = [*failed, *built.errors, *_lacking(workspace, built, known)]
    _exit(outcomes, selection.quarantined, errors, strict=strict)


def _follow(
    running: Generator["DemonstrationOutcome"],
    progress: Progress,
    total: int,
    outcomes: list["DemonstrationOutcome"],
) -> None:
    """Take in each outcome as it comes; an interruption ends the work that is under way."""
    if not total:
        return
    task = progress.add_task("demonstrations", total=total)
    with closing(running):
        for outcome in running:
            outcomes.append(outcome)
            progress.advance(task)


def _damaged(
    built: "BuiltDatasets", known: Sequence[str], outcomes: Sequence["DemonstrationOutcome"]
) -> list[str]:
    """The demonstrations whose damaged trajectories can be built again; prints what is damaged."""
    tried = {outcome.demonstration for outcome in outcomes}
    ids = {one.demonstration for one in built.damage}.intersection(known) - tried
    for problem in built.damage:
        if problem.demonstration in ids:
            print_error(f"damaged: {replace(problem, remedy='')}")
    return sorted(ids)


def _lacking(workspace: "Workspace", built: "BuiltDatasets", known: Sequence[str]) -> Iterator[str]:
    """Yield which damaged trajectories the datasets lack, and what to do."""
    gone = f"its upload is gone: put it back into {workspace.uploads.url}, then run again"
    for problem in built.damage:
        yield str(problem if problem.demonstration in known else replace(problem, remedy=gone))


def _name_empty_inbox(settings: "Settings", selection: RunSelection) -> None:
    """Say what to do when there is not a single upload."""
    if not (selection.todo or selection.quarantined or selection.up_to_date):
        print_line(
            f"no recording in {settings.uploads}: copy a folder with {', '.join(RECORDING_FILES)} "
            "there; `make demo` copies the samples"
        )


def _verify(
    workspace: "Workspace", ids: Sequence[str] | None, known: Sequence[str]
) -> tuple[set[str], bool]:
    """(demonstrations to build again, whether to build the datasets again); prints what is damaged.

    A demonstration whose upload is gone cannot be built again.
    """
    from demo_pipeline.pipeline.rebuild import damage_problem
    from demo_pipeline.pipeline.verification import verify_outputs

    found = verify_outputs(workspace, ids)
    for damage in found.damages:
        print_error(f"damaged: {replace(damage_problem(damage), remedy='')}")
    print_line(f"{found.outputs} outputs verified, {len(found.damages)} problems")
    for key in sorted(found.demonstrations - set(known)):
        print_error(f"{key}: its upload is gone, so it cannot be built again")
    return set(found.demonstrations), found.datasets


def _pause(reason: str, seconds: float) -> None:
    """Wait, and say what for."""
    print_error(f"waiting: {reason}; trying again in {seconds:.0f} s")
    time.sleep(seconds)


def _report_interrupt(outcomes: Sequence["DemonstrationOutcome"]) -> None:
    """Say what was done, after the runs of the ended processes were closed."""
    from demo_pipeline.defs.local_execution import close_interrupted_runs

    ignore_interrupts()
    close_interrupted_runs()
    done = sum(outcome.status == "done" for outcome in outcomes)
    print_error(
        f"interrupted: {done} demonstrations were done in this run and are kept; "
        "the next `demo-pipeline run` goes on with the others"
    )


def _build_datasets(
    workspace: "Workspace",
    progress: Progress,
    outcomes: Sequence["DemonstrationOutcome"],
    *,
    force: bool,
) -> "BuiltDatasets":
    """Build the datasets; without a committed trajectory this does nothing."""
    from demo_pipeline.defs.local_jobs import BuiltDatasets, build_datasets
    from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        print_line(_NO_TRAJECTORY)
        return BuiltDatasets()
    task = progress.add_task("datasets", total=1)
    waited = any(outcome.status == "waiting" for outcome in outcomes)
    built = build_datasets(workspace.settings, None if waited else _pause, force=force)
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
    if statuses & {"crashed", "waiting"} or errors or (strict and incomplete):
        raise typer.Exit(INVALID)
