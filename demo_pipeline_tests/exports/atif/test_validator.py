"""The checker of ATIF refuses every change that breaks the format, and calls without an action."""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.answers import AnswerFormatError
from demo_pipeline.exports.atif import decode_atif_answer, validate_atif
from demo_pipeline_tests.datasets.builders import picture

Document = dict[str, Any]
Change = Callable[[Document], object]
SIZE = (64, 36)


def shown(name: str, **more: str) -> dict[str, Any]:
    source = {"media_type": "image/png", "path": f"images/{name}.png"}
    return {**more, "content": [{"type": "image", "source": source}]}


GOOD: Document = {
    "schema_version": "ATIF-v1.8",
    "session_id": "demo",
    "trajectory_id": "demo",
    "agent": {"name": "human", "version": "1.0"},
    "steps": [
        {
            "step_id": 1,
            "source": "user",
            "message": [{"type": "text", "text": "Open it"}, *shown("000")["content"]],
        },
        {
            "step_id": 2,
            "timestamp": "2025-12-03T12:34:56.000+00:00",
            "source": "agent",
            "message": "Click it.",
            "tool_calls": [
                {
                    "tool_call_id": "call_0000",
                    "function_name": "click",
                    "arguments": {"x": 63, "y": 35, "button": "left"},
                }
            ],
            "observation": {"results": [shown("001", source_call_id="call_0000")]},
            "llm_call_count": 0,
            "extra": {"step_index": 0},
        },
        {
            "step_id": 3,
            "source": "system",
            "message": "Not shown: clicked outside the recorded screen.",
            "observation": {"results": [shown("final")]},
        },
    ],
    "extra": {"success": True},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    images = tmp_path / "train/demo/images"
    images.mkdir(parents=True)
    for shade, name in enumerate(("000", "001", "final")):
        (images / f"{name}.png").write_bytes(picture(shade, *SIZE))
    entry = {"trajectory_id": "demo", "split": "train", "file": "train/demo/trajectory.json"}
    (tmp_path / "atif_trajectories.jsonl").write_text(json.dumps(entry) + "\n")
    return tmp_path


def found(root: Path, change: Change | None = None) -> set[str]:
    document = copy.deepcopy(GOOD)
    if change:
        change(document)
    (root / "train/demo/trajectory.json").write_text(json.dumps(document))
    return {problem.code for problem in validate_atif(root)}


def test_a_good_trajectory_is_good(root: Path) -> None:
    assert found(root) == set()


def on(step: int, **members: Any) -> Change:
    return lambda document: document["steps"][step].update(members)


def on_call(**members: Any) -> Change:
    return lambda document: document["steps"][1]["tool_calls"][0].update(members)


def on_arguments(**members: Any) -> Change:
    return lambda document: document["steps"][1]["tool_calls"][0]["arguments"].update(members)


def on_image(**members: Any) -> Change:
    return lambda document: document["steps"][0]["message"][1]["source"].update(members)


def on_result(**members: Any) -> Change:
    return lambda document: document["steps"][1]["observation"]["results"][0].update(members)


MUTATIONS: dict[str, tuple[str, Change]] = {
    "another version": ("invalid_field", lambda doc: doc.update(schema_version="ATIF-v1.5")),
    "no version": ("invalid_field", lambda doc: doc.pop("schema_version")),
    "no agent": ("invalid_field", lambda doc: doc.pop("agent")),
    "no name of the agent": ("invalid_field", lambda doc: doc["agent"].pop("name")),
    "no steps": ("invalid_field", lambda doc: doc.update(steps=[])),
    "an unknown member": ("invalid_field", lambda doc: doc.update(split="train")),
    "an unknown member of a step": ("invalid_field", on(1, action="click")),
    "steps from 0": ("invalid_field", on(0, step_id=0)),
    "a number twice": ("invalid_field", on(2, step_id=2)),
    "steps out of order": ("invalid_field", lambda doc: doc["steps"].reverse()),
    "another source": ("invalid_field", on(1, source="human")),
    "no message": ("invalid_field", lambda doc: doc["steps"][1].pop("message")),
    "a time in words": ("invalid_field", on(1, timestamp="noon")),
    "a call of the user": ("invalid_field", on(0, tool_calls=[])),
    "thoughts without a model": ("invalid_field", on(1, reasoning_content="I think")),
    "metrics without a model": ("invalid_field", on(1, metrics={"prompt_tokens": 1})),
    "a negative number of models": ("invalid_field", on(1, llm_call_count=-1)),
    "a result of no call": ("invalid_field", on_result(source_call_id="call_0009")),
    "no id of a call": (
        "invalid_field",
        lambda doc: doc["steps"][1]["tool_calls"][0].pop("tool_call_id"),
    ),
    "arguments as text": ("invalid_field", on_call(arguments="{}")),
    "another kind of picture": ("invalid_field", on_image(media_type="image/bmp")),
    "a picture with words": (
        "invalid_field",
        lambda doc: doc["steps"][0]["message"][1].update(text="a"),
    ),
    "words without a text": (
        "invalid_field",
        lambda doc: doc["steps"][0]["message"][0].pop("text"),
    ),
    "an unknown tool": ("tool_call", on_call(function_name="computer")),
    "a place outside the screen": ("tool_call", on_arguments(x=64)),
    "a place before the screen": ("tool_call", on_arguments(y=-1)),
    "an unknown argument": ("tool_call", on_arguments(text="a")),
    "an unknown button": ("tool_call", on_arguments(button="back")),
    "a call before a screen": ("no_screen", on(0, message="Open it")),
    "the same call twice": (
        "call_id",
        lambda doc: doc["steps"][1]["tool_calls"].append(doc["steps"][1]["tool_calls"][0]),
    ),
    "an image that is missing": ("image", on_image(path="images/other.png")),
    "an image outside the folder": ("image", on_image(path="../demo/images/000.png")),
    "a system's step first": ("first_step", on(0, source="system")),
    "another id": ("trajectory_id", lambda doc: doc.update(trajectory_id="other")),
    "an image that no step names": ("unused_file", on(2, observation=None)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_is_refused(root: Path, name: str) -> None:
    code, change = MUTATIONS[name]
    assert code in found(root, change)


class TestFolder:
    """The list and the files."""

    def test_a_trajectory_that_is_not_listed(self, root: Path) -> None:
        (root / "atif_trajectories.jsonl").write_text("")
        assert found(root) == {"unlisted"}

    def test_a_listed_trajectory_that_is_missing(self, root: Path) -> None:
        assert {problem.code for problem in validate_atif(root)} == {"missing_file"}

    def test_no_list(self, tmp_path: Path) -> None:
        assert [problem.code for problem in validate_atif(tmp_path)] == ["missing_file"]

    def test_a_trajectory_listed_twice_or_elsewhere(self, root: Path) -> None:
        path = root / "atif_trajectories.jsonl"
        path.write_text(path.read_text() * 2)
        assert found(root) == {"duplicate_id"}
        path.write_text(path.read_text().replace("train/demo", "demo"))
        assert "layout" in found(root)

    def test_a_damaged_image(self, root: Path) -> None:
        (root / "train/demo/images/001.png").write_bytes(picture(1, *SIZE)[:-20])
        assert found(root) == {"image"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Click it.", "not JSON"),
        ('{"message": "Click it."}', "no tool call"),
        ("[7]", "not a tool call"),
        ('{"function_name": "finish", "arguments": {}}', "unknown tool"),
        ('{"function_name": ["click"], "arguments": {}}', "unknown tool"),
        ('{"function_name": "click", "arguments": {"x": 1}}', "wrong arguments"),
        ('{"function_name": "click", "arguments": {"x": 64, "y": 0}}', "place outside the screen"),
    ],
)
def test_what_is_no_answer_is_refused_for_a_reason(text: str, reason: str) -> None:
    with pytest.raises(AnswerFormatError) as caught:
        decode_atif_answer(text, SIZE)
    assert caught.value.reason == reason


def test_the_message_of_a_step_is_the_thought() -> None:
    answer = decode_atif_answer(json.dumps(GOOD["steps"][1]), SIZE)
    assert (len(answer.actions), answer.thought) == (1, "Click it.")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["function_name", "arguments", "tool_calls", "x"]), inner
            )
        ),
    ).map(json.dumps)
    | st.text()
)
@settings(max_examples=200, deadline=None)
def test_any_text_is_an_answer_or_refused(text: str) -> None:
    with suppress(AnswerFormatError):
        decode_atif_answer(text, SIZE)
