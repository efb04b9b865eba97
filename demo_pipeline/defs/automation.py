"""Jobs and the sensor that makes new uploads into partitions and runs.

Belongs here: what is run together, and when. Whether an upload is complete is a pure decision.
"""

from collections.abc import Sequence

import dagster as dg

from demo_pipeline.aggregates import AGGREGATES
from demo_pipeline.chain import STAGES
from demo_pipeline.dataset_statistics import DATASET_STATISTICS
from demo_pipeline.defs.partitions import DEMONSTRATIONS
from demo_pipeline.osworld import OSWORLD_TASKS
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.uploads import FILES, UploadedDemonstration

MAX_REQUESTS = 100  # a tick with more run requests may not end before its deadline

demonstration_job = dg.define_asset_job(
    "process_demonstration",
    selection=[stage.name for stage in STAGES],
    description="One demonstration from its uploaded files to its trajectory.",
)

datasets_job = dg.define_asset_job(
    "build_datasets",
    selection=[*(aggregate.name for aggregate in AGGREGATES), DATASET_STATISTICS],
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


def unseen(
    uploads: Sequence[UploadedDemonstration], registered: Sequence[str]
) -> list[UploadedDemonstration]:
    """Uploads with all three files whose id is not registered, at most a tick's worth."""
    known = set(registered)
    complete = [one for one in uploads if set(FILES) <= set(one.files) and one.id not in known]
    return complete[:MAX_REQUESTS]


@dg.sensor(
    job=demonstration_job,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Registers complete new uploads and requests a run for each.",
)
def new_uploads(
    context: dg.SensorEvaluationContext, pipeline: dg.ResourceParam[Pipeline]
) -> dg.SensorResult | dg.SkipReason:
    """One run a new demonstration; nothing for those that are registered already."""
    name = DEMONSTRATIONS.name or ""
    registered = context.instance.get_dynamic_partitions(name)
    try:
        new = unseen(pipeline.uploads.list_demonstrations(), registered)
    except StorageError as error:
        return dg.SkipReason(str(error))
    if not new:
        return dg.SkipReason("no new complete upload")
    ids = [one.id for one in new]
    return dg.SensorResult(
        dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(ids)],
        run_requests=[dg.RunRequest(run_key=key, partition_key=key) for key in ids],
    )
