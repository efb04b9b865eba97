"""Tests that recordings with screenshots become trajectories with the right steps."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from demo_pipeline.desktopd.trajectory_reader import Trajectory, read_trajectory
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.problems import errors
from demo_pipeline.trajectories.provenance import read_hidden_actions, read_provenance
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.importers import trajectory_forms
from demo_pipeline_tests.importers.conftest import run_command, run_import
from demo_pipeline_tests.importers.trajectory_forms import number_of, write_screenshot
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.sample_workspace import live_in, open_workspace

WRITERS: dict[str, Callable[[Path], Path]] = {
    "osworld": trajectory_forms.osworld,
    "pc_tracker": trajectory_forms.pc_tracker,
    "cua_driver": trajectory_forms.cua_driver,
}
LOGS = {
    "osworld": "traj.jsonl",
    "pc_tracker": "task3_20241126_161517.jsonl",
    "cua_driver": "turn-00003/action.json",
}
every_tool = pytest.mark.parametrize("tool", WRITERS)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty workspace."""
    for name in ("uploads", "store", "tasks"):
        (tmp_path / name).mkdir()
    live_in(tmp_path, monkeypatch)
    return tmp_path


def imported(root: Path) -> Trajectory:
    """Returns the only trajectory in the store."""
    store = open_workspace(root).store
    [output] = store.outputs("trajectories")
    folder, _ = store.open(output)
    return read_trajectory(folder)


def steps_of(trajectory: Trajectory) -> list[tuple[str, dict[str, Any], int]]:
    """Returns (type, parameters, number of the screenshot) of each step."""
    return [
        (
            str(step.action.action_type),
            step.action.parameters.model_dump(mode="json", exclude_none=True),
            number_of(step.screenshot),
        )
        for step in trajectory.steps
    ]


def source_of(trajectory: Trajectory) -> dict[str, Any]:
    """Returns the content of source.json."""
    value: dict[str, Any] = json.loads((trajectory.path / "source.json").read_text())
    return value


def published(root: Path) -> list[str]:
    """Returns the names of the trajectories in the store."""
    return open_workspace(root).store.outputs("trajectories")


def test_steps_of_an_osworld_run_have_the_screenshot_before_their_action(root):
    source = trajectory_forms.osworld(root / "theirs")
    result = run_import(source, "--task", "Write notes")
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert steps_of(trajectory) == [
        ("click", {"x": 201, "y": 100, "button": "left"}, 0),
        ("type", {"text": "notes\n"}, 1),
        ("drag", {"start_x": 20, "start_y": 40, "end_x": 60, "end_y": 80}, 2),
        ("click", {"x": 14, "y": 16, "button": "left", "modifiers": ["ctrl"]}, 3),
        ("scroll", {"x": 14, "y": 16, "direction": "down", "amount": 3}, 4),
        ("wait", {"seconds": 1.0}, 5),
    ]
    assert number_of(trajectory.final_screenshot) == 7
    assert trajectory.steps[1].action.reasoning == "Thought 2"
    assert (trajectory.task.instruction, trajectory.result.success) == ("Write notes", True)
    assert not errors(validate_trajectory(trajectory.path, trajectory.result.trajectory_id))
    rows = read_provenance(trajectory.path / "provenance.parquet")
    assert rows[0]["press_ms"] == 1756723681500
    assert {(row["scale"], row["pad_x"], row["clock_method"]) for row in rows} == {
        (2.0, 0.0, "none")
    }
    dataset = run_dataset_stage(open_workspace(root), SFT_STAGE)
    assert dataset.summary["samples"] == 6


def test_the_folders_of_a_run_name_the_model_and_the_domain(root):
    place = root / "results" / "pyautogui" / "screenshot" / "some-model" / "chrome" / "0d8b7de3"
    trajectory_forms.osworld(place)
    assert run_import(root / "results", "--task", "Write notes").exit_code == 0
    trajectory = imported(root)
    assert trajectory.result.model_info.name == "some-model"
    assert trajectory.task.application == "chrome"
    assert trajectory.result.trajectory_id.startswith("0d8b7de3-")


def test_without_a_first_screenshot_the_first_frame_of_the_video_is_used(root):
    source = trajectory_forms.osworld(root / "theirs", first="")
    with av.open(str(source / "recording.mp4"), "w") as video:
        stream = video.add_stream("mpeg4", rate=10)
        stream.width = 960
        stream.height = 540
        stream.pix_fmt = "yuv420p"
        for number in (9, 1):
            picture = np.empty((540, 960, 3), np.uint8)
            picture[:] = trajectory_forms.colour_of(number)
            video.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        video.mux(stream.encode())
    assert run_import(source, "--task", "Write notes").exit_code == 0
    assert [number for _, _, number in steps_of(imported(root))] == [9, 1, 2, 3, 4, 5]


def test_actions_that_no_screenshot_shows_become_hidden_actions(root):
    actions = ["pyautogui.click(5, 6)", "pyautogui.click(1, 2)\npyautogui.click(2000, 4)"]
    actions += ["import os\nos.system('ls')", "not python at all", "pyautogui.press('tab')", "DONE"]
    source = trajectory_forms.osworld(root / "theirs", actions, first="", result="0.0\n")
    result = run_import(source, "--task", "Write notes")
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert steps_of(trajectory) == [
        ("click", {"x": 2, "y": 4, "button": "left"}, 1),
        ("hotkey", {"keys": ["tab"]}, 4),
    ]
    hidden = read_hidden_actions(trajectory.path)
    assert [(action.before_step, action.reason) for action in hidden.actions] == [
        (0, "before_video"),
        (1, "off_screen"),
        (1, "no_position"),
    ]
    assert trajectory.result.error_message == "the benchmark's score is 0"
    lost = source_of(trajectory)["not_carried_over"]
    assert "1 actions without effect: their code is not Python" in lost
    assert "1 actions that cannot be read: they are hidden actions" in lost


def test_two_actions_within_a_second_share_a_screenshot_and_the_second_is_hidden(root):
    source = trajectory_forms.osworld(root / "theirs")
    lines = [json.loads(line) for line in (source / "traj.jsonl").read_text().splitlines()]
    lines[1]["screenshot_file"] = lines[0]["screenshot_file"]
    (source / "traj.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_import(source, "--task", "Write notes").exit_code == 0
    trajectory = imported(root)
    assert [kind for kind, _, _ in steps_of(trajectory)][:2] == ["click", "drag"]
    assert read_hidden_actions(trajectory.path).by_reason() == {"before_video": 1}


def test_the_instruction_of_a_run_is_that_of_the_benchmarks_task(root):
    task: dict[str, Any] = {
        "id": "0d8b7de3-0001",
        "snapshot": "chrome",
        "instruction": "Open the settings.",
    }
    task |= {"source": "own", "config": [], "related_apps": ["chrome"], "evaluator": {"func": "f"}}
    folder = root / "tasks" / "examples" / "chrome"
    folder.mkdir(parents=True)
    (folder / "0d8b7de3-0001.json").write_text(json.dumps(task))
    trajectory_forms.osworld(root / "theirs" / "0d8b7de3-0001")
    result = run_import(root / "theirs")
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert trajectory.task.instruction == "Open the settings."
    assert trajectory.task.osworld_task_id == "0d8b7de3-0001"
    rows = read_provenance(trajectory.path / "provenance.parquet")
    assert {row["osworld_match"] for row in rows} == {"id"}


def test_targets_of_pc_tracker_are_the_elements_that_it_logged(root):
    source = trajectory_forms.pc_tracker(root / "theirs" / "events")
    result = run_import(source)
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert steps_of(trajectory) == [
        ("click", {"x": 200, "y": 100, "button": "left"}, 0),
        ("double_click", {"x": 800, "y": 600}, 1),
        ("right_click", {"x": 960, "y": 540}, 2),
        ("type", {"text": "Hello, world"}, 3),
        ("hotkey", {"keys": ["enter"]}, 4),
        ("hotkey", {"keys": ["win"]}, 5),
        ("hotkey", {"keys": ["ctrl", "s"]}, 7),
        ("drag", {"start_x": 20, "start_y": 40, "end_x": 120, "end_y": 140}, 8),
        ("wait", {"seconds": 6.0}, 12),
    ]
    targets = [step.action.target_element for step in trajectory.steps]
    names = [target and target.name for target in targets]
    # Elements without a name or as large as the screen are in the tree, but are no targets.
    assert names == ["Start", None, None, None, None, None, None, "Title bar", None]
    tree = json.loads(trajectory.steps[1].ui_tree.read_text())
    assert tree["root"]["children"][0]["bounds"] == {"x": 780, "y": 580, "width": 60, "height": 60}
    assert tree["timestamp"] == "2024-11-26T16:15:01.000Z"
    hidden = read_hidden_actions(trajectory.path)
    assert hidden.by_reason() == {"no_position": 1, "off_screen": 1}
    assert trajectory.task.instruction == "Save the slide."
    assert (trajectory.result.success, trajectory.result.model_info.name) == (True, "human")
    rows = read_provenance(trajectory.path / "provenance.parquet")
    assert {row["platform"] for row in rows} == {"windows"}
    assert (rows[0]["target_x"], rows[0]["target_width"]) == (180, 60)
    assert rows[7]["end_ms"] - rows[7]["press_ms"] == 1000
    assert "1 presses of Ctrl, Shift or Alt alone" in source_of(trajectory)["not_carried_over"]


def test_the_refined_data_set_of_pc_agent_e_is_read_too(root):
    lines = [
        {"action": "drag from (10, 20) to (30, 40)"},
        {"action": "press key: f5"},
        {"action": "hotkey ('ctrl', 'shift', 's')"},
        {"action": "fail"},
    ]
    source = trajectory_forms.pc_tracker(root / "theirs", lines)
    log = source / "task3_20241126_161517.jsonl"
    written = [json.loads(line) for line in log.read_text().splitlines()]
    written[0] |= {"rect": [0, 10, 50, 60], "element": "Slider", "thought": "The slider is low."}
    log.write_text("".join(json.dumps(line) + "\n" for line in written))
    assert run_import(source).exit_code == 0
    trajectory = imported(root)
    assert [kind for kind, _, _ in steps_of(trajectory)] == ["drag", "hotkey", "hotkey"]
    assert trajectory.steps[0].action.target_element is not None
    assert trajectory.steps[0].action.reasoning == "The slider is low."
    assert trajectory.steps[2].action.parameters.model_dump()["keys"] == ["ctrl", "shift", "s"]
    assert trajectory.result.error_message == "the person ended it with fail"


def test_a_pause_in_which_nothing_changed_is_left_out(root):
    lines = [{"action": "click (5, 6)"}, {"action": "wait"}, {"action": "finish"}]
    source = trajectory_forms.pc_tracker(root / "theirs", lines)
    write_screenshot(source / "screenshot" / "20241126_161502_3.png", 1)
    assert run_import(source).exit_code == 0
    assert [kind for kind, _, _ in steps_of(imported(root))] == ["click"]


def test_turns_of_cua_driver_become_steps_with_the_screenshots_of_their_windows(root):
    source = trajectory_forms.cua_driver(root / "theirs" / "run-1")
    result = run_import(source, "--task", "Save", "--status", "completed", "--platform", "windows")
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert steps_of(trajectory) == [
        ("click", {"x": 200, "y": 100, "button": "left"}, 0),
        ("type", {"text": "notes"}, 1),
        ("hotkey", {"keys": ["ctrl", "s"]}, 2),
        ("hotkey", {"keys": ["shift", "enter"]}, 3),
        ("scroll", {"x": 10, "y": 12, "direction": "down", "amount": 2}, 4),
        ("drag", {"start_x": 2, "start_y": 4, "end_x": 60, "end_y": 80}, 5),
        ("click", {"x": 8, "y": 10, "button": "left", "clicks": 3, "modifiers": ["shift"]}, 6),
    ]
    assert number_of(trajectory.final_screenshot) == 8
    rows = read_provenance(trajectory.path / "provenance.parquet")
    assert (rows[1]["press_ms"], rows[1]["end_ms"]) == (1760000001100, 1760000001250)
    assert {row["platform"] for row in rows} == {"windows"}
    lost = source_of(trajectory)["not_carried_over"]
    assert "1 calls of set_value: they are hidden actions" in lost
    assert "1 calls that failed" in lost


def test_two_right_clicks_of_cua_driver_in_a_turn_are_a_hidden_action(root):
    turns = [
        {"tool": "click", "arguments": {"x": 4, "y": 5}},
        {"tool": "right_click", "arguments": {"x": 4, "y": 5, "count": 2}},
        {"tool": "click", "arguments": {"x": 6, "y": 7}},
    ]
    source = trajectory_forms.cua_driver(root / "theirs" / "run-1", turns)
    result = run_import(source, "--task", "Save", "--status", "completed", "--platform", "windows")
    assert result.exit_code == 0, result.output
    trajectory = imported(root)
    assert [kind for kind, _, _ in steps_of(trajectory)] == ["click", "click"]
    assert read_hidden_actions(trajectory.path).by_reason() == {"no_position": 1}
    lost = source_of(trajectory)["not_carried_over"]
    assert "1 turns with more clicks than an action can have: they are hidden actions" in lost


@every_tool
def test_a_second_import_changes_nothing_even_from_a_copied_folder(root, tool):
    source = WRITERS[tool](root / "theirs" / "first")
    first = run_import(source, "--task", "Write notes", "--status", "completed")
    assert first.exit_code == 0, first.output
    store = open_workspace(root).store
    [output] = store.outputs("trajectories")
    before = store.current(output)
    again = run_import(source, "--task", "Write notes", "--status", "completed")
    assert again.stdout.strip().endswith("1 already there")
    copy = shutil.copytree(source, root / "copies" / "first")
    (copy / "import.json").write_text('{"task": "Write notes", "status": "completed"}')
    assert run_import(copy).stdout.strip().endswith("1 already there")
    assert store.current(output) == before
    other = run_import(source, "--task", "Write notes", "--status", "failed")
    assert other.stdout.strip().endswith("1 imported")
    assert not imported(root).result.success


@every_tool
def test_a_recording_without_a_status_is_no_success_and_without_a_task_is_not_imported(root, tool):
    source = WRITERS[tool](root / "theirs")
    for name in ("result.txt", "task3_20241126_161517.md"):
        (source / name).unlink(missing_ok=True)
    log = source / LOGS[tool]
    log.write_text(log.read_text().replace('"finish"', '"wait"'))
    refused = run_import(source)
    assert refused.exit_code == 1
    assert "the task is not known: give it with --task" in " ".join(refused.stderr.split())
    assert published(root) == []
    result = run_import(source, "--task", "Write notes")
    assert result.exit_code == 0, result.output
    assert "without --status, the demonstration is no success" in result.stderr
    trajectory = imported(root)
    assert not trajectory.result.success
    assert trajectory.result.error_message == "the outcome is not known"
    rows = read_provenance(trajectory.path / "provenance.parquet")
    assert {(row["status"], row["reason"]) for row in rows} == {("", "")}
    assert source_of(trajectory)["missing"] == ["status"]


@every_tool
def test_a_log_that_is_cut_off_anywhere_is_reported_or_read_in_part(root, tool):
    source = WRITERS[tool](root / "theirs")
    log = source / LOGS[tool]
    whole = log.read_bytes()
    for share in (0, 0.001, 0.2, 0.5, 0.97):
        shutil.rmtree(root / "store")
        log.write_bytes(whole[: int(len(whole) * share)])
        result = run_import(source, "--task", "Write notes", "--status", "completed")
        assert "Traceback" not in result.output
        assert not result.exception or isinstance(result.exception, SystemExit)
        if share or tool != "pc_tracker":
            assert result.exit_code == 1, (share, result.output)
            assert log.name in result.stderr


@every_tool
def test_an_unreadable_log_is_reported_and_the_other_recordings_are_imported(root, tool):
    source = WRITERS[tool](root / "theirs" / "bad")
    WRITERS[tool](root / "theirs" / "good")
    log = source / LOGS[tool]
    log.unlink()
    log.symlink_to(root / "nowhere")
    result = run_import(root / "theirs", "--task", "Write notes", "--status", "completed")
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert log.name in result.stderr
    # cua-driver has a log for each turn, and the other turns are imported.
    assert len(published(root)) == (2 if tool == "cua_driver" else 1)


@every_tool
@pytest.mark.parametrize("spoil", ["missing", "empty", "cut", "text"])
def test_the_action_after_an_unreadable_screenshot_is_hidden(root, tool, spoil):
    source = WRITERS[tool](root / "theirs")
    second = {
        "osworld": "step_1_20250901@104801500000.png",
        "pc_tracker": "screenshot/20241126_161501_2.png",
        "cua_driver": "turn-00002/before.png",
    }[tool]
    image = source / second
    data = image.read_bytes()
    image.unlink()
    if spoil != "missing":
        image.write_bytes({"empty": b"", "cut": data[:-30], "text": b"no picture"}[spoil])
    result = run_import(source, "--task", "Write notes", "--status", "completed")
    trajectory = imported(root)
    hidden = read_hidden_actions(trajectory.path)
    assert [action.before_step for action in hidden.actions][:1] == [1]
    assert 1 not in [number for _, _, number in steps_of(trajectory)]
    if tool == "cua_driver" and spoil == "missing":  # it often leaves out screenshots
        assert result.exit_code == 0
        return
    assert result.exit_code == 1
    assert image.name in result.stderr
    assert source_of(trajectory)["damaged"]


@every_tool
def test_without_any_screenshot_nothing_is_published(root, tool):
    source = WRITERS[tool](root / "theirs")
    for image in source.rglob("*.png"):
        image.write_bytes(b"")
    result = run_import(source, "--task", "Write notes", "--status", "completed")
    assert result.exit_code == 1
    assert "no action became a step" in " ".join(result.stderr.split())
    assert published(root) == []


@pytest.mark.parametrize("value", [None, "x", [], {}, True, 1e300, -1e18, "\ud800", 10**400])
@every_tool
def test_values_of_wrong_types_do_not_stop_an_import(root, tool, value):
    source = WRITERS[tool](root / "theirs")
    log = source / LOGS[tool]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    spoiled = []
    for line in lines:
        spoiled += [line | {name: value} for name in line]
    log.write_text("".join(json.dumps(line) + "\n" for line in (*lines, *spoiled)))
    if tool == "cua_driver":
        for number, turn in enumerate(spoiled):
            folder = source / f"turn-{50 + number:05d}"
            shutil.copytree(source / "turn-00002", folder)
            (folder / "action.json").write_text(json.dumps(turn))
        log.write_text(json.dumps(lines[0]))
    result = run_import(source, "--task", "Write notes", "--status", "completed")
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception


def test_an_imported_trajectory_can_be_reviewed_annotated_and_rebuilt(root):
    trajectory_forms.pc_tracker(root / "theirs")
    assert run_import(root / "theirs").exit_code == 0
    key = imported(root).result.trajectory_id
    assert "1 up to date" in run_command("run").stdout
    noted = run_command("annotate", key, "--provider", "rule")
    assert noted.exit_code == 0, noted.output
    assert "1 done, 0 quarantined" in run_command("run").stdout
    page = run_command("inspect", key).stdout
    assert "no recording: the trajectory was imported" in page
