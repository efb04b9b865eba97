"""An action in our own form, and the inverse."""

import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    action_text,
    decode_action_text,
)
from demo_pipeline_tests.exports.random_actions import RANDOM_ACTIONS

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "100"))
SIZE = (1920, 1080)
CLICK = {"action_type": "click", "parameters": {"x": 1, "y": 2, "button": "left"}}


@given(RANDOM_ACTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_an_action_is_read_as_it_was_written(action: AnsweredAction) -> None:
    text = action_text(action.action_type, action.parameters)
    assert "\n" not in text
    assert decode_action_text(text, SIZE) == Answer((action,))
    (read,) = decode_action_text(text, SIZE).actions
    assert isinstance(read, AnsweredAction)
    assert action_text(read.action_type, read.parameters) == text


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
@example("[" * 100_000)
@example("9" * 5000)
@example('{"action_type": ["click"], "parameters": {}}')
@example('{"action_type": "click", "parameters": {"x": 1e400, "y": 0}}')
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_other_text_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(AnswerFormatError) as caught:
        decode_action_text(text, SIZE)
    assert caught.value.reason in {
        "not JSON",
        "no object of action_type and parameters",
        "unknown action_type",
        "parameters that do not fit the action_type",
    }


@pytest.mark.parametrize(
    "value",
    [
        {**CLICK, "target_element": None},
        {**CLICK, "action_type": "tap"},
        {**CLICK, "action_type": "drag"},
        {**CLICK, "parameters": {**CLICK["parameters"], "z": 3}},  # type: ignore[dict-item]
        {**CLICK, "parameters": {"x": "1", "y": 2}},
        [CLICK],
    ],
)
def test_what_is_not_quite_an_action_is_refused(value: object) -> None:
    with pytest.raises(AnswerFormatError):
        decode_action_text(json.dumps(value), SIZE)


def test_half_a_character_becomes_a_question_mark() -> None:
    text = json.dumps({"action_type": "type", "parameters": {"text": "a\ud800"}})
    (action,) = decode_action_text(text, SIZE).actions
    assert isinstance(action, AnsweredAction)
    assert '"a?"' in action_text(action.action_type, action.parameters)
