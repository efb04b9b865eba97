"""Tests that messages about missing or damaged outputs name the command that builds them."""

import pytest

from demo_pipeline.runs.damage import damage_problem, rebuild_command, storage_message
from demo_pipeline.store.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.store.versions import OutputDamage

COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"


@pytest.mark.parametrize(
    ("output", "selected"),
    [
        ("recordings/d1", "raw_recordings --partition d1"),
        ("trajectories/d1", "trajectories --partition d1"),
        ("dataset", "trajectory_index"),
        ("datasets/demonstrations--me--20250101_000000", "cudag_dataset"),
    ],
)
def test_an_output_is_built_by_its_asset(output, selected):
    assert rebuild_command(output) == f"{COMMAND} {selected}"


def test_the_catalog_of_tasks_is_built_by_a_command_because_its_asset_is_observed():
    assert rebuild_command("osworld/tasks") == "demo-pipeline run --verify"


def test_an_error_about_an_output_names_the_command():
    missing = storage_message(MissingOutput("dataset"))
    assert missing.startswith("dataset: not committed")
    assert missing.endswith(f"build it with `{COMMAND} trajectory_index`")
    changed = storage_message(ChangedOutput("ui_trees/d1", "001.json"))
    assert changed.endswith("`demo-pipeline run --verify` builds it again")
    assert storage_message(StorageError("no such root")) == "no such root"


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("events/d1", "demo-pipeline run --verify"),
        ("datasets/one", "demo-pipeline run --verify"),
        ("osworld/tasks", "demo-pipeline run --verify"),
        ("removed_dataset", f"{COMMAND} removed_dataset"),
    ],
)
def test_a_damaged_file_names_a_command_that_builds_it_again(output, command):
    damage = OutputDamage(output, "missing_file", f"{output}/a.txt", "is missing")
    problem = damage_problem(damage)
    assert (problem.code, problem.file) == ("missing_file", f"{output}/a.txt")
    assert f"`{command}`" in problem.remedy
