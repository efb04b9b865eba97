"""The partitions, one for each demonstration, and the names that assets and runs share.

Belongs here: registering ids as partitions, which no command of Dagster does.
"""

from collections.abc import Iterable

import dagster as dg

PARTITIONS_NAME = "demonstrations"
DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)
# One group for every asset. Dagster's lineage shows a single group opened, with the name and state
# of each asset, but several groups as closed boxes.
ASSET_GROUP = "demo_pipeline"
DATASET_KIND = "dataset"  # of the assets that are built from all trajectories
OWNERS = ["team:demonstrations"]
PARTITION_TAG = "dagster/partition"
FORCE_TAG = "demo_pipeline/force"  # "true": build outputs that are up to date, too
REASON_TAG = "demo_pipeline/reason"  # why the sensor requested the run
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def unregistered(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Returns the ids that are not a partition yet, without duplicates, in order."""
    registered = set(instance.get_dynamic_partitions(PARTITIONS_NAME))
    return [key for key in dict.fromkeys(ids) if key not in registered]


def register_partitions(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Registers the ids that are not a partition yet; returns these, in order."""
    new_ids = unregistered(instance, ids)
    if not new_ids:
        return []
    try:
        instance.add_dynamic_partitions(PARTITIONS_NAME, new_ids)
    except Exception as error:
        # The class belongs to the library of Dagster's storage.
        if type(error).__name__ != "IntegrityError":
            raise
        # Another process registered some of them at the same moment.
        instance.add_dynamic_partitions(PARTITIONS_NAME, unregistered(instance, new_ids))
    return new_ids
