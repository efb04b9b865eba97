"""Tests that the page about operations names every sensor and every maintenance job."""

import re
from pathlib import Path

import pytest

from demo_pipeline.defs import build_defs
from demo_pipeline.defs.maintenance import MAINTENANCE_JOBS
from demo_pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "operations.md"


def rows(text: str, head: str) -> set[str]:
    """Returns the names in the first column of the table whose first heading is `head`."""
    table = text.partition(f"| {head} | does |\n| --- | --- |\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_its_tables_have_every_sensor_and_every_maintenance_job():
    text = PAGE.read_text(encoding="utf-8")
    sensors = {sensor.name for sensor in build_defs(Settings()).sensors or ()}
    assert rows(text, "sensor") == sensors
    assert rows(text, "job") == {job.name for job in MAINTENANCE_JOBS}


@pytest.mark.parametrize("name", ["Makefile", "dagster.yaml", "deploy", "docs", "README.md"])
def test_nothing_hides_failed_partitions(name):
    """With `DAGSTER_EMIT_PARTITION_SUBSET`, the UI would show failed partitions as missing."""
    path = ROOT / name
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    variable = b"DAGSTER_EMIT_PARTITION_SUBSET"
    assert [file for file in files if variable in file.read_bytes()] == []


def test_the_commands_of_dagster_name_assets_that_exist():
    text = PAGE.read_text(encoding="utf-8")
    selections = re.findall(r"--select '([^']+)'", text)
    assert selections
    specs = build_defs(Settings()).resolve_all_asset_specs()
    names = {spec.key.path[-1] for spec in specs}
    names |= {f"kind:{kind}" for spec in specs for kind in spec.kinds}
    assert {selection.strip("*") for selection in selections} <= names
