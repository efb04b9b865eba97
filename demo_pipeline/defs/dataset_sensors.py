"""The sensors that request runs for the datasets and for the catalog of OSWorld tasks."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from demo_pipeline.defs.dataset_assets import built_from_event, newest_records_event
from demo_pipeline.defs.partitions import PARTITION_TAG, UNFINISHED
from demo_pipeline.defs.resources import Roots
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.failures import retry_pause
from demo_pipeline.runs.graph import Current, Graph
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import PROCESS_MANY
from demo_pipeline.store.errors import StorageError

SensorAnswer = dg.SensorResult | dg.RunRequest | dg.SkipReason
_Evaluate = Callable[[dg.SensorEvaluationContext, Workspace], SensorAnswer]


def store_sensor(
    name: str, interval_seconds: int, description: str, *jobs: Any
) -> Callable[[_Evaluate], dg.SensorDefinition]:
    """Returns a decorator that turns a function into a sensor that is switched on by default.

    If the store or the uploads cannot be read, the sensor skips and reports the error.
    """

    def decorate(evaluate: _Evaluate) -> dg.SensorDefinition:
        @dg.sensor(
            name=name,
            jobs=jobs,
            minimum_interval_seconds=interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=description,
        )
        def sensor(context: dg.SensorEvaluationContext, roots: Roots) -> SensorAnswer:
            try:
                return evaluate(context, roots.workspace)
            except StorageError as error:
                return dg.SkipReason(str(error))

        return sensor

    return decorate


def rebuild_datasets(interval_seconds: int, job: Any) -> dg.SensorDefinition:
    """Returns the sensor that requests a rebuild of the datasets after new demonstrations.

    The cursor has three values: the newest event of `records` for which the datasets were
    requested, the time at which a newer event was first seen, and the number of failed attempts.
    """

    @store_sensor(
        "rebuild_datasets",
        interval_seconds,
        "Builds the datasets once after a group of new demonstrations: when no "
        "demonstration is being processed, or after 15 minutes at the latest.",
        job,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> SensorAnswer:
        instance = context.instance
        requested_event, waiting_since, attempt = _parse_cursor(context.cursor)
        unfinished = dg.RunsFilter(job_name=job.name, statuses=UNFINISHED)
        if instance.get_run_ids(unfinished, limit=1):
            return dg.SkipReason("the datasets are being built")
        newest_event = newest_records_event(instance)
        built_event = max(requested_event, built_from_event(instance, workspace.settings))
        if newest_event > built_event:
            waiting_since = waiting_since or time.time()
            waited = time.time() - waiting_since
            may_wait = waited < workspace.settings.discovery.max_dataset_age_seconds
            if may_wait and has_demonstrations_in_work(instance):
                context.update_cursor(json.dumps([built_event, waiting_since, 0]))
                return dg.SkipReason("demonstrations are in work")
            attempt = 0
        else:
            run_key = f"{job.name}@{built_event}#{attempt}"
            if not _may_retry(instance, run_key, attempt):
                return dg.SkipReason("the datasets have every demonstration")
            attempt += 1
        context.update_cursor(json.dumps([newest_event, 0, attempt]))
        return dg.RunRequest(run_key=f"{job.name}@{newest_event}#{attempt}")

    return evaluate


def _parse_cursor(cursor: str | None) -> tuple[int, float, int]:
    try:
        requested_event, waiting_since, attempt = json.loads(cursor or "[0, 0, 0]")
        return int(requested_event), float(waiting_since), int(attempt)
    except (ValueError, TypeError):  # a person edited the cursor
        return 0, 0.0, 0


def _may_retry(instance: dg.DagsterInstance, run_key: str, attempt: int) -> bool:
    """Returns whether the requested run failed long enough ago to be requested again."""
    record = _requested_run(instance, run_key)
    if record is None or record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    return time.time() - (record.end_time or 0.0) > retry_pause(attempt + 1)


def has_demonstrations_in_work(instance: dg.DagsterInstance) -> bool:
    """Returns whether a run of a demonstration, or of many demonstrations, is queued or active."""
    runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    return any(PARTITION_TAG in run.tags or run.job_name == PROCESS_MANY for run in runs)


def tasks_changed(interval_seconds: int, job: Any) -> dg.SensorDefinition:
    """Returns the sensor `tasks_changed`, which requests the catalog of OSWorld tasks.

    The cursor has two values: a hash of the catalog's inputs and version, and the number of
    attempts to build the catalog from these inputs.
    """

    @store_sensor(
        "tasks_changed",
        interval_seconds,
        "Reads the OSWorld task files into a catalog if the catalog is missing or the "
        "files changed. To compare existing trajectories with the new catalog, run "
        "the job `reprocess_changed`.",
        job,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> SensorAnswer:
        graph = Graph(workspace)
        output = DatasetOutput(graph, TASKS_STAGE)
        state = graph.state(output)
        if isinstance(state, Current):
            return dg.SkipReason("the catalog has every task file")
        version_id = state.version.id if state.version else None
        wanted = hashlib.sha256(f"{output.plan().recipe}{version_id}".encode()).hexdigest()[:16]
        last_wanted, _, last_attempt = (context.cursor or "").partition("#")
        attempt = int(last_attempt) if last_wanted == wanted and last_attempt.isdigit() else 0
        record = _requested_run(context.instance, f"{job.name}@{wanted}#{attempt}")
        if record is not None:
            pause = time.time() - (record.end_time or 0.0)
            if not record.dagster_run.is_finished or pause < retry_pause(attempt + 1):
                return dg.SkipReason("the task files are being read, or were read a moment ago")
            attempt += 1
        context.update_cursor(f"{wanted}#{attempt}")
        return dg.RunRequest(run_key=f"{job.name}@{wanted}#{attempt}")

    return evaluate


def _requested_run(instance: dg.DagsterInstance, run_key: str) -> dg.RunRecord | None:
    records = instance.get_run_records(dg.RunsFilter(tags={"dagster/run_key": run_key}), limit=1)
    return records[0] if records else None
