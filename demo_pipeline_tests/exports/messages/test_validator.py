"""The messages validator reports every fault with its line, and never crashes."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.messages import validate_messages
from demo_pipeline_tests.datasets.builders import picture
from demo_pipeline_tests.places import file_and_line

WAIT = '{"name": "computer_use", "arguments": {"action": "wait", "time": 1}}'
CALL = f"<tool_call>\n{WAIT}\n</tool_call>"
GOOD: dict[str, Any] = {
    "id": "demo_000",
    "trajectory_id": "demo",
    "step_index": 0,
    "application": "chrome",
    "task_type": "wait",
    "messages": [
        {"role": "system", "content": "You act."},
        {
            "role": "user",
            "content": [
                {"type": "image", "image": "images/a.png"},
                {"type": "text", "text": "Wait"},
            ],
        },
        {"role": "assistant", "content": CALL},
    ],
}
Change = Callable[[dict[str, Any]], object]


def answer(text: str) -> Change:
    return lambda line: line["messages"][2].update(content=text)


def asked(text: str) -> Change:
    return lambda line: line["messages"][1]["content"][1].update(text=text)


def shown(path: str) -> Change:
    return lambda line: line["messages"][1]["content"][0].update(image=path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(picture(1, 64, 36))
    (tmp_path / "images" / "cut.png").write_bytes(picture(1, 64, 36)[:-20])
    for name in ("train", "val", "test"):
        (tmp_path / f"{name}.jsonl").write_text("")
    return tmp_path


def found(root: Path, *lines: object) -> list[tuple[str, str]]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "val.jsonl").write_text(text)
    return [(problem.code, problem.location) for problem in validate_messages(root)]


def test_good_lines_are_good_with_and_without_words_first(root: Path) -> None:
    second = copy.deepcopy(GOOD) | {"id": "demo_001"}
    answer(f"Action: Wait for the page.\n{CALL}")(second)
    assert found(root, GOOD, second) == []


BAD: dict[str, tuple[str, Change]] = {
    "no id": ("invalid_field", lambda line: line.pop("id")),
    "an id with a space": ("invalid_field", lambda line: line.update(id="a b")),
    "a system's content that is a list": (
        "invalid_field",
        lambda line: line["messages"][0].update(content=[{"type": "text", "text": "You act."}]),
    ),
    "structured calls": (
        "unknown_field",
        lambda line: line["messages"][2].update(tool_calls=[]),
    ),
    "an image that names no file": (
        "invalid_field",
        lambda line: line["messages"][1]["content"][0].pop("image"),
    ),
    "content that is a string": (
        "invalid_field",
        lambda line: line["messages"][1].update(content="Wait"),
    ),
    "a part of no known type": (
        "invalid_field",
        lambda line: line["messages"][1]["content"][0].update(type="video"),
    ),
    "a role of no known kind": (
        "invalid_field",
        lambda line: line["messages"][1].update(role="human"),
    ),
    "two user turns": ("roles", lambda line: line["messages"].insert(1, line["messages"][1])),
    "no answer": ("roles", lambda line: line["messages"].pop()),
    "system last": ("roles", lambda line: line["messages"].append(line["messages"].pop(0))),
    "no image": ("image_count", lambda line: line["messages"][1]["content"].pop(0)),
    "a missing picture": ("image", shown("images/b.png")),
    "a picture that is cut off": ("image", shown("images/cut.png")),
    "a picture outside": ("image", shown("../a.png")),
    "a picture by a way that leads up": ("image", shown("images/../images/a.png")),
    "a path with a zero byte": ("image", shown("a\0.png")),
    "a directory": ("image", shown("images")),
    "prose for an answer": ("tool_call", answer("I would wait.")),
    "words beside the call": ("tool_call", answer(f"{CALL}\nThere.")),
    "a call with other arguments": ("tool_call", answer(CALL.replace("time", "seconds"))),
    "no text at all": ("invalid_field", answer("")),
    "words and no call": ("tool_call", answer("Action: Wait for the page.")),
    "two lines of words": ("tool_call", answer(f"Action: Wait.\nAction: Wait.\n{CALL}")),
    "a marker in the words": ("tool_call", answer(f"Action: See <tool_call>.\n{CALL}")),
    "a marker in the prompt": ("marker", asked("see <image>")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_fault_is_reported_with_its_line(root: Path, name: str) -> None:
    code, change = BAD[name]
    line = copy.deepcopy(GOOD) | {"id": "demo_001"}
    change(line)
    assert (code, "val.jsonl:2") in found(root, GOOD, line)


def test_a_duplicate_id_is_reported_with_the_first_location(root: Path) -> None:
    (root / "train.jsonl").write_text(json.dumps(GOOD) + "\n")
    assert found(root, GOOD) == [("duplicate_id", "val.jsonl:1")]
    assert "train.jsonl:1" in validate_messages(root)[0].message


def test_broken_and_missing_files_are_reported(root: Path) -> None:
    (root / "train.jsonl").unlink()
    (root / "test.jsonl").write_bytes(b'{"a": \n\xff\n\n')
    problems = validate_messages(root)
    assert [(one.code, file_and_line(one)) for one in problems] == [
        ("missing_file", "train.jsonl"),
        ("invalid_json", "test.jsonl:1"),
        ("invalid_json", "test.jsonl:2"),
        ("blank_line", "test.jsonl:3"),
    ]


def test_nothing_that_was_typed_is_repeated(root: Path) -> None:
    secret = copy.deepcopy(GOOD)
    answer('<tool_call>\n{"name": "hunter2", "arguments": "hunter2"}\n</tool_call>hunter2')(secret)
    found(root, secret)
    assert validate_messages(root)
    assert "hunter2" not in "".join(map(str, validate_messages(root)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(key=st.sampled_from(sorted(GOOD)), value=JSON)
def test_no_value_anywhere_makes_it_crash(root: Path, key: str, value: object) -> None:
    for problem in validate_messages(root) if found(root, {**GOOD, key: value}) else []:
        assert problem.line == 1
