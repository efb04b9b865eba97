"""Tests of the runner in docs/guides/replaying.md, with an imitation of OSWorld's environment."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, picture, read_lines
from demo_pipeline_tests.exports.forms import AGENTNET_FORM

RUNNER = Path(__file__).resolve().parents[2] / "examples/replay_in_osworld.py"
TASK = {"id": "task"}
SCREEN = (1440, 900)


class Machine:
    """Imitates OSWorld's environment and records the calls.

    Its screen is not of the same size as the screenshots in the exported line.
    """

    def __init__(self) -> None:
        self.task: dict[str, Any] = {}
        self.actions: list[str] = []

    def reset(self, task_config: dict[str, Any]) -> dict[str, bytes]:
        self.task = task_config
        return {"screenshot": picture(0, *SCREEN)}

    def step(self, action: str, pause: float) -> tuple[dict[str, bytes], float, bool, Any]:
        assert pause > 0
        self.actions.append(action)
        observation = {"screenshot": picture(len(self.actions), *SCREEN)}
        return observation, 0.0, action in {"DONE", "FAIL"}, {}

    def evaluate(self) -> float:
        return 1.0


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay_in_osworld", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(tmp_path: Path, *steps: Any, **given: Any) -> dict[str, Any]:
    demo = make_trajectory(tmp_path, "demo", steps, **given)
    build_form(AGENTNET_FORM, [demo], tmp_path / "out", DatasetSettings())
    [line] = read_lines(tmp_path / "out/train.jsonl")
    return dict(line)


def test_a_line_is_replayed_from_the_tasks_start_to_its_evaluation(tmp_path, runner):
    line = line_of(
        tmp_path,
        CLICK,
        ("drag", {"start_x": 0, "start_y": 108, "end_x": 1919, "end_y": 540}),
        ("type", {"text": "it's\n"}),
        ("wait", {"seconds": 2.0}),
    )
    machine = Machine()
    assert runner.replay(machine, line, TASK, tmp_path / "screens") == 1.0
    assert machine.task == TASK
    assert machine.actions == [
        "pyautogui.click(x=720, y=450)",
        "pyautogui.moveTo(x=0, y=90)\npyautogui.dragTo(x=1439, y=450, duration=0.6, button='left')",
        'pyautogui.write(message="it\'s\\n")',
        "time.sleep(2)",
        "DONE",
    ]
    screens = sorted(path.name for path in (tmp_path / "screens").iterdir())
    assert screens == ["000.png", "001.png", "002.png", "003.png", "004.png", "start.png"]


def test_a_line_that_begins_late_is_refused(tmp_path, runner):
    hidden = [(1, "click", "off_screen")]
    line = line_of(tmp_path, CLICK, CLICK, CLICK, CLICK, CLICK, hidden=hidden)
    assert line["part"]["first_step"] == 1
    with pytest.raises(ValueError, match="begins after the start"):
        runner.replay(Machine(), line, TASK, tmp_path / "screens")


def test_text_that_pyautogui_cannot_type_is_refused(tmp_path, runner):
    line = line_of(tmp_path, ("type", {"text": "café"}))
    with pytest.raises(ValueError, match="beyond ASCII"):
        runner.replay(Machine(), line, TASK, tmp_path / "screens")
