"""The maintenance jobs (retry, reprocess and prune) and their schedule."""

import datetime as dt
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.dead_runs import dead_run_ids
from demo_pipeline.defs.partitions import PARTITION_TAG, PARTITIONS_NAME
from demo_pipeline.defs.resources import Roots
from demo_pipeline.defs.upload_sensor import process_ids
from demo_pipeline.files.shown_text import counted, plain_line
from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.runs.demonstration_outputs import is_outdated
from demo_pipeline.runs.failures import warning_words
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS

_PAGE = 500  # maximum number of runs, events or partitions in a query
_DAY = 86400.0  # seconds
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_GOING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def prune_runs(instance: dg.DagsterInstance, before: float) -> list[str]:
    """Deletes old finished runs with their events, and returns the ids of these runs.

    Runs with the newest materialization or observation of an asset or partition are kept, because
    without them the UI shows the asset as never materialized. The newest run of each demonstration
    is also kept, because it shows whether the demonstration succeeded.

    Args:
        before: a time, in epoch seconds; only runs that were created earlier are deleted.
    """
    kept_runs = set(_runs_behind_assets(instance))
    moment = dt.datetime.fromtimestamp(before, dt.UTC)
    old_runs = dg.RunsFilter(statuses=_ENDED, created_before=moment)
    runs: list[dg.DagsterRun] = []
    cursor = None
    while records := instance.get_run_records(old_runs, limit=_PAGE, cursor=cursor):
        runs += (record.dagster_run for record in records)
        cursor = runs[-1].run_id
    deleted = []
    partitions_seen = set[str]()
    for run in runs:  # newest first
        key = run.tags.get(PARTITION_TAG)
        is_newest_of_partition = key is not None and key not in partitions_seen
        if run.run_id not in kept_runs and not is_newest_of_partition:
            instance.delete_run(run.run_id)
            deleted.append(run.run_id)
        if key:
            partitions_seen.add(key)
    return deleted


def _runs_behind_assets(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yields the ids of the runs with the newest event of each asset.

    If the asset has partitions, each partition has a newest event.
    """
    ids = instance.get_dynamic_partitions(PARTITIONS_NAME)
    for stage in STAGES:
        for start in range(0, len(ids), _PAGE):
            yield from _runs_behind_partitions(instance, stage.name, ids[start : start + _PAGE])
    for dataset in instance.get_asset_records(
        [dg.AssetKey(stage.name) for stage in dataset_stages()]
    ):
        if dataset.asset_entry.last_materialization is not None:
            yield dataset.asset_entry.last_materialization.run_id
    for name in (OSWORLD_TASKS, REVIEWS):
        for record in instance.fetch_observations(dg.AssetKey(name), limit=1).records:
            yield record.run_id


def _runs_behind_partitions(
    instance: dg.DagsterInstance, asset: str, partitions: Sequence[str]
) -> Iterator[str]:
    """Yields, for each partition of an asset, the id of the run with the newest materialization."""
    events = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=partitions)
    missing = set(partitions)
    cursor = None
    while missing:  # newest event first; the first event of a partition is its newest
        page = instance.fetch_materializations(events, limit=_PAGE, cursor=cursor)
        for record in page.records:
            if record.partition_key in missing:
                missing.discard(record.partition_key)
                yield record.run_id
        cursor = page.cursor
        if not page.has_more:
            return


def is_being_processed(instance: dg.DagsterInstance, demonstration: str) -> bool:
    """Returns whether a partition has an active run whose process was not killed."""
    filters = dg.RunsFilter(tags={PARTITION_TAG: demonstration}, statuses=_GOING)
    dead = dead_run_ids(instance)
    return any(run.run_id not in dead for run in instance.get_runs(filters))


def forget_partition(instance: dg.DagsterInstance, demonstration: str) -> int:
    """Removes a partition, and its runs with their events and logs; returns the number of runs.

    Events of the partition in other runs remain; they contain ids and counts. SQLite keeps the
    bytes of deleted rows until new rows overwrite them.
    """
    home = Path(instance.root_directory)
    tags = {PARTITION_TAG: demonstration}
    run_ids = [run.run_id for run in instance.get_runs(dg.RunsFilter(tags=tags))]
    for run_id in run_ids:
        instance.delete_run(run_id)
        shutil.rmtree(home / "storage" / run_id, ignore_errors=True)
        for file in (home / "history" / "runs").glob(f"{run_id}.db*"):
            file.unlink(missing_ok=True)
    if demonstration in instance.get_dynamic_partitions(PARTITIONS_NAME):
        instance.delete_dynamic_partition(PARTITIONS_NAME, demonstration)
    return len(run_ids)


class _RetryConfig(dg.Config):
    """The ids of the demonstrations to retry. No ids means all quarantined demonstrations."""

    ids: list[str] = Field(
        default_factory=list,
        description="ids of quarantined demonstrations to retry; empty for all of them",
    )


class _PruneConfig(dg.Config):
    """Days to keep finished runs, and hours to keep unreferenced versions of outputs."""

    days: float = Field(30.0, description="days for which finished runs are kept")
    grace_hours: float = Field(
        24.0, description="hours for which versions that nothing refers to are kept"
    )


@dg.op(name="retry", description="Processes quarantined demonstrations again.")
def _retry(context: dg.OpExecutionContext, config: _RetryConfig, roots: Roots) -> None:
    quarantined = [record.demonstration for record in list_quarantine(roots.workspace.store)]
    wanted = set(config.ids or quarantined)
    if others := sorted(wanted.difference(quarantined)):
        context.log.warning("not quarantined, skipped: %s", ", ".join(map(repr, others)))
    process_ids(context, roots.workspace, [key for key in quarantined if key in wanted])


@dg.op(
    name="reprocess",
    description="Rebuilds outputs of demonstrations that were built by other code or with other "
    "settings.",
)
def _reprocess(context: dg.OpExecutionContext, roots: Roots) -> None:
    workspace = roots.workspace
    graph = Graph(workspace)
    outdated = []
    skipped: dict[str, str] = {}
    for upload in workspace.uploads.list_demonstrations():
        try:
            if is_outdated(graph, upload.id):
                outdated.append(upload.id)
        except Exception as error:  # noqa: BLE001 - the other demonstrations are processed anyway
            skipped[upload.id] = warning_words(error)
            context.log.warning("%s is skipped: %s", upload.id, skipped[upload.id])
    process_ids(context, workspace, outdated)
    if skipped:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in skipped.items())
        message = plain_line(f"{counted(len(skipped), 'demonstrations')} skipped: {reasons}")
        raise dg.Failure(message, allow_retries=False)


@dg.op(
    name="prune",
    description="Deletes old runs, and old versions in the store that nothing refers to.",
)
def _prune(context: dg.OpExecutionContext, config: _PruneConfig, roots: Roots) -> None:
    runs = prune_runs(context.instance, time.time() - config.days * _DAY)
    versions = roots.workspace.store.prune(config.grace_hours * 3600)
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
    "Processes quarantined demonstrations again: those in the config `ids`, or all of them if "
    "`ids` is empty.",
)
reprocess_changed = _job(
    "reprocess_changed",
    _reprocess,
    "Rebuilds outputs of demonstrations that were built by other code or with other settings.",
)
prune_history = _job(
    "prune_history",
    _prune,
    "Deletes finished runs that are older than `days`, and versions in the store "
    "that nothing refers to. The newest run of each partition and dataset is "
    "kept.",
)
weekly_prune = dg.ScheduleDefinition(
    name="prune_history_weekly",
    job=prune_history,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Runs `prune_history` every Sunday at 04:00. It is off by default.",
)

MAINTENANCE_JOBS = (retry_quarantined, reprocess_changed, prune_history)
