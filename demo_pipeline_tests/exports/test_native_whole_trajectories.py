"""Tests of exports of whole trajectories that have native screenshots, and of their coordinates."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.form import form_of
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import make_trajectory, picture, read_lines
from demo_pipeline_tests.exports.forms import validate_as
from demo_pipeline_tests.exports.test_cua_lite import calls_of, rows_of

# A pixel of this screen is 1.2 canvas pixels wide. The canvas has bars of 96 pixels on both sides.
SCREEN = (1440, 900)
ON_CANVAS = {"x": 96 + 864, "y": 270}
ON_SCREEN = {"x": 720, "y": 225}
TRAIN = DatasetSettings(train_ratio=1, val_ratio=0)


@pytest.fixture
def demo(tmp_path: Path) -> DatasetTrajectory:
    """Builds a trajectory with one click and native screenshots of 1440 by 900 pixels.

    The description of the click contains its point on the canvas.
    """
    trajectory = make_trajectory(tmp_path, "demo", [("click", {**ON_CANVAS, "button": "left"})])
    action = trajectory.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("Step 0 of the work", "Click at (960, 270)."))
    for shade, shot in enumerate(("steps/000/screenshot.png", "final_screenshot.png")):
        native_of(trajectory.path / shot).write_bytes(picture(shade, *SCREEN))
    return trajectory


def build(name: str, demo: DatasetTrajectory, out: Path) -> Path:
    build_form(form_of(name), [demo], out, TRAIN)
    assert validate_as(name, out) == []
    return out


def shown(path: Path, demo: DatasetTrajectory) -> bool:
    return path.samefile(native_of(demo.path / "steps/000/screenshot.png"))


def test_agentnet_has_shares_of_the_screen(tmp_path: Path, demo: DatasetTrajectory) -> None:
    out = build("agentnet", demo, tmp_path / "out")
    [line] = read_lines(out / "train.jsonl")
    value = line["traj"][0]["value"]
    assert value["code"] == "pyautogui.click(x=0.5, y=0.25)"
    assert value["action"] == "Click at (0.5, 0.25)."
    assert shown(out / "images" / line["traj"][0]["image"], demo)


def test_cua_lite_has_thousandths_of_the_screen(tmp_path: Path, demo: DatasetTrajectory) -> None:
    out = build("cua_lite", demo, tmp_path / "out")
    [row] = rows_of(out)
    [call] = calls_of(row)[0]["tool_calls"]
    assert call["function"]["arguments"]["actions"][0]["coordinate"] == [500, 250]
    assert row["metadata"]["others"]["resolution"] == list(SCREEN)
    assert shown(out / row["images"][0], demo)


def test_atif_has_pixels_of_the_screen(tmp_path: Path, demo: DatasetTrajectory) -> None:
    out = build("atif", demo, tmp_path / "out")
    folder = out / "train/demo"
    step: dict[str, Any] = json.loads((folder / "trajectory.json").read_text())["steps"][1]
    assert step["tool_calls"][0]["arguments"] == {**ON_SCREEN, "button": "left"}
    assert step["message"] == "Click at (720, 225)."
    assert shown(folder / "images/000.png", demo)


def test_cuas_folder_has_pixels_of_the_screen(tmp_path: Path, demo: DatasetTrajectory) -> None:
    turn = build("cua_folder", demo, tmp_path / "out") / "train/demo/turn_000"
    answer = json.loads((turn / "0001_agent_response.json").read_text())
    _, call = answer["response"]["output"]
    assert call["action"] == {"type": "click", "button": "left", **ON_SCREEN}
    assert shown(turn / "0000_screenshot.png", demo)
