"""Jobs over assets: what is run together.

Belongs here: selections and their names. When they run, the sensors decide; jobs that look after
the pipeline itself are in upkeep.py.
"""

import dagster as dg

from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES
from demo_pipeline.pipeline.dataset_statistics import DATASET_STATISTICS
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine_table import QUARANTINE
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS

demonstration_job = dg.define_asset_job(
    "process_demonstration",
    selection=[stage.name for stage in STAGES],
    description="One demonstration from its uploaded files to its trajectory.",
)

datasets_job = dg.define_asset_job(
    "build_datasets",
    selection=[*(aggregate.name for aggregate in DATASET_STAGES), DATASET_STATISTICS],
    description="SFT samples, messages, CUDAG, the index and statistics, from what is committed.",
)

catalog_job = dg.define_asset_job(
    "register_uploads",
    selection=["demonstration_catalog"],
    description="Registers what lies in the uploads root; the same as `demo-pipeline register`.",
)

tasks_job = dg.define_asset_job(
    "read_osworld_tasks",
    selection=[OSWORLD_TASKS],
    description="The catalog of OSWorld tasks that trajectories are compared with.",
)

quarantine_job = dg.define_asset_job(
    "report_quarantine",
    selection=[QUARANTINE],
    description="The table of what is quarantined, and whether every upload is accounted for.",
)

ASSET_JOBS = (demonstration_job, datasets_job, catalog_job, tasks_job, quarantine_job)
