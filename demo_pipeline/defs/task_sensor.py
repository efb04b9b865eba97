"""The sensor that keeps the catalog of OSWorld tasks up to date.

Belongs here: noticing changes of the task files. The catalog is built by the asset `osworld_tasks`.
"""

import hashlib
import time
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.freshness import attempts, last_failed, unfinished
from demo_pipeline.defs.jobs import tasks_job
from demo_pipeline.defs.tags import STATE_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.task_catalog import CATALOG_OUTPUT
from demo_pipeline.storage.errors import StorageError


def build_tasks_changed(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `tasks_changed`, evaluated every `interval_seconds`."""

    @dg.sensor(
        name="tasks_changed",
        job=tasks_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds the catalog of OSWorld tasks when it is missing or the task files "
        "changed. Existing trajectories are compared again by the job `reprocess_changed`.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        instance, listing = context.instance, _listing_hash(workspace.tasks)
        again = last_failed(instance, tasks_job.name, listing)
        try:
            built = workspace.store.current(CATALOG_OUTPUT) is not None
        except StorageError as failure:
            return dg.SkipReason(str(failure))
        if listing == context.cursor and built and not again:
            return dg.SkipReason("the task files did not change")
        if unfinished(instance, (tasks_job.name,)):
            return dg.SkipReason("the catalog is being built")
        if again:
            failed = attempts(instance, tasks_job.name, listing)
            postponed = failed.postponed(time.time(), interval_seconds)
            if postponed is not None:
                return dg.SkipReason(postponed)
        # A key launches once: without the number, one failed run would be the last.
        before = instance.get_runs_count(dg.RunsFilter(job_name=tasks_job.name))
        key = f"tasks@{listing}" + (f"#{before}" if before else "")
        request = dg.RunRequest(run_key=key, tags={STATE_TAG: listing})
        return dg.SensorResult(run_requests=[request], cursor=listing)

    return evaluate


def needs_catalog(workspace: Workspace) -> bool:
    """Whether there are task files without a catalog that demonstrations can be compared with."""
    return workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None


def _listing_hash(folder: Path) -> str:
    """A hash over names, sizes and times of the JSON files below a folder, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.json")):
        try:
            status = path.stat()
        except OSError:  # removed meanwhile, or a link that leads nowhere
            continue
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace")
        )
    return digest.hexdigest()[:16]
