"""The AgentNet export: whole trajectories as code, in the full form and with only the code."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.agentnet_code import decode_agentnet_answer
from demo_pipeline.exports.answers import AnsweredAction
from demo_pipeline.exports.assemble import build_form
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
    snapshot,
)
from demo_pipeline_tests.exports.forms import AGENTNET_FORM, validate_agentnet

MIDDLE = ("click", {"x": 960, "y": 540, "button": "middle", "clicks": 3})
ALT_GR = ("hotkey", {"keys": ["altgr", "q"]})


def build(tmp_path: Path, *demos: Any, **settings: Any) -> list[dict[str, Any]]:
    """The lines of the training split; the folder is valid."""
    build_form(AGENTNET_FORM, demos, tmp_path / "out", DatasetSettings(**settings))
    assert validate_agentnet(tmp_path / "out") == []
    return read_lines(tmp_path / "out/train.jsonl")


def codes_of(line: dict[str, Any]) -> list[str]:
    return [step["value"]["code"] for step in line["traj"]]


def test_every_action_is_the_recorded_one_and_the_end_is_said(tmp_path):
    [line] = build(tmp_path, make_trajectory(tmp_path, "demo", TABLE))
    *codes, end = codes_of(line)
    for code, (kind, parameters) in zip(codes, TABLE, strict=True):
        [action] = decode_agentnet_answer(code, (1920, 1080)).actions
        assert isinstance(action, AnsweredAction)
        read = action.parameters.members()
        assert (action.action_type, read) == (kind, {**read, **parameters})
    assert end == "computer.terminate(status='success')"
    assert line["traj"][-1]["value"]["action"] == "End the task: it is done."
    assert line["task_completed"] is True


def test_a_step_has_its_screenshot_and_its_sentence(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK])
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("Step 0 of the work", "Click at (960, 540)."))
    [line] = build(tmp_path, demo)
    code = "pyautogui.click(x=0.5, y=0.5)"
    assert line["traj"][0] == {
        "index": 0,
        "image": "demo_0.png",
        "value": {"code": code, "action": "Click at (0.5, 0.5)."},
    }
    shown = tmp_path / "out/images"
    assert (shown / "demo_0.png").samefile(demo.path / "steps/000/screenshot.png")
    assert (shown / "demo_1.png").samefile(demo.path / "final_screenshot.png")


def test_the_thought_generator_gets_the_code_alone(tmp_path):
    [line] = build(tmp_path, make_trajectory(tmp_path, "demo", [CLICK]))
    [code_only] = read_lines(tmp_path / "out/code_only/train.jsonl")
    assert set(code_only) == {"task_id", "instruction", "traj"}
    assert [set(step) for step in code_only["traj"]] == [{"image", "value"}] * 2
    assert [step["value"] for step in code_only["traj"]] == [
        {"code": code} for code in codes_of(line)
    ]


@pytest.mark.parametrize(
    ("platform", "system"), [("windows", "Windows"), ("macos", "Darwin"), ("linux", "Ubuntu")]
)
def test_the_computer_is_named_as_the_readers_know_it(tmp_path, platform, system):
    build(tmp_path, make_trajectory(tmp_path, "demo", rows={0: {"platform": platform}}))
    named = read_lines(tmp_path / "out/meta_data_merged.jsonl")
    assert named == [{"task_id": "demo", "system": system}]


def test_what_the_form_cannot_say_cuts_and_is_counted(tmp_path):
    steps = [CLICK, MIDDLE, ALT_GR, CLICK, CLICK, CLICK]
    demo = make_trajectory(tmp_path, "demo", steps)
    summary = build_form(AGENTNET_FORM, [demo], tmp_path / "out", DatasetSettings())
    lost = {key: count for key, count in summary.excluded_records.items() if count}
    assert lost == {"clicks_of_button": 1, "unknown_key": 1, "outside_stretch": 1}
    [line] = read_lines(tmp_path / "out/train.jsonl")
    assert [step["image"] for step in line["traj"]] == [f"demo_{n}.png" for n in (3, 4, 5)]
    assert set(snapshot(tmp_path / "out/images")) == {step["image"] for step in line["traj"]}


def test_a_line_that_is_cut_neither_ends_the_task_nor_judges_it(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 4, hidden=[(3, "click", "off_screen")])
    [line] = build(tmp_path, demo)
    assert len(codes_of(line)) == 3
    assert not any("terminate" in code for code in codes_of(line))
    assert "task_completed" not in line


def test_a_line_that_begins_late_says_so_and_claims_no_completion(tmp_path):
    steps = [CLICK, ALT_GR, CLICK, CLICK, CLICK]
    demo = make_trajectory(tmp_path, "demo", steps)
    [line] = build(tmp_path, demo)
    assert line["part"] == {"first_step": 2, "last_step": 4, "total_steps": 5}
    assert line["instruction"].splitlines() == [
        "Open Chrome",
        "",
        "Previous actions:",
        "1. Step 0 of the work",
        "2. Step 1 of the work",
    ]
    assert not any("terminate" in code for code in codes_of(line))
    assert "task_completed" not in line
    [code_only] = read_lines(tmp_path / "out/code_only/train.jsonl")
    assert code_only["instruction"] == line["instruction"]


def test_an_action_without_a_sentence_is_named_by_what_was_done(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, ALT_GR, CLICK, CLICK, CLICK])
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("Step 0 of the work", ""))
    [line] = build(tmp_path, demo)
    assert "1. clicked" in line["instruction"].splitlines()


def test_held_keys_cut_no_line(tmp_path):
    held = ("click", {"x": 960, "y": 540, "button": "left", "modifiers": ["ctrl"]})
    undone = ("hotkey", {"keys": ["ctrl", "z"], "presses": 12})
    [line] = build(tmp_path, make_trajectory(tmp_path, "demo", [CLICK, held, undone, CLICK]))
    assert len(line["traj"]) == 5
    assert "part" not in line
    assert line["task_completed"] is True


def test_a_task_does_not_end_with_a_picture_from_before_the_end_of_its_last_action(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows={1: {"end_filmed": False}})
    [line] = build(tmp_path, demo)
    assert [step["image"] for step in line["traj"]] == ["demo_0.png", "demo_1.png"]
    assert not any("terminate" in code for code in codes_of(line))
    assert "task_completed" not in line


def test_a_failed_demonstration_that_takes_part_says_so(tmp_path):
    bad = make_trajectory(tmp_path, "bad", success=False)
    [line] = build(tmp_path, bad, include_failed=True)
    assert codes_of(line)[-1] == "computer.terminate(status='failure')"
    assert line["task_completed"] is False
