"""The commands `demo-pipeline register` and `demo-pipeline run`.

Belongs here: which demonstrations a run processes, its steps, and its exit code; finding out,
without Dagster, that there is nothing to do.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from demo_pipeline.cli.console import (
    byte_text,
    print_error,
    print_line,
    progress_bar,
    report_run,
)
from demo_pipeline.cli.environment import (
    INTERRUPTED,
    INVALID,
    USAGE,
    CommandInterrupt,
    ignore_interrupts,
    require_dagster_home,
    require_store,
    set_dagster_home,
    usable_settings,
)
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.results import duration
from demo_pipeline.store.errors import StorageError

if TYPE_CHECKING:
    from demo_pipeline.runs.dataset_builds import BuiltDatasets
    from demo_pipeline.runs.results import DemonstrationResult
    from demo_pipeline.runs.workspace import Workspace

_LOG = logging.getLogger(__package__)
_VERIFY = "First compare the hash of every committed file, and build damaged outputs again."
_DRY_RUN = "Build nothing: show what would be built and why, with CPU time and disk by past runs."
_NAMED = 5  # demonstrations of a line of `--dry-run`
_NO_TRAJECTORY = "no trajectory is committed yet: no dataset to build"


@dataclass(frozen=True)
class RunSelection:
    """The ids that a run processes, those still in quarantine, and how many are up to date."""

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


@dataclass(frozen=True)
class _Asked:
    """What a person asked `run` for; its options say what they mean."""

    ids: Sequence[str]
    force: bool
    retry: bool
    verify: bool
    strict: bool
    dry_run: bool
    workers: int


def uploaded_ids(workspace: "Workspace") -> list[str]:
    """The ids of all demonstrations in the uploads root."""
    return [upload.id for upload in workspace.uploads.list_demonstrations()]


def print_hidden(workspace: "Workspace") -> None:
    """Say which folders of the uploads look like recordings and are skipped for their names."""
    from demo_pipeline.runs.health import hidden_uploads

    if names := hidden_uploads(workspace):
        print_error(
            f"skipped: {', '.join(names)} in {workspace.uploads.url}: names that begin with a dot "
            "are hidden; rename a folder to have it processed"
        )


def select_demonstrations(
    workspace: "Workspace",
    ids: Sequence[str] | None,
    known: Sequence[str],
    *,
    forced: Collection[str],
    retry: bool,
) -> RunSelection:
    """Choose among all uploads.

    Args:
        workspace: the roots.
        ids: those that were named; None: all.
        known: ids in the uploads root.
        forced: to be built again though nothing changed.
        retry: process those in quarantine too.
    """
    from demo_pipeline.runs.quarantine import is_quarantined
    from demo_pipeline.runs.stage_runs import is_up_to_date

    chosen = list(dict.fromkeys(ids or known))
    stale = [key for key in chosen if key in forced or not _holds(is_up_to_date, workspace, key)]
    quarantined = [
        key
        for key in stale
        if not (retry or ids or key in forced) and _holds(is_quarantined, workspace, key)
    ]
    todo = [key for key in stale if key not in quarantined]
    return RunSelection(todo, quarantined, len(chosen) - len(stale))


def _holds(question: Callable[..., bool], workspace: "Workspace", *about: str) -> bool:
    """The answer to a question; no when roots or files cannot be read, as the run reports why."""
    try:
        return question(workspace, *about)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run reports it
        _LOG.debug("%s: left to the run (%s)", question.__name__, type(error).__name__)
        return False


def _is_recorded(workspace: "Workspace", home: Path, known: Sequence[str]) -> bool:
    """Whether Dagster knows every upload and result, as far as commands have told it."""
    from demo_pipeline.defs.claims import are_registered, unreported

    folder = _notes(workspace, home)
    return are_registered(folder, known) and not unreported(folder)


def _notes(workspace: "Workspace", home: Path) -> Path:
    """The folder of what commands of this machine leave for each other."""
    from demo_pipeline.runs.discovery_table import table_path

    return table_path(home / "storage", workspace.uploads.url).with_suffix("")


def register() -> None:
    """Register every recording in the uploads root as a Dagster partition.

    Required once before `dagster asset materialize --partition ID`; `run` does it itself.
    """
    from demo_pipeline.runs.workspace import Workspace

    workspace = Workspace.open(usable_settings())
    require_dagster_home(set_dagster_home())
    from demo_pipeline.defs.local_runs import register_uploads

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
    force: Annotated[bool, typer.Option(help="Build what did not change, too.")] = False,
    retry: Annotated[bool, typer.Option(help="Retry what is quarantined, too.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if any is quarantined.")] = False,
    verify: Annotated[bool, typer.Option(help=_VERIFY)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: as `execution.workers`.")] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    A quarantined demonstration is skipped until its upload changes, unless it is named here or
    `--retry` is given.
    """
    from demo_pipeline.runs.workspace import Workspace

    settings = usable_settings()
    workers = workers or settings.execution.workers
    asked = _Asked(ids or (), force, retry, verify, strict, dry_run, workers)
    home, done = set_dagster_home(), list["DemonstrationResult"]()
    try:
        _run(Workspace.open(settings), home, asked, done)
    except (CommandInterrupt, KeyboardInterrupt):
        ignore_interrupts()
        count = sum(outcome.status.is_done for outcome in done)
        print_error(
            f"interrupted: {count} demonstrations were done in this run and are kept; "
            "the next `demo-pipeline run` goes on with the others"
        )
        raise typer.Exit(INTERRUPTED) from None


def _run(
    workspace: "Workspace", home: Path, asked: _Asked, outcomes: list["DemonstrationResult"]
) -> None:
    """Process and report; `outcomes` has what is done so far, for a person who interrupts it."""
    from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

    start = time.monotonic()
    print_hidden(workspace)
    known = uploaded_ids(workspace)
    if unknown := [key for key in asked.ids if key not in known]:
        print_error(f"no recording {', '.join(unknown)} in {workspace.uploads.url}")
        raise typer.Exit(USAGE)
    if asked.dry_run:
        _show_plan(workspace, home, asked, known)
        return
    found = _idle(workspace, home, asked, known) or _work(workspace, home, asked, known, outcomes)
    selection, built, failed = found
    if not (selection.todo or selection.quarantined or selection.up_to_date):
        print_line(
            f"no recording in {workspace.settings.uploads}: copy a folder with "
            f"{', '.join(RECORDING_FILES)} there; `make demo` copies the samples"
        )
    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        print_line(_NO_TRAJECTORY)
    if outcomes or built.results:
        from demo_pipeline.runs.plan import COSTS_FILE, note_costs

        note_costs(_notes(workspace, home) / COSTS_FILE, outcomes, time.process_time())
    report_run(outcomes, selection.up_to_date, built.outcomes, time.monotonic() - start)
    errors = [*failed, *built.errors, *_lacking(workspace, built, known)]
    _exit(outcomes, selection.quarantined, errors, strict=asked.strict)


def _show_plan(workspace: "Workspace", home: Path, asked: _Asked, known: Sequence[str]) -> None:
    """What a run would do."""
    from demo_pipeline.runs.plan import COSTS_FILE, plan

    chosen = asked.ids or known
    forced = chosen if asked.force else ()
    selection = select_demonstrations(workspace, asked.ids, known, forced=forced, retry=asked.retry)
    costs = _notes(workspace, home) / COSTS_FILE
    found = plan(workspace, selection.todo, force=asked.force, costs=costs)
    alike: dict[str, list[str]] = {}
    for key, reasons in found.demonstrations.items():
        alike.setdefault(_reason_words(reasons), []).append(key)
    for words, keys in alike.items():
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        print_line(f"{', '.join(keys[:_NAMED])}{more}: {words}")
    if found.datasets:
        print_line(f"datasets: {_reason_words(found.datasets)}")
    print_line(
        f"to build: {len(selection.todo)} demonstrations, {len(found.datasets)} datasets; "
        f"{len(selection.quarantined)} stay quarantined, {selection.up_to_date} are up to date"
    )
    cpu = "unknown" if found.cpu_seconds is None else duration(found.cpu_seconds)
    size = "unknown" if found.size is None else byte_text(round(found.size))
    print_line(f"by past runs on this machine: CPU time {cpu}, disk {size}")


def _reason_words(reasons: Sequence[tuple[str, str]]) -> str:
    """The stages by their reasons."""
    stages: dict[str, list[str]] = {}
    for stage, reason in reasons:
        stages.setdefault(reason, []).append(stage)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in stages.items())


_Found = tuple[RunSelection, "BuiltDatasets", Sequence[str]]  # errors of the catalog of tasks


def _idle(workspace: "Workspace", home: Path, asked: _Asked, known: Sequence[str]) -> _Found | None:
    """What there is when a run would build nothing; None when it would, or has to say why not."""
    from demo_pipeline.runs.dataset_builds import BuiltDatasets, tasks_unchanged, unchanged_datasets
    from demo_pipeline.runs.health import clear_leftovers

    if asked.force or asked.verify or not _is_recorded(workspace, home, known):
        return None
    clear_leftovers(workspace)
    if not _holds(tasks_unchanged, workspace):
        return None
    selection = select_demonstrations(workspace, asked.ids, known, forced=(), retry=asked.retry)
    try:
        datasets = None if selection.todo else unchanged_datasets(workspace)
    except (DemonstrationError, StorageError, OSError) as error:
        _LOG.debug("the datasets are left to the run (%s)", type(error).__name__)
        return None
    return None if datasets is None else (selection, BuiltDatasets(outcomes=datasets), ())


def _work(
    workspace: "Workspace",
    home: Path,
    asked: _Asked,
    known: Sequence[str],
    outcomes: list["DemonstrationResult"],
) -> _Found:
    """Build what has to be built, and report it to Dagster."""
    require_store(workspace)
    require_dagster_home(home)
    from demo_pipeline.defs.local_runs import register_uploads, reported, take_unreported

    with reported(workspace):
        register_uploads(workspace)
        verified, remake = (
            _verify(workspace, asked.ids, known) if asked.verify else (set[str](), False)
        )
        force = asked.force or remake
        failed = _read_tasks(workspace, force=force)
        rebuilt = [key for key in asked.ids or known if asked.force or key in verified]
        selection = select_demonstrations(
            workspace, asked.ids, known, forced=rebuilt, retry=asked.retry
        )
        with progress_bar() as progress:
            todo = {key: key in rebuilt for key in selection.todo}
            lost = set(take_unreported(workspace)).intersection(known).difference(todo)
            _process(workspace, asked.workers, progress, dict.fromkeys(lost, False), [])
            _process(workspace, asked.workers, progress, todo, outcomes)
            built = _build_datasets(workspace, progress, outcomes, force=force)
            damaged = _damaged(built, known, outcomes)
            _process(workspace, asked.workers, progress, dict.fromkeys(damaged, False), outcomes)
            if built.damage:  # with those that are whole again, and without the others
                built = _build_datasets(workspace, progress, outcomes, force=False)
    whole = selection.up_to_date - len({*damaged}.intersection(asked.ids or known))
    return replace(selection, up_to_date=whole), built, failed


def _process(
    workspace: "Workspace",
    workers: int,
    progress: Progress,
    forced: Mapping[str, bool],
    outcomes: list["DemonstrationResult"],
) -> None:
    """Take in each outcome as it comes; an interruption ends the work that is under way.

    `forced`: demonstration → whether it is built again although nothing changed.
    """
    from demo_pipeline.defs.local_runs import process_and_report
    from demo_pipeline.runs.batch import DemonstrationTask

    tasks = [DemonstrationTask(key, force=force) for key, force in forced.items()]
    if not tasks:
        return
    shown = progress.add_task("demonstrations", total=len(tasks))
    with closing(process_and_report(workspace, tasks, workers, _pause)) as running:
        for outcome in running:
            outcomes.append(outcome)
            progress.advance(shown)


def _read_tasks(workspace: "Workspace", *, force: bool) -> Sequence[str]:
    """Build the catalog of OSWorld tasks, unless its files are as they were; why it failed."""
    from demo_pipeline.defs.local_runs import build_and_report
    from demo_pipeline.runs.dataset_builds import tasks_unchanged
    from demo_pipeline.runs.task_catalog import TASKS_STAGE

    if not force and _holds(tasks_unchanged, workspace):
        return []
    return build_and_report(workspace, TASKS_STAGE.job, _pause, force=force).errors


def _build_datasets(
    workspace: "Workspace",
    progress: Progress,
    outcomes: Sequence["DemonstrationResult"],
    *,
    force: bool,
) -> "BuiltDatasets":
    """Build the datasets; without a committed trajectory this does nothing."""
    from demo_pipeline.defs.local_runs import build_and_report
    from demo_pipeline.runs.dataset_builds import BuiltDatasets
    from demo_pipeline.stage import DATASETS_JOB
    from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        return BuiltDatasets()
    task = progress.add_task("datasets", total=1)
    waited = any(outcome.status == "waiting" for outcome in outcomes)
    built = build_and_report(workspace, DATASETS_JOB, None if waited else _pause, force=force)
    progress.advance(task)
    return built


def _pause(reason: str, seconds: float) -> None:
    """Wait, and say what for."""
    print_error(f"waiting: {reason}; trying again in {seconds:.0f} s")
    time.sleep(seconds)


def _verify(
    workspace: "Workspace", ids: Sequence[str], known: Sequence[str]
) -> tuple[set[str], bool]:
    """(demonstrations to build again, whether to build the datasets again); prints what is damaged.

    A demonstration whose upload is gone cannot be built again.
    """
    from demo_pipeline.runs.damage import damage_problem, verify_outputs

    found = verify_outputs(workspace, ids or None)
    for damage in found.damages:
        print_error(f"damaged: {replace(damage_problem(damage), remedy='')}")
    print_line(f"{found.outputs} outputs verified, {len(found.damages)} problems")
    for key in sorted(found.demonstrations - set(known)):
        print_error(f"{key}: its upload is gone, so it cannot be built again")
    return set(found.demonstrations), found.datasets


def _damaged(
    built: "BuiltDatasets", known: Sequence[str], outcomes: Sequence["DemonstrationResult"]
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


def _exit(
    outcomes: Sequence["DemonstrationResult"],
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
    incomplete = quarantined or statuses & {"rejected", "superseded"}
    if statuses & {"failed", "waiting"} or errors or (strict and incomplete):
        raise typer.Exit(INVALID)
