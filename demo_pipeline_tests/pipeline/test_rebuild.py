"""Messages about outputs name the command that builds them."""

import pytest

from demo_pipeline.pipeline.rebuild import damage_problem, rebuild_command, storage_message
from demo_pipeline.storage.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.storage.store.integrity import OutputDamage

COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"


@pytest.mark.parametrize(
    ("output", "selected"),
    [
        ("recordings/d1", "raw_recordings --partition d1"),
        ("trajectories/d1", "trajectories --partition d1"),
        ("dataset", "trajectory_index"),
        ("osworld/tasks", "osworld_tasks"),
        ("datasets/demonstrations--me--20250101_000000", "cudag_dataset"),
    ],
)
def test_an_output_is_built_by_its_asset(output: str, selected: str) -> None:
    assert rebuild_command(output) == f"{COMMAND} {selected}"


def test_an_error_about_an_output_names_the_command() -> None:
    missing = storage_message(MissingOutput("dataset"))
    assert missing.startswith("dataset: not committed")
    assert missing.endswith(f"build it with `{COMMAND} trajectory_index`")
    changed = storage_message(ChangedOutput("ui_trees/d1", "001.json"))
    assert changed.endswith(f"by force: `{COMMAND} ui_trees --partition d1`")
    assert storage_message(StorageError("no such root")) == "no such root"


def test_a_damaged_file_names_the_command_of_its_own_output() -> None:
    damage = OutputDamage("events/d1", "missing_file", "events/d1/a.txt", "is missing")
    problem = damage_problem(damage)
    assert (problem.code, problem.file) == ("missing_file", "events/d1/a.txt")
    assert f"`{COMMAND} events --partition d1`" in problem.remedy
