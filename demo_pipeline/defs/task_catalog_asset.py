"""The catalog of OSWorld tasks, which trajectories are compared with.

Belongs here: one thin, unpartitioned asset, and the sensor that keeps it up to date. How files are
read and compared is written elsewhere.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from demo_pipeline.datasets.task_table import CATALOG_SCHEMA, CODE_VERSION
from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_assets import OWNERS
from demo_pipeline.defs.jobs import tasks_job
from demo_pipeline.defs.tags import FORCE_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.task_catalog import (
    CATALOG_CHECK,
    CATALOG_OUTPUT,
    FILES_CHECK,
    OSWORLD_TASKS,
    run_catalog,
)


@dg.asset(
    name=OSWORLD_TASKS,
    group_name="datasets",
    kinds={"parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    description=(
        "Seed 002: every OSWorld task file, ordinary and risk, as a row of a catalog. A "
        "demonstration of one of these tasks is linked to it and left out of training exports."
    ),
    metadata={"dagster/column_schema": reporting.column_schema(CATALOG_SCHEMA)},
    check_specs=[
        dg.AssetCheckSpec(
            CATALOG_CHECK,
            asset=OSWORLD_TASKS,
            description="Both tables have their columns; each file is there once, with its id.",
            blocking=True,
        ),
        dg.AssetCheckSpec(
            FILES_CHECK,
            asset=OSWORLD_TASKS,
            description="Every task file is usable, and every task that is listed has a file.",
        ),
    ],
)
def osworld_tasks(
    context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Read the folder of task files, unless nothing in it changed."""
    force = context.run.tags.get(FORCE_TAG) == "true"
    made = run_catalog(pipeline, force=force)
    results = [reporting.check_result(outcome) for outcome in made.checks]
    if made.version is None:
        yield from results
        message = f"{OSWORLD_TASKS}: the check failed; the last good catalog stays"
        raise dg.Failure(message, allow_retries=False)
    metadata = reporting.made_metadata(made, f"{pipeline.store.url}/{made.output}")
    metadata["task_files"] = dg.MetadataValue.path(str(pipeline.tasks))
    metadata["task_files_found"] = dg.MetadataValue.bool(pipeline.tasks.is_dir())
    yield dg.MaterializeResult(
        metadata=metadata,
        check_results=results,
        data_version=dg.DataVersion(made.version.content[:16]),
    )


def build_tasks_changed(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `tasks_changed`, looking every `interval_seconds`."""

    @dg.sensor(
        name="tasks_changed",
        job=tasks_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reads the OSWorld task files when there is no catalog of them yet, or they "
        "changed. Trajectories made before are compared again by the job `reprocess_changed`.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, pipeline: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        seen = _listing(pipeline.tasks)
        if seen == context.cursor and pipeline.store.current(CATALOG_OUTPUT) is not None:
            return dg.SkipReason("the task files are as they were")
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=f"tasks@{seen}")], cursor=seen)

    return evaluate


def awaits_catalog(pipeline: Workspace) -> bool:
    """There are task files, and no demonstration could be compared with them yet."""
    return pipeline.tasks.is_dir() and pipeline.store.current(CATALOG_OUTPUT) is None


def _listing(folder: Path) -> str:
    """A hash over names, sizes and times of the JSON files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.json")):
        status = path.stat()
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace")
        )
    return digest.hexdigest()[:16]
