"""Tests of the export of trajectory folders in the layout of Cua's trajectory saver."""

import json

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.form import form_of
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.exports.forms import validate_as

TRAIN = DatasetSettings(train_ratio=1, val_ratio=0)
STEPS = [
    CLICK,
    ("type", {"text": "hi"}),
    ("hotkey", {"keys": ["ctrl", "s"]}),
    ("scroll", {"x": 5, "y": 6, "direction": "up", "amount": 2}),
    ("drag", {"start_x": 100, "start_y": 200, "end_x": 320, "end_y": 310}),
    ("double_click", {"x": 7, "y": 8}),
    ("wait", {"seconds": 2.0}),
]
ACTIONS = [
    {"type": "click", "button": "left", "x": 960, "y": 540},
    {"type": "type", "text": "hi"},
    {"type": "keypress", "keys": ["ctrl", "s"]},
    {"type": "scroll", "x": 5, "y": 6, "scroll_x": 0, "scroll_y": -200},
    {"type": "drag", "path": [{"x": 100 + 20 * n, "y": 200 + 10 * n} for n in range(12)]},
    {"type": "double_click", "x": 7, "y": 8},
    {"type": "wait"},
]


def test_a_turn_has_its_screenshot_its_response_and_its_result(tmp_path):
    demo = make_trajectory(tmp_path, "demo", STEPS)
    summary = build_form(form_of("cua_folder"), [demo], tmp_path / "out", TRAIN)
    folder = tmp_path / "out/train/demo"
    turns = sorted(path.name for path in folder.iterdir() if path.is_dir())
    assert turns == [f"turn_{n:03d}" for n in range(len(STEPS) + 1)]  # the last turn ends the task
    for number, action in enumerate(ACTIONS):
        turn = folder / f"turn_{number:03d}"
        first = number * 3
        assert sorted(path.name for path in turn.iterdir()) == [
            f"{first:04d}_screenshot.png",
            f"{first + 1:04d}_agent_response.json",
            f"{first + 2:04d}_computer_call_result.json",
        ]
        answer = json.loads((turn / f"{first + 1:04d}_agent_response.json").read_text())
        message, call = answer["response"]["output"]
        assert (call["type"], call["action"]) == ("computer_call", action)
        assert message["role"] == "assistant"
        result = json.loads((turn / f"{first + 2:04d}_computer_call_result.json").read_text())
        assert result["item"] == call
        assert result["result"][0]["call_id"] == call["call_id"]
        shot = demo.path / f"steps/{number:03d}/screenshot.png"
        assert (turn / f"{first:04d}_screenshot.png").samefile(shot)
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["total_turns"] == len(STEPS)
    assert metadata["kwargs"]["messages"][0]["role"] == "user"
    assert summary.records["train"] == 1
    assert validate_as("cua_folder", tmp_path / "out") == []


def test_actions_that_computer_calls_cannot_express_are_left_out_and_counted(tmp_path, monkeypatch):
    held = ("click", {"x": 9, "y": 9, "button": "left", "modifiers": ["ctrl"]})
    pressed = ("hotkey", {"keys": ["down"], "presses": 51})
    triple = ("click", {"x": 9, "y": 9, "button": "left", "clicks": 3})
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK, held, pressed, triple])
    monkeypatch.setattr(DatasetSettings, "min_steps", 1)
    summary = build_form(form_of("cua_folder"), [demo], tmp_path / "out", TRAIN)
    left_out = {name: n for name, n in summary.excluded_records.items() if n}
    assert left_out == {"held_keys": 2, "clicks_of_button": 1}
    assert not (tmp_path / "out/train/demo/turn_002").exists()


def test_each_press_of_a_repeated_key_is_a_call_of_the_same_turn(tmp_path):
    pressed = ("hotkey", {"keys": ["down"], "presses": 3})
    demo = make_trajectory(tmp_path, "demo", [pressed, CLICK])
    build_form(form_of("cua_folder"), [demo], tmp_path / "out", TRAIN)
    turn = tmp_path / "out/train/demo/turn_000"
    answer = json.loads((turn / "0001_agent_response.json").read_text())
    _, *calls = answer["response"]["output"]
    assert [call["action"] for call in calls] == [{"type": "keypress", "keys": ["down"]}] * 3
    results = sorted(turn.glob("*_computer_call_result.json"))
    assert [json.loads(path.read_text())["item"] for path in results] == calls
    assert len({call["call_id"] for call in calls}) == 3
    assert (tmp_path / "out/train/demo/turn_001/0005_screenshot.png").is_file()


def test_a_partial_folder_is_marked_and_not_completed(tmp_path):
    held = ("click", {"x": 9, "y": 9, "button": "left", "modifiers": ["ctrl"]})
    demo = make_trajectory(tmp_path, "demo", [CLICK, held, CLICK, CLICK, CLICK])
    build_form(form_of("cua_folder"), [demo], tmp_path / "out", TRAIN)
    metadata = json.loads((tmp_path / "out/train/demo/metadata.json").read_text())
    assert metadata["status"] == "running"
    assert metadata["kwargs"]["part"] == {"first_step": 2, "last_step": 4, "total_steps": 5}
    assert metadata["kwargs"]["messages"][0]["content"].endswith(
        "Previous actions:\n1. Step 0 of the work\n2. Step 1 of the work"
    )


def test_a_broken_folder_is_found(tmp_path):
    build_form(
        form_of("cua_folder"), [make_trajectory(tmp_path, "demo", STEPS)], tmp_path / "out", TRAIN
    )
    (tmp_path / "out/train/demo/metadata.json").write_text("{}")
    assert {problem.code for problem in validate_as("cua_folder", tmp_path / "out")} != set()
