"""Tests that each fault in a valid CUDAG dataset is reported with its place and message."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.problems import errors
from demo_pipeline_tests.datasets.builders import picture
from demo_pipeline_tests.exports.cudag.editing import (
    Change,
    drop,
    edit_json,
    edit_line,
    edit_test,
    put,
)
from demo_pipeline_tests.places import file_and_line

CALL = (
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", '
    '"coordinate": [260, 278]}}\n</tool_call>'
)
KEY = (
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "key", "keys": ["ctrl", "c"]}}\n'
    "</tool_call>"
)
TURN = ("conversations", 1, "value")
Mutation = tuple[Callable[[Path], Any], str, str]


def line(number: int, change: Change, file: str = "train.jsonl") -> Callable[[Path], Any]:
    return lambda root: edit_line(root, file, number, change)


def answer(number: int, old: str, new: str) -> Callable[[Path], Any]:
    """Returns a change that replaces a part of the tool calls in a line of train.jsonl."""

    def change(record: Any) -> None:
        turn = record["conversations"][1]
        assert old in turn["value"]
        turn["value"] = turn["value"].replace(old, new)

    return line(number, change)


def entry(change: Change, number: int = 1) -> Callable[[Path], Any]:
    return lambda root: edit_test(root, number, change)


def on_line(number: int, change: Change, message: str) -> Mutation:
    """Returns a mutation of a line of train.jsonl; the problem is reported for the same line."""
    return line(number, change), f"train.jsonl:{number}", message


def in_call(number: int, old: str, new: str, message: str) -> Mutation:
    """Returns a mutation of the tool calls in a line of train.jsonl."""
    return answer(number, old, new), f"train.jsonl:{number}", message


def in_test(number: int, change: Change, message: str) -> Mutation:
    """Returns a mutation of an entry of test.json; the problem is reported for the same entry."""
    return entry(change, number), f"test.json:{number}", message


def beside_test(change: Change, message: str) -> Mutation:
    """Returns a mutation of the record that belongs to the second entry of test.json."""
    file = "test/records.jsonl"
    return line(2, change, file), f"{file}:2", f"{message} from this entry of test.json"


def meta(key: str, value: Any) -> Change:
    return put("metadata", key, value=value)


def in_json(file: str, change: Change) -> Callable[[Path], Any]:
    return lambda root: edit_json(root, file, change)


def without(place: str) -> Callable[[Path], Any]:
    def change(root: Path) -> None:
        path = root / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def with_content(place: str, content: bytes) -> Callable[[Path], Any]:
    """Returns a change that replaces a file, without changing other hard links to the file."""

    def change(root: Path) -> None:
        (root / place).unlink()
        (root / place).write_bytes(content)

    return change


def with_image(number: int, content: bytes) -> Callable[[Path], Any]:
    """Returns a change that replaces the image of a line of train.jsonl."""

    def change(root: Path) -> None:
        record = json.loads((root / "train.jsonl").read_text().splitlines()[number - 1])
        with_content(record["image"], content)(root)

    return change


def appended(file: str, content: bytes) -> Callable[[Path], Any]:
    return lambda root: with_content(file, (root / file).read_bytes() + content)(root)


def first_of(root: Path, file: str) -> Any:
    return json.loads((root / file).read_text().splitlines()[0])


def borrowed(*keys: str) -> Callable[[Path], Any]:
    """Returns a change that copies a value from line 1 of train.jsonl to line 1 of val.jsonl."""

    def change(root: Path) -> None:
        value: Any = first_of(root, "train.jsonl")
        for key in keys:
            value = value[key]
        edit_line(root, "val.jsonl", 1, put(*keys, value=value))

    return change


def swapped(file: str) -> Callable[[Path], Any]:
    """Returns a change that swaps the second and the third line of a file."""

    def change(root: Path) -> None:
        lines = (root / file).read_bytes().splitlines(keepends=True)
        lines[1:3] = reversed(lines[1:3])
        (root / file).write_bytes(b"".join(lines))

    return change


def leaked(root: Path) -> None:
    """Gives the first entry of test.json the prompt and the image of a training record."""
    record = first_of(root, "train.jsonl")
    prompt = record["conversations"][0]["value"].removeprefix("<image>\n")
    edit_test(root, 1, put("prompt", value=prompt))
    shot = json.loads((root / "test" / "test.json").read_text())[0]["screenshot"]
    with_content(f"test/{shot}", (root / record["image"]).read_bytes())(root)


RECORDS: list[Mutation] = [
    on_line(1, drop("id"), "id: Field required"),
    on_line(1, put("id", value="a b"), "id must match [A-Za-z0-9_-]+: a b"),
    on_line(2, drop("image"), "image: Field required"),
    on_line(
        2, put("image", value="/images/a.png"), "Invalid image path: /images/a.png (must start"
    ),
    on_line(2, put("image", value="images/a/b.png"), "Image name is not flat: images/a/b.png"),
    on_line(2, put("image", value="images/nothing.png"), "Image not found: images/nothing.png"),
    on_line(2, put("image", value="images/a.gif"), "Image must be .png or .jpg:"),
    on_line(3, drop("conversations", 1), "conversations[1]: Field required"),
    on_line(
        3, lambda r: r["conversations"].reverse(), "conversations[0].from: Input should be 'human'"
    ),
    on_line(
        3, put("conversations", 0, value="<image>\nClick"), "conversations[0]: Input should be a"
    ),
    on_line(1, put(*TURN, value=3), "conversations[1].value: Input should be a valid string"),
    on_line(
        1, put(*TURN, value=f"Sure\n{CALL}"), "conversations[1].value: must start with '<tool_"
    ),
    in_call(1, "computer_use", "browser", "gpt tool call 1: tool call name must"),
    in_call(1, '"action"', '"speed": 3, "action"', "gpt tool call 1: left_click"),
    in_call(1, "left_click", "press", "gpt tool call 1: action must be one of"),
    in_call(1, "278]", "279]", "metadata.real_coords is [260, 278] in RU, but"),
    in_call(6, "[500, 500]", "[501, 500]", "metadata.end_coords is [500, 500]"),
    on_line(4, drop("metadata"), "metadata: Field required"),
    on_line(4, drop("metadata", "task_type"), "metadata.task_type: Field required"),
    on_line(4, drop("metadata", "real_coords"), "metadata.real_coords: Field required"),
    on_line(4, meta("real_coords", [1, 2, 3]), "metadata.real_coords: List should have at most 2"),
    on_line(
        4, meta("real_coords", [1900, 1079]), "metadata.real_coords is [990, 999] in RU, but the"
    ),
    on_line(
        4, meta("real_coords", [1920, 1079]), "metadata.real_coords [1920, 1079] is outside the"
    ),
    on_line(4, meta("tolerance", [5]), "tolerance must be [tol_x, tol_y] array"),
    on_line(
        4, meta("tolerance", [-5, 5]), "tolerance must not be negative: no prediction is within it"
    ),
    on_line(4, drop("metadata", "tolerance"), "metadata.tolerance: Field required"),
    on_line(4, meta("image_size", [1280, 720]), "metadata.real_coords [1919, 1079] is outside the"),
    on_line(
        4, meta("has_coordinate", False), "metadata.has_coordinate is false, but a tool call has a"
    ),
    on_line(
        4, meta("end_coords", [3, 4]), "metadata.end_coords must be [0, 0] for an action without"
    ),
    on_line(6, meta("end_coords", [900, 540]), "metadata.end_coords is [469, 500] in RU, but the"),
    on_line(
        11, meta("tolerance", [5, 5]), "metadata.tolerance must be [0, 0] for an action without"
    ),
    on_line(7, meta("scroll_direction", "north"), "metadata.scroll_direction"),
    on_line(7, meta("scroll_amount", -1), "metadata.scroll_amount"),
    on_line(12, meta("presses", 0), "metadata.presses"),
    on_line(12, meta("presses", 2), "metadata.presses is 2, but the turn presses its keys 1 times"),
    in_call(
        12, KEY, f"{KEY}\n{KEY}", "metadata.presses is 1, but the turn presses its keys 2 times"
    ),
    in_test(1, meta("presses", 2), "metadata.presses is 2, but the expected action is not key"),
    on_line(8, meta("trajectory_id", ""), "metadata.trajectory_id"),
    on_line(8, meta("target_bbox", [0, 0, 0, 1001]), "metadata.target_bbox"),
    on_line(8, meta("extra", 1), "metadata has 1 unknown key"),
    on_line(9, lambda _: [1], "record: Input should be a valid dictionary"),
]

TESTS: list[Mutation] = [
    in_test(1, drop("test_id"), "test_id: Field required"),
    in_test(1, put("screenshot", value="oos_images/a.png"), "Invalid image path: oos_images/a.png"),
    in_test(1, put("screenshot", value="images/a.png"), "Image not found: test/images/a.png"),
    in_test(1, put("screenshot", value="images/a.jpg"), "Image must be .png: images/a.jpg"),
    in_test(1, put("prompt", value=""), "prompt: String should have at least 1 character"),
    in_test(1, put("expected_action", value="click"), "expected_action: Input should be a"),
    in_test(
        1, put("expected_action", "name", value="browser"), "expected_action.name: Input should"
    ),
    in_test(1, drop("expected_action", "arguments"), "expected_action.arguments: Field"),
    in_test(1, drop("expected_action", "arguments", "action"), "expected_action.arguments.action:"),
    in_test(
        1, put("expected_action", "arguments", "action", value="tap"), "expected_action: action"
    ),
    in_test(
        1,
        put("expected_action", "arguments", "coordinate", value=[1500, 3]),
        "expected_action: left_click argument coordinate must be [x, y] with integers from 0",
    ),
    in_test(5, drop("tolerance"), "tolerance must be [tol_x, tol_y] array"),
    in_test(5, put("tolerance", value=[11, 10]), "tolerance differs from metadata.tolerance"),
    in_test(5, drop("metadata"), "metadata: Field required"),
    in_test(5, meta("real_coords", [20, 0]), "metadata.real_coords is [10, 0] in RU, but the"),
    in_test(5, meta("start_coords", [3, 4]), "metadata.start_coords must be [0, 0], except of a"),
    in_test(6, meta("start_coords", [1920, 4]), "metadata.start_coords [1920, 4] is outside the"),
    in_test(6, meta("has_coordinate", False), "a test compares a place, and this action has none"),
    in_test(6, drop("metadata", "start_coords"), "metadata.start_coords: Field required"),
    in_test(
        5, put("tolerance", value=[-1, 10]), "tolerance must not be negative: no prediction is"
    ),
    beside_test(put("id", value="other"), "the id differs"),
    beside_test(put("image", value="test/images/other.png"), "the image differs"),
    beside_test(put("conversations", 0, "value", value="<image>\nElse"), "the human turn differs"),
    beside_test(put(*TURN, value=CALL), "the last tool call differs"),
    beside_test(put("metadata", "task_type", value="scroll"), "the task_type differs"),
    (appended("test/records.jsonl", b"{oops}\n"), "test/records.jsonl:15", "not valid JSON"),
    (
        with_content("test/records.jsonl", b""),
        "test/records.jsonl",
        "has 0 lines with a place for 10",
    ),
    (swapped("test/test.json"), "test/records.jsonl:1", "the id differs from this entry"),
]

CONFIGS: list[Mutation] = [
    (
        in_json("splits.json", lambda _: [1]),
        "splits.json",
        "trajectory 'demo_2' of train.jsonl:1 is",
    ),
    (
        in_json("splits.json", drop("trajectories", "drawing")),
        "splits.json",
        "trajectory 'drawing'",
    ),
    (
        in_json("splits.json", put("trajectories", "drawing", "split", value="val")),
        "splits.json",
        "trajectory 'drawing' of held_out.jsonl:1 is not listed so",
    ),
    (
        in_json("splits.json", put("trajectories", "demo_1", "group", value="task_demo_0")),
        "splits.json",
        "group 'task_demo_0' is in val (val.jsonl:1) and in test (test.json:1)",
    ),
]

FILES: list[Mutation] = [
    (without("config.json"), "./", "Missing required file: config.json"),
    (without("data.jsonl"), "./", "Missing required file: data.jsonl"),
    (without("train.jsonl"), "./", "Missing required file: train.jsonl"),
    (without("val.jsonl"), "./", "Missing required file: val.jsonl"),
    (without("test/test.json"), "test/", "Missing required file: test.json"),
    (without("test"), "./", "Missing required directory: test/"),
    (without("held_out.jsonl"), "data.jsonl:29", "record 'drawing_000' is in no split"),
    (with_content("config.json", b"{"), "config.json:1", "not valid JSON: Expecting property name"),
    (with_content("config.json", b"[]"), "config.json", "must be a JSON object"),
    (with_content("splits.json", b'{\n"a": }'), "splits.json:2", "not valid JSON: Expecting value"),
    (with_content("dataset_info.json", b"\xff"), "dataset_info.json:1", "not UTF-8 text"),
    (with_content("test/test.json", b"{}"), "test.json", "must be a JSON array"),
    (appended("val.jsonl", b"\xff\xfe\n"), "val.jsonl:15", "not UTF-8 text"),
    (
        appended("train.jsonl", b"[" * 5000 + b"]" * 5000 + b"\n"),
        "train.jsonl:15",
        "record: Input should be a valid dictionary",
    ),
    (borrowed("id"), "val.jsonl:1", "id 'demo_2_000' is not unique, first at train.jsonl:1"),
    (borrowed("image"), "val.jsonl:1", "image images/demo_2_000.png is not unique, first at"),
    (borrowed("metadata", "trajectory_id"), "val.jsonl:1", "trajectory 'demo_2' is also in split"),
    (leaked, "test.json:1", "same image and prompt as train.jsonl:1 in split train"),
]

IMAGES: list[Mutation] = [
    (without("images"), "./", "Missing required directory: images/"),
    (without("test/images"), "test/", "Missing required directory: images/"),
    (
        with_image(3, b""),
        "train.jsonl:3",
        "Image does not open (empty file): images/demo_2_002.png",
    ),
    (with_image(3, b"GIF89a"), "train.jsonl:3", "Image does not open (neither PNG nor JPEG):"),
    (with_image(3, picture(1)[:-20]), "train.jsonl:3", "Image does not open (PNG is cut off):"),
    (
        with_image(3, picture(1)[:300] + b"\0" + picture(1)[301:]),
        "train.jsonl:3",
        "Image does not open (damaged PNG (checksum of a chunk)): images/demo_2_002.png",
    ),
    (
        with_image(3, picture(1, 64, 36)),
        "train.jsonl:3",
        "metadata.image_size [1920, 1080] is not the",
    ),
]

MUTATIONS = [*RECORDS, *TESTS, *CONFIGS, *FILES, *IMAGES]


@pytest.mark.parametrize(("change", "place", "message"), MUTATIONS)
def test_one_fault_has_its_message_and_location(copy, change, place, message):
    change(copy)
    problems = errors(validate_cudag(copy))
    lines = [f"{file_and_line(problem)}: {problem.message}" for problem in problems]
    assert any(line.startswith(f"{place}: {message}") for line in lines), lines
    assert all(str(copy) not in str(problem) for problem in problems)
