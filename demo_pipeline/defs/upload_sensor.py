"""The sensor that turns uploads into partitions and runs.

Belongs here: the sensor around discovery/tick.py, which decides whether an upload is complete, new,
changed or gone.
"""

import time
from dataclasses import replace

import dagster as dg

from demo_pipeline.defs.instance_runs import InstanceRuns, open_ledger
from demo_pipeline.defs.jobs import demonstration_job
from demo_pipeline.defs.partitions import DEMONSTRATIONS, unregistered
from demo_pipeline.defs.run_recovery import recover
from demo_pipeline.defs.tags import FINGERPRINT_TAG, PRIORITY_TAG, REASON_TAG
from demo_pipeline.defs.task_sensor import needs_catalog
from demo_pipeline.discovery.decisions import Request
from demo_pipeline.discovery.run_history import RunOutcome
from demo_pipeline.discovery.tick import Tick, tick
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import quarantine_collisions
from demo_pipeline.storage.errors import StorageError

_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)

_TRIED_BEFORE = {RunOutcome.LOST, RunOutcome.WAITING}


def build_new_uploads(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `new_uploads`, evaluated every `interval_seconds`."""

    @dg.sensor(
        name="new_uploads",
        job=demonstration_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers complete uploads in a folder or bucket, and requests a run for each "
        "new or changed one.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        for line in recover(context.instance, workspace):
            context.log.warning(line)
        try:
            if needs_catalog(workspace):
                return dg.SkipReason(_NO_CATALOG)
            result = _tick(context.instance, workspace)
        except StorageError as failure:
            return dg.SkipReason(str(failure))
        for error in result.errors:
            context.log.warning(error)
        new = unregistered(context.instance, result.new_ids)
        if not new and not result.requests:
            reason = "; ".join(result.errors) or "no new or changed upload is complete"
            return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=result.cursor)
        return dg.SensorResult(
            dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(new)] if new else [],
            run_requests=[_run_request(request) for request in result.requests],
            cursor=result.cursor,
        )

    return evaluate


def _tick(instance: dg.DagsterInstance, workspace: Workspace) -> Tick:
    runs, settings = InstanceRuns(instance, workspace.store), workspace.settings.discovery
    with open_ledger(instance, workspace) as ledger:
        result = tick(workspace.uploads.objects, ledger, runs, time.time(), settings)
        released, errors = quarantine_collisions(workspace, result.collisions)
        for key in released:
            ledger.request_rerun(key, "collision ended")
        return replace(result, errors=(*result.errors, *errors))


def _run_request(request: Request) -> dg.RunRequest:
    """A run; in the queue, what was tried before waits for new and changed uploads."""
    tags = {FINGERPRINT_TAG: request.fingerprint, REASON_TAG: request.reason}
    if request.reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    return dg.RunRequest(run_key=request.run_key, partition_key=request.id, tags=tags)
