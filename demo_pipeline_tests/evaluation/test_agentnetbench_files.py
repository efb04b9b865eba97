"""Tests the export of the test split in AgentNetBench's file format."""

import json
from pathlib import Path

import pytest

from demo_pipeline.evaluation.agentnetbench_files import build_agentnetbench, validate_agentnetbench
from demo_pipeline.evaluation.rules import BenchAction, score_bench
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory, snapshot

TEST = DatasetSettings(train_ratio=0, val_ratio=0)
BOX = {"target_x": 480, "target_y": 270, "target_width": 96, "target_height": 54}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    trajectories = [
        make_trajectory(tmp_path, f"demo{n}", TABLE, rows={0: BOX}, shade=n) for n in (1, 2)
    ]
    build_agentnetbench(trajectories, tmp_path / "out", TEST)
    return tmp_path / "out"


def steps(out: Path, name: str = "demo1") -> list[dict]:
    return json.loads((out / "tasks" / f"{name}.json").read_text())["steps"]


def value(action: dict) -> object:
    params = action["params"]
    if "position" in params:
        return params["position"]["x"], params["position"]["y"]
    return next(iter(params.values()), None)


def test_every_step_has_its_picture_and_true_actions(out):
    assert validate_agentnetbench(out) == []
    first = steps(out)[0]
    assert first["ground_truth_actions"] == [
        {
            "type": "click",
            "params": {"position": {"x": 500 / 1920, "y": 300 / 1080}},
            "metadata": {"bboxes": [{"category_id": 1, "rel_bbox": [0.25, 0.25, 0.05, 0.05]}]},
        }
    ]
    assert first["action"].startswith("pyautogui.click(x=0.26")
    names = [[action["type"] for action in step["ground_truth_actions"]] for step in steps(out)]
    assert names[5:8] == [["moveTo", "dragTo"], ["moveTo", "scroll"], ["moveTo", "scroll"]]
    assert names[10:] == [["write"], ["hotkey"], ["wait"], ["terminate"]]


def test_the_truth_of_the_files_has_full_scores_where_there_is_a_rule(out):
    scores = {}
    for step in steps(out):
        truth = [BenchAction(part["type"], value(part)) for part in step["ground_truth_actions"]]
        scores[truth[0].name] = score_bench(truth, truth)
    assert {name for name, score in scores.items() if score == 0} == {"middleClick", "wait"}
    assert {score for score in scores.values() if score} == {1}


def test_only_the_test_split_is_written_and_always_the_same(tmp_path):
    trajectories = [
        make_trajectory(tmp_path, f"demo{n}", shade=n, instruction=str(n)) for n in range(6)
    ]
    halves = DatasetSettings(train_ratio=0.5, val_ratio=0)
    summary = build_agentnetbench(trajectories, tmp_path / "a", halves)
    build_agentnetbench(trajectories[::-1], tmp_path / "b", halves)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")
    written = len(list((tmp_path / "a" / "tasks").iterdir()))
    assert 0 < written < 6
    assert summary.records == {"train": 0, "val": 0, "test": 2 * written, "held_out": 0}
