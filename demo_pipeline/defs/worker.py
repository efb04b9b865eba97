"""The runs that a worker process executes itself.

Belongs here: one in-process run for each task of runs/local_runs.py.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.dataset_assets import build_dataset_assets, dataset_jobs
from demo_pipeline.defs.dead_runs import close_dead_runs
from demo_pipeline.defs.demonstrations import DEMONSTRATION_ASSETS, process_demonstration
from demo_pipeline.defs.local_instance import opened_instance
from demo_pipeline.defs.partitions import FORCE_TAG, register_partitions
from demo_pipeline.defs.resources import roots_resource
from demo_pipeline.files.logs import show_log
from demo_pipeline.files.processes import save_memory
from demo_pipeline.observation.frames.video_reader import HAS_SPARE_PROCESSOR
from demo_pipeline.runs.failures import DefectError, redacted_errors
from demo_pipeline.runs.local_runs import Failure, WorkerAnswer, WorkerTask
from demo_pipeline.runs.results import DEFECT
from demo_pipeline.runs.run_locks import held, lock_folder
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DEMONSTRATION_JOB

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
# With these a run stands on the job's page, is never tried again by the daemon, and ends some time.
_TAGS = {
    ".dagster/repository": "__repository__@demo_pipeline",  # the location's name in workspace.yaml
    "dagster/max_retries": "0",
    "dagster/max_runtime": "86400",
}


def begin(
    settings: Settings, home: Path, command: str, level: int
) -> Callable[[WorkerTask], WorkerAnswer]:
    """In a worker: the definitions and the instance, once.

    Raises:
        InstanceError: Dagster cannot record runs.
    """
    save_memory()
    show_log(level)
    definitions, kept = _definitions(settings), ExitStack()
    instance = kept.enter_context(opened_instance(home))

    def work(task: WorkerTask) -> WorkerAnswer:
        HAS_SPARE_PROCESSOR.set(task.is_alone)
        try:
            with redacted_errors(task.kind, *task.names[:1]):
                if task.kind == "prepare":
                    register_partitions(instance, task.names)
                again = close_dead_runs(instance, died=task.kind != "cancel")
                if task.kind in {"prepare", "cancel"}:
                    return WorkerAnswer(tuple(again))
                return _run(definitions, instance, task, command)
        except DefectError as error:
            return WorkerAnswer(failures=(Failure("", DEFECT, f"{error}"),))

    return work


def _definitions(settings: Settings) -> dg.Definitions:
    """What the jobs that run here need."""
    return dg.Definitions(
        assets=[*DEMONSTRATION_ASSETS, *build_dataset_assets(settings)],
        jobs=[process_demonstration, *dataset_jobs(settings).values()],
        resources={"roots": roots_resource(settings)},
        executor=dg.in_process_executor,
    )


def _run(
    definitions: dg.Definitions, instance: dg.DagsterInstance, task: WorkerTask, command: str
) -> WorkerAnswer:
    (name,), run_id = task.names, str(uuid.uuid4())
    is_one = task.kind == "demonstration"
    job = definitions.resolve_job_def(DEMONSTRATION_JOB if is_one else name)
    with held(lock_folder(Path(instance.root_directory)), run_id, name if is_one else ""):
        result = job.execute_in_process(
            partition_key=name if is_one else None,
            run_id=run_id,
            instance=instance,
            raise_on_error=False,
            run_config=_QUIET,
            tags=_TAGS | {"user": command} | ({FORCE_TAG: "true"} if task.force else {}),
        )
    failures = tuple(_failures(result))
    if not (failures or result.success):
        failures = (Failure("", DEFECT, "the run failed"),)
    return WorkerAnswer(failures=failures, built={} if is_one else dict(_built(result)))


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[Failure]:
    """Yield why each step failed; one that failed without our words has a defect."""
    for event in result.get_step_failure_events():
        data = event.step_failure_data
        said, error, step = data.user_failure_data, data.error, event.step_key or ""
        if said is None:
            yield Failure(step, DEFECT, error.cls_name or "" if error else "")
            continue
        why = said.metadata.get(reporting.WHY)
        yield Failure(step, str(why.value) if why else "", said.description or "")


def _built(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str]]:
    """Yield each dataset and where it is."""
    for event in result.get_asset_materialization_events():
        said = event.step_materialization_data.materialization
        yield said.asset_key.path[-1], str(said.metadata["path"].value)
