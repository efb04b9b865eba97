"""Forgetting a demonstration in Dagster: its partition, and the runs that were for it alone.

Belongs here: what the command `forget` removes of an instance. Dagster cannot remove single events:
those of a run over several demonstrations, and those without a run, stay. They hold ids and counts.
"""

import os
import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path

from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.run_history import demonstrations_of, records_of
from demo_pipeline.defs.tags import PARTITIONS_NAME

_MOST = 100_000  # runs of one demonstration


def forget_partition(demonstration: str) -> tuple[int, int]:
    """Remove the partition and its own runs with their events and logs.

    Returns:
        Numbers of the runs removed, and of those over several demonstrations that stay.
    """
    with local_instance() as instance:
        runs = [one.dagster_run for one in records_of(instance, demonstration, _MOST)]
        own = [run.run_id for run in runs if set(demonstrations_of(run)) == {demonstration}]
        for run_id in own:
            instance.delete_run(run_id)
        if demonstration in instance.get_dynamic_partitions(PARTITIONS_NAME):
            instance.delete_dynamic_partition(PARTITIONS_NAME, demonstration)
    _wipe(Path(os.environ["DAGSTER_HOME"]), own)
    return len(own), len(runs) - len(own)


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
