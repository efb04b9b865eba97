"""What Dagster's home still holds of a forgotten demonstration."""

from pathlib import Path

import dagster as dg

from demo_pipeline.defs.maintenance import forget_partition
from demo_pipeline.defs.partitions import PARTITIONS_NAME

CANARY = "Zaunkoenig-7261"


@dg.op
def tell(context: dg.OpExecutionContext) -> None:
    key = context.run.tags["dagster/partition"]
    context.log.info("%s %s", CANARY, key)
    told = {"text": f"{CANARY} {key}"}
    context.log_event(dg.AssetMaterialization("triage", partition=key, metadata=told))


@dg.job
def telling() -> None:
    tell()


def holding(home: Path, text: str) -> list[str]:
    files = (path for path in home.rglob("*") if path.is_file())
    return [str(path.relative_to(home)) for path in files if text.encode() in path.read_bytes()]


def test_its_partition_and_its_runs_go_with_their_events(tmp_path, monkeypatch):
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
