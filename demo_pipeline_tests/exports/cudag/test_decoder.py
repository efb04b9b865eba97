"""Tests of decoding a model's tool calls as actions of the pipeline."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction
from demo_pipeline.evaluation.true_steps import places
from demo_pipeline.exports.answers import AnsweredAction, AnswerFormatError, ForeignAction
from demo_pipeline.exports.cudag.records import tool_calls
from demo_pipeline.exports.messages import messages_decoder
from demo_pipeline.exports.tool_calls import WheelUnits, cudag_decoder, render_tool_calls
from demo_pipeline.settings import DatasetSettings

SIZE = (1920, 1080)
WHEEL = WheelUnits(100)
X = st.integers(0, 1919)
Y = st.integers(0, 1079)
AT = {"x": X, "y": Y}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.lists(st.sampled_from(["ctrl", "c", "<", "down"]), min_size=1, max_size=3)
ACTIONS = st.one_of(
    st.tuples(
        st.just("click"),
        st.fixed_dictionaries({**AT, "button": st.sampled_from(["left", "middle"])}),
    ),
    st.tuples(st.just("click"), st.fixed_dictionaries({**AT, "clicks": st.just(3)})),
    st.tuples(st.sampled_from(["double_click", "right_click"]), st.fixed_dictionaries(AT)),
    st.tuples(st.just("type"), st.fixed_dictionaries({"text": TEXTS})),
    st.tuples(
        st.just("hotkey"),
        st.fixed_dictionaries({"keys": KEYS}, optional={"presses": st.integers(2, 5)}),
    ),
    st.tuples(
        st.just("scroll"),
        st.fixed_dictionaries(
            {
                **AT,
                "direction": st.sampled_from(["up", "down", "left", "right"]),
                "amount": st.integers(1, 50),
            }
        ),
    ),
    st.tuples(
        st.just("drag"), st.fixed_dictionaries({"start_x": X, "start_y": Y, "end_x": X, "end_y": Y})
    ),
    st.tuples(st.just("wait"), st.fixed_dictionaries({"seconds": st.floats(0.1, 100)})),
)


def step(kind, parameters):
    return StepAction(
        step_index=0,
        action_type=ActionType(kind),
        parameters=PARAMETERS[ActionType(kind)].model_validate(parameters),
        reasoning="",
    )


def written(action, chosen):
    return render_tool_calls(tool_calls(action, SIZE, chosen))[0]


@given(action=ACTIONS, unit=st.sampled_from(["pixels", "notches"]))
@settings(max_examples=150, deadline=None)
def test_reading_and_writing_again_gives_the_same_text(action, unit):
    chosen = DatasetSettings(cudag_scroll_unit=unit)
    wheel = WheelUnits(1 if unit == "notches" else 100)
    text = written(step(*action), chosen)
    for decode in (cudag_decoder(wheel), messages_decoder(wheel)):
        (read,) = decode(text, SIZE).actions
        assert isinstance(read, AnsweredAction)
        assert read.action_type == action[0]
        again = step(read.action_type, read.parameters.members())
        assert written(again, chosen) == text


def test_a_key_that_was_held_for_a_minute_is_read():
    held = step("hotkey", {"keys": ["down"], "presses": 1800})
    for decode in (cudag_decoder(WHEEL), messages_decoder(WHEEL)):
        (read,) = decode(written(held, DatasetSettings()), SIZE).actions
        assert isinstance(read, AnsweredAction)
        assert read.parameters == held.parameters


def test_the_line_of_words_is_the_thought():
    text = f"Action: End the task.\n{call(action='terminate', status='success')}"
    answer = messages_decoder(WHEEL)(text, SIZE)
    assert (answer.actions, answer.status, answer.thought) == ((), "success", "End the task.")


def call(**arguments):
    value = {"name": "computer_use", "arguments": arguments}
    return f"<tool_call>\n{json.dumps(value)}\n</tool_call>"


def test_lone_pointer_moves_and_drags_without_a_start_are_foreign_actions():
    answer = cudag_decoder(WHEEL)(call(action="mouse_move", coordinate=[500, 500]), SIZE)
    assert answer.actions == (ForeignAction("mouse_move", (960.0, 540.0)),)
    answer = cudag_decoder(WHEEL)(call(action="left_click_drag", coordinate=[500, 500]), SIZE)
    assert answer.actions == (ForeignAction("left_click_drag", (960.0, 540.0)),)
    answer = cudag_decoder(WHEEL)(call(action="scroll", coordinate=[0, 0], pixels=0), SIZE)
    assert answer.actions == (ForeignAction("scroll", (0.0, 0.0)),)


def test_fractions_of_units_are_rounded():
    (read,) = cudag_decoder(WHEEL)(call(action="left_click", coordinate=[500.4, 2.0]), SIZE).actions
    assert places(read) == ((960, 2),)


@pytest.mark.parametrize(
    ("named", "keys"),
    [
        (["Return"], ["enter"]),
        (["escape"], ["esc"]),
        (["Ctrl", "C"], ["ctrl", "c"]),
        (["ctrlleft", "shiftright", "PgDn"], ["ctrl", "shift", "pagedown"]),
        ([" "], ["space"]),
        (["ctrl+c", "NoSuchKey"], ["ctrl+c", "NoSuchKey"]),
    ],
)
def test_a_key_has_our_name_and_an_unknown_one_its_own(named, keys):
    text = call(action="key", keys=named)
    for decode in (cudag_decoder(WHEEL), messages_decoder(WHEEL)):
        (read,) = decode(text, SIZE).actions
        assert isinstance(read, AnsweredAction)
        assert read.parameters.members() == {"keys": keys}


def test_two_names_of_a_key_in_a_row_are_two_presses():
    text = call(action="key", keys=["Return"]) + call(action="key", keys=["enter"])
    (read,) = cudag_decoder(WHEEL)(text, SIZE).actions
    assert isinstance(read, AnsweredAction)
    assert read.parameters.members() == {"keys": ["enter"], "presses": 2}


NO_CALL = "no tool call"
NOT_JSON = "a tool call is not JSON"
BROKEN = "a tool call breaks the grammar"
BAD = [
    ("", NO_CALL),
    ("click (3, 4)", NO_CALL),
    ("<tool_call>{}", BROKEN),
    ("<tool_call>" * 200_000, NOT_JSON),
    ("<tool_call></tool_call>" * 100_001, "too many tool calls"),
    ("<tool_call>x</tool_call>", NOT_JSON),
    ("<tool_call>" + "[" * 100_000 + "</tool_call>", NOT_JSON),
    (call(action="wait", time=2).replace("2", "NaN"), NOT_JSON),
    ("<tool_call>3</tool_call>", BROKEN),
    (call(action="fly"), BROKEN),
    (call(action="left_click"), BROKEN),
    (call(action="left_click", coordinate="3, 4"), BROKEN),
    (call(action="left_click", coordinate=[True, 1]), BROKEN),
    (call(action="left_click", coordinate=[1001, 5]), "a coordinate is out of range"),
    (call(action="left_click", coordinate=[5, -0.5]), "a coordinate is out of range"),
    (call(action="left_click", coordinate=[10**400, 5]), "a coordinate is out of range"),
    (call(action="scroll", coordinate=[5, 5], pixels=10**400), "a scroll is out of range"),
    (call(action="key", keys=[]), BROKEN),
    (call(action="type", text=3), BROKEN),
]


@pytest.mark.parametrize(("text", "reason"), BAD, ids=range(len(BAD)))
def test_an_invalid_answer_has_a_reason_that_does_not_quote_it(text, reason):
    for decode in (cudag_decoder(WHEEL), messages_decoder(WHEEL)):
        with pytest.raises(AnswerFormatError) as caught:
            decode(text, SIZE)
        assert caught.value.reason == reason


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_refused(text):
    for answer in (text, f"<tool_call>{text}</tool_call>", "{" + text):
        with suppress(AnswerFormatError):
            assert cudag_decoder(WHEEL)(answer, SIZE).actions is not None
