"""The asset that registers every demonstration of the uploads root as a partition.

Belongs here: what people materialize to register new uploads by hand.
"""

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import register_partitions
from demo_pipeline.defs.tags import OWNERS
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import collision_problem
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.version_manifest import CheckOutcome

CATALOG_ASSET = "demonstration_catalog"
_CHECK = "ids_unique"
_SHOWN = 200


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
    rows = [(upload.id, upload.name, f"{len(upload.files)} of 3") for upload in listed[:_SHOWN]]
    collisions = tuple(
        collision_problem(key, names) for key, names in workspace.uploads.collisions().items()
    )
    compared = {"uploads": len(listed)}
    outcome = CheckOutcome(_CHECK, not collisions, collisions, compared, blocking=False)
    return dg.MaterializeResult(
        metadata={
            "demonstrations": len(listed),
            "newly_registered": reporting.metadata_of({"ids": new})["ids"],
            "quarantined": len(list_quarantine(workspace.store)),
            "uploads": dg.MetadataValue.path(workspace.uploads.url),
            "table": reporting.text_table(("id", "folder", "files"), rows, len(listed)),
        },
        check_results=[reporting.check_result(outcome)],
    )
