"""The maintenance jobs: retrying, reprocessing and pruning.

Belongs here: op jobs and their schedule, and which old runs can be deleted without changing what
the UI shows. A rerun is only requested here; the next tick of the sensor `new_uploads` launches it,
so that nothing runs twice.
"""

import datetime as dt
import time
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.demonstration_runs import ENDED, demonstrations_of, open_table
from demo_pipeline.defs.jobs import CATALOG_ASSET
from demo_pipeline.runs.quarantine import is_quarantined, list_quarantine
from demo_pipeline.runs.stage_runs import is_outdated
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline.runs.workspace import Workspace

_MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION
_PAGE = 500
_UNPARTITIONED = (*(stage.name for stage in DATASET_STAGES), CATALOG_ASSET)


def prune_runs(instance: dg.DagsterInstance, before: float) -> list[str]:
    """Delete finished runs created before these epoch seconds, with their events; return their ids.

    The run of the newest materialization of every partition and dataset is kept, since without it
    the asset counts as never materialized; and the newest of them of every demonstration, which
    says how it ended.
    """
    kept, partitions = set(_runs_behind_assets(instance)), set[str]()
    moment, cursor = dt.datetime.fromtimestamp(before, dt.UTC), None
    old, runs = dg.RunsFilter(statuses=ENDED, created_before=moment), list[dg.DagsterRun]()
    while records := instance.get_run_records(old, limit=_PAGE, cursor=cursor):
        runs += (record.dagster_run for record in records)
        cursor = runs[-1].run_id
    deleted = []
    for run in runs:  # the newest first
        keys = set(demonstrations_of(run))
        if run.run_id not in kept and keys <= partitions:
            instance.delete_run(run.run_id)
            deleted.append(run.run_id)
        partitions |= keys
    return deleted


def _runs_behind_assets(instance: dg.DagsterInstance) -> Iterator[str]:
    for stage in STAGES:
        key = dg.AssetKey(stage.name)
        ids = sorted(instance.get_latest_storage_id_by_partition(key, _MATERIALIZATION).values())
        for start in range(0, len(ids), _PAGE):
            wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=ids[start : start + _PAGE])
            found = instance.fetch_materializations(wanted, limit=_PAGE).records
            yield from (record.run_id for record in found)
    records = instance.get_asset_records([dg.AssetKey(name) for name in _UNPARTITIONED])
    for record in records:
        if record.asset_entry.last_materialization is not None:
            yield record.asset_entry.last_materialization.run_id


_DAY = 86400.0


class _RetryConfig(dg.Config):
    """Ids of the demonstrations to retry; empty: every quarantined one."""

    ids: list[str] = Field(default_factory=list)


class _PruneConfig(dg.Config):
    """Finished runs are kept for `days`, unreferenced versions of outputs for `grace_hours`."""

    days: float = 30.0
    grace_hours: float = 24.0


@dg.op(name="request_retries", description="Requests a run for every quarantined demonstration.")
def _request_retries(
    context: dg.OpExecutionContext, config: _RetryConfig, workspace: dg.ResourceParam[Workspace]
) -> None:
    quarantined = [record.demonstration for record in list_quarantine(workspace.store)]
    wanted = set(config.ids or quarantined)
    if unknown := sorted(wanted.difference(quarantined)):
        context.log.warning("not quarantined, skipped: %s", ", ".join(map(repr, unknown)))
    _request_reruns(context, workspace, [key for key in quarantined if key in wanted], "retry")


@dg.op(
    name="request_reprocessing",
    description="Requests a run for every demonstration whose code or settings changed.",
)
def _request_reprocessing(
    context: dg.OpExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> None:
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]
    outdated = []
    for key in ids:
        try:
            if is_outdated(workspace, key) and not is_quarantined(workspace, key):
                outdated.append(key)
        except Exception as error:  # noqa: BLE001 - the others are requested all the same
            context.log.warning("%s skipped, it cannot be read now: %s", key, type(error).__name__)
    _request_reruns(context, workspace, outdated, "reprocess")


def _request_reruns(
    context: dg.OpExecutionContext, workspace: Workspace, ids: list[str], reason: str
) -> None:
    with open_table(context.instance, workspace) as table:
        for key in ids:
            table.request_rerun(key, reason)
    context.log.info("%d demonstrations to %s; new_uploads launches them", len(ids), reason)
    context.add_output_metadata({"demonstrations": len(ids), "reason": reason})


@dg.op(name="prune", description="Deletes old runs and old versions that nothing refers to.")
def _prune(
    context: dg.OpExecutionContext, config: _PruneConfig, workspace: dg.ResourceParam[Workspace]
) -> None:
    now = time.time()
    runs = prune_runs(context.instance, now - config.days * _DAY)
    versions = workspace.store.prune(config.grace_hours * 3600)
    context.log.info("%d runs and %d versions deleted", len(runs), len(versions))
    context.add_output_metadata({"runs": len(runs), "versions": len(versions)})


def _job(name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    @dg.job(name=name, description=description)
    def job() -> None:
        op()

    return job


retry_quarantined = _job(
    "retry_quarantined",
    _request_retries,
    "Retries quarantined demonstrations whose upload did not change (config: `ids`; default: all).",
)
reprocess_changed = _job(
    "reprocess_changed",
    _request_reprocessing,
    "Processes again the demonstrations whose outputs were built by other code or with other "
    "settings.",
)
prune_history = _job(
    "prune_history",
    _prune,
    "Deletes finished runs older than `days`, except the newest run of each partition and dataset, "
    "and versions in the store that nothing refers to.",
)
weekly_prune = dg.ScheduleDefinition(
    name="prune_history_weekly",
    job=prune_history,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Prunes every Sunday at 04:00. Off by default.",
)

MAINTENANCE_JOBS = (retry_quarantined, reprocess_changed, prune_history)
