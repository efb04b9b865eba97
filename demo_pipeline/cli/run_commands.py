"""The commands `demo-pipeline register` and `demo-pipeline run`.

Belongs here: which demonstrations a run processes, its steps, and its exit code; finding out,
without Dagster, that there is nothing to do.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    INTERRUPTED,
    INVALID,
    CommandInterrupt,
    dagster_instance,
    ignore_interrupts,
    open_workspace,
    print_refused,
    refuse,
    set_dagster_home,
)
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.files.shown_text import counted

if TYPE_CHECKING:
    from demo_pipeline.runs.local_runs import LocalRuns
    from demo_pipeline.runs.results import DatasetOutcome, DemonstrationResult
    from demo_pipeline.runs.workspace import Workspace

_LOG = logging.getLogger(__package__)
_VERIFY = "First compare the hash of every committed file, and build damaged outputs again."
_LOG = logging.getLogger(__package__)
_RECORD = "Process what is up to date, too, so that Dagster has a record of it: for a new home."
_NAMED = 5  # demonstrations of a line of `--dry-run`


@dataclass
class _Selection:
    """The ids that a run processes, those still in quarantine, and how many are up to date."""

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


def register() -> None:
    """Register every recording in the uploads root as a Dagster partition.

    Required once before `dagster asset materialize --partition ID`; `run` does it itself.
    """
    workspace = open_workspace()
    print_refused(workspace)
    ids = _listed(workspace)
    from demo_pipeline.defs.partitions import register_partitions

    with dagster_instance(set_dagster_home()) as instance:
        new = register_partitions(instance, ids)
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
    record: Annotated[bool, typer.Option("--record", help=_RECORD)] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Build nothing: show what would be built and why.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: as `execution.workers`.")] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    A quarantined demonstration is skipped until its upload changes, unless it is named here or
    `--retry` is given.
    """
    workspace = open_workspace()
    workers = workers or workspace.settings.execution.workers
    one = _Run(workspace, set_dagster_home(), ids or (), force, retry, verify, record, workers)
    try:
        one.find_uploads()
        if dry_run:
            one.show_plan()
        else:
            one.run(strict=strict)
    except (CommandInterrupt, KeyboardInterrupt):
        ignore_interrupts()
        count = sum(result.status.is_done for result in one.results)
        print_error(
            f"interrupted: {count} demonstrations were done in this run and are kept; "
            "the next `demo-pipeline run` goes on with the others"
        )
        raise typer.Exit(INTERRUPTED) from None


def _listed(workspace: "Workspace") -> list[str]:
    """The ids in the uploads."""
    return [upload.id for upload in workspace.uploads.list_demonstrations()]


@dataclass
class _Run:
    """What a person asked `run` for, as its options say, and what was done so far."""

    workspace: "Workspace"
    home: Path
    ids: Sequence[str]
    force: bool
    retry: bool
    verify: bool
    record: bool
    workers: int
    known: Sequence[str] = ()
    imported: Sequence[str] = ()
    refused: bool = False
    results: list["DemonstrationResult"] = field(default_factory=list)
    datasets: list["DatasetOutcome"] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def find_uploads(self) -> None:
        """List the uploads; it is a usage error to name others."""
        from demo_pipeline.runs.imported_trajectories import imported_ids

        self.refused = print_refused(self.workspace)
        self.known = _listed(self.workspace)
        self.imported = imported_ids(self.workspace, {*self.known})
        if unknown := {*self.ids}.difference(self.known, self.imported):
            refuse(f"no recording {', '.join(sorted(unknown))} in {self.workspace.uploads.url}")

    def run(self, *, strict: bool) -> None:
        """Do it, and print what was done."""
        from demo_pipeline.cli.tables import report_run

        start = time.monotonic()
        selection = self._idle() or self._work()
        if not (selection.todo or selection.quarantined or selection.up_to_date):
            print_line(
                f"no recording in {self.workspace.settings.uploads}: copy a folder with "
                f"{', '.join(RECORDING_FILES)} there; `make demo` copies the samples"
            )
        if not self._has_trajectories():
            print_line("no trajectory is committed yet: no dataset to build")
        seconds = time.monotonic() - start
        report_run(self.results, selection.up_to_date, self.datasets, seconds)
        if count := len(selection.quarantined):
            print_line(
                f"{count} more still quarantined: `demo-pipeline quarantine` shows the reasons"
            )
        for line in self.errors:
            print_error(f"datasets: {line}")
        statuses = {result.status for result in self.results}
        incomplete = self.refused or count or "rejected" in statuses
        if "failed" in statuses or self.errors or (strict and incomplete):
            raise typer.Exit(INVALID)

    def show_plan(self) -> None:
        """Print what would be done."""
        from demo_pipeline.runs.damage import damaged_demonstrations
        from demo_pipeline.runs.plan import plan

        damaged = damaged_demonstrations(self.workspace)
        selection = self._select(self._chosen() if self.force else damaged)
        todo = dict.fromkeys(selection.todo, "--force" if self.force else "")
        if not self.force:
            todo |= dict.fromkeys(damaged.intersection(todo), "a file was damaged")
        found = plan(self.workspace, todo, force=self.force)
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

    def _select(self, wanted: Collection[str]) -> _Selection:
        """Choose among all uploads; `wanted` are processed though nothing changed."""
        from demo_pipeline.runs.demonstration_outputs import is_refused, is_up_to_date

        workspace, chosen = self.workspace, self._chosen()
        stale = [k for k in chosen if k in wanted or not _holds(is_up_to_date, workspace, k)]
        for key in sorted(set(chosen) - set(stale)):
            _LOG.info("%s: every output is unchanged", key)
        todo, quarantined = list[str](), list[str]()
        for key in stale:
            skipped = not (self.retry or self.ids or key in wanted)
            skipped = skipped and _holds(is_refused, workspace, key)
            (quarantined if skipped else todo).append(key)
        return _Selection(todo, quarantined, len(chosen) - len(stale))

    def _chosen(self) -> list[str]:
        """Those that were named, or all uploads and imported trajectories."""
        return list(dict.fromkeys(self.ids or [*self.known, *self.imported]))

    def _has_trajectories(self) -> bool:
        from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

        return bool(self.workspace.store.outputs(TRAJECTORIES_STAGE.folder))

    def _idle(self) -> _Selection | None:
        """What there is when nothing would be built; None when the work has to say or do it.

        It imports no Dagster, which takes a second.
        """
        from demo_pipeline.runs.damage import damaged_demonstrations
        from demo_pipeline.runs.plan import tasks_unchanged, unchanged_datasets
        from demo_pipeline.runs.run_locks import dead_runs, lock_folder

        if self.force or self.verify or self.record or dead_runs(lock_folder(self.home)):
            return None
        if not _holds(tasks_unchanged, self.workspace):
            return None
        selection = self._select(damaged_demonstrations(self.workspace))
        if selection.todo:
            return None
        found: list[DatasetOutcome] = []

        def datasets_are_unchanged(workspace: "Workspace") -> bool:
            found.extend(outcomes := unchanged_datasets(workspace) or ())
            return bool(outcomes) or not self._has_trajectories()

        if not _holds(datasets_are_unchanged, self.workspace):
            return None
        self.datasets = found
        return selection

    def _work(self) -> _Selection:
        """Build what has to be built, each demonstration by a run of Dagster."""
        from demo_pipeline.runs.failures import InstanceError
        from demo_pipeline.runs.health import HealthLevel, clear_leftovers, store_finding

        if (finding := store_finding(self.workspace)).level is HealthLevel.ERROR:
            refuse(f"the store {finding.message}")
        from demo_pipeline.runs.damage import damaged_demonstrations
        from demo_pipeline.runs.local_runs import LocalRuns
        from demo_pipeline.runs.plan import tasks_unchanged
        from demo_pipeline.stage import TASKS_JOB

        with closing(LocalRuns(self.workspace, self.home, self.workers, "demo-pipeline")) as runs:
            clear_leftovers(self.workspace)
            try:
                again = runs.prepare(self.known).intersection(self._chosen())
            except InstanceError as error:
                refuse(str(error))
            damaged, remake = damaged_demonstrations(self.workspace), False
            if self.verify:
                damaged, remake = self._verify()
            force = self.force or remake
            if force or not _holds(tasks_unchanged, self.workspace):
                self._build_datasets(runs, TASKS_JOB, force=force)
            forced = damaged | {*self._chosen()} if self.force else damaged
            everything = {*self._chosen()} if self.record else set[str]()
            selection = self._select(forced | again | everything)
            rest = [key for key in selection.todo if key not in forced]
            self._process(runs, [k for k in selection.todo if k in forced], force=True)
            self._process(runs, rest, force=False)
            if self._has_trajectories():
                self._build_datasets(runs, force=force)
        return selection

    def _process(self, runs: "LocalRuns", ids: Sequence[str], *, force: bool) -> None:
        """Take in each result as it comes; an interruption ends the work that is under way."""
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.runs.imported_trajectories import renew_trajectory

        if not ids:
            return
        with progress_bar() as progress:
            shown = progress.add_task("demonstrations", total=len(ids))
            for key in (key for key in ids if key in self.imported):  # without a partition
                self.results.append(renew_trajectory(self.workspace, key, force=force))
                progress.advance(shown)
            if not (rest := [key for key in ids if key not in self.imported]):
                return
            with closing(runs.process(rest, force=force)) as running:
                for result in running:
                    self.results.append(result)
                    progress.advance(shown)

    def _build_datasets(self, runs: "LocalRuns", job: str = "", *, force: bool) -> None:
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.stage import DATASETS_JOB

        with progress_bar() as progress:
            task = progress.add_task(job or "datasets", total=1)
            built = runs.build_datasets(job or DATASETS_JOB, force=force)
            progress.advance(task)
        self.datasets += built.outcomes
        self.errors += built.errors

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
        return set(found.demonstrations).intersection(self.known), found.datasets


def _holds(question: Callable[..., bool], workspace: "Workspace", *about: str) -> bool:
    """The answer to a question; no when roots or files cannot be read, as the run reports why."""
    try:
        return question(workspace, *about)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run reports it
        _LOG.debug("%s: left to the run (%s)", question.__name__, type(error).__name__)
        return False


def _reason_words(reasons: Sequence[tuple[str, str]]) -> str:
    stages: dict[str, list[str]] = {}
    for stage, reason in reasons:
        stages.setdefault(reason, []).append(stage)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in stages.items())
