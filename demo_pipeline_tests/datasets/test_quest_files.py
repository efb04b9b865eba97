"""Tests that the tasks of recordings are written as OSWorld task files without an evaluator."""

import json
from pathlib import Path

import pytest

from demo_pipeline.datasets.quest_files import build_quests, check_quests
from demo_pipeline.osworld.task import examine_task_file
from demo_pipeline.osworld.task_files import validate_task_folder
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import make_trajectory


@pytest.fixture
def trajectories(tmp_path: Path) -> list[DatasetTrajectory]:
    free = {0: {"instruction_source": "title"}}
    return [
        make_trajectory(tmp_path, "two", instruction="Open two", application="微信"),
        make_trajectory(tmp_path, "one", instruction="Open one", success=False),
        make_trajectory(tmp_path, "free", rows=free),
        make_trajectory(tmp_path, "three", application="unknown", osworld="known"),
    ]


def test_each_quest_is_a_task_file_without_an_evaluator(trajectories, tmp_path):
    out = tmp_path / "out"
    summary = build_quests(trajectories, out)
    assert check_quests(out, trajectories) == validate_task_folder(out) == []
    assert (summary["tasks"], summary["without_quest"], summary["unreadable"]) == (3, 1, 0)
    assert json.loads((out / "examples" / "chrome" / "one.json").read_bytes()) == {
        "id": "one",
        "snapshot": "chrome",
        "instruction": "Open one",
        "source": None,
        "config": [],
        "related_apps": ["chrome"],
        "evaluator": None,
        "trajectory": "trajectories/one",
    }
    nowhere, _ = examine_task_file(out / "examples" / "unknown" / "three.json")
    assert nowhere is not None
    assert (nowhere.snapshot, nowhere.related_apps) == (None, [])


def test_the_list_names_every_file_by_an_ascii_folder(trajectories, tmp_path):
    summary = build_quests(trajectories, tmp_path / "out")
    listed = json.loads((tmp_path / "out" / "test_all.json").read_bytes())
    assert list(listed) == sorted(listed)
    assert {domain: len(ids) for domain, ids in listed.items()} == summary["domains"]
    [folder] = [domain for domain, ids in listed.items() if ids == ["two"]]
    assert folder.isascii()
    task, _ = examine_task_file(tmp_path / "out" / "examples" / folder / "two.json")
    assert task is not None
    assert task.related_apps == ["微信"]


def test_an_unreadable_trajectory_is_counted_and_skipped(trajectories, tmp_path):
    (trajectories[0].path / "task.json").write_text("{")
    trajectories[1].provenance.unlink()
    summary = build_quests(trajectories, tmp_path / "out")
    assert (summary["tasks"], summary["unreadable"], len(summary["problems"])) == (1, 2, 2)
    assert {problem.demonstration for problem in summary["problems"]} == {"one", "two"}


def test_without_quests_the_list_is_empty(tmp_path):
    assert build_quests([], tmp_path / "out")["tasks"] == 0
    assert check_quests(tmp_path / "out", []) == []
    assert json.loads((tmp_path / "out" / "test_all.json").read_bytes()) == {}


def test_an_evaluator_is_a_problem(trajectories, tmp_path):
    out = tmp_path / "out"
    build_quests(trajectories, out)
    path = out / "examples" / "chrome" / "one.json"
    task = json.loads(path.read_bytes())
    path.write_text(json.dumps(task | {"evaluator": {"func": "infeasible"}}))
    (out / "examples" / "unknown" / "three.json").unlink()
    codes = {problem.code for problem in check_quests(out, trajectories)}
    assert codes == {"quest_evaluator", "missing_task", "quest"}
