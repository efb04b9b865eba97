"""What a model answers in CUA-Lite's form, as our actions; and what is not an answer."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.answers import AnsweredAction, AnswerFormatError, ForeignAction
from demo_pipeline.exports.cua_lite_actions import decode_cua_lite_answer

SIZE = (1920, 1080)
CLICK = {"action": "click", "coordinate": [500, 250]}


def answer(*actions: dict[str, Any]) -> str:
    return json.dumps({"actions": list(actions)})


def plain(text: str) -> list[tuple[str, dict[str, object]]]:
    return [
        (action.action_type.value, action.parameters.members())
        for action in decode_cua_lite_answer(text, SIZE).actions
        if isinstance(action, AnsweredAction)
    ]


CALL = {"id": "call_0000", "type": "function"} | {
    "function": {"name": "computer", "arguments": {"actions": [CLICK]}}
}
MESSAGE = {
    "role": "assistant",
    "content": [
        {"type": "inline_reasoning", "text": "It is there."},
        {"type": "metadata", "data": {"text": "not said"}},
        {"type": "action_description", "text": "Click it."},
    ],
    "tool_calls": [CALL],
}


@pytest.mark.parametrize(
    "value", [MESSAGE, [CALL], CALL, CALL["function"], {"actions": [CLICK]}], ids=str
)
def test_a_call_is_found_however_it_is_wrapped(value: object) -> None:
    assert plain(json.dumps(value)) == [("click", {"x": 960, "y": 270, "button": "left"})]


def test_the_words_beside_the_call_are_the_thought() -> None:
    assert decode_cua_lite_answer(json.dumps(MESSAGE), SIZE).thought == "It is there.\nClick it."


@pytest.mark.parametrize(
    "text",
    ["Done.", json.dumps({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})],
)
def test_the_last_words_end_the_task(text: str) -> None:
    found = decode_cua_lite_answer(text, SIZE)
    assert (found.actions, found.status) == ((), "success")


def test_keys_held_around_an_action_are_its_modifiers() -> None:
    down, up = ({"action": f"key_{way}", "keys": ["ctrl"]} for way in ("down", "up"))
    held = answer(down, CLICK, up)
    wanted = {"x": 960, "y": 270, "button": "left", "modifiers": ["ctrl"]}
    assert plain(held) == [("click", wanted)]
    names = [one.name for one in decode_cua_lite_answer(answer(down, up), SIZE).actions
             if isinstance(one, ForeignAction)]  # fmt: skip
    assert names == ["key_down", "key_up"]


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (
            {"action": "mouse_move", "coordinate": [500, 500]},
            ForeignAction("mouse_move", (960, 540)),
        ),
        ({"action": "drag", "coordinate": [500, 500]}, ForeignAction("drag", (960, 540))),
        ({"action": "scroll", "direction": "up", "amount": 1}, ForeignAction("scroll")),
        ({"action": "click"}, ForeignAction("click")),
        ({"action": "screenshot"}, ForeignAction("screenshot")),
        ({"action": "wait", "duration": 0}, ForeignAction("wait")),
        (
            {"action": "click", "coordinate": [0, 0], "button": "right", "clicks": 2},
            ForeignAction("click", (0, 0)),
        ),
    ],
)
def test_what_we_have_not_is_foreign(action: dict[str, Any], wanted: ForeignAction) -> None:
    assert decode_cua_lite_answer(answer(action), SIZE).actions == (wanted,)


def test_a_point_and_a_box_have_a_place() -> None:
    point = json.dumps({"name": "point", "arguments": {"coordinate": [500, 500]}})
    assert decode_cua_lite_answer(point, SIZE).actions == (ForeignAction("point", (960, 540)),)
    box = json.dumps({"name": "bbox", "arguments": {"coordinate": [0, 0, 100, 200]}})
    assert decode_cua_lite_answer(box, SIZE).actions == (ForeignAction("bbox", (96, 108)),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("I am done.", "not JSON"),
        ("7", "no tool call"),
        ("{}", "no tool call"),
        ("[7]", "not a tool call"),
        ('{"name": "terminate", "arguments": {"status": "success"}}', "unknown tool"),
        ('{"name": "computer", "arguments": {"actions": []}}', "wrong arguments"),
        ('{"name": "computer", "arguments": "{}"}', "wrong arguments"),
        ('{"actions": [{"action": "click", "coordinate": [1, 1001]}]}', "wrong arguments"),
        ('{"actions": [{"action": "key", "keys": ["Return"]}]}', "wrong arguments"),
    ],
)
def test_what_is_no_answer_is_refused_for_a_reason(text: str, reason: str) -> None:
    with pytest.raises(AnswerFormatError) as caught:
        decode_cua_lite_answer(text, SIZE)
    assert caught.value.reason == reason


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["name", "function", "arguments", "actions", "action", "tool_calls",
                         "content", "keys", "coordinate", "text", "type"]), inner),
)  # fmt: skip


@given(st.one_of(st.text(), _JSON.map(json.dumps)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_an_answer_or_refused(text: str) -> None:
    with suppress(AnswerFormatError):
        decode_cua_lite_answer(text, SIZE)
