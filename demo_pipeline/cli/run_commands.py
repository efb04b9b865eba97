"""The commands `demo-pipeline register` and `demo-pipeline run`.

`run` imports Dagster, which takes a second, only if something has to be built.
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
    print_ignored_uploads,
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
_IDS_PER_LINE = 5  # maximum number of ids in a line of `--dry-run`
_FORCE = "Also build outputs again that are up to date."
_RETRY = "Also process quarantined demonstrations again."
_STRICT = (
    "Exit with 1 if a demonstration is quarantined, ignored, or left out of a dataset as damaged."
)
_VERIFY = "First compare every stored file with its hash, and build damaged outputs again."
_RECORD = "Also run demonstrations that are up to date, so that a new Dagster home records them."
_DRY_RUN = "Build nothing; show which outputs would be built, and why."


@dataclass
class _Selection:
    """The chosen demonstrations, divided by what the command `run` does with them.

    Attributes:
        todo: ids to process.
        quarantined: ids that stay quarantined.
        up_to_date: number of demonstrations whose outputs are all up to date.
    """

    todo: list[str]
    quarantined: list[str]
    up_to_date: int


def register() -> None:
    """Register every recording in the uploads as a Dagster partition.

    `dagster asset materialize --partition ID` needs a registered partition. `demo-pipeline run`
    registers recordings itself.
    """
    workspace = open_workspace()
    print_ignored_uploads(workspace)
    ids = _uploaded_ids(workspace)
    from demo_pipeline.defs.partitions import register_partitions

    with dagster_instance(set_dagster_home()) as instance:
        new_ids = register_partitions(instance, ids)
    for demonstration in new_ids:
        print_line(f"registered {demonstration}")
    total = counted(len(ids), "demonstrations")
    print_line(f"{total} in {workspace.uploads.url}, {len(new_ids)} newly registered")


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Process only these demonstrations. [default: all new or changed]"),
    ] = None,
    *,
    force: Annotated[bool, typer.Option(help=_FORCE)] = False,
    retry: Annotated[bool, typer.Option(help=_RETRY)] = False,
    strict: Annotated[bool, typer.Option(help=_STRICT)] = False,
    verify: Annotated[bool, typer.Option(help=_VERIFY)] = False,
    record: Annotated[bool, typer.Option("--record", help=_RECORD)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False,
    workers: Annotated[
        int, typer.Option(min=0, help="Worker processes. 0 uses the setting `execution.workers`.")
    ] = 0,
) -> None:
    """Process every new or changed demonstration, then build the datasets.

    A quarantined demonstration is skipped until its upload or the version of this package changes.
    To process it again at once, give its id, or `--retry` for all quarantined demonstrations.
    """
    workspace = open_workspace()
    command = _Run(
        workspace,
        set_dagster_home(),
        ids or (),
        force=force,
        retry=retry,
        verify=verify,
        record=record,
        workers=workers or workspace.settings.execution.workers,
    )
    try:
        command.find_uploads()
        if dry_run:
            command.show_plan()
        else:
            command.run(strict=strict)
    except (CommandInterrupt, KeyboardInterrupt):
        ignore_interrupts()
        done = sum(result.status.is_done for result in command.results)
        print_error(
            f"interrupted: {done} demonstrations were done in this run and are kept; "
            "the next `demo-pipeline run` continues with the others"
        )
        raise typer.Exit(INTERRUPTED) from None


def _uploaded_ids(workspace: "Workspace") -> list[str]:
    return [upload.id for upload in workspace.uploads.list_demonstrations()]


@dataclass
class _Run:
    """The options and the results of one call of the command `run`.

    Attributes:
        home: Dagster's home.
        ids: the ids on the command line. Empty means all demonstrations.
        uploaded: ids of the uploads.
        imported: ids of imported trajectories, which have no upload.
        has_misnamed: whether folders in the uploads are ignored, because their names cannot be
            ids.
        errors: sentences about datasets that could not be built.
    """

    workspace: "Workspace"
    home: Path
    ids: Sequence[str]
    force: bool
    retry: bool
    verify: bool
    record: bool
    workers: int
    uploaded: Sequence[str] = ()
    imported: Sequence[str] = ()
    has_misnamed: bool = False
    results: list["DemonstrationResult"] = field(default_factory=list)
    datasets: list["DatasetOutcome"] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def find_uploads(self) -> None:
        """Lists the uploads and the imported trajectories. Ends the command if an id is unknown."""
        from demo_pipeline.runs.imported_trajectories import imported_ids

        self.has_misnamed = print_ignored_uploads(self.workspace)
        self.uploaded = _uploaded_ids(self.workspace)
        self.imported = imported_ids(self.workspace, {*self.uploaded})
        unknown = {*self.ids}.difference(self.uploaded, self.imported)
        if unknown:
            refuse(f"no recording {', '.join(sorted(unknown))} in {self.workspace.uploads.url}")

    def run(self, *, strict: bool) -> None:
        """Builds everything that is not up to date, and prints the results.

        Ends the command with exit code 1 if something failed. With `strict`, quarantined
        demonstrations, ignored uploads and damaged demonstrations also count as failures.
        """
        from demo_pipeline.cli.tables import report_run

        start = time.monotonic()
        selection = self._selection_without_work() or self._build()
        if not (selection.todo or selection.quarantined or selection.up_to_date):
            print_line(
                f"no recording in {self.workspace.settings.uploads}: copy a folder with "
                f"{', '.join(RECORDING_FILES)} there; `make demo` copies the samples"
            )
        if not self._has_trajectories():
            print_line("no trajectory is committed yet: no dataset to build")
        seconds = time.monotonic() - start
        report_run(self.results, selection.up_to_date, self.datasets, seconds)
        still_quarantined = len(selection.quarantined)
        if still_quarantined:
            print_line(
                f"{still_quarantined} more still quarantined: `demo-pipeline quarantine` shows "
                "the reasons"
            )
        for error in self.errors:
            print_error(f"datasets: {error}")
        statuses = {result.status for result in self.results}
        damaged = any(dataset.damaged for dataset in self.datasets)
        incomplete = self.has_misnamed or still_quarantined or damaged or "rejected" in statuses
        if "failed" in statuses or self.errors or (strict and incomplete):
            raise typer.Exit(INVALID)

    def show_plan(self) -> None:
        """Prints which outputs would be built, and why."""
        from demo_pipeline.runs.plan import plan

        selection = self._select(self._chosen() if self.force else ())
        todo = dict.fromkeys(selection.todo, "--force" if self.force else "")
        planned = plan(self.workspace, todo, force=self.force)
        ids_by_reason: dict[str, list[str]] = {}
        for demonstration, reasons in planned.demonstrations.items():
            ids_by_reason.setdefault(_reason_words(reasons), []).append(demonstration)
        for words, ids in ids_by_reason.items():
            hidden = len(ids) - _IDS_PER_LINE
            more = f" and {hidden} more" if hidden > 0 else ""
            print_line(f"{', '.join(ids[:_IDS_PER_LINE])}{more}: {words}")
        if planned.datasets:
            print_line(f"datasets: {_reason_words(planned.datasets)}")
        print_line(
            f"to build: {counted(len(selection.todo), 'demonstrations')}, "
            f"{counted(len(planned.datasets), 'datasets')}; "
            f"{len(selection.quarantined)} stay quarantined, {selection.up_to_date} are up to date"
        )

    def _select(self, forced: Collection[str]) -> _Selection:
        """Decides which of the chosen demonstrations to process.

        Demonstrations in `forced` are always processed.
        """
        from demo_pipeline.runs.demonstration_outputs import is_refused, is_up_to_date
        from demo_pipeline.runs.graph import Graph

        graph = Graph(self.workspace)
        chosen = self._chosen()
        todo = list[str]()
        quarantined = list[str]()
        for demonstration in chosen:
            if demonstration in forced:
                todo.append(demonstration)
            elif _holds(is_up_to_date, graph, demonstration):
                _LOG.info("%s: every output is unchanged", demonstration)
            elif self.retry or self.ids:
                todo.append(demonstration)
            elif _holds(is_refused, graph, demonstration):
                quarantined.append(demonstration)
            else:
                todo.append(demonstration)
        return _Selection(todo, quarantined, len(chosen) - len(todo) - len(quarantined))

    def _chosen(self) -> list[str]:
        """Returns the ids on the command line, or all uploads and imported trajectories."""
        return list(dict.fromkeys(self.ids or [*self.uploaded, *self.imported]))

    def _has_trajectories(self) -> bool:
        from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

        return bool(self.workspace.store.outputs(TRAJECTORIES_STAGE.folder))

    def _selection_without_work(self) -> _Selection | None:
        """Returns the selection if nothing has to be built, else None. Does not import Dagster."""
        from demo_pipeline.runs.plan import tasks_unchanged, unchanged_datasets
        from demo_pipeline.runs.run_locks import dead_runs, lock_folder

        if self.force or self.verify or self.record or dead_runs(lock_folder(self.home)):
            return None
        if not _holds(tasks_unchanged, self.workspace):
            return None
        selection = self._select(())
        if selection.todo:
            return None
        datasets: list[DatasetOutcome] = []

        def datasets_are_unchanged(workspace: "Workspace") -> bool:
            datasets.extend(unchanged_datasets(workspace) or ())
            return bool(datasets) or not self._has_trajectories()

        if not _holds(datasets_are_unchanged, self.workspace):
            return None
        self.datasets = datasets
        return selection

    def _build(self) -> _Selection:
        """Builds everything that is not up to date, each demonstration in its own Dagster run.

        Damaged and forced demonstrations come first, and are always rebuilt.
        """
        from demo_pipeline.runs.failures import InstanceError
        from demo_pipeline.runs.health import HealthLevel, clear_leftovers, store_finding

        finding = store_finding(self.workspace)
        if finding.level is HealthLevel.ERROR:
            refuse(f"the store {finding.message}")
        from demo_pipeline.runs.local_runs import LocalRuns
        from demo_pipeline.runs.plan import tasks_unchanged
        from demo_pipeline.stage import TASKS_JOB

        with closing(LocalRuns(self.workspace, self.home, self.workers, "demo-pipeline")) as runs:
            clear_leftovers(self.workspace)
            try:
                killed = runs.prepare(self.uploaded).intersection(self._chosen())
            except InstanceError as error:
                refuse(str(error))
            damaged = set[str]()
            datasets_are_damaged = False
            if self.verify:
                damaged, datasets_are_damaged = self._verify()
            force_datasets = self.force or datasets_are_damaged
            if force_datasets or not _holds(tasks_unchanged, self.workspace):
                self._build_datasets(runs, "OSWorld tasks", TASKS_JOB, force=force_datasets)
            rebuilt = damaged | {*self._chosen()} if self.force else damaged
            recorded = {*self._chosen()} if self.record else set[str]()
            selection = self._select(rebuilt | killed | recorded)
            first = [key for key in selection.todo if key in rebuilt]
            others = [key for key in selection.todo if key not in rebuilt]
            self._process(runs, first, force=True)
            self._process(runs, others, force=False)
            if self._has_trajectories():
                self._build_datasets(runs, force=force_datasets)
        return selection

    def _process(self, runs: "LocalRuns", ids: Sequence[str], *, force: bool) -> None:
        """Processes demonstrations, collects their results, and shows a progress bar.

        An exception, such as Ctrl-C, ends the worker processes.
        """
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.runs.imported_trajectories import renew_trajectory

        if not ids:
            return
        waiting = dict.fromkeys(ids)
        uploaded = [key for key in ids if key not in self.imported]

        def in_progress() -> list[str]:
            # The workers take the demonstrations in this order, so the first ones are in progress.
            return [*waiting][: self.workers]

        with progress_bar(in_progress) as progress:
            task = progress.add_task("demonstrations", total=len(ids))

            def keep(result: "DemonstrationResult") -> None:
                self.results.append(result)
                waiting.pop(result.demonstration, None)
                progress.advance(task)

            for key in ids:
                if key in self.imported:  # built without Dagster, because there is no partition
                    keep(renew_trajectory(self.workspace, key, force=force))
            if uploaded:
                with closing(runs.process(uploaded, force=force)) as results:
                    for result in results:
                        keep(result)

    def _build_datasets(
        self, runs: "LocalRuns", title: str = "datasets", job: str = "", *, force: bool
    ) -> None:
        """Builds datasets with a job of Dagster, by default all datasets.

        Args:
            job: name of the job. Empty means the job that builds all datasets.
            force: whether to rebuild outputs that are up to date.
        """
        from demo_pipeline.cli.tables import progress_bar
        from demo_pipeline.stage import DATASETS_JOB

        with progress_bar() as progress:
            task = progress.add_task(title, total=1)
            built = runs.build_datasets(job or DATASETS_JOB, force=force)
            progress.advance(task)
        self.datasets += built.outcomes
        self.errors += built.errors

    def _verify(self) -> tuple[set[str], bool]:
        """Compares every committed file with its hash, and prints damaged files.

        Returns:
            The ids of damaged demonstrations that can be built again because their upload still
            exists, and whether a dataset is damaged.
        """
        from demo_pipeline.runs.damage import damage_problem, verify_outputs

        verified = verify_outputs(self.workspace, self.ids or None)
        for damage in verified.damages:
            print_error(f"damaged: {replace(damage_problem(damage), remedy='')}")
        print_line(f"{verified.outputs} outputs verified, {len(verified.damages)} problems")
        for key in sorted(verified.demonstrations - set(self.uploaded)):
            print_error(f"{key}: its upload is gone, so it cannot be built again")
        return set(self.uploaded) & verified.demonstrations, verified.datasets


def _holds(question: Callable[..., bool], *arguments: object) -> bool:
    """Returns the result of `question`, a function that checks whether a build can be skipped.

    Returns False after an error, so that the build runs and reports which file cannot be read. An
    error that shows a defect of the pipeline is printed here, because the build does not always
    raise it again.
    """
    from demo_pipeline.runs.failures import is_defect, warning_words

    try:
        return question(*arguments)
    except Exception as error:  # noqa: BLE001 - any error; see the docstring
        if is_defect(error):
            print_error(f"{question.__name__}: {warning_words(error)}")
        else:
            _LOG.debug("%s: left to the run (%s)", question.__name__, type(error).__name__)
        return False


def _reason_words(reasons: Sequence[tuple[str, str]]) -> str:
    """Formats pairs (stage, reason) as `stage, stage (reason); stage (reason)`."""
    stages: dict[str, list[str]] = {}
    for stage, reason in reasons:
        stages.setdefault(reason, []).append(stage)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in stages.items())
