"""Tests of cases that caused trouble in training, such as held keys and empty splits."""

import ast
import json

import pytest
import yaml

from demo_pipeline.evaluation.predictions import without_thoughts
from demo_pipeline.exports.agentnet_code import agentnet_code
from demo_pipeline.exports.messages import messages_decoder
from demo_pipeline.exports.token_estimates import picture_tokens, resized
from demo_pipeline.exports.tool_calls import WheelUnits, cudag_decoder
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, read_lines
from demo_pipeline_tests.exports.forms import (
    build_cudag,
    build_described,
    build_messages,
    validate_messages,
)
from demo_pipeline_tests.exports.test_foreign_actions import action_of

TRAIN = DatasetSettings(train_ratio=1, val_ratio=0)
ONE_CALL = (
    '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [500, 500]}}'
)


def held(presses: int) -> tuple[str, dict[str, object]]:
    return "hotkey", {"keys": ["backspace"], "presses": presses}


@pytest.mark.parametrize(("presses", "written"), [(8, True), (9, False), (364, False)])
def test_a_key_that_was_held_is_at_most_eight_calls(tmp_path, presses, written):
    demo = make_trajectory(tmp_path, "demo", [CLICK, held(presses), CLICK])
    for name, build in (("messages", build_messages), ("cudag", build_cudag)):
        summary = build([demo], tmp_path / name, TRAIN)
        assert summary.excluded_records["held_key"] == (not written)
    lines = read_lines(tmp_path / "messages/train.jsonl")
    steps = [0, 1, 2, 3] if written else [0, 2, 3]
    assert [line["step_index"] for line in lines] == steps
    assert max(line["messages"][-1]["content"].count("<tool_call>") for line in lines) <= 8
    last = lines[-1]["messages"][1]["content"][1]["text"]
    assert f"{presses} times" in last  # the history still contains all presses


def test_only_the_latest_actions_of_a_long_history_are_listed(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 35)
    build_messages([demo], tmp_path / "messages", TRAIN)
    build_cudag([demo], tmp_path / "cudag", TRAIN)
    histories = [
        line["messages"][1]["content"][1]["text"].partition("Previous actions:\n")[2].splitlines()
        for line in read_lines(tmp_path / "messages/train.jsonl")
    ]
    assert [len(lines) for lines in histories[:31]] == list(range(31))
    assert histories[30][0].startswith("1. ")
    assert histories[31][0] == "1 earlier action"
    assert histories[35][0] == "5 earlier actions"
    assert [lines[-1].partition(".")[0] for lines in histories[31:]] == [
        "31",
        "32",
        "33",
        "34",
        "35",
    ]
    assert len(histories[35]) == 31
    human = read_lines(tmp_path / "cudag/train.jsonl")[-1]["conversations"][0]["value"]
    assert "5 earlier actions" in human


def test_one_demonstration_lists_only_the_split_that_has_records(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3)
    for name in ("sft", "messages", "cudag", "agentnet", "cua_lite"):
        build_described(name, [demo], tmp_path / name, TRAIN)
        front = yaml.safe_load((tmp_path / name / "README.md").read_text().split("---\n")[1])
        assert front["configs"]
        for config in front["configs"]:
            assert {file["split"] for file in config["data_files"]} == {"train"}
    listed = json.loads((tmp_path / "cudag/dataset_info.json").read_text())
    assert list(listed) == ["demonstrations_train"]


def test_a_marker_in_typed_text_is_not_in_the_code_and_the_text_is_the_same():
    text = "see <image> and \\<image>\n'\"é"
    code = agentnet_code(action_of("type", text=text), (1920, 1080))  # type: ignore[arg-type]
    assert "<image>" not in code
    [call] = ast.parse(code).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert ast.literal_eval(call.value.keywords[0].value) == text


@pytest.mark.parametrize(
    "answer",
    [
        f"<think>I write <tool_call> and then</think>\n<tool_call>\n{ONE_CALL}\n</tool_call>",
        f"so a <tool_call> it is</think><tool_call>\n{ONE_CALL}\n</tool_call>",
        f"<tool_call>\n{ONE_CALL}\n",
        f"<tool_call>\n```json\n{ONE_CALL}\n```\n</tool_call>",
        f"Here it is:\n```json\n{ONE_CALL}\n```",
    ],
)
def test_thoughts_fences_and_a_missing_end_tag_are_accepted_in_answers(answer):
    decode = cudag_decoder(WheelUnits())
    [action] = decode(without_thoughts(answer), (1000, 1000)).actions
    assert action.parameters.members()["x"] == 500  # type: ignore[union-attr]


# Size of an image, max_pixels, and the result of `smart_resize` in transformers 5.19.0 with factor
# 28 and min_pixels 3,136.
RESIZED = [
    ((1920, 1080), 12_845_056, (1932, 1092)),
    ((1920, 1080), 2_073_600, (1904, 1064)),
    ((1366, 768), 1_003_520, (1316, 728)),
    ((1080, 1920), 200_704, (336, 588)),
    ((40, 30), 200_704, (84, 56)),
]


@pytest.mark.parametrize(("size", "most", "seen"), RESIZED)
def test_pictures_have_the_size_that_the_image_processor_gives_them(size, most, seen):
    assert resized(size, most) == seen
    assert picture_tokens(size, most) == seen[0] * seen[1] // 28**2 + 2


@pytest.mark.parametrize(("most", "seen"), [(12_845_056, (1932, 1092)), (200_704, (588, 336))])
def test_absolute_coordinates_are_pixels_of_the_resized_picture(tmp_path, most, seen):
    corner = ("click", {"x": 1919, "y": 1079, "button": "left"})
    demo = make_trajectory(tmp_path, "demo", [corner, CLICK])
    settings = TRAIN.model_copy(update={"coordinates": "absolute", "max_pixels": most})
    build_described("messages", [demo], tmp_path / "messages", settings)
    first, second, _ = read_lines(tmp_path / "messages/train.jsonl")
    assert first["coordinate_size"] == list(seen)
    decode = messages_decoder(WheelUnits(), most)
    for line, place in ((first, (1919, 1079)), (second, (960, 540))):
        [action] = decode(line["messages"][-1]["content"], (1920, 1080)).actions
        at = action.parameters  # type: ignore[union-attr]
        assert abs(at.x - place[0]) <= 1920 / seen[0]  # type: ignore[union-attr]
        assert abs(at.y - place[1]) <= 1080 / seen[1]  # type: ignore[union-attr]
    system, user, _ = (turn["content"] for turn in second["messages"])
    assert f"{seen[0]} x {seen[1]} pixels" in system
    assert f'"coordinate": [{seen[0] - 1}, {seen[1] - 1}]' in user[1]["text"]
    card = (tmp_path / "messages/README.md").read_text()
    assert f"[960, 270] is [{seen[0] // 2}, {seen[1] // 4}]" in card
    assert validate_messages(tmp_path / "messages") == []
    build_cudag([demo], tmp_path / "cudag", settings)
    human = read_lines(tmp_path / "cudag/train.jsonl")[1]["conversations"][0]["value"]
    assert '"coordinate": [999, 999]' in human


def test_the_card_says_how_long_the_longest_record_is(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3)
    build_described("messages", [demo], tmp_path / "messages", TRAIN)
    tokens = max(line["tokens"] for line in read_lines(tmp_path / "messages/train.jsonl"))
    card = (tmp_path / "messages/README.md").read_text()
    assert f"about {tokens} tokens" in card
    assert "--max_length 4096" in card
