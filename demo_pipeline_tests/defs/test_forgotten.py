"""Tests that no event of a forgotten demonstration remains in DAGSTER_HOME."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.maintenance import forget_partition
from demo_pipeline.defs.partitions import PARTITIONS_NAME

CANARY = "Zaunkoenig-7261"


@dg.op
def tell(context: dg.OpExecutionContext) -> None:
    key = context.run.tags["dagster/partition"]
    context.log.info("%s %s", CANARY, key)
    metadata = {"text": f"{CANARY} {key}"}
    context.log_event(dg.AssetMaterialization("triage", partition=key, metadata=metadata))


@dg.job
def telling() -> None:
    tell()


def holding(home: Path, text: str) -> list[str]:
    """Returns the files and the rows of databases that contain a text.

    Bytes of databases are not searched, because SQLite keeps the bytes of deleted rows until other
    rows replace them.
    """
    places = []
    for path in home.rglob("*"):
        if path.suffix == ".db":
            places += [f"{path.name}: {row}" for row in rows(path) if text in row]
            continue
        is_database_log = path.name.endswith((".db-wal", ".db-shm"))
        if path.is_file() and not is_database_log and text.encode() in path.read_bytes():
            places.append(str(path.relative_to(home)))
    return places


def rows(database: Path) -> Iterator[str]:
    with closing(sqlite3.connect(database)) as connection:
        yield from connection.iterdump()


def test_forgetting_removes_the_partition_and_the_runs_with_their_events(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions(PARTITIONS_NAME, ["gone", "kept"])
        for key in ("gone", "kept"):
            telling.execute_in_process(instance=instance, tags={"dagster/partition": key})
        assert holding(tmp_path, f"{CANARY} gone")
        assert forget_partition(instance, "gone") == 1
        assert instance.get_dynamic_partitions(PARTITIONS_NAME) == ["kept"]
        assert instance.get_runs_count() == 1
        assert holding(tmp_path, f"{CANARY} gone") == []
        assert holding(tmp_path, f"{CANARY} kept")
        assert forget_partition(instance, "gone") == 0
