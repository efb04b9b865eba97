"""Executes Dagster runs in worker processes on this machine.

Only the workers import Dagster, because the import takes a second.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from demo_pipeline.files.logs import shown_level
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import DefectError, best_effort
from demo_pipeline.runs.plan import dataset_outcome
from demo_pipeline.runs.pool import Pool
from demo_pipeline.runs.quarantine import read_quarantine, record_crash
from demo_pipeline.runs.results import DEFECT, REFUSED, DatasetOutcome, DemonstrationResult, Status
from demo_pipeline.runs.run_locks import KILLED, dead_runs, lock_folder
from demo_pipeline.runs.stages import STAGES, built_stages
from demo_pipeline.runs.vain_waits import VainWaits
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.trajectories.provenance import recorded_outcome

_LOG = logging.getLogger(__package__)


@dataclass(frozen=True)
class WorkerTask:
    """A task for a worker.

    Attributes:
        kind: `prepare` registers partitions and closes the runs of killed processes.
            `demonstration` runs the stages of a demonstration. `datasets` runs a job that builds
            datasets. `cancel` closes the runs whose workers this command has ended.
        names: the ids of demonstrations, or the name of the job.
        force: whether outputs that are up to date are built again.
        is_alone: whether this is the only task, so that it may use a second processor.
    """

    kind: Literal["prepare", "demonstration", "datasets", "cancel"]
    names: tuple[str, ...] = ()
    force: bool = False
    is_alone: bool = False


@dataclass(frozen=True)
class Failure:
    """The failure of a step of a run.

    Attributes:
        step: the name of the step; empty if the run failed outside of a step.
        why: `REFUSED`, `TRANSIENT` or `DEFECT` of results.py.
        sentence: the message that is shown to people.
    """

    step: str
    why: str
    sentence: str


@dataclass(frozen=True)
class WorkerAnswer:
    """The answer of a worker to a task.

    Attributes:
        again: the demonstrations to process again, because their runs died.
        failures: the failures of the steps of the run; empty if the run succeeded.
        built: maps the stage of each built dataset to the dataset's location, in build order.
    """

    again: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    built: Mapping[str, str] = field(default_factory=dict)


_KILLED = WorkerAnswer(failures=(Failure("", DEFECT, KILLED),))


@dataclass(frozen=True)
class BuiltDatasets:
    """The result of a job that builds datasets.

    Attributes:
        outcomes: the datasets that were built or are up to date.
        errors: a sentence for each dataset that failed.
    """

    outcomes: list[DatasetOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class LocalRuns:
    """The worker processes of a command, and the runs that they execute.

    Args:
        home: the folder DAGSTER_HOME.
        workers: the largest number of processes at once.
        command: the name of the command; Dagster's UI shows it as the user of the runs.
    """

    def __init__(self, workspace: Workspace, home: Path, workers: int, command: str) -> None:
        begin = "demo_pipeline.defs.worker:begin"
        arguments = (workspace.settings, home, command, shown_level(), VainWaits())
        self._workspace = workspace
        self._locks = lock_folder(home)
        self._pool = Pool[WorkerTask, WorkerAnswer](begin, arguments, workers)

    def close(self) -> None:
        """Ends the workers, and closes the runs that they had begun."""
        self._pool.end()
        if dead_runs(self._locks):
            with best_effort(_LOG, "closing the runs of ended processes"):
                self._pool.ask(WorkerTask("cancel"))
        self._pool.close()

    def prepare(self, ids: Sequence[str]) -> set[str]:
        """Registers demonstrations as partitions, and closes runs whose processes were killed.

        Returns the demonstrations of the closed runs.

        Raises:
            InstanceError: Dagster cannot record runs.
            DefectError: the demonstrations cannot be registered.
        """
        answer = self._pool.ask(WorkerTask("prepare", tuple(ids)))
        for failure in answer.failures:
            raise DefectError(failure.sentence)
        return {*answer.again}

    def process(self, ids: Sequence[str], *, force: bool = False) -> Generator[DemonstrationResult]:
        """Processes each demonstration in its own run, and yields the results as they arrive.

        If the process of a run dies, the demonstration is processed again. After the third death it
        is quarantined.
        """
        is_alone = len(ids) == 1 < self._pool.workers
        tasks = [WorkerTask("demonstration", (key,), force, is_alone) for key in ids]
        with closing(self._pool.process(tasks)) as running:
            for task, answer in running:
                (key,) = task.names
                if answer is None:
                    with best_effort(_LOG, "noting a crash in the quarantine"):
                        record_crash(self._workspace, key, STAGES[0].name, KILLED)
                yield self._result(key, answer or _KILLED)

    def _result(self, key: str, answer: WorkerAnswer) -> DemonstrationResult:
        """Returns the result of a demonstration from the answer of its worker.

        Reads the summary of a success, or the problems of a rejection, from the store.
        """
        for failure in answer.failures:
            problem = Problem("run_failed", ".", failure.sentence, demonstration=key)
            problems: tuple[Problem, ...] = (problem,)
            record = None
            if failure.why == REFUSED:
                record = read_quarantine(self._workspace.store, key)
            if record is None:  # a defect, a transient error or a damaged input
                return DemonstrationResult(key, Status.FAILED, {}, failure.step, problems)
            problems = tuple(record.known_problems())
            return DemonstrationResult(key, Status.REJECTED, {}, failure.step, problems)
        return DemonstrationResult(key, Status.BUILT, trajectory_summary(self._workspace, key))

    def build_datasets(self, job: str = DATASETS_JOB, *, force: bool = False) -> BuiltDatasets:
        """Runs a job that builds datasets, in a single run."""
        answer = self._pool.ask(WorkerTask("datasets", (job,), force))
        store = self._workspace.store
        outcomes = []
        for stage in built_stages(self._workspace.settings):
            if stage.name in answer.built and stage.counts:
                output = answer.built[stage.name].removeprefix(f"{store.url}/")
                outcomes.append(dataset_outcome(store, stage, output))
        errors = [f"{failure.step or job}: {failure.sentence}" for failure in answer.failures]
        return BuiltDatasets(outcomes, errors)


def trajectory_summary(workspace: Workspace, key: str) -> Mapping[str, Any]:
    """Returns the summary of a trajectory, plus the recorded outcome as `outcome`.

    Returns an empty mapping if the demonstration has no trajectory.
    """
    recording = workspace.store.current(f"recordings/{key}")
    trajectory = workspace.store.current(f"trajectories/{key}")
    if recording is None or trajectory is None:
        return {}
    summary = trajectory.manifest.summary
    status = recording.manifest.summary.get("status")
    outcome = recorded_outcome(status, success=bool(summary.get("success")))
    return {**summary, "outcome": outcome}
