"""Forgetting a demonstration in Dagster: its partition, and the runs that were for it alone.

Belongs here: what the command `forget` removes of an instance. Dagster cannot remove single events:
those of a run over several demonstrations stay, with its id.
"""

from demo_pipeline.defs.jobs import PARTITIONS_NAME
from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.run_history import demonstrations_of, records_of

_MOST = 100_000  # runs of one demonstration


def forget_partition(demonstration: str) -> tuple[int, int]:
    """Remove the partition and its own runs with their events.

    Returns:
        Numbers of the runs removed, and of those over several demonstrations that stay.
    """
    with local_instance() as instance:
        runs = [one.dagster_run for one in records_of(instance, demonstration, _MOST)]
        own = [run for run in runs if set(demonstrations_of(run)) == {demonstration}]
        for run in own:
            instance.delete_run(run.run_id)
        if demonstration in instance.get_dynamic_partitions(PARTITIONS_NAME):
            instance.delete_dynamic_partition(PARTITIONS_NAME, demonstration)
    return len(own), len(runs) - len(own)
