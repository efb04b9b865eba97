"""The jobs over assets.

Belongs here: which assets run together. The registry says which dataset stage belongs to which
job; the sensors decide when the jobs run. Maintenance jobs are in maintenance.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from demo_pipeline.defs.tags import ONE_AT_A_TIME_TAG
from demo_pipeline.pipeline.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.pipeline.stages import DATASET_STAGES, STAGES
from demo_pipeline.pipeline.task_catalog import TASKS_STAGE
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, Stage

if TYPE_CHECKING:  # Dagster does not export it
    from dagster._core.definitions.unresolved_asset_job_definition import (
        UnresolvedAssetJobDefinition,
    )

_DESCRIPTIONS = {
    DATASETS_JOB: "Builds the training exports from the committed trajectories, then the "
    "index and the statistics.",
    TASKS_STAGE.job: "Builds the catalog of OSWorld tasks that trajectories are compared with.",
    QUARANTINE_STAGE.job: "Writes the table of quarantined demonstrations and checks that every "
    "upload is accounted for.",
}

demonstration_job = dg.define_asset_job(
    "process_demonstration",
    selection=[stage.name for stage in STAGES],
    description="Processes one demonstration from its uploaded files to its contact sheets.",
)

BATCH_JOB = "process_batch"  # many demonstrations in one run, see batch_job.py
DEMONSTRATION_JOBS = (demonstration_job.name, BATCH_JOB)

catalog_job = dg.define_asset_job(
    "register_uploads",
    selection=["demonstration_catalog"],
    description="Registers every upload as a partition; the same as `demo-pipeline register`.",
)


def _dataset_job(name: str, stages: Sequence[Stage]) -> "UnresolvedAssetJobDefinition":
    selection = [stage.name for stage in stages if stage.job == name]
    # dagster.yaml lets one run with this tag and value start at a time.
    tags = {ONE_AT_A_TIME_TAG: name}
    return dg.define_asset_job(name, selection, description=_DESCRIPTIONS[name], tags=tags)


tasks_job = _dataset_job(TASKS_STAGE.job, DATASET_STAGES)
quarantine_job = _dataset_job(QUARANTINE_STAGE.job, DATASET_STAGES)


def build_datasets_job(settings: Settings) -> "UnresolvedAssetJobDefinition":
    """The job that builds every dataset but the training exports that are disabled."""
    return _dataset_job(
        DATASETS_JOB, [stage for stage in DATASET_STAGES if stage.is_built(settings)]
    )


ASSET_JOBS = (demonstration_job, catalog_job, tasks_job, quarantine_job)
