"""The table of the quarantined, and the proof that no upload was lost.

Belongs here: one thin, unpartitioned asset. What the table holds is written elsewhere.
"""

import time
from collections.abc import Iterator

import dagster as dg

from demo_pipeline.common.parquet import read_rows
from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_assets import OWNERS
from demo_pipeline.defs.instance_runs import InstanceRuns, open_ledger
from demo_pipeline.defs.tags import FORCE_TAG
from demo_pipeline.discovery.decisions import UploadState
from demo_pipeline.discovery.reconciliation import Reconciliation, reconcile, unfinished_uploads
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.pipeline.quarantine_table import (
    CODE_VERSION,
    QUARANTINE,
    QUARANTINE_SCHEMA,
    SCHEMA_CHECK,
    TABLE_FILE,
    run_quarantine_table,
)
from demo_pipeline.problems import errors
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.version_manifest import CheckOutcome

ACCOUNTED = "uploads_accounted"
_LOOKS_AGAIN = 900.0  # seconds; a look and the pause after it are shorter
_SHOWN = ("demonstration", "stage", "code", "file", "line", "message", "remedy", "attempts")


@dg.asset(
    name=QUARANTINE,
    group_name="recording",
    kinds={"parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    description=(
        "Every demonstration that cannot go on: which stage gave it up, why, in which file and "
        "line, and what to do. A corrected upload releases it."
    ),
    metadata={"dagster/column_schema": reporting.column_schema(QUARANTINE_SCHEMA)},
    check_specs=[
        dg.AssetCheckSpec(
            SCHEMA_CHECK,
            asset=QUARANTINE,
            description="The table has exactly the declared columns, types and nulls.",
            blocking=True,
        ),
        dg.AssetCheckSpec(
            ACCOUNTED,
            asset=QUARANTINE,
            description="Uploads listed afresh = accepted + quarantined + pending + gone.",
        ),
    ],
)
def quarantine_asset(
    context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult]:
    """Write the table, unless nothing changed, and count the uploads."""
    made = run_quarantine_table(pipeline, force=context.run.tags.get(FORCE_TAG) == "true")
    if made.version is None:
        raise dg.Failure(f"{QUARANTINE}: the check failed; the last table stays")
    try:
        counted = _count(context.instance, pipeline)
    except StorageError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    outcome = CheckOutcome(
        ACCOUNTED, not errors(counted.problems), tuple(counted.problems), blocking=False
    )
    metadata = reporting.made_metadata(made, f"{pipeline.store.url}/{made.output}")
    with pipeline.store.open(made.output) as (folder, _):
        rows = read_rows(folder / TABLE_FILE, QUARANTINE_SCHEMA, _SHOWN)
    metadata["table"] = reporting.records(rows)
    metadata["uploads"] = dg.MetadataValue.json(
        {
            "listed": counted.listed,
            "accepted": counted.accepted,
            "quarantined": counted.quarantined,
            "pending": counted.pending,
            "gone": counted.gone,
        }
    )
    yield dg.MaterializeResult(
        metadata=metadata,
        check_results=[reporting.check_result(one) for one in (*made.checks, outcome)],
        data_version=dg.DataVersion(made.version.content[:16]),
    )


def _count(instance: dg.DagsterInstance, pipeline: Workspace) -> Reconciliation:
    """What lies there is listed before the ledger is asked, so that it can only know more."""
    listed = {one.id for one in pipeline.uploads.list_demonstrations()}
    listed |= set(pipeline.uploads.collisions())
    held = {record.demonstration for record in list_quarantine(pipeline.store)}
    made = _made(pipeline)
    launched = InstanceRuns(instance, pipeline.store)
    failed = launched.failed()
    with open_ledger(instance, pipeline) as ledger:
        accepted = {key for key, state in ledger.states().items() if state is UploadState.ACCEPTED}
        unfinished = unfinished_uploads(sorted(accepted - made | accepted & failed), made, launched)
        last_tick = ledger.last_tick()
        recent = last_tick is not None and time.time() - last_tick < _LOOKS_AGAIN
        return reconcile(ledger, held, listed, unfinished, recent_tick=recent)


def _made(pipeline: Workspace) -> set[str]:
    """Ids with a committed trajectory."""
    folder = STAGES[-1].name
    return {name.removeprefix(f"{folder}/") for name in pipeline.store.outputs(folder)}
