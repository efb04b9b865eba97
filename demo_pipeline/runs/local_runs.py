"""Runs that worker processes of this machine execute, for a command or for many uploads.

Hands tasks to the workers, and reads the result of a demonstration from the store. Only the workers
import Dagster, which takes a second.
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
        kind: register demonstrations and close the runs of killed processes; run the stages of one;
            run a job of datasets; close the runs of this command's workers, which were ended.
        names: ids of demonstrations, or the job.
        force: build what is up to date, too.
        is_alone: no other task runs meanwhile, and a processor is free.
    """

    kind: Literal["prepare", "demonstration", "datasets", "cancel"]
    names: tuple[str, ...] = ()
    force: bool = False
    is_alone: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a step of a run failed, with the sentence that people read."""

    step: str
    why: str
    sentence: str


@dataclass(frozen=True)
class WorkerAnswer:
    """The answer of a worker to a task.

    Attributes:
        again: demonstrations whose runs had died.
        failures: failures of the steps of a run; empty if it succeeded.
        built: dataset → its location, in the order in which the datasets were built.
    """

    again: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    built: Mapping[str, str] = field(default_factory=dict)


_KILLED = WorkerAnswer(failures=(Failure("", DEFECT, KILLED),))


@dataclass(frozen=True)
class BuiltDatasets:
    """The result of a job of datasets: each built dataset, and why others failed."""

    outcomes: list[DatasetOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class LocalRuns:
    """The workers of a command. `close` ends them, and then none of their runs is open."""

    def __init__(self, workspace: Workspace, home: Path, workers: int, command: str) -> None:
        begin = "demo_pipeline.defs.worker:begin"
        arguments = (workspace.settings, home, command, shown_level(), VainWaits())
        self._workspace, self._locks = workspace, lock_folder(home)
        self._pool = Pool[WorkerTask, WorkerAnswer](begin, arguments, workers)

    def close(self) -> None:
        """Ends the workers, and close the runs that they had begun."""
        self._pool.end()
        if dead_runs(self._locks):
            with best_effort(_LOG, "closing the runs of ended processes"):
                self._pool.ask(WorkerTask("cancel"))
        self._pool.close()

    def prepare(self, ids: Sequence[str]) -> set[str]:
        """Registers demonstrations; returns those whose runs were killed.

        Raises:
            InstanceError: Dagster cannot record runs.
            DefectError: they cannot be registered.
        """
        answer = self._pool.ask(WorkerTask("prepare", tuple(ids)))
        for failure in answer.failures:
            raise DefectError(failure.sentence)
        return {*answer.again}

    def process(self, ids: Sequence[str], *, force: bool = False) -> Generator[DemonstrationResult]:
        """Takes each demonstration through its stages in a run of its own; yield each result.

        If the process of a run dies, the demonstration is processed again; after the third death it
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
        """Returns the result of a demonstration, from the store, or from its run if it failed."""
        for failure in answer.failures:
            problem = Problem("run_failed", ".", failure.sentence, demonstration=key)
            problems: tuple[Problem, ...] = (problem,)
            record = None
            if failure.why == REFUSED:
                record = read_quarantine(self._workspace.store, key)
            if record is None:  # also refused because of a damaged input, which is no fault of it
                return DemonstrationResult(key, Status.FAILED, {}, failure.step, problems)
            problems = tuple(record.known_problems())
            return DemonstrationResult(key, Status.REJECTED, {}, failure.step, problems)
        return DemonstrationResult(key, Status.BUILT, trajectory_summary(self._workspace, key))

    def build_datasets(self, job: str = DATASETS_JOB, *, force: bool = False) -> BuiltDatasets:
        """Runs a job of datasets."""
        answer = self._pool.ask(WorkerTask("datasets", (job,), force))
        store = self._workspace.store
        outcomes = [
            dataset_outcome(store, stage, answer.built[stage.name].removeprefix(f"{store.url}/"))
            for stage in built_stages(self._workspace.settings)
            if stage.name in answer.built and stage.counts
        ]
        errors = [f"{failure.step or job}: {failure.sentence}" for failure in answer.failures]
        return BuiltDatasets(outcomes, errors)


def trajectory_summary(workspace: Workspace, key: str) -> Mapping[str, Any]:
    """Returns the summary of a trajectory, with its `recorded_outcome`; empty without one."""
    recording = workspace.store.current(f"recordings/{key}")
    trajectory = workspace.store.current(f"trajectories/{key}")
    if recording is None or trajectory is None:
        return {}
    summary = trajectory.manifest.summary
    status = recording.manifest.summary.get("status")
    outcome = recorded_outcome(status, success=bool(summary.get("success")))
    return {**summary, "outcome": outcome}
