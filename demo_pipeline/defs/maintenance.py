"""The maintenance jobs: retrying, reprocessing and pruning.

Belongs here: op jobs and their schedule, and which old runs can be deleted without changing what
the UI shows.
"""

import datetime as dt
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.dead_runs import dead_run_ids
from demo_pipeline.defs.partitions import PARTITION_TAG, PARTITIONS_NAME
from demo_pipeline.defs.resources import Roots
from demo_pipeline.defs.upload_sensor import process_ids
from demo_pipeline.runs.demonstration_outputs import is_outdated
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES

_PAGE = 500
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_GOING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def prune_runs(instance: dg.DagsterInstance, before: float) -> list[str]:
    """Delete finished runs created before these epoch seconds, with their events; return their ids.

    The run of the newest materialization of every partition and dataset is kept, since without it
    the asset counts as never materialized; and the newest run of every demonstration, which says
    how it ended.
    """
    kept, partitions = set(_runs_behind_assets(instance)), set[str]()
    moment, cursor = dt.datetime.fromtimestamp(before, dt.UTC), None
    old, runs = dg.RunsFilter(statuses=_ENDED, created_before=moment), list[dg.DagsterRun]()
    while records := instance.get_run_records(old, limit=_PAGE, cursor=cursor):
        runs += (record.dagster_run for record in records)
        cursor = runs[-1].run_id
    deleted = []
    for run in runs:  # the newest first
        key = run.tags.get(PARTITION_TAG)
        if run.run_id not in kept and (key is None or key in partitions):
            instance.delete_run(run.run_id)
            deleted.append(run.run_id)
        partitions |= {key} if key else set()
    return deleted


def _runs_behind_assets(instance: dg.DagsterInstance) -> Iterator[str]:
    ids = instance.get_dynamic_partitions(PARTITIONS_NAME)
    for stage in STAGES:
        key = dg.AssetKey(stage.name)
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            wanted = dg.AssetRecordsFilter(key, asset_partitions=part)
            cursor, missing = None, set(part)
            while missing:  # newest first, until each partition's newest was seen
                found = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
                for record in found.records:
                    if record.partition_key in missing:
                        missing.discard(record.partition_key)
                        yield record.run_id
                cursor = found.cursor
                if not found.has_more:
                    break
    for dataset in instance.get_asset_records([dg.AssetKey(one.name) for one in DATASET_STAGES]):
        if dataset.asset_entry.last_materialization is not None:
            yield dataset.asset_entry.last_materialization.run_id


def is_being_processed(instance: dg.DagsterInstance, demonstration: str) -> bool:
    """Whether a run of the partition is going, whoever started it; one that was killed is not."""
    filters = dg.RunsFilter(tags={PARTITION_TAG: demonstration}, statuses=_GOING)
    dead = dead_run_ids(instance)
    return any(run.run_id not in dead for run in instance.get_runs(filters))


def forget_partition(instance: dg.DagsterInstance, demonstration: str) -> int:
    """Remove the partition and its runs with their events and logs; returns how many runs.

    Dagster cannot remove single events: the few without such a run stay. They hold ids and counts.
    """
    tags = {PARTITION_TAG: demonstration}
    runs = [run.run_id for run in instance.get_runs(dg.RunsFilter(tags=tags))]
    for run_id in runs:
        instance.delete_run(run_id)
    if demonstration in instance.get_dynamic_partitions(PARTITIONS_NAME):
        instance.delete_dynamic_partition(PARTITIONS_NAME, demonstration)
    _wipe(Path(instance.root_directory), runs)
    return len(runs)


def _wipe(home: Path, run_ids: Collection[str]) -> None:
    """Remove what deleting leaves in files: logs, and deleted rows in SQLite's free pages."""
    for run_id in run_ids:
        shutil.rmtree(home / "storage" / run_id, ignore_errors=True)
        for file in (home / "history" / "runs").glob(f"{run_id}.db*"):
            file.unlink(missing_ok=True)
    for file in (home / "history").rglob("*.db"):
        # A database that is in use stays as it is; SQLite uses its free pages again.
        with suppress(sqlite3.Error), closing(sqlite3.connect(file, timeout=10)) as database:
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_DAY = 86400.0


class _RetryConfig(dg.Config):
    """Ids of the demonstrations to retry; empty: every quarantined one."""

    ids: list[str] = Field(default_factory=list)


class _PruneConfig(dg.Config):
    """Finished runs are kept for `days`, unreferenced versions of outputs for `grace_hours`."""

    days: float = 30.0
    grace_hours: float = 24.0


@dg.op(name="retry", description="Processes the quarantined demonstrations again.")
def _retry(context: dg.OpExecutionContext, config: _RetryConfig, roots: Roots) -> None:
    quarantined = [record.demonstration for record in list_quarantine(roots.workspace.store)]
    wanted = set(config.ids or quarantined)
    if unknown := sorted(wanted.difference(quarantined)):
        context.log.warning("not quarantined, skipped: %s", ", ".join(map(repr, unknown)))
    process_ids(context, roots.workspace, [key for key in quarantined if key in wanted])


@dg.op(
    name="reprocess",
    description="Processes every demonstration again whose code or settings changed.",
)
def _reprocess(context: dg.OpExecutionContext, roots: Roots) -> None:
    workspace, outdated = roots.workspace, list[str]()
    for key in (upload.id for upload in workspace.uploads.list_demonstrations()):
        try:
            if is_outdated(workspace, key):
                outdated.append(key)
        except Exception as error:  # noqa: BLE001 - the others are processed all the same
            context.log.warning("%s skipped, it cannot be read now: %s", key, type(error).__name__)
    process_ids(context, workspace, outdated)


@dg.op(name="prune", description="Deletes old runs and old versions that nothing refers to.")
def _prune(context: dg.OpExecutionContext, config: _PruneConfig, roots: Roots) -> None:
    now, workspace = time.time(), roots.workspace
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
    _retry,
    "Retries quarantined demonstrations whose upload did not change (config: `ids`; default: all).",
)
reprocess_changed = _job(
    "reprocess_changed",
    _reprocess,
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
