"""Quarantine for crashed runs and colliding ids."""

from pathlib import Path

import pytest

from demo_pipeline.runs.quarantine import (
    is_quarantined,
    list_quarantine,
    quarantine_collisions,
    read_quarantine,
    record_crash,
)
from demo_pipeline.runs.stage_runs import is_outdated
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace


@pytest.fixture
def workspace(made_root: Path, tmp_path: Path) -> Workspace:
    return open_workspace(copy_of(made_root, tmp_path / "root"))


def test_a_crash_quarantines_only_the_files_it_happened_on(workspace: Workspace) -> None:
    record = record_crash(workspace, "first", "screenshots", "MemoryError")
    assert record.problems[0]["message"] == "the run ended in screenshots: MemoryError"
    assert is_quarantined(workspace, "first")
    (Path(workspace.settings.uploads) / "first" / "input_log.jsonl").write_bytes(b"{}\n")
    assert not is_quarantined(workspace, "first")


def test_colliding_ids_are_quarantined_once_and_released_when_they_differ_again(
    workspace: Workspace,
) -> None:
    both = {"first": ("a b", "first")}
    assert quarantine_collisions(workspace, both) == ([], [])
    assert quarantine_collisions(workspace, both) == ([], [])
    [record] = list_quarantine(workspace.store)
    assert (record.demonstration, record.attempts) == ("first", 1)
    assert record.problems[0]["file"] == "a b and first"
    record_crash(workspace, "second", "events", "MemoryError")
    assert quarantine_collisions(workspace, {}) == (["first"], [])
    assert [one.demonstration for one in list_quarantine(workspace.store)] == ["second"]


def test_a_folder_name_that_is_not_unicode_is_still_reported(workspace: Workspace) -> None:
    quarantine_collisions(workspace, {"first": ("a\udcff", "first")})
    record = read_quarantine(workspace.store, "first")
    assert record is not None
    assert r"a\xff" in str(record.problems[0]["file"])


def test_only_outputs_that_the_same_upload_would_change_are_outdated(
    workspace: Workspace,
) -> None:
    assert not is_outdated(workspace, "first")
    assert not is_outdated(workspace, "nobody")
    workspace.store.remove("trajectories/first")
    assert is_outdated(workspace, "first")
    (Path(workspace.settings.uploads) / "first" / "input_log.jsonl").write_bytes(b"{}\n")
    assert not is_outdated(workspace, "first")
