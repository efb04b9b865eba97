"""Deleting old finished runs whose deletion changes nothing that the UI shows.

Belongs here: which runs are kept, and deleting the others. The job is in maintenance.py.
"""

import datetime as dt
from collections.abc import Iterable, Iterator

import dagster as dg

from demo_pipeline.defs.batch_members import demonstrations_of, records_of
from demo_pipeline.defs.demonstration_catalog import CATALOG_ASSET
from demo_pipeline.defs.instance_runs import newest_launch
from demo_pipeline.pipeline.stages import DATASET_STAGES, STAGES

_FINISHED = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
_MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION
_PAGE = 500
_UNPARTITIONED = (*(stage.name for stage in DATASET_STAGES), CATALOG_ASSET)


def prune_runs(instance: dg.DagsterInstance, before: float) -> list[str]:
    """Delete finished runs created before `before`, with their events.

    The run of the newest materialization of every partition and dataset is kept, since without it
    the asset counts as never materialized. The newest run of every partition and the newest that
    was launched for an upload are kept, since discovery reads from it which upload that was.

    Args:
        instance: that holds the runs.
        before: epoch seconds.

    Returns:
        The ids of the deleted runs.
    """
    kept = set(_runs_behind_assets(instance))
    partitions: set[str] = set()
    deleted = []
    for run in list(_old_runs(instance, before)):
        for key in demonstrations_of(run):
            if key not in partitions:
                partitions.add(key)
                kept |= set(_newest(instance, key))
        if run.run_id not in kept:
            instance.delete_run(run.run_id)
            deleted.append(run.run_id)
    return deleted


def _old_runs(instance: dg.DagsterInstance, before: float) -> Iterator[dg.DagsterRun]:
    moment = dt.datetime.fromtimestamp(before, dt.UTC)
    old = dg.RunsFilter(statuses=_FINISHED, created_before=moment)
    cursor = None
    while records := instance.get_run_records(old, limit=_PAGE, cursor=cursor):
        yield from (record.dagster_run for record in records)
        cursor = records[-1].dagster_run.run_id


def _newest(instance: dg.DagsterInstance, partition: str) -> Iterator[str]:
    yield from (record.dagster_run.run_id for record in records_of(instance, partition, 1))
    launch = newest_launch(instance, partition)
    if launch is not None:
        yield launch.run_id


def _runs_behind_assets(instance: dg.DagsterInstance) -> Iterator[str]:
    for stage in STAGES:
        key = dg.AssetKey(stage.name)
        ids = instance.get_latest_storage_id_by_partition(key, _MATERIALIZATION)
        yield from _runs_of(instance, key, sorted(ids.values()))
    records = instance.get_asset_records([dg.AssetKey(name) for name in _UNPARTITIONED])
    for record in records:
        if record.asset_entry.last_materialization is not None:
            yield record.asset_entry.last_materialization.run_id


def _runs_of(
    instance: dg.DagsterInstance, key: dg.AssetKey, storage_ids: list[int]
) -> Iterable[str]:
    for start in range(0, len(storage_ids), _PAGE):
        wanted = dg.AssetRecordsFilter(
            asset_key=key, storage_ids=storage_ids[start : start + _PAGE]
        )
        for record in instance.fetch_materializations(wanted, limit=_PAGE).records:
            yield record.run_id
