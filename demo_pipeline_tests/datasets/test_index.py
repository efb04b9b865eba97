"""Tests of the index of a trajectory dataset."""

import json

import pyarrow.parquet as pq
import pytest

from demo_pipeline.datasets import index
from demo_pipeline.datasets.index import build_index, check_dataset_leaks
from demo_pipeline.settings import DatasetSettings, TrajectorySettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory
from demo_pipeline_tests.fixed_values import settings_with

BY = ("demo_pipeline", "0.1.0")
ROWS = {
    0: {"leak": True},
    1: {"pts": None},
    2: {"leak": True, "unavoidable": True},
    10: {"leak": True},  # not counted: typing has no target that a screenshot could give away
}
RATES = {
    "pointer_actions": 11,
    "leaks": 2,
    "unavoidable_leaks": 1,
    "leak_rate": 0.1818,
    "unavoidable_leak_rate": 0.0909,
}


@pytest.fixture
def demos(tmp_path):
    return [
        make_trajectory(tmp_path, "b", TABLE, rows=ROWS),
        make_trajectory(tmp_path, "a", [CLICK], success=False, application="gimp"),
    ]


def test_the_index_lists_every_trajectory_including_failed_ones(demos, tmp_path):
    summary = build_index(demos, tmp_path / "out", DatasetSettings(), BY)
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert index == {
        "version": "1.0",
        "total_trajectories": 2,
        "successful": 1,
        "failed": 1,
        "trajectories": [
            {"id": "a", "task_id": "task_a", "success": False, "steps": 1, "application": "gimp"},
            {"id": "b", "task_id": "task_b", "success": True, "steps": 13, "application": "chrome"},
        ],
    }
    assert (summary["trajectories"], summary["successful"], summary["failed"]) == (2, 1, 1)


def test_the_metadata_has_creator_and_counts(demos, tmp_path):
    build_index(demos, tmp_path / "out", DatasetSettings(), BY)
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert metadata["created_by"] == {"name": "demo_pipeline", "version": "0.1.0"}
    assert metadata["configuration"]["train_ratio"] == 0.8
    counts = metadata["counts"]
    assert (counts["trajectories"], counts["steps"]) == (2, 14)
    assert counts["actions"]["scroll"] == 4
    assert counts["applications"] == {"chrome": 1, "gimp": 1}
    assert (counts["missing_frames"], counts["off_screen"]) == (1, 0)


def test_leak_rates_of_all_trajectories_together_are_in_the_metadata(demos, tmp_path):
    summary = build_index(demos, tmp_path / "out", DatasetSettings(), BY)
    counts = json.loads((tmp_path / "out" / "metadata.json").read_text())["counts"]
    assert (
        {name: counts[name] for name in RATES} == RATES == {name: summary[name] for name in RATES}
    )
    assert [
        problem.code for problem in check_dataset_leaks(tmp_path / "out", TrajectorySettings())
    ] == ["avoidable_leak_rate"]
    loose = settings_with(TrajectorySettings, max_avoidable_leak_rate=0.1)
    assert check_dataset_leaks(tmp_path / "out", loose) == []


def test_an_unreadable_trajectory_is_counted_and_named(demos, tmp_path):
    (demos[0].path / "result.json").write_text("{}")
    summary = build_index(demos, tmp_path / "out", DatasetSettings(), BY)
    assert (summary["trajectories"], summary["counts"]["unreadable"]) == (1, 1)
    assert {problem.demonstration for problem in summary["problems"]} == {"b"}


def test_without_trajectories_the_index_is_empty(tmp_path):
    summary = build_index([], tmp_path / "out", DatasetSettings(), BY)
    assert summary["trajectories"] == 0
    assert pq.read_table(tmp_path / "out" / "steps.parquet").num_rows == 0


def test_a_crash_leaves_no_partial_table(demos, tmp_path, monkeypatch):
    def crash(_source):
        raise KeyboardInterrupt

    monkeypatch.setattr(index, "load_corrected", crash)
    with pytest.raises(KeyboardInterrupt):
        build_index(demos, tmp_path / "out", DatasetSettings(), BY)
    assert not (tmp_path / "out" / "steps.parquet").exists()


def test_a_trajectory_has_the_objectives_and_reward_of_its_quest(tmp_path):
    quest = {"objectives": ["Open Chrome"], "max_reward": 7.0, "reward_time_ms": 1741119480000}
    trajectory = make_trajectory(tmp_path, "quest", rows={0: quest})
    build_index(
        [trajectory, make_trajectory(tmp_path, "plain")], tmp_path / "out", DatasetSettings(), BY
    )
    plain, with_quest = pq.read_table(tmp_path / "out" / "trajectories.parquet").to_pylist()
    assert {name: with_quest[name] for name in quest} == quest
    assert {plain[name] for name in quest} == {None}
    assert "reward" not in (tmp_path / "out" / "index.json").read_text("utf-8")
