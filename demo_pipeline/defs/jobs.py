"""The jobs over assets.

Belongs here: which assets run together. The registry says which dataset stage belongs to which
job; the sensors decide when the jobs run. Maintenance jobs are in maintenance.py.
"""

import dagster as dg

from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES, QUARANTINE_STAGE, TASKS_STAGE
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.stage_types import DATASETS_JOB

_DESCRIPTIONS = {
    DATASETS_JOB: "Builds every dataset and the statistics from the committed trajectories.",
    TASKS_STAGE.job: "Builds the catalog of OSWorld tasks that trajectories are compared with.",
    QUARANTINE_STAGE.job: "Writes the table of quarantined demonstrations and checks that every "
    "upload is accounted for.",
}

demonstration_job = dg.define_asset_job(
    "process_demonstration",
    selection=[stage.name for stage in STAGES],
    description="Processes one demonstration from its uploaded files to its contact sheets.",
)

catalog_job = dg.define_asset_job(
    "register_uploads",
    selection=["demonstration_catalog"],
    description="Registers every upload as a partition; the same as `demo-pipeline register`.",
)

_DATASET_JOBS = {
    name: dg.define_asset_job(
        name,
        selection=[stage.name for stage in DATASET_STAGES if stage.job == name],
        description=description,
    )
    for name, description in _DESCRIPTIONS.items()
}
datasets_job = _DATASET_JOBS[DATASETS_JOB]
tasks_job = _DATASET_JOBS[TASKS_STAGE.job]
quarantine_job = _DATASET_JOBS[QUARANTINE_STAGE.job]

ASSET_JOBS = (demonstration_job, catalog_job, *_DATASET_JOBS.values())
