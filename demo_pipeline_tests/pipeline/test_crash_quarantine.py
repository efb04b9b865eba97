"""Quarantine for what no stage can find."""

from pathlib import Path

import pytest

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import quarantine_collisions, record_crash
from demo_pipeline.pipeline.quarantine import is_quarantined, list_quarantine, read_quarantine
from demo_pipeline.pipeline.staleness import is_outdated
from demo_pipeline_tests.made_pipeline import copy_of, open_pipeline


@pytest.fixture
def pipeline(made_root: Path, tmp_path: Path) -> Workspace:
    return open_pipeline(copy_of(made_root, tmp_path / "root"))


def test_a_crash_holds_the_very_files_it_happened_on(pipeline: Workspace) -> None:
    record = record_crash(pipeline, "first", "screenshots", "MemoryError")
    assert record.problems[0]["message"] == "the run ended in screenshots: MemoryError"
    assert is_quarantined(pipeline, "first")
    (Path(pipeline.settings.uploads) / "first" / "input_log.jsonl").write_bytes(b"{}\n")
    assert not is_quarantined(pipeline, "first")


def test_ids_that_meet_are_held_once_and_let_go_when_they_part(pipeline: Workspace) -> None:
    both = {"first": ("a b", "first")}
    assert quarantine_collisions(pipeline, both) == ([], [])
    assert quarantine_collisions(pipeline, both) == ([], [])
    [record] = list_quarantine(pipeline.store)
    assert (record.demonstration, record.attempts) == ("first", 1)
    assert record.problems[0]["file"] == "a b and first"
    record_crash(pipeline, "second", "events", "MemoryError")
    assert quarantine_collisions(pipeline, {}) == (["first"], [])
    assert [one.demonstration for one in list_quarantine(pipeline.store)] == ["second"]


def test_a_name_that_is_no_text_is_still_told(pipeline: Workspace) -> None:
    quarantine_collisions(pipeline, {"first": ("a\udcff", "first")})
    record = read_quarantine(pipeline.store, "first")
    assert record is not None
    assert "udcff" in str(record.problems[0]["file"])


def test_only_what_would_be_made_otherwise_from_the_same_files_is_outdated(
    pipeline: Workspace,
) -> None:
    assert not is_outdated(pipeline, "first")
    assert not is_outdated(pipeline, "nobody")
    pipeline.store.remove("trajectories/first")
    assert is_outdated(pipeline, "first")
    (Path(pipeline.settings.uploads) / "first" / "input_log.jsonl").write_bytes(b"{}\n")
    assert not is_outdated(pipeline, "first")
