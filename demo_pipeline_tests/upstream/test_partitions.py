"""What Dagster does, and does not do, about dynamic partitions."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

PARTITIONS = dg.DynamicPartitionsDefinition(name="things")
MODULE = """
    import dagster as dg

    @dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="things"))
    def thing() -> None: ...

    defs = dg.Definitions(assets=[thing])
"""


@dg.asset(partitions_def=PARTITIONS)
def thing() -> dg.MaterializeResult:
    return dg.MaterializeResult()


def test_the_command_line_refuses_a_partition_that_is_not_registered(tmp_path: Path) -> None:
    (tmp_path / "things.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    command = ["asset", "materialize", "-m", "things", "--select", "thing"]
    result = subprocess.run(
        [sys.executable, "-m", "dagster", *command, "--partition", "new"],
        cwd=tmp_path,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "DagsterUnknownPartitionError" in result.stderr
    assert "new" in result.stderr


def test_any_text_can_be_registered() -> None:
    odd = ["", "a/b", "a,b", "..", "a...b", "\n", "ü"]
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("things", odd)
        assert instance.get_dynamic_partitions("things") == odd


def test_keys_are_kept_in_the_order_of_their_registration_and_once() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("things", ["b", "a"])
        instance.add_dynamic_partitions("things", ["a", "c"])
        assert instance.get_dynamic_partitions("things") == ["b", "a", "c"]


def test_a_range_goes_by_the_order_of_registration_and_backwards_it_is_empty() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("things", ["b", "x", "a"])
        assert sorted(made_in_range(instance, "b", "a")) == ["a", "b", "x"]
        assert made_in_range(instance, "a", "b") == ["None"]  # a success without a partition


def made_in_range(instance: dg.DagsterInstance, first: str, last: str) -> list[str]:
    tags = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
    result = dg.materialize([thing], instance=instance, tags=tags)
    assert result.success
    events = result.get_asset_materialization_events()
    return [str(e.step_materialization_data.materialization.partition) for e in events]
