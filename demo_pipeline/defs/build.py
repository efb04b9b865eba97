"""`build_defs`: all definitions for given settings, so that anybody can make their own."""

import dagster as dg

from demo_pipeline.defs import datasets, demonstrations, osworld, statistics
from demo_pipeline.defs.automation import (
    catalog_job,
    datasets_job,
    demonstration_job,
    new_uploads,
    tasks_job,
)
from demo_pipeline.defs.catalog import demonstration_catalog
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.settings import Settings


def build_defs(settings: Settings) -> dg.Definitions:
    """Assets, checks, jobs and the sensor over the roots that `settings` name."""
    return dg.Definitions(
        assets=[
            demonstration_catalog,
            osworld.osworld_tasks,
            *demonstrations.build_assets(settings.execution.partitions_per_run),
            *datasets.build_assets(),
            statistics.statistics_asset,
        ],
        jobs=[demonstration_job, datasets_job, catalog_job, tasks_job],
        sensors=[new_uploads],
        resources={"pipeline": Pipeline.open(settings)},
        executor=dg.in_process_executor,
    )
