"""The partitions, one per demonstration, named by its safe id; and what is said of every asset.

Belongs here: registering ids, which no command of Dagster's does, and the names of our own tags.
"""

from collections.abc import Iterable

import dagster as dg

PARTITIONS_NAME = "demonstrations"
DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)
# Dagster opens its lineage with every group closed as one box. So an asset of the way from a
# recording to a trajectory is a group by itself: the way is what people see first.
_WAY = ("raw_recordings", "events", "actions", "screenshots", "ui_trees", "trajectories")
_GROUPS = {
    "tasks": ("osworld_tasks",),
    "records": ("redactions", "annotations", "reviews", "records"),
    "inspection": ("contact_sheets", "triage", "quarantine"),
    "evaluations": ("evaluation_scores",),
}
OWNERS = ["team:demonstrations"]
PARTITION_TAG = "dagster/partition"
FORCE_TAG = "demo_pipeline/force"  # "true" builds what did not change, too
REASON_TAG = "demo_pipeline/reason"  # why the sensor requested the run
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def group_of(asset: str) -> str:
    """The group of an asset in the UI; `datasets` are all that no other group names."""
    others = (group for group, names in _GROUPS.items() if asset in names)
    return asset if asset in _WAY else next(others, "datasets")


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
