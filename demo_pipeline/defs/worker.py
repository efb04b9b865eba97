"""Runs in the worker processes of runs/local_runs.py, and executes their tasks with Dagster."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.dataset_assets import build_dataset_assets, datasets_job
from demo_pipeline.defs.dead_runs import close_dead_runs
from demo_pipeline.defs.demonstrations import DEMONSTRATION_ASSETS, process_demonstration
from demo_pipeline.defs.local_instance import opened_instance
from demo_pipeline.defs.observed_assets import observed_tasks, tasks_job
from demo_pipeline.defs.partitions import FORCE_TAG, register_partitions
from demo_pipeline.defs.resources import roots_resource
from demo_pipeline.files.logs import show_log
from demo_pipeline.files.processes import save_memory
from demo_pipeline.observation.frames.video_reader import HAS_SPARE_PROCESSOR
from demo_pipeline.runs.failures import DefectError, redacted_errors
from demo_pipeline.runs.local_runs import Failure, WorkerAnswer, WorkerTask
from demo_pipeline.runs.results import DEFECT
from demo_pipeline.runs.run_locks import held, lock_folder
from demo_pipeline.runs.vain_waits import VainWaits
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DEMONSTRATION_JOB

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_TAGS = {
    # With this tag, the page of the job lists the run. The part after `@` is the
    # `location_name` in workspace.yaml.
    ".dagster/repository": "__repository__@demo_pipeline",
    "dagster/max_retries": "0",  # the daemon does not retry the run
    "dagster/max_runtime": "86400",  # seconds
}


def begin(
    settings: Settings, home: Path, command: str, level: int, vain_waits: VainWaits
) -> Callable[[WorkerTask], WorkerAnswer]:
    """Prepares a worker process, and returns the function that executes tasks.

    Args:
        home: the folder DAGSTER_HOME.
        command: the name of the command, which the UI shows as the user of the runs.
        level: the lowest level of log messages to show.
        vain_waits: the causes of transient errors that outlasted all retries, shared by all runs of
            the command.

    Raises:
        InstanceError: Dagster cannot record runs.
    """
    save_memory()
    show_log(level)
    definitions = _definitions(settings, vain_waits)
    opened = ExitStack()
    instance = opened.enter_context(opened_instance(home))

    def work(task: WorkerTask) -> WorkerAnswer:
        HAS_SPARE_PROCESSOR.set(task.is_alone)
        try:
            with redacted_errors(task.kind, *task.names[:1]):
                if task.kind == "prepare":
                    register_partitions(instance, task.names)
                killed_ids = close_dead_runs(instance, died=task.kind != "cancel")
                if task.kind in {"prepare", "cancel"}:
                    return WorkerAnswer(tuple(killed_ids))
                return _run(definitions, instance, task, command)
        except DefectError as error:
            return WorkerAnswer(failures=(Failure("", DEFECT, f"{error}"),))

    return work


def _definitions(settings: Settings, vain_waits: VainWaits) -> dg.Definitions:
    """Returns the definitions that the jobs of the workers need."""
    return dg.Definitions(
        assets=[*DEMONSTRATION_ASSETS, *build_dataset_assets(settings), observed_tasks],
        jobs=[process_demonstration, datasets_job(settings), tasks_job],
        resources={"roots": roots_resource(settings, vain_waits)},
        executor=dg.in_process_executor,
    )


def _run(
    definitions: dg.Definitions, instance: dg.DagsterInstance, task: WorkerTask, command: str
) -> WorkerAnswer:
    (name,) = task.names
    partition = name if task.kind == "demonstration" else None
    job = definitions.resolve_job_def(DEMONSTRATION_JOB if partition else name)
    tags = {**_TAGS, "user": command}
    if task.force:
        tags[FORCE_TAG] = "true"
    run_id = str(uuid.uuid4())
    with held(lock_folder(Path(instance.root_directory)), run_id, partition or ""):
        result = job.execute_in_process(
            partition_key=partition,
            run_id=run_id,
            instance=instance,
            raise_on_error=False,
            run_config=_QUIET,
            tags=tags,
        )
    failures = tuple(_failures(result))
    if not (failures or result.success):
        failures = (Failure("", DEFECT, "the run failed"),)
    locations = {} if partition else dict(_dataset_locations(result))
    return WorkerAnswer(failures=failures, built=locations)


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[Failure]:
    """Yields the failure of each failed step.

    A failure that this package did not raise counts as a defect.
    """
    for event in result.get_step_failure_events():
        step = event.step_key or ""
        failure = event.step_failure_data.user_failure_data
        if failure is None:
            error = event.step_failure_data.error
            yield Failure(step, DEFECT, (error.cls_name if error else None) or "")
            continue
        why = failure.metadata.get(reporting.WHY)
        yield Failure(step, str(why.value) if why else "", failure.description or "")


def _dataset_locations(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str]]:
    """Yields the name and the location of each materialized or observed dataset."""
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        yield materialization.asset_key.path[-1], str(materialization.metadata["path"].value)
    for event in result.get_asset_observation_events():
        observation = event.asset_observation_data.asset_observation
        yield observation.asset_key.path[-1], str(observation.metadata["path"].value)
