"""The commands `demo-pipeline register` and `demo-pipeline run`.

Belongs here: which demonstrations a run processes, its steps, and its exit code; finding out,
without Dagster, that there is nothing to do.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import byte_text, print_error, print_line
from demo_pipeline.cli.environment import (
    INTERRUPTED,
    INVALID,
    CommandInterrupt,
    dagster_instance,
    ignore_interrupts,
    open_workspace,
    print_hidden,
    refuse,
    set_dagster_home,
)
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.store.errors import StorageError

if TYPE_CHECKING:
    from demo_pipeline.defs.command_reports import Reporter
    from demo_pipeline.runs.dataset_builds import BuiltDatasets
    from demo_pipeline.runs.results import DemonstrationResult
    from demo_pipeline.runs.workspace import Workspace

_LOG = logging.getLogger(__package__)
_VERIFY = "First compare the hash of every committed file, and build damaged outputs again."
_DRY_RUN = "Build nothing: show what would be built and why, with CPU time and disk by past runs."
_NAMED = 5  # demonstrations of a line of `--dry-run`


@dataclass(frozen=True)
class _RunSelection:
    """The ids that a run processes, those still in quarantine, and how many are up to date."""

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


def select_demonstrations(
    workspace: "Workspace",
    ids: Sequence[str] | None,
    known: Sequence[str],
    *,
    forced: Collection[str],
    retry: bool,
) -> _RunSelection:
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
    todo, quarantined = list[str](), list[str]()
    for key in stale:
        skipped = not (retry or ids or key in forced) and _holds(is_quarantined, workspace, key)
        (quarantined if skipped else todo).append(key)
    return _RunSelection(todo, quarantined, len(chosen) - len(stale))


def _holds(question: Callable[..., bool], workspace: "Workspace", *about: str) -> bool:
    """The answer to a question; no when roots or files cannot be read, as the run reports why."""
    try:
        return question(workspace, *about)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run reports it
        _LOG.debug("%s: left to the run (%s)", question.__name__, type(error).__name__)
        return False


def register() -> None:
    """Register every recording in the uploads root as a Dagster partition.

    Required once before `dagster asset materialize --partition ID`; `run` does it itself.
    """
    workspace = open_workspace()
    from demo_pipeline.defs.command_reports import Reporter

    with dagster_instance(set_dagster_home()) as instance:
        ids, new = Reporter(instance, workspace).register_uploads()
    for key in new:
        print_line(f"registered {key}")
    found = counted(len(ids), "demonstrations")
    print_line(f"{found} in {workspace.uploads.url}, {len(new)} newly registered")


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
    workspace = open_workspace()
    workers = workers or workspace.settings.execution.workers
    one = _Run(workspace, set_dagster_home(), ids or (), force, retry, verify, workers)
    try:
        one.find_uploads()
        if dry_run:
            one.show_plan()
        else:
            one.run(strict=strict)
    except (CommandInterrupt, KeyboardInterrupt):
        ignore_interrupts()
        count = sum(outcome.status.is_done for outcome in one.outcomes)
        print_error(
            f"interrupted: {count} demonstrations were done in this run and are kept; "
            "the next `demo-pipeline run` goes on with the others"
        )
        raise typer.Exit(INTERRUPTED) from None


_Found = tuple[_RunSelection, "BuiltDatasets", Sequence[str]]  # errors of the catalog of tasks


@dataclass
class _Run:
    """What a person asked `run` for, as its options say, and what was done so far."""

    workspace: "Workspace"
    home: Path
    ids: Sequence[str]
    force: bool
    retry: bool
    verify: bool
    workers: int
    known: Sequence[str] = ()
    outcomes: list["DemonstrationResult"] = field(default_factory=list)

    def find_uploads(self) -> None:
        """List the uploads; it is a usage error to name others."""
        print_hidden(self.workspace)
        self.known = [upload.id for upload in self.workspace.uploads.list_demonstrations()]
        if unknown := [key for key in self.ids if key not in self.known]:
            refuse(f"no recording {', '.join(unknown)} in {self.workspace.uploads.url}")

    def run(self, *, strict: bool) -> None:
        from demo_pipeline.cli.tables import report_run
        from demo_pipeline.runs.plan import note_costs

        start, workspace = time.monotonic(), self.workspace
        selection, built, errors = self._idle() or self._work()
        if not (selection.todo or selection.quarantined or selection.up_to_date):
            print_line(
                f"no recording in {workspace.settings.uploads}: copy a folder with "
                f"{', '.join(RECORDING_FILES)} there; `make demo` copies the samples"
            )
        if not self._has_trajectories():
            print_line("no trajectory is committed yet: no dataset to build")
        if self.outcomes or built.results:
            note_costs(self._notes, self.outcomes, time.process_time())
        seconds = time.monotonic() - start
        report_run(self.outcomes, selection.up_to_date, built.outcomes, seconds)
        errors = [*errors, *built.errors, *self._lacking(built)]
        if count := len(selection.quarantined):
            print_line(
                f"{count} more still quarantined: `demo-pipeline quarantine` shows the reasons"
            )
        for line in errors:
            print_error(f"datasets: {line}")
        statuses = {outcome.status for outcome in self.outcomes}
        incomplete = count or statuses & {"rejected", "superseded"}
        if statuses & {"failed", "waiting"} or errors or (strict and incomplete):
            raise typer.Exit(INVALID)

    def show_plan(self) -> None:
        from demo_pipeline.runs.plan import plan
        from demo_pipeline.runs.results import duration

        selection = self._select((self.ids or self.known) if self.force else ())
        found = plan(self.workspace, selection.todo, force=self.force, notes=self._notes)
        alike: dict[str, list[str]] = {}
        for key, reasons in found.demonstrations.items():
            alike.setdefault(_reason_words(reasons), []).append(key)
        for words, keys in alike.items():
            more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
            print_line(f"{', '.join(keys[:_NAMED])}{more}: {words}")
        if found.datasets:
            print_line(f"datasets: {_reason_words(found.datasets)}")
        print_line(
            f"to build: {counted(len(selection.todo), 'demonstrations')}, "
            f"{counted(len(found.datasets), 'datasets')}; "
            f"{len(selection.quarantined)} stay quarantined, {selection.up_to_date} are up to date"
        )
        cpu = "unknown" if found.cpu_seconds is None else duration(found.cpu_seconds)
        size = "unknown" if found.size is None else byte_text(round(found.size))
        print_line(f"by past runs on this machine: CPU time {cpu}, disk {size}")

    def _select(self, forced: Collection[str]) -> _RunSelection:
        return select_demonstrations(
            self.workspace, self.ids, self.known, forced=forced, retry=self.retry
        )

    @property
    def _notes(self) -> Path:
        """The folder of what commands of this machine leave for each other."""
        from demo_pipeline.runs.discovery_table import table_path

        return table_path(self.home / "storage", self.workspace.uploads.url).with_suffix("")

    def _has_trajectories(self) -> bool:
        from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

        return bool(self.workspace.store.outputs(TRAJECTORIES_STAGE.folder))

    def _idle(self) -> _Found | None:
        """What there is when nothing would be built; None when the work has to say or do it."""
        from demo_pipeline.defs.claims import are_registered, unreported
        from demo_pipeline.runs.dataset_builds import (
            BuiltDatasets,
            tasks_unchanged,
            unchanged_datasets,
        )
        from demo_pipeline.runs.health import clear_leftovers

        recorded = are_registered(self._notes, self.known) and not unreported(self._notes)
        if self.force or self.verify or not recorded:
            return None
        clear_leftovers(self.workspace)
        if not _holds(tasks_unchanged, self.workspace):
            return None
        selection = self._select(())
        try:
            datasets = None if selection.todo else unchanged_datasets(self.workspace)
        except (DemonstrationError, StorageError, OSError) as error:
            _LOG.debug("the datasets are left to the run (%s)", type(error).__name__)
            return None
        return None if datasets is None else (selection, BuiltDatasets(outcomes=datasets), ())

    def _work(self) -> _Found:
        """Build what has to be built, and report it to Dagster."""
        from demo_pipeline.runs.health import HealthLevel, store_finding

        workspace = self.workspace
        if (finding := store_finding(workspace)).level is HealthLevel.ERROR:
            refuse(f"the store {finding.message}")
        from demo_pipeline.defs.command_reports import reported
        from demo_pipeline.runs.dataset_builds import tasks_unchanged
        from demo_pipeline.runs.stages import job_of
        from demo_pipeline.runs.task_catalog import TASKS_STAGE

        with dagster_instance(self.home) as instance, reported(instance, workspace) as reporter:
            reporter.register_uploads()
            verified, remake = self._verify() if self.verify else (set[str](), False)
            force, errors = self.force or remake, list[str]()
            if force or not _holds(tasks_unchanged, workspace):
                errors = [*self._build(reporter, job_of(TASKS_STAGE), force=force).errors]
            rebuilt = {key for key in self.ids or self.known if self.force or key in verified}
            selection = self._select(rebuilt)
            lost = set(reporter.take_unreported(self.known))
            self._process(reporter, dict.fromkeys(lost.difference(selection.todo), False), [])
            self._process(reporter, {key: key in rebuilt for key in selection.todo}, self.outcomes)
            built = self._build_datasets(reporter, force=force)
            damaged = self._damaged(built)
            self._process(reporter, dict.fromkeys(damaged, False), self.outcomes)
            if built.damage:  # with those that are whole again, and without the others
                built = self._build_datasets(reporter, force=False)
        whole = selection.up_to_date - len({*damaged}.intersection(self.ids or self.known))
        return replace(selection, up_to_date=whole), built, errors

    def _process(
        self,
        reporter: "Reporter",
        forced: Mapping[str, bool],
        outcomes: list["DemonstrationResult"],
    ) -> None:
        """Take in each outcome as it comes; an interruption ends the work that is under way.

        `forced`: demonstration → whether it is built again although nothing changed.
        """
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.runs.batch import DemonstrationTask

        tasks = [DemonstrationTask(key, force=force) for key, force in forced.items()]
        if not tasks:
            return
        with progress_bar() as progress:
            shown = progress.add_task("demonstrations", total=len(tasks))
            with closing(reporter.process(tasks, self.workers, _pause)) as running:
                for outcome in running:
                    outcomes.append(outcome)
                    progress.advance(shown)

    def _build_datasets(self, reporter: "Reporter", *, force: bool) -> "BuiltDatasets":
        """Build the datasets; without a committed trajectory this does nothing."""
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.runs.dataset_builds import BuiltDatasets
        from demo_pipeline.stage import DATASETS_JOB

        if not self._has_trajectories():
            return BuiltDatasets()
        with progress_bar() as progress:
            task = progress.add_task("datasets", total=1)
            built = self._build(reporter, DATASETS_JOB, force=force)
            progress.advance(task)
        return built

    def _build(self, reporter: "Reporter", job: str, *, force: bool) -> "BuiltDatasets":
        """Build the datasets of a job; with patience, unless a demonstration had to wait anyway."""
        waited = any(outcome.status == "waiting" for outcome in self.outcomes)
        return reporter.build(job, None if waited else _pause, force=force)

    def _verify(self) -> tuple[set[str], bool]:
        """(demonstrations to build again, whether to build the datasets again); prints the damage.

        A demonstration whose upload is gone cannot be built again.
        """
        from demo_pipeline.runs.damage import damage_problem, verify_outputs

        found = verify_outputs(self.workspace, self.ids or None)
        for damage in found.damages:
            print_error(f"damaged: {replace(damage_problem(damage), remedy='')}")
        print_line(f"{found.outputs} outputs verified, {len(found.damages)} problems")
        for key in sorted(found.demonstrations - set(self.known)):
            print_error(f"{key}: its upload is gone, so it cannot be built again")
        return set(found.demonstrations), found.datasets

    def _damaged(self, built: "BuiltDatasets") -> list[str]:
        """The demonstrations with damaged trajectories that can be built again; prints these."""
        tried = {outcome.demonstration for outcome in self.outcomes}
        ids = {one.demonstration for one in built.damage}.intersection(self.known) - tried
        for problem in built.damage:
            if problem.demonstration in ids:
                print_error(f"damaged: {replace(problem, remedy='')}")
        return sorted(ids)

    def _lacking(self, built: "BuiltDatasets") -> Iterator[str]:
        """Yield which damaged trajectories the datasets lack, and what to do."""
        url = self.workspace.uploads.url
        gone = f"its upload is gone: put it back into {url}, then run again"
        for problem in built.damage:
            present = problem.demonstration in self.known
            yield str(problem if present else replace(problem, remedy=gone))


def _reason_words(reasons: Sequence[tuple[str, str]]) -> str:
    stages: dict[str, list[str]] = {}
    for stage, reason in reasons:
        stages.setdefault(reason, []).append(stage)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in stages.items())


def _pause(reason: str, seconds: float) -> None:
    print_error(f"waiting: {reason}; trying again in {seconds:.0f} s")
    time.sleep(seconds)
