"""The partitions, the asset that registers them, and the jobs over assets.

Belongs here: one dynamic partition per demonstration, named by its safe id, and registering ids,
which no Dagster command does; which assets run together. Others: maintenance_jobs.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.tags import ONE_AT_A_TIME_TAG, OWNERS, PARTITIONS_NAME
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.quarantine import collision_problem, list_quarantine
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES, is_built, job_of
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.versions import CheckOutcome

AssetJob = Any  # Dagster does not export the type of what `define_asset_job` returns
_DESCRIPTIONS = {
    DATASETS_JOB: "Builds the training exports from the committed trajectories, then the "
    "index and the statistics.",
    job_of(TASKS_STAGE): "Builds the catalog of OSWorld tasks that trajectories are compared with.",
    job_of(
        QUARANTINE_STAGE
    ): "Writes the table of quarantined demonstrations and checks that every "
    "every upload is accounted for.",
}

demonstration_job = dg.define_asset_job(
    "process_demonstration",
    selection=[stage.name for stage in STAGES],
    description="Processes one demonstration from its uploaded files to its contact sheets.",
)

BATCH_JOB = "process_batch"  # many demonstrations in one run, see demonstrations.py
DEMONSTRATION_JOBS = (demonstration_job.name, BATCH_JOB)

catalog_job = dg.define_asset_job(
    "register_uploads",
    selection=["demonstration_catalog"],
    description="Registers every upload as a partition; the same as `demo-pipeline register`.",
)


def _dataset_job(name: str, stages: Sequence[Stage]) -> AssetJob:
    selection = [stage.name for stage in stages if job_of(stage) == name]
    # dagster.yaml lets one run with this tag and value start at a time.
    tags = {ONE_AT_A_TIME_TAG: name}
    return dg.define_asset_job(name, selection, description=_DESCRIPTIONS[name], tags=tags)


tasks_job = _dataset_job(job_of(TASKS_STAGE), DATASET_STAGES)
quarantine_job = _dataset_job(job_of(QUARANTINE_STAGE), DATASET_STAGES)


def build_datasets_job(settings: Settings) -> AssetJob:
    """The job that builds every dataset but the training exports that are disabled."""
    return _dataset_job(
        DATASETS_JOB, [stage for stage in DATASET_STAGES if is_built(stage, settings)]
    )


ASSET_JOBS = (demonstration_job, catalog_job, tasks_job, quarantine_job)


DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)


def unregistered(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """The ids that are not a partition yet, without duplicates, in order."""
    known = set(instance.get_dynamic_partitions(PARTITIONS_NAME))
    return [key for key in dict.fromkeys(ids) if key not in known]


def register_partitions(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Register the ids that are not a partition yet; returns these, in order."""
    new = unregistered(instance, ids)
    try:
        if new:
            instance.add_dynamic_partitions(PARTITIONS_NAME, new)
    except Exception as error:
        if type(error).__name__ != "IntegrityError":  # of the library of Dagster's storage
            raise
        # Another process registered some of them at the same moment.
        instance.add_dynamic_partitions(PARTITIONS_NAME, unregistered(instance, new))
    return new


CATALOG_ASSET = "demonstration_catalog"
_CHECK = "ids_unique"


@dg.asset(
    name=CATALOG_ASSET,
    group_name="recording",
    kinds={"python"},
    owners=OWNERS,
    code_version="1",
    description="Lists the demonstrations in the uploads root and registers each as a partition.",
    check_specs=[
        dg.AssetCheckSpec(
            _CHECK,
            asset=CATALOG_ASSET,
            description="No two folders of the uploads root have the same demonstration id.",
        )
    ],
)
def demonstration_catalog(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult:
    """List the uploads and register the new ones."""
    try:
        listed = workspace.uploads.list_demonstrations()
    except StorageError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    new = register_partitions(context.instance, [upload.id for upload in listed])
    whole = sum(len(upload.files) == len(RECORDING_FILES) for upload in listed)
    collisions = tuple(
        collision_problem(key, names) for key, names in workspace.uploads.collisions().items()
    )
    compared = {"uploads": len(listed)}
    outcome = CheckOutcome(_CHECK, not collisions, collisions, compared, blocking=False)
    return dg.MaterializeResult(
        metadata={
            "demonstrations": len(listed),
            "complete": whole,
            "newly_registered": reporting.metadata_of({"ids": new})["ids"],
            "quarantined": len(list_quarantine(workspace.store)),
            "uploads": dg.MetadataValue.path(workspace.uploads.url),
        },
        check_results=[reporting.check_result(outcome)],
    )
