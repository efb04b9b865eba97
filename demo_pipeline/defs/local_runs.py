"""Runs that processes of this machine execute themselves: for a command, and for many uploads.

Belongs here: one in-process run for each demonstration, in the workers of a pool; closing the runs
of processes that were killed; and what became of a demonstration, as the store has it.
"""

import logging
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.dataset_assets import build_dataset_assets, dataset_jobs
from demo_pipeline.defs.demonstrations import DEMONSTRATION_ASSETS, process_demonstration
from demo_pipeline.defs.partitions import FORCE_TAG
from demo_pipeline.defs.resources import Roots
from demo_pipeline.files.logs import show_log, shown_level
from demo_pipeline.files.processes import save_memory, spare_existing_objects
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.observation.frames.video_reader import HAS_SPARE_PROCESSOR
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import DefectError, redacted_errors
from demo_pipeline.runs.plan import dataset_outcome
from demo_pipeline.runs.pool import Pool
from demo_pipeline.runs.quarantine import read_quarantine, record_crash
from demo_pipeline.runs.results import DatasetOutcome, DemonstrationResult, Status
from demo_pipeline.runs.run_locks import dead_runs, forget_run, held, lock_folder
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, DEMONSTRATION_JOB
from demo_pipeline.trajectories.provenance import recorded_outcome

KILLED = "its process ended without an error: killed, or out of memory"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
# With these a run stands on the job's page, is never tried again by the daemon, and ends some time.
_TAGS = {
    ".dagster/repository": "__repository__@demo_pipeline",  # the location's name in workspace.yaml
    "dagster/max_retries": "0",
    "dagster/max_runtime": "86400",
}
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True)
class _Ended:
    """How a run ended: why it failed, in which step, with which sentence; empty: it did not."""

    why: str = ""
    step: str = ""
    sentence: str = ""

    @classmethod
    def of(cls, result: dg.ExecuteInProcessResult) -> "_Ended":
        """The first failure of a run; a run that failed otherwise is a defect."""
        for step, why, sentence in _failures(result):
            return cls(why, step, sentence)
        return cls() if result.success else cls(reporting.DEFECT, "", "the run failed")


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str, str]]:
    """Yield step, why and sentence of each step that failed."""
    for event in result.get_step_failure_events():
        data = event.step_failure_data
        said, error = data.user_failure_data, data.error
        if said is None:
            yield event.step_key or "", reporting.DEFECT, error.cls_name or "" if error else ""
            continue
        why = said.metadata.get(reporting.WHY)
        yield event.step_key or "", str(why.value) if why else "", said.description or ""


def process(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    ids: Sequence[str],
    workers: int,
    *,
    command: str,
    force: bool = False,
) -> Generator[DemonstrationResult]:
    """Yield what became of each demonstration, taken through its stages by a run of its own.

    An early end of the iteration ends the workers, and closes their runs. One whose process died
    is put back on the list; after the third time it is quarantined.
    """
    home = Path(instance.root_directory)
    tags = _TAGS | {"user": command} | ({FORCE_TAG: "true"} if force else {})
    spare = len(ids) == 1 < workers

    def lost(_key: str, run_id: str, died: bool) -> None:
        close_run(instance, run_id, died=died)
        forget_run(lock_folder(home), run_id)

    begin = (workspace.settings, lock_folder(home), tags, shown_level(), spare)
    pool = Pool[_Ended](_begin, begin, max(1, min(workers, len(ids))), lost)
    for key, ended in pool.process(ids):
        if ended is None:
            with best_effort(_LOG, "noting a crash in the quarantine"):
                record_crash(workspace, key, STAGES[0].name, KILLED)
        yield _result(workspace, key, ended or _Ended(reporting.DEFECT, "", KILLED))


def _begin(
    settings: Settings, locks: Path, tags: Mapping[str, str], level: int, spare: bool
) -> Callable[[str, str], _Ended]:
    """In a worker: the definitions and the instance, once."""
    save_memory()
    show_log(level)
    HAS_SPARE_PROCESSOR.set(spare)
    job = _definitions(settings).resolve_job_def(DEMONSTRATION_JOB)
    with redacted_errors(DEMONSTRATION_JOB):  # Dagster's own databases
        instance = dg.DagsterInstance.get()
    spare_existing_objects()

    def work(key: str, run_id: str) -> _Ended:
        try:
            with redacted_errors(DEMONSTRATION_JOB, key), held(locks, run_id, key):
                return _Ended.of(
                    job.execute_in_process(
                        partition_key=key,
                        run_id=run_id,
                        instance=instance,
                        raise_on_error=False,
                        run_config=_QUIET,
                        tags=dict(tags),
                    )
                )
        except DefectError as error:
            return _Ended(reporting.DEFECT, "", f"{error}")

    return work


def _definitions(settings: Settings) -> dg.Definitions:
    """What the jobs that run here need."""
    return dg.Definitions(
        assets=[*DEMONSTRATION_ASSETS, *build_dataset_assets(settings)],
        jobs=[process_demonstration, *dataset_jobs(settings).values()],
        resources={"roots": Roots.of(settings)},
        executor=dg.in_process_executor,
    )


def _result(workspace: Workspace, key: str, ended: _Ended) -> DemonstrationResult:
    """What became of a demonstration: what it is, by the store; why it is not done, by its run."""
    if not ended.why:
        return DemonstrationResult(key, Status.BUILT, trajectory_summary(workspace, key))
    problems = (Problem("run_failed", ".", ended.sentence, demonstration=key),)
    if ended.why != reporting.REFUSED:
        return DemonstrationResult(key, Status.FAILED, {}, ended.step, problems)
    record = read_quarantine(workspace.store, key)
    known = tuple(record.known_problems()) if record else problems
    return DemonstrationResult(key, Status.REJECTED, {}, ended.step, known)


def trajectory_summary(workspace: Workspace, key: str) -> Mapping[str, Any]:
    """The summary of a trajectory, with its `recorded_outcome`; empty without one."""
    raw, trajectory = (
        workspace.store.current(f"{folder}/{key}") for folder in ("recordings", "trajectories")
    )
    if raw is None or trajectory is None:
        return {}
    made, status = trajectory.manifest.summary, raw.manifest.summary.get("status")
    return {**made, "outcome": recorded_outcome(status, success=bool(made.get("success")))}


@dataclass(frozen=True)
class BuiltDatasets:
    """What a run of a job of datasets gave: what people see of each, and why others failed."""

    outcomes: list[DatasetOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def build_datasets(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    job: str = DATASETS_JOB,
    *,
    command: str,
    force: bool = False,
) -> BuiltDatasets:
    """Run a job of datasets in this process."""
    definition = _definitions(workspace.settings).resolve_job_def(job)
    tags = _TAGS | {"user": command} | ({FORCE_TAG: "true"} if force else {})
    with _own_run(instance) as run_id:
        result = definition.execute_in_process(
            run_id=run_id,
            instance=instance,
            raise_on_error=False,
            run_config=_QUIET,
            tags=tags,
        )
    outcomes = []
    for event in result.get_asset_materialization_events():
        said = event.step_materialization_data.materialization
        stage, url = DATASET_STAGE_BY_NAME[said.asset_key.path[-1]], workspace.store.url
        output = str(said.metadata["path"].value).removeprefix(f"{url}/")
        if stage.counts:
            outcomes.append(dataset_outcome(workspace.store, stage, output))
    order = [*DATASET_STAGE_BY_NAME]
    outcomes.sort(key=lambda one: order.index(one.name))
    return BuiltDatasets(outcomes, [f"{step}: {why}" for step, _, why in _failures(result)])


@contextmanager
def _own_run(instance: dg.DagsterInstance) -> Iterator[str]:
    """The id of a run that this process executes, and closes when it is interrupted."""
    locks, run_id = lock_folder(Path(instance.root_directory)), str(uuid.uuid4())
    with held(locks, run_id, ""):
        try:
            yield run_id
        finally:
            close_run(instance, run_id, died=False)


def close_run(instance: dg.DagsterInstance, run_id: str, *, died: bool) -> None:
    """Report a run that nobody executes any more, unless it has ended."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return
    if died:  # works, though Dagster does not list it as public
        instance.report_run_failed(run, f"{KILLED}; it is processed again")
    else:
        instance.report_run_canceled(run, "the command was ended; the next one goes on")


def close_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Close the runs of this machine's processes that were killed; returns their demonstrations."""
    locks, found = lock_folder(Path(instance.root_directory)), dict[str, None]()
    for run_id, key in dead_runs(locks).items():
        close_run(instance, run_id, died=True)
        forget_run(locks, run_id)
        found |= {key: None} if key else {}
    return list(found)
