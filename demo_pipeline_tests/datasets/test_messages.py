"""The messages export: chats that fit their schema, of the same steps as the CUDAG dataset."""

import json
from pathlib import Path

import jsonschema
import pytest

from demo_pipeline.datasets.cudag_build import build_cudag
from demo_pipeline.datasets.messages import build_messages
from demo_pipeline.formats.messages.models import committed_schema, messages_schema
from demo_pipeline.formats.messages.validator import validate_messages
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
    snapshot,
)

STRUCTURED = DatasetSettings(tool_call_format="structured")


def all_lines(out: Path) -> list[dict]:
    return [line for path in sorted(out.glob("*.jsonl")) for line in read_lines(path)]


def test_the_committed_schema_matches_the_models():
    assert committed_schema() == messages_schema()


@pytest.mark.parametrize("settings", [DatasetSettings(), STRUCTURED], ids=["text", "structured"])
def test_every_line_fits_the_schema_and_the_validator(tmp_path, settings):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    build_messages([demo], tmp_path / "messages", settings)
    schema = json.loads((tmp_path / "messages" / "messages.schema.json").read_text())
    judge = jsonschema.Draft202012Validator(schema)
    lines = all_lines(tmp_path / "messages")
    assert len(lines) == len(TABLE) + 1
    for line in lines:
        judge.validate(line)
    assert validate_messages(tmp_path / "messages") == []


def test_a_chat_has_the_content_of_the_cudag_record(tmp_path):
    demos = [
        make_trajectory(tmp_path, f"demo{n}", TABLE[n : n + 4], instruction=f"Do {n}", shade=n)
        for n in range(6)
    ]
    build_messages(demos, tmp_path / "messages", DatasetSettings())
    build_cudag(demos, tmp_path / "cudag", DatasetSettings())
    config = json.loads((tmp_path / "cudag" / "config.json").read_text())
    for split in ("train", "val"):
        chats = read_lines(tmp_path / "messages" / f"{split}.jsonl")
        records = read_lines(tmp_path / "cudag" / f"{split}.jsonl")
        assert [chat["id"] for chat in chats] == [record["id"] for record in records] != []
        for chat, record in zip(chats, records, strict=True):
            system, user, assistant = chat["messages"]
            human, gpt = (turn["value"] for turn in record["conversations"])
            assert system["content"] == [{"type": "text", "text": config["system_prompt"]}]
            assert user["content"] == [
                {"type": "image"},
                {"type": "text", "text": human.removeprefix("<image>\n")},
            ]
            assert assistant["content"] == [{"type": "text", "text": gpt}]
    tests = json.loads((tmp_path / "cudag" / "test" / "test.json").read_text())
    chats = read_lines(tmp_path / "messages" / "test.jsonl")
    assert [chat["id"] for chat in chats] == [test["test_id"] for test in tests] != []


def test_structured_calls_leave_the_tool_to_the_chat_template(tmp_path):
    drag = ("drag", {"start_x": 100, "start_y": 200, "end_x": 960, "end_y": 540})
    build_messages([make_trajectory(tmp_path, "demo", [drag])], tmp_path / "out", STRUCTURED)
    line = all_lines(tmp_path / "out")[0]
    system, _, assistant = line["messages"]
    assert "<tool" not in system["content"][0]["text"]
    assert json.loads(line["tools"])[0]["function"]["name"] == "computer_use"
    calls = [json.loads(call["function"]["arguments"]) for call in assistant["tool_calls"]]
    assert [call["action"] for call in calls] == ["mouse_move", "left_click_drag"]
    assert assistant["content"] == []


def test_text_that_looks_like_markup_is_escaped(tmp_path):
    typed = ("type", {"text": "</tool_call><|im_end|> %"})
    demo = make_trajectory(tmp_path, "demo", [typed, CLICK], instruction="Look at <image> now")
    action = demo.path / "steps" / "000" / "action.json"
    action.write_text(action.read_text().replace("%", "\\ud800"))  # half of a character
    build_messages([demo], tmp_path / "out", DatasetSettings())
    first, second, _ = all_lines(tmp_path / "out")
    answer = first["messages"][2]["content"][0]["text"]
    assert json.loads(answer.split("\n")[1])["arguments"]["text"] == "</tool_call><|im_end|> ?"
    assert answer.count("</tool_call>") == 1
    asked = second["messages"][1]["content"][1]["text"]
    assert "<image>" not in asked
    assert "<|im_end|>" not in asked


def test_the_same_input_gives_the_same_bytes_in_any_order(tmp_path):
    demos = [make_trajectory(tmp_path, name, TABLE[:3], shade=ord(name)) for name in "abc"]
    build_messages(demos, tmp_path / "one", DatasetSettings())
    build_messages(demos[::-1], tmp_path / "two", DatasetSettings())
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_what_is_left_out_is_counted_by_reason(tmp_path):
    rows = {0: {"off_screen": True}, 1: {"pts": None}, 2: {"leak": True}}
    demos = [
        make_trajectory(tmp_path, "good", [CLICK] * 4, rows=rows),
        make_trajectory(tmp_path, "bad", success=False),
    ]
    (make_trajectory(tmp_path, "torn").path / "task.json").write_text("{")
    demos.append(make_trajectory(tmp_path, "whole", shade=5))
    summary = build_messages(demos, tmp_path / "out", DatasetSettings())
    assert summary.excluded_trajectories["failed"] == 1
    assert {
        key: summary.excluded_records[key]
        for key in ("off_screen", "missing_frame", "avoidable_leak")
    } == {"off_screen": 1, "missing_frame": 1, "avoidable_leak": 1}
    assert summary.total == sum(summary.records.values()) == len(all_lines(tmp_path / "out"))
