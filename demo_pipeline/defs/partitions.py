"""The partitions, one for each demonstration, and names that assets, runs and sensors share.

Ids are registered as partitions here, because Dagster has no command that registers partitions.
"""

from collections.abc import Iterable

import dagster as dg

PARTITIONS_NAME = "demonstrations"
DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)
# The group of all assets. With several groups, Dagster's lineage would hide the assets in boxes.
ASSET_GROUP = "demo_pipeline"
DATASET_KIND = "dataset"  # kind of the assets that are built from all trajectories
OWNERS = ["team:demonstrations"]
PARTITION_TAG = "dagster/partition"
FORCE_TAG = "demo_pipeline/force"  # if "true", the run also builds outputs that are up to date
# Why the sensor requested the run: `new`, `changed` or, for a retry, `again`.
REASON_TAG = "demo_pipeline/reason"
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def unregistered(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Returns the ids that are not registered as partitions, in order and without duplicates."""
    registered = set(instance.get_dynamic_partitions(PARTITIONS_NAME))
    return [key for key in dict.fromkeys(ids) if key not in registered]


def register_partitions(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Registers ids as partitions, and returns the ids that were not registered before."""
    new_ids = unregistered(instance, ids)
    if not new_ids:
        return []
    try:
        instance.add_dynamic_partitions(PARTITIONS_NAME, new_ids)
    except Exception as error:
        # Another process registered some of the ids at the same moment. The class of the error
        # depends on the database library.
        if type(error).__name__ != "IntegrityError":
            raise
        instance.add_dynamic_partitions(PARTITIONS_NAME, unregistered(instance, new_ids))
    return new_ids
