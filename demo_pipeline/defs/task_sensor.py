"""The sensor that keeps the catalog of OSWorld tasks up to date.

Belongs here: noticing changes of the task files. The catalog is built by the asset `osworld_tasks`.
"""

import hashlib
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.jobs import tasks_job
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.task_catalog import CATALOG_OUTPUT


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
        listing = _listing_hash(workspace.tasks)
        if listing == context.cursor and workspace.store.current(CATALOG_OUTPUT) is not None:
            return dg.SkipReason("the task files did not change")
        request = dg.RunRequest(run_key=f"tasks@{listing}")
        return dg.SensorResult(run_requests=[request], cursor=listing)

    return evaluate


def needs_catalog(workspace: Workspace) -> bool:
    """Whether there are task files without a catalog that demonstrations can be compared with."""
    return workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None


def _listing_hash(folder: Path) -> str:
    """A hash over names, sizes and times of the JSON files below a folder, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.json")):
        status = path.stat()
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace")
        )
    return digest.hexdigest()[:16]
