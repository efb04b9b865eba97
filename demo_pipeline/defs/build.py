"""`build_defs`: all definitions for given settings, so that anybody can make their own."""

import dagster as dg

from demo_pipeline.defs import datasets, demonstrations
from demo_pipeline.defs.automation import (
    catalog_job,
    datasets_job,
    demonstration_job,
    new_uploads,
)
from demo_pipeline.defs.catalog import demonstration_catalog
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.settings import Settings


def build_defs(settings: Settings) -> dg.Definitions:
    """Assets, checks, jobs and the sensor over the two roots that `settings` name."""
    return dg.Definitions(
        assets=[
            demonstration_catalog,
            *demonstrations.build_assets(settings.execution.partitions_per_run),
            *datasets.build_assets(),
        ],
        jobs=[demonstration_job, datasets_job, catalog_job],
        sensors=[new_uploads],
        resources={"pipeline": Pipeline.open(settings)},
        executor=dg.in_process_executor,
    )
