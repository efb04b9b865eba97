"""Tests of the AgentNet export, both with full lines and with lines that only contain code."""

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
    """Builds and validates a dataset; returns the lines of the training split."""
    build_form(AGENTNET_FORM, demos, tmp_path / "out", DatasetSettings(**settings))
    assert validate_agentnet(tmp_path / "out") == []
    return read_lines(tmp_path / "out/train.jsonl")


def codes_of(line: dict[str, Any]) -> list[str]:
    return [step["value"]["code"] for step in line["traj"]]


def test_each_line_has_all_recorded_actions_and_the_end(tmp_path):
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
    images = tmp_path / "out/images"
    assert (images / "demo_0.png").samefile(demo.path / "steps/000/screenshot.png")
    assert (images / "demo_1.png").samefile(demo.path / "final_screenshot.png")


def test_lines_for_the_thought_generator_have_only_code(tmp_path):
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
def test_the_operating_system_has_the_name_that_readers_expect(tmp_path, platform, system):
    build(tmp_path, make_trajectory(tmp_path, "demo", rows={0: {"platform": platform}}))
    named = read_lines(tmp_path / "out/meta_data_merged.jsonl")
    assert named == [{"task_id": "demo", "system": system}]


def test_an_action_that_agentnet_cannot_express_ends_the_stretch_and_is_counted(tmp_path):
    steps = [CLICK, MIDDLE, ALT_GR, CLICK, CLICK, CLICK]
    demo = make_trajectory(tmp_path, "demo", steps)
    summary = build_form(AGENTNET_FORM, [demo], tmp_path / "out", DatasetSettings())
    lost = {key: count for key, count in summary.excluded_records.items() if count}
    assert lost == {"clicks_of_button": 1, "unknown_key": 1, "outside_stretch": 1}
    [line] = read_lines(tmp_path / "out/train.jsonl")
    assert [step["image"] for step in line["traj"]] == [f"demo_{n}.png" for n in (3, 4, 5)]
    assert set(snapshot(tmp_path / "out/images")) == {step["image"] for step in line["traj"]}


def test_a_partial_line_has_neither_an_end_nor_an_outcome(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 4, hidden=[(3, "click", "off_screen")])
    [line] = build(tmp_path, demo)
    assert len(codes_of(line)) == 3
    assert not any("terminate" in code for code in codes_of(line))
    assert "task_completed" not in line


def test_a_line_without_the_beginning_is_marked_as_a_part_without_outcome(tmp_path):
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


def test_an_action_without_a_sentence_gets_words_for_its_type(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, ALT_GR, CLICK, CLICK, CLICK])
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("Step 0 of the work", ""))
    [line] = build(tmp_path, demo)
    assert "1. clicked" in line["instruction"].splitlines()


def test_held_keys_do_not_end_the_stretch(tmp_path):
    held = ("click", {"x": 960, "y": 540, "button": "left", "modifiers": ["ctrl"]})
    undone = ("hotkey", {"keys": ["ctrl", "z"], "presses": 12})
    [line] = build(tmp_path, make_trajectory(tmp_path, "demo", [CLICK, held, undone, CLICK]))
    assert len(line["traj"]) == 5
    assert "part" not in line
    assert line["task_completed"] is True


def test_a_task_has_no_end_if_the_final_screenshot_is_too_early(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows={1: {"end_filmed": False}})
    [line] = build(tmp_path, demo)
    assert [step["image"] for step in line["traj"]] == ["demo_0.png", "demo_1.png"]
    assert not any("terminate" in code for code in codes_of(line))
    assert "task_completed" not in line


def test_a_failed_demonstration_that_is_included_ends_with_failure(tmp_path):
    bad = make_trajectory(tmp_path, "bad", success=False)
    [line] = build(tmp_path, bad, include_failed=True)
    assert codes_of(line)[-1] == "computer.terminate(status='failure')"
    assert line["task_completed"] is False
