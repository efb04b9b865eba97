"""The catalog: what lies in the uploads root, registered as partitions.

Belongs here: the asset that people materialise to make new uploads known.
"""

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_assets import OWNERS
from demo_pipeline.defs.partitions import register_partitions
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import collision_problem
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.version_manifest import CheckOutcome

CODE_VERSION = "1"
_CHECK = "ids_unique"
_SHOWN = 200


@dg.asset(
    group_name="recording",
    kinds={"python"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    description="Finds the demonstrations in the uploads root and registers each as a partition.",
    check_specs=[
        dg.AssetCheckSpec(
            _CHECK,
            asset="demonstration_catalog",
            description="No two folders of the uploads root meet on one demonstration id.",
        )
    ],
)
def demonstration_catalog(
    context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult:
    """List the uploads, register what is new."""
    try:
        found = pipeline.uploads.list_demonstrations()
    except StorageError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    new = register_partitions(context.instance, [one.id for one in found])
    rows = "\n".join(
        f"| {one.id} | {reporting.cell(one.name)} | {len(one.files)} of 3 |"
        for one in found[:_SHOWN]
    )
    collisions = tuple(
        collision_problem(key, names) for key, names in pipeline.uploads.collisions().items()
    )
    outcome = CheckOutcome(_CHECK, not collisions, collisions, blocking=False)
    return dg.MaterializeResult(
        metadata={
            "demonstrations": len(found),
            "newly_registered": reporting.metadata_of({"ids": new})["ids"],
            "quarantined": len(list_quarantine(pipeline.store)),
            "uploads": dg.MetadataValue.path(pipeline.uploads.url),
            "table": dg.MetadataValue.md(f"| id | folder | files |\n| --- | --- | --- |\n{rows}"),
        },
        check_results=[reporting.check_result(outcome)],
    )
