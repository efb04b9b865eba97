"""Tests of the content of a CUDAG dataset."""

import json
from pathlib import Path
from typing import Any

import cv2
import pytest

from demo_pipeline.exports.cudag.dataset import dataset_directory_name
from demo_pipeline.exports.cudag.models import to_ru
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.exports.prompts import system_prompt
from demo_pipeline.exports.tool_calls import parse_tool_calls
from demo_pipeline.problems import Severity, errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, read_lines
from demo_pipeline_tests.exports.cudag.editing import read_records, read_tests
from demo_pipeline_tests.exports.forms import build_cudag

TRAIN = DatasetSettings(train_ratio=1.0, val_ratio=0.0)
TEST = DatasetSettings(train_ratio=0.0, val_ratio=0.0)
BOX = {"target_x": 900, "target_y": 500, "target_width": 192, "target_height": 54}

# For each action of builders.TABLE and the end: task_type, calls, real_coords and tolerance.
POINT = [260, 278]
CENTRE = [500, 500]
EXPECTED: list[tuple[str, list[dict[str, Any]], tuple[int, int], tuple[int, int]]] = [
    ("left-click", [{"action": "left_click", "coordinate": POINT}], (500, 300), (10, 10)),
    ("middle-click", [{"action": "middle_click", "coordinate": POINT}], (500, 300), (10, 10)),
    ("triple-click", [{"action": "triple_click", "coordinate": POINT}], (500, 300), (10, 10)),
    ("right-click", [{"action": "right_click", "coordinate": [999, 999]}], (1919, 1079), (10, 10)),
    ("double-click", [{"action": "double_click", "coordinate": [0, 0]}], (0, 0), (10, 10)),
    (
        "drag",
        [
            {"action": "mouse_move", "coordinate": [52, 185]},
            {"action": "left_click_drag", "coordinate": CENTRE},
        ],
        (100, 200),
        (5, 5),
    ),
    ("scroll", [{"action": "scroll", "coordinate": CENTRE, "pixels": 300}], (960, 540), (50, 50)),
    ("scroll", [{"action": "scroll", "coordinate": CENTRE, "pixels": -200}], (960, 540), (50, 50)),
    ("scroll", [{"action": "hscroll", "coordinate": CENTRE, "pixels": -100}], (960, 540), (50, 50)),
    ("scroll", [{"action": "hscroll", "coordinate": CENTRE, "pixels": 400}], (960, 540), (50, 50)),
    ("type", [{"action": "type", "text": "google.com"}], (0, 0), (0, 0)),
    ("hotkey", [{"action": "key", "keys": ["ctrl", "c"]}], (0, 0), (0, 0)),
    ("wait", [{"action": "wait", "time": 2.5}], (0, 0), (0, 0)),
    ("terminate", [{"action": "terminate", "status": "success"}], (0, 0), (0, 0)),
]


def build(root: Path, demos, chosen=TRAIN, name="out"):
    out = root / name
    return out, build_cudag(demos, out, chosen)


def test_every_action_of_the_table_becomes_its_tool_calls(tmp_path):
    out, summary = build(tmp_path, [make_trajectory(tmp_path, "demo", TABLE)])
    records = list(read_records(out / "train.jsonl"))
    assert len(records) == len(EXPECTED)
    for record, (kind, calls, place, tolerance) in zip(records, EXPECTED, strict=True):
        tool_calls = parse_tool_calls(record.conversations[1].value)
        assert [call.named_arguments() for call in tool_calls] == calls
        metadata = record.metadata
        assert (metadata.task_type, metadata.real_coords, metadata.tolerance) == (
            kind,
            place,
            tolerance,
        )
        coordinate = tool_calls[0].arguments.get("coordinate")
        assert metadata.has_coordinate == (coordinate is not None)
        if coordinate:
            assert to_ru(
                metadata.real_coords[0], metadata.real_coords[1], metadata.image_size
            ) == tuple(coordinate)
    assert records[5].metadata.end_coords == (960, 540)
    assert [records[n].metadata.scroll_direction for n in (6, 7, 8, 9, 10)] == [
        "up",
        "down",
        "left",
        "right",
        "",
    ]
    assert [records[n].metadata.scroll_amount for n in (6, 7, 8, 9, 10)] == [3, 2, 1, 4, 0]
    assert summary.records == {"train": 14, "val": 0, "test": 0, "held_out": 0}
    assert summary.details["task_counts"]["scroll"] == 4


def test_a_test_expects_the_call_at_a_place(tmp_path):
    """Typing, keys, waits and the end have no position, so they are only in records.jsonl."""
    out, summary = build(tmp_path, [make_trajectory(tmp_path, "demo", TABLE)], TEST)
    tests = read_tests(out / "test" / "test.json")
    tested = [row for row in EXPECTED if "coordinate" in row[1][-1]]
    assert (len(tests), summary.records["test"]) == (len(tested), len(EXPECTED)) == (10, 14)
    for test, (kind, calls, place, tolerance) in zip(tests, tested, strict=True):
        assert test.expected_action.name == "computer_use"
        assert test.expected_action.arguments == calls[-1]
        is_drag = kind == "drag"
        assert test.metadata.real_coords == ((960, 540) if is_drag else place)
        assert test.metadata.start_coords == (place if is_drag else (0, 0))
        assert test.metadata.end_coords == (0, 0)
        assert test.tolerance == tolerance
        assert (out / "test" / test.screenshot).is_file()
        drawn = out / "test" / "annotated" / f"{test.test_id}_annotated.png"
        assert drawn.is_file()
    assert len(read_lines(out / "test" / "records.jsonl")) == len(EXPECTED)
    assert not any((out / "images").iterdir())
    assert "<image>" not in tests[0].prompt
    assert errors(validate_cudag(out)) == []
    table = read_lines(out / "test" / "test.jsonl")
    calls = [json.loads(row["expected_action"])["arguments"] for row in table]
    assert calls == [test.expected_action.arguments for test in tests]


def test_a_demonstration_of_keys_alone_has_records_and_no_test(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [("hotkey", {"keys": ["enter"]})])
    out, summary = build(tmp_path, [demo], TEST)
    assert summary.records["test"] == 2
    assert json.loads((out / "test" / "test.json").read_text()) == []
    assert len(read_lines(out / "test" / "records.jsonl")) == 2
    assert errors(validate_cudag(out)) == []


def test_scripts_without_a_system_prompt_get_it_in_the_first_turn(tmp_path):
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", [CLICK])])
    system_prompt = (out / "system_prompt.txt").read_text().rstrip()
    qwen_records = json.loads((out / "qwen_vl" / "train.json").read_text())
    records = read_lines(out / "train.jsonl")
    for record, qwen_record in zip(records, qwen_records, strict=True):
        first = qwen_record["conversations"][0]
        assert first["value"].startswith(f"<image>\n{system_prompt}\n\nOpen Chrome")
        first["value"] = first["value"].replace(f"{system_prompt}\n\n", "")
        assert qwen_record == record
    assert sorted(path.name for path in (out / "qwen_vl").iterdir()) == ["train.json"]


def test_a_record_has_an_estimate_of_its_tokens(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 40)
    out, _ = build(tmp_path, [demo])
    tokens = [record.metadata.tokens for record in read_records(out / "train.jsonl")]
    # The image takes 2693 tokens. The system prompt and a call take the rest.
    assert 2693 + 600 < tokens[0] < 2693 + 1000
    assert tokens[30] > tokens[0] + 30 * 20
    assert abs(tokens[39] - tokens[35]) < 10  # both prompts list the last 30 actions


def test_the_annotation_marks_the_target_and_nothing_far_from_it(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK], rows={0: BOX}, shade=7)
    out, _ = build(tmp_path, [demo], TEST)
    drawn = cv2.imread(str(out / "test" / "annotated" / "demo_000_annotated.png"))
    assert drawn is not None
    assert drawn[540, 960].tolist() == [0, 0, 255]
    assert drawn[540, 960 - 60].tolist() == [0, 200, 0]
    assert drawn[100, 100].tolist() == [7, 7, 7]


def test_later_prompts_list_the_previous_actions(tmp_path):
    actions = [CLICK, ("type", {"text": "hi"}), ("hotkey", {"keys": ["enter"]})]
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", actions)])
    human = [record.conversations[0].value for record in read_records(out / "train.jsonl")]
    assert human[0] == "<image>\nOpen Chrome"
    assert human[2] == (
        "<image>\nOpen Chrome\n\nPrevious actions:\n"
        '1. {"action": "left_click", "coordinate": [500, 500]}\n'
        '2. {"action": "type", "text": "hi"}'
    )
    assert human[3].endswith('3. {"action": "key", "keys": ["enter"]}')


RUN = ("hotkey", {"keys": ["shift", "down"], "presses": 3})
PRESS = {"action": "key", "keys": ["shift", "down"]}


def test_each_press_of_a_repeated_key_is_a_call_of_the_same_answer(tmp_path):
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", [CLICK, RUN, CLICK])])
    click, run, after, _ = read_records(out / "train.jsonl")
    calls = parse_tool_calls(run.conversations[1].value)
    assert [call.named_arguments() for call in calls] == [PRESS] * 3
    assert [record.metadata.presses for record in (click, run, after)] == [1, 3, 1]
    line = '2. {"action": "key", "keys": ["shift", "down"]} 3 times'
    assert after.conversations[0].value.endswith(line)
    assert errors(validate_cudag(out)) == []


def test_tolerance_and_box_come_from_the_target(tmp_path):
    scroll = ("scroll", {"x": 960, "y": 540, "direction": "up", "amount": 1})
    demo = make_trajectory(tmp_path, "demo", [CLICK, scroll], rows={0: BOX, 1: BOX})
    out, _ = build(tmp_path, [demo])
    click, wheel, _ = read_records(out / "train.jsonl")
    assert click.metadata.tolerance == (31, 12)
    assert click.metadata.target_bbox == (469, 463, 569, 513)
    assert wheel.metadata.tolerance == (50, 50)


def test_a_button_is_tested_at_its_centre_and_keeps_the_place_of_the_person(tmp_path):
    edge = ("click", {"x": 900, "y": 553, "button": "left"})
    roles = ("button", "menuitem", "textfield", "table")
    targets = {n: {"id": "node_1", "role": role, "name": ""} for n, role in enumerate(roles)}
    rows = dict.fromkeys(range(4), BOX)
    demo = make_trajectory(tmp_path, "demo", [edge] * 4, rows=rows, targets=targets)
    out, _ = build(tmp_path, [demo], TEST)
    *whole, field, table = read_tests(out / "test" / "test.json")
    for test in whole:
        assert test.expected_action.arguments["coordinate"] == [519, 488]
        assert (test.metadata.real_coords, test.metadata.person_coords) == ((996, 527), (900, 553))
        assert test.tolerance == test.metadata.tolerance == (50, 25)
        assert test.metadata.target_bbox == (469, 463, 569, 513)
    for test in (field, table):
        assert test.metadata.target_bbox == (0, 0, 0, 0)
        assert test.expected_action.arguments["coordinate"] == [469, 512]
        assert test.metadata.real_coords == test.metadata.person_coords == (900, 553)
    record = next(iter(read_records(out / "test" / "records.jsonl")))
    assert (record.metadata.real_coords, record.metadata.tolerance) == ((900, 553), (1, 1))
    drawn = cv2.imread(str(out / "test" / "annotated" / "demo_000_annotated.png"))
    assert drawn is not None
    assert drawn[527, 996].tolist() == [0, 0, 255]
    assert errors(validate_cudag(out)) == []


def test_in_a_large_area_only_the_point_itself_is_accepted(tmp_path):
    """If the whole area were the tolerance, a wrong cell of a spreadsheet would be accepted."""
    places = {0: (100, 100, 1200, 800), 1: (100, 100, 1200, 800), 2: (880, 500, 160, 50)}
    rows = {n: dict(zip(BOX, box, strict=True)) for n, box in places.items()}
    targets = {
        n: {"id": "node_1", "role": role, "name": ""}
        for n, role in enumerate(("textarea", "button", "textarea"))
    }
    steps = [("click", {"x": 960, "y": 527, "button": "left"})] * 3
    demo = make_trajectory(tmp_path, "demo", steps, rows=rows, targets=targets)
    out, _ = build(tmp_path, [demo])
    area, button, small, _ = read_records(out / "train.jsonl")
    assert (area.metadata.tolerance, area.metadata.target_bbox) == ((10, 10), (0, 0, 0, 0))
    assert button.metadata.tolerance == (50, 50)
    assert small.metadata.tolerance == (10, 10)


def test_a_point_near_an_edge_accepts_nothing_beyond_it(tmp_path):
    at_edge = ("click", {"x": 902, "y": 527, "button": "left"})
    outside = ("click", {"x": 899, "y": 527, "button": "left"})
    rows = {0: BOX, 1: BOX}
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", [at_edge, outside], rows=rows)])
    near, off, _ = read_records(out / "train.jsonl")
    assert near.metadata.tolerance == (1, 25)
    assert off.metadata.tolerance == (1, 25)


def test_both_ends_of_a_drag_have_a_small_tolerance_whatever_the_target(tmp_path):
    drag = ("drag", {"start_x": 960, "start_y": 527, "end_x": 100, "end_y": 100})
    demo = make_trajectory(tmp_path, "demo", [drag], rows={0: BOX})
    out, _ = build(tmp_path, [demo], TRAIN)
    record, _ = read_records(out / "train.jsonl")
    assert record.metadata.tolerance == (5, 5)
    assert json.loads((out / "config.json").read_text())["tolerance"]["drag"] == 5


def test_a_built_dataset_is_valid_and_has_all_splits(tmp_path):
    demos = [
        make_trajectory(tmp_path, f"demo.{n}", TABLE, shade=20 * n, group=f"t{n}") for n in range(4)
    ]
    demos.append(make_trajectory(tmp_path, "apart", TABLE, shade=100, application="gimp"))
    chosen = DatasetSettings(held_out_applications=("gimp",))
    out, summary = build(tmp_path, demos, chosen, dataset_directory_name(demos, chosen))
    assert validate_cudag(out) == []
    assert all(summary.records.values())
    report = json.loads((out / "splits.json").read_text())
    assert {key: part["records"] for key, part in report["splits"].items()} == summary.records
    assert sum(part["trajectories"] for part in report["splits"].values()) == 5
    assert json.loads((out / "config.json").read_text())["split_filled"] == report["filled"]


def test_an_empty_dataset_is_valid_and_has_no_held_out_file(tmp_path):
    name = dataset_directory_name([], DatasetSettings())
    assert name == "demonstrations--demo-pipeline--19700101_000000"
    out, summary = build(tmp_path, [], DatasetSettings(), name)
    assert validate_cudag(out) == []
    assert not (out / "held_out.jsonl").exists()
    assert sum(summary.records.values()) == 0


def test_the_end_says_whether_the_task_was_done(tmp_path):
    demos = [
        make_trajectory(tmp_path, "good"),
        make_trajectory(tmp_path, "bad", success=False, shade=30),
    ]
    chosen = TRAIN.model_copy(update={"include_failed": True})
    out, _ = build(tmp_path, demos, chosen)
    ends = {
        record.metadata.trajectory_id: parse_tool_calls(record.conversations[1].value)[0].arguments
        for record in read_records(out / "data.jsonl")
        if record.metadata.task_type == "terminate"
    }
    assert ends == {"good": {"status": "success"}, "bad": {"status": "failure"}}


@pytest.mark.parametrize("waits", [0, 1])
def test_there_is_no_end_when_the_video_ends_before_the_last_action(tmp_path, waits):
    actions = [CLICK, CLICK, *([("wait", {"seconds": 2.5})] * waits)]
    demo = make_trajectory(tmp_path, "demo", actions, rows={1: {"end_filmed": False}})
    out, summary = build(tmp_path, [demo])
    records = list(read_records(out / "train.jsonl"))
    assert [record.metadata.task_type for record in records][:2] == ["left-click"] * 2
    assert len(records) == 2 + waits
    assert summary.excluded_records["hidden_end"] == 1


def test_the_end_of_a_wait_need_not_be_in_the_video(tmp_path):
    actions = [CLICK, ("wait", {"seconds": 2.5})]
    demo = make_trajectory(tmp_path, "demo", actions, rows={1: {"end_filmed": False}})
    out, _ = build(tmp_path, [demo])
    assert list(read_records(out / "train.jsonl"))[-1].metadata.task_type == "terminate"


def test_steps_without_frame_or_position_give_no_record_but_are_history(tmp_path):
    held = ("click", {"x": 10, "y": 10, "button": "left", "modifiers": ["ctrl"]})
    actions = [CLICK, CLICK, held, CLICK]
    rows = {0: {"off_screen": True}, 1: {"pts": None}}
    demo = make_trajectory(tmp_path, "demo", actions, rows=rows)
    out, summary = build(tmp_path, [demo])
    records = list(read_records(out / "train.jsonl"))
    assert [record.metadata.step_index for record in records] == [3, 4]
    left_out = {reason: count for reason, count in summary.excluded_records.items() if count}
    assert left_out == {"off_screen": 1, "missing_frame": 1, "no_tool_call": 1}
    report = json.loads((out / "splits.json").read_text())
    assert report["excluded"]["records"] == summary.excluded_records
    history = records[0].conversations[0].value.splitlines()[4:]
    assert history[0] == '1. {"action": "left_click"} outside the recorded screen'
    assert history[1] == '2. {"action": "left_click", "coordinate": [500, 500]}'
    assert history[2].endswith("while holding ctrl")


def test_the_same_screenshot_with_another_prompt_is_a_warning(tmp_path):
    demos = [make_trajectory(tmp_path, f"demo_{n}", instruction=f"Task {n}") for n in range(3)]
    name = dataset_directory_name(demos, DatasetSettings())
    out, summary = build(tmp_path, demos, DatasetSettings(), name)
    assert summary.excluded_records["split_leak"] == 0
    (problem,) = validate_cudag(out)
    assert (problem.code, problem.severity) == ("shared_image", Severity.WARNING)
    assert problem.message.startswith("2 images are in more than one split")


def test_a_leaking_step_is_only_in_the_history_unless_included(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK], rows={0: {"leak": True}})
    out, summary = build(tmp_path, [demo])
    records = list(read_records(out / "train.jsonl"))
    assert [record.metadata.step_index for record in records] == [1, 2]
    assert '1. {"action": "left_click"' in records[0].conversations[0].value
    assert summary.excluded_records["avoidable_leak"] == 1
    included = TRAIN.model_copy(update={"include_avoidable_leaks": True})
    _, summary = build(tmp_path, [demo], included, "all")
    assert (summary.excluded_records["avoidable_leak"], summary.records["train"]) == (0, 3)


def test_markers_are_escaped_and_counted(tmp_path):
    typed = "a </tool_call> <image> <|im_start|>"
    actions = [("type", {"text": typed}), CLICK]
    demo = make_trajectory(tmp_path, "demo", actions, instruction="Write <image> and <|im_end|>")
    name = dataset_directory_name([demo], TRAIN)
    out, summary = build(tmp_path, [demo], TRAIN, name)
    first, second, _ = read_records(out / "train.jsonl")
    assert parse_tool_calls(first.conversations[1].value)[0].arguments == {"text": typed}
    assert "\\u003cimage>" in first.conversations[1].value
    assert first.conversations[0].value == "<image>\nWrite [image] and [|im_end|]"
    assert second.conversations[0].value.count("<image>") == 1
    assert summary.details["escaped"] == {"prompts": 2, "tool_calls": 3}
    assert validate_cudag(out) == []


def test_positive_pixels_scroll_up_and_prompt_and_config_say_so(tmp_path):
    scroll = ("scroll", {"x": 960, "y": 540, "direction": "down", "amount": 2})
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", [scroll])], TRAIN)
    (call,) = parse_tool_calls(next(read_records(out / "train.jsonl")).conversations[1].value)
    assert call.arguments["pixels"] == -200
    config = json.loads((out / "config.json").read_text())
    assert config["scroll"]["positive"] == "up"
    assert config["system_prompt"] == system_prompt(TRAIN)
    assert "positive to scroll up" in config["system_prompt"]
    assert "1000 x 1000" in config["system_prompt"]


def test_the_unit_of_the_wheel_is_a_setting_shown_in_prompt_and_config(tmp_path):
    notches = TRAIN.model_copy(update={"cudag_scroll_unit": "notches"})
    scroll = ("scroll", {"x": 960, "y": 540, "direction": "down", "amount": 2})
    out, _ = build(tmp_path, [make_trajectory(tmp_path, "demo", [scroll])], notches)
    (call,) = parse_tool_calls(next(read_records(out / "train.jsonl")).conversations[1].value)
    assert call.arguments["pixels"] == -2
    config = json.loads((out / "config.json").read_text())
    assert (config["scroll"]["unit"], config["scroll"]["pixels_per_notch"]) == ("notches", 1)
    assert "it counts notches of the wheel, not pixels" in config["system_prompt"]
    assert "notches of the wheel" in (out / "tools.json").read_text()
    assert errors(validate_cudag(out)) == []


def test_the_configuration_has_every_documented_key(tmp_path):
    demo = make_trajectory(tmp_path, "demo", recorded_at="2025-12-03T14:34:56.789+02:00")
    out, _ = build(tmp_path, [demo])
    config = json.loads((out / "config.json").read_text())
    documented = "name_prefix seed task_types task_counts train_split system_prompt"
    assert set(documented.split()) | {"task_distributions", "generated_at"} <= set(config)
    assert config["generated_at"] == "2025-12-03T12:34:56Z"
    assert config["task_counts"] == {"left-click": 1, "terminate": 1}
    assert config["task_distributions"] == {"left-click": 0.5, "terminate": 0.5}


def test_the_directory_is_named_after_the_newest_recording_that_takes_part(tmp_path):
    demos = [
        make_trajectory(tmp_path, "a", recorded_at="2025-12-03T12:34:56Z"),
        make_trajectory(tmp_path, "b", recorded_at="2025-11-03T12:34:56Z"),
        make_trajectory(tmp_path, "c", recorded_at="2026-01-03T12:34:56Z", success=False),
    ]
    chosen = DatasetSettings(name_prefix="calendar")
    assert dataset_directory_name(demos, chosen) == "calendar--demo-pipeline--20251203_123456"
    assert dataset_directory_name(demos, DatasetSettings(name_prefix="calendar", user="mike")) == (
        "calendar--mike--20251203_123456"
    )
    out, _ = build(tmp_path, demos)
    generated = json.loads((out / "config.json").read_text())["generated_at"]
    assert generated == "2025-12-03T12:34:56Z"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user", "a--b"),
        ("user", "a/b"),
        ("name_prefix", "-a"),
        ("name_prefix", "a-"),
    ],
)
def test_a_setting_that_breaks_the_directory_name_is_refused(key, value):
    with pytest.raises(ValueError, match=f"datasets.{key}"):
        dataset_directory_name([], DatasetSettings().model_copy(update={key: value}))
