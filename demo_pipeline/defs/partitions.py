"""The partitions: one dynamic partition a demonstration, named by its safe id.

Belongs here: the definition and the registering of ids, which no Dagster command does.
"""

from collections.abc import Iterable

import dagster as dg

DEMONSTRATIONS = dg.DynamicPartitionsDefinition(name="demonstrations")


def unregistered(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Those ids that are no partition yet, each once, in order."""
    known = set(instance.get_dynamic_partitions(DEMONSTRATIONS.name or ""))
    return [key for key in dict.fromkeys(ids) if key not in known]


def register_partitions(instance: dg.DagsterInstance, ids: Iterable[str]) -> list[str]:
    """Register ids that are not yet known; returns those, in order."""
    new = unregistered(instance, ids)
    if new:
        instance.add_dynamic_partitions(DEMONSTRATIONS.name or "", new)
    return new
