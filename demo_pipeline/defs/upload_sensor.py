"""The sensor that makes uploads into partitions and runs.

Belongs here: twenty lines around `discovery.tick`. Whether an upload is complete, new, changed or
gone is decided there.
"""

import time

import dagster as dg

from demo_pipeline.defs.instance_runs import InstanceRuns, open_ledger
from demo_pipeline.defs.jobs import demonstration_job
from demo_pipeline.defs.partitions import DEMONSTRATIONS, unregistered
from demo_pipeline.defs.tags import FINGERPRINT_TAG
from demo_pipeline.defs.task_catalog_asset import awaits_catalog
from demo_pipeline.discovery.decisions import Request
from demo_pipeline.discovery.tick import Tick, tick
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import hold_collisions
from demo_pipeline.storage.errors import StorageError

_COMPARED_FIRST = (
    "demonstrations are compared with the OSWorld task files, whose catalog is not made yet; the "
    "sensor tasks_changed launches the job read_osworld_tasks"
)


def build_new_uploads(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `new_uploads`, looking every `interval_seconds`."""

    @dg.sensor(
        name="new_uploads",
        job=demonstration_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers complete uploads and requests a run for each that is new or "
        "changed; the same for a folder and for a bucket.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, pipeline: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        try:
            if awaits_catalog(pipeline):
                return dg.SkipReason(_COMPARED_FIRST)
            found = _look(context.instance, pipeline)
        except StorageError as error:
            return dg.SkipReason(str(error))
        for refused in found.errors:
            context.log.warning(refused)
        new = unregistered(context.instance, found.new_ids)
        if not new and not found.requests:
            why = "; ".join(found.errors) or "nothing new or changed is complete"
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=found.cursor)
        return dg.SensorResult(
            dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(new)] if new else [],
            run_requests=[_run_of(request) for request in found.requests],
            cursor=found.cursor,
        )

    return evaluate


def _look(instance: dg.DagsterInstance, pipeline: Workspace) -> Tick:
    launched, settings = InstanceRuns(instance, pipeline.store), pipeline.settings.discovery
    with open_ledger(instance, pipeline) as ledger:
        found = tick(pipeline.uploads.objects, ledger, launched, time.time(), settings)
        for key in hold_collisions(pipeline, found.collisions):
            ledger.request_rerun(key, "collision ended")
        return found


def _run_of(request: Request) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=request.run_key,
        partition_key=request.id,
        tags={FINGERPRINT_TAG: request.fingerprint, "demo_pipeline/reason": request.reason},
    )
