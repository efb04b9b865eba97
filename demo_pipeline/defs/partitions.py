"""The partitions: one dynamic partition per demonstration, named by its safe id.

Belongs here: the definition, and registering ids, which no Dagster command does.
"""

from collections.abc import Iterable

import dagster as dg

from demo_pipeline.defs.home_files import PARTITIONS_NAME

DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)


def unregistered(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """The ids that are not a partition yet, without duplicates, in order."""
    known = set(instance.get_dynamic_partitions(DEMONSTRATIONS.name or ""))
    return [key for key in dict.fromkeys(ids) if key not in known]


def register_partitions(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Register the ids that are not a partition yet; returns these, in order."""
    new = unregistered(instance, ids)
    if new:
        instance.add_dynamic_partitions(DEMONSTRATIONS.name or "", new)
    return new
