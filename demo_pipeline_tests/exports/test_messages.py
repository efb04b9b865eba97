"""Tests of the messages export: chats contain the steps of the CUDAG dataset and fit the schema."""

import json
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq

from demo_pipeline.exports.prompts import action_sentence
from demo_pipeline.exports.tool_calls import ToolCall
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, read_lines
from demo_pipeline_tests.exports.forms import build_cudag, build_messages, validate_messages


def all_lines(out: Path) -> list[dict]:
    lines = []
    for path in sorted(out.glob("*.jsonl")):
        lines += read_lines(path)
    return lines


def rows_of(out: Path, pattern: str) -> list[dict]:
    rows = []
    for path in sorted(out.glob(pattern)):
        rows += pq.read_table(path).to_pylist()
    return rows


def test_every_line_fits_the_schema_and_the_validator(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    build_messages([demo], tmp_path / "messages", DatasetSettings())
    schema = json.loads((tmp_path / "messages" / "messages.schema.json").read_text())
    judge = jsonschema.Draft202012Validator(schema)
    lines = all_lines(tmp_path / "messages")
    assert len(lines) == len(TABLE) + 1
    for line in lines:
        judge.validate(line)
        assert (line["first_step"], line["reasoning_source"]) == (0, "none")
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
            assert system["content"] == config["system_prompt"]
            image, text = user["content"]
            assert (image["type"], (tmp_path / image["image"]).is_file()) == ("image", True)
            assert text == {"type": "text", "text": human.removeprefix("<image>\n")}
            assert assistant["content"] == gpt
    tests = read_lines(tmp_path / "cudag" / "test" / "records.jsonl")
    chats = read_lines(tmp_path / "messages" / "test.jsonl")
    assert [chat["id"] for chat in chats] == [test["id"] for test in tests] != []


def test_a_chat_shows_the_configured_number_of_earlier_screenshots(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 4)
    chosen = DatasetSettings(history_images=2)
    out = tmp_path / "out"
    build_messages([demo], out, chosen)
    lines = all_lines(out)
    rows = rows_of(out, "*.parquet")
    screenshot_steps = [
        [part["image"].split("/")[-2] for part in line["messages"][1]["content"][:-1]]
        for line in lines
    ]
    assert screenshot_steps[:4] == [
        ["000"],
        ["000", "001"],
        ["000", "001", "002"],
        ["001", "002", "003"],
    ]
    assert screenshot_steps[4][:2] == ["002", "003"]
    assert len(screenshot_steps[4]) == 3
    for line, row in zip(lines, rows, strict=True):
        *images, text = line["messages"][1]["content"]
        assert row["images"] == [image["image"] for image in images]
        assert all((out / path).is_file() for path in row["images"])
        assert ("The last picture is the screen now" in text["text"]) == (len(images) > 1)
    assert validate_messages(out) == []


def test_the_table_has_the_texts_of_the_lines_and_the_pictures_beside_them(tmp_path):
    build_messages([make_trajectory(tmp_path, "demo", TABLE)], tmp_path / "out", DatasetSettings())
    rows = rows_of(tmp_path / "out", "*.parquet")
    pairs = rows_of(tmp_path / "out", "prompt_completion/*.parquet")
    lines = all_lines(tmp_path / "out")
    assert len(rows) == len(pairs) == len(lines) == len(TABLE) + 1
    for line, row, pair in zip(lines, rows, pairs, strict=True):
        system, user, assistant = line["messages"]
        picture, text = user["content"]
        assert row["messages"] == [system, {**user, "content": text["text"]}, assistant]
        assert row["images"] == pair["images"] == [picture["image"]]
        assert [*pair["prompt"], *pair["completion"]] == row["messages"]
        assert [turn["role"] for turn in pair["completion"]] == ["assistant"]


def test_an_action_line_describes_the_calls_in_words(tmp_path):
    steps = [("wait", {"seconds": 2}), CLICK]
    demos = [make_trajectory(tmp_path, "done", steps)]
    build_messages(demos, tmp_path / "out", DatasetSettings(action_line=True))
    lines = all_lines(tmp_path / "out")
    answers = [line["messages"][2]["content"] for line in lines]
    assert [answer.split("\n")[1] for answer in answers] == ["<tool_call>"] * 3
    words = [answer.split("\n")[0] for answer in answers]
    assert all(line.startswith("Action: ") and len(line) > len("Action: .") for line in words)
    assert words[-1] == "Action: End the task: it is done."
    assert "begins with `Action:`" in lines[0]["messages"][0]["content"]
    assert "Answer with nothing but tool calls" not in lines[0]["messages"][0]["content"]
    assert validate_messages(tmp_path / "out") == []


def test_the_action_line_has_the_coordinates_of_the_calls():
    start = ToolCall("mouse_move", {"coordinate": [500, 250]})
    end = ToolCall("left_click_drag", {"coordinate": [100, 200]})
    words = "Drag from (960, 270) to (192, 216)."
    places = [(960, 270), (192, 216)]
    assert action_sentence([start, end], words, places) == "Drag from (500, 250) to (100, 200)."
    named = 'Click the "(7, 8)" button.'  # a name that only looks like a point of the action
    assert action_sentence([end], named, places[1:]) == named
