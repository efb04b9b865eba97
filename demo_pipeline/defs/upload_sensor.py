"""The sensor that turns uploads into partitions and runs.

Belongs here: the sensor around discovery/tick.py, which decides whether an upload is complete, new,
changed or gone.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import dagster as dg

from demo_pipeline.defs.batch_members import BatchMember, batch_run_key, batch_tags
from demo_pipeline.defs.instance_runs import InstanceRuns, open_ledger
from demo_pipeline.defs.jobs import BATCH_JOB, demonstration_job
from demo_pipeline.defs.partitions import DEMONSTRATIONS, unregistered
from demo_pipeline.defs.run_recovery import recover
from demo_pipeline.defs.tags import FINGERPRINT_TAG, PRIORITY_TAG, REASON_TAG
from demo_pipeline.defs.task_sensor import needs_catalog
from demo_pipeline.discovery.decisions import Request
from demo_pipeline.discovery.run_history import RunOutcome
from demo_pipeline.discovery.tick import Tick, tick
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import quarantine_collisions
from demo_pipeline.settings import ExecutionSettings
from demo_pipeline.storage.errors import StorageError

_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)

_T = TypeVar("_T")
_TRIED_BEFORE = {RunOutcome.LOST, RunOutcome.WAITING}


def build_new_uploads(interval_seconds: int, *batch_jobs: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor `new_uploads`, evaluated every `interval_seconds`; it launches these jobs too."""

    @dg.sensor(
        name="new_uploads",
        jobs=[demonstration_job, *batch_jobs],
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers complete uploads in a folder or bucket, and requests a run for each "
        "new or changed one, or one run for many that arrived together.",
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
            run_requests=list(run_requests(result.requests, workspace.settings.execution)),
            cursor=result.cursor,
        )

    return evaluate


def _tick(instance: dg.DagsterInstance, workspace: Workspace) -> Tick:
    runs, settings = InstanceRuns(instance, workspace), workspace.settings.discovery
    with open_ledger(instance, workspace) as ledger:
        result = tick(workspace.uploads.objects, ledger, runs, time.time(), settings)
        released, errors = quarantine_collisions(workspace, result.collisions)
        for key in released:
            ledger.request_rerun(key, "collision ended")
        return replace(result, errors=(*result.errors, *errors))


def run_requests(
    requests: Sequence[Request], settings: ExecutionSettings
) -> Iterator[dg.RunRequest]:
    """One run for each request; from `execution.batch_from` requests on, they share runs.

    In the queue, what was tried before waits for new and changed uploads.
    """
    if len(requests) < settings.batch_from or settings.partitions_per_run == 1:
        yield from map(_run_request, requests)
        return
    for again in (False, True):
        chosen = [one for one in requests if (one.reason in _TRIED_BEFORE) is again]
        for part in batched(chosen, settings.partitions_per_run):
            yield _batch_request(part) if len(part) > 1 else _run_request(part[0])


def batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The items in order, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _batch_request(requests: Sequence[Request]) -> dg.RunRequest:
    members = [BatchMember(one.id, one.fingerprint, one.run_key) for one in requests]
    reasons = sorted({one.reason for one in requests})
    tags = batch_tags(members) | {REASON_TAG: ", ".join(reasons)}
    if requests[0].reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    run_key = batch_run_key(one.run_key for one in requests)
    return dg.RunRequest(run_key=run_key, job_name=BATCH_JOB, tags=tags)


def _run_request(request: Request) -> dg.RunRequest:
    tags = {FINGERPRINT_TAG: request.fingerprint, REASON_TAG: request.reason}
    if request.reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    return dg.RunRequest(
        run_key=request.run_key,
        job_name=demonstration_job.name,
        partition_key=request.id,
        tags=tags,
    )
