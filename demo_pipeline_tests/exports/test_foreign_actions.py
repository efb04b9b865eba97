"""What is written in another form and read again is the same action, or a declared loss."""

import os
import string
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.models import KEY_NAMES, PARAMETERS, ActionType, StepAction, points
from demo_pipeline.exports.agentnet_code import (
    AGENTNET_LOSSES,
    agentnet_code,
    decode_agentnet_answer,
)
from demo_pipeline.exports.answers import (
    ActionEncoder,
    Answer,
    AnsweredAction,
    InexpressibleError,
)
from demo_pipeline.exports.cua_lite_actions import lite_actions

pytestmark = pytest.mark.no_cover  # other tests run the same lines

# `make property` asks for thousands
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "200"))
SIZES = st.sampled_from([(1920, 1080), (1280, 800), (2560, 1440), (640, 480), (1000, 1000)])
MODIFIERS = st.none() | st.lists(
    st.sampled_from(["ctrl", "shift", "alt", "win", "command", "altgr"]), min_size=1, max_size=2
)
KEYS = st.sampled_from(sorted(KEY_NAMES)) | st.sampled_from(string.punctuation + "az09é")
BUTTONS = st.sampled_from(["left", "right", "middle"])


@st.composite
def steps(draw: st.DrawFn) -> tuple[AnsweredAction, tuple[int, int]]:
    """An action of any type on a screenshot of some size."""
    size = draw(SIZES)
    across, down = st.integers(0, size[0] - 1), st.integers(0, size[1] - 1)
    place = {"x": across, "y": down}
    held = {"modifiers": MODIFIERS}
    kinds: dict[ActionType, dict[str, st.SearchStrategy[Any]]] = {
        ActionType.CLICK: {**place, **held, "button": BUTTONS, "clicks": st.none() | st.just(3)},
        ActionType.DOUBLE_CLICK: {**place, **held},
        ActionType.RIGHT_CLICK: {**place, **held},
        ActionType.TYPE: {"text": st.text(st.characters(exclude_categories=["Cs"]))},
        ActionType.HOTKEY: {
            "keys": st.lists(KEYS, min_size=1, max_size=3),
            "presses": st.none() | st.integers(2, 9),
        },
        ActionType.SCROLL: {
            **place,
            **held,
            "direction": st.sampled_from(["up", "down", "left", "right"]),
            "amount": st.integers(1, 50),
        },
        ActionType.DRAG: {
            "start_x": across,
            "start_y": down,
            "end_x": across,
            "end_y": down,
            **held,
            "button": st.none() | BUTTONS,
        },
        ActionType.WAIT: {"seconds": st.floats(0.01, 600)},
    }
    kind = draw(st.sampled_from(list(kinds)))
    values = {name: draw(strategy) for name, strategy in kinds[kind].items()}
    given_values = {name: value for name, value in values.items() if value is not None}
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(given_values)), size


def said(
    encode: ActionEncoder, step: tuple[AnsweredAction, tuple[int, int]], losses: Sequence[str]
) -> Any:
    """The action in a form; None when it is a loss that the form declares."""
    reason = ""
    try:
        return encode(*step)
    except InexpressibleError as error:
        reason = error.reason
    assert reason in losses
    return None


def places(action: AnsweredAction) -> list[tuple[int, int]]:
    shown = StepAction(
        step_index=0,
        action_type=action.action_type,
        parameters=action.parameters,
        reasoning="",
    )
    return points(shown)


def only(answer: Answer) -> AnsweredAction:
    """The one action of an answer."""
    [action] = answer.actions
    assert isinstance(action, AnsweredAction)
    return action


def assert_same(done: AnsweredAction, read: AnsweredAction, reach: tuple[float, float]) -> None:
    """The same action, at places that are not further apart than `reach`, pixels on each axis."""
    for (x, y), (again_x, again_y) in zip(places(done), places(read), strict=True):
        assert abs(x - again_x) <= reach[0]
        assert abs(y - again_y) <= reach[1]
    assert plain(done) == plain(read)


def plain(action: AnsweredAction) -> tuple[str, dict[str, Any]]:
    """Type and parameters, without places; what is spelled in two ways in one of them."""
    kept = {
        name: value
        for name, value in action.parameters.members().items()
        if name not in {"x", "y", "start_x", "start_y", "end_x", "end_y"}
    }
    button = kept.pop("button", None) or "left"
    if action.action_type is ActionType.CLICK and button == "right" and not kept.get("clicks"):
        return "right_click", kept
    with_button = action.action_type in {ActionType.CLICK, ActionType.DRAG}
    return action.action_type.value, kept | ({"button": button} if with_button else {})


def _keys(action: AnsweredAction) -> list[str]:
    members = action.parameters.members()
    return [*(members.get("keys") or []), *(members.get("modifiers") or [])]


def _without_keys(action: AnsweredAction) -> AnsweredAction:
    """CUA-Lite has one name for two of our keys, so keys are compared apart."""
    update = {
        name: ["x"] for name in ("keys", "modifiers") if action.parameters.members().get(name)
    }
    return AnsweredAction(action.action_type, action.parameters.model_copy(update=update))


@given(steps())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_agentnet_says_the_same_again(step: tuple[AnsweredAction, tuple[int, int]]) -> None:
    action, size = step
    code = said(agentnet_code, step, AGENTNET_LOSSES)
    if code is None:
        return
    read = only(decode_agentnet_answer(code, size))
    assert agentnet_code(read, size) == code
    assert_same(action, read, (0, 0))  # a ten-thousandth is less than half a pixel


def action_of(kind: ActionType, **parameters: Any) -> AnsweredAction:
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(parameters))


AT = {"x": 960, "y": 270}
SIZE = (1920, 1080)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (action_of(ActionType.CLICK, **AT, modifiers=["ctrl"]), "held_keys"),
        (action_of(ActionType.CLICK, **AT, button="middle", clicks=3), "clicks_of_button"),
        (action_of(ActionType.HOTKEY, keys=["altgr", "q"]), "unknown_key"),
        (action_of(ActionType.HOTKEY, keys=["apps"]), "unknown_key"),
    ],
)
def test_agentnet_declares_what_it_cannot_say(action: AnsweredAction, reason: str) -> None:
    with pytest.raises(InexpressibleError) as caught:
        agentnet_code(action, SIZE)
    assert caught.value.reason == reason


@pytest.mark.parametrize("key", ["altgr", "fn", "é", "numlock"])
def test_cua_lite_declares_what_it_cannot_say(key: str) -> None:
    with pytest.raises(InexpressibleError) as caught:
        lite_actions(action_of(ActionType.HOTKEY, keys=["ctrl", key]), SIZE)
    assert caught.value.reason == "unknown_key"
    with pytest.raises(InexpressibleError):
        lite_actions(action_of(ActionType.CLICK, **AT, modifiers=[key]), SIZE)


def test_agentnets_code_is_as_its_readers_know_it() -> None:
    drag = {"start_x": 0, "start_y": 108, "end_x": 960, "end_y": 540}
    assert agentnet_code(action_of(ActionType.DRAG, **drag), SIZE) == (
        "pyautogui.moveTo(x=0.0, y=0.1)\npyautogui.dragTo(x=0.5, y=0.5, button='left')"
    )
    scroll = action_of(ActionType.SCROLL, **AT, direction="left", amount=2)
    assert agentnet_code(scroll, SIZE) == "pyautogui.moveTo(x=0.5, y=0.25)\npyautogui.hscroll(-2)"
    keys = action_of(ActionType.HOTKEY, keys=["ctrl", "tab"], presses=2)
    assert agentnet_code(keys, SIZE) == "\n".join(["pyautogui.hotkey(['ctrl', 'tab'])"] * 2)
    key = action_of(ActionType.HOTKEY, keys=["down"], presses=3)
    assert agentnet_code(key, SIZE) == "pyautogui.press('down', presses=3)"
    assert agentnet_code(action_of(ActionType.WAIT, seconds=2.0), SIZE) == "computer.wait(2)"
    text = action_of(ActionType.TYPE, text="it's\n")
    assert agentnet_code(text, SIZE) == 'pyautogui.write(message="it\'s\\n")'


@pytest.mark.parametrize("presses", [1000, 1001, 1500, 2000])
def test_agentnets_readers_take_a_key_that_was_held_for_long(presses: int) -> None:
    key = action_of(ActionType.HOTKEY, keys=["down"], presses=presses)
    assert decode_agentnet_answer(agentnet_code(key, SIZE), SIZE).actions == (key,)


def test_agentnet_cannot_say_keys_together_that_were_held_for_long() -> None:
    keys = action_of(ActionType.HOTKEY, keys=["ctrl", "z"], presses=8)
    assert decode_agentnet_answer(agentnet_code(keys, SIZE), SIZE).actions == (keys,)
    with pytest.raises(InexpressibleError, match="held_keys"):
        agentnet_code(action_of(ActionType.HOTKEY, keys=["ctrl", "z"], presses=9), SIZE)


def test_cua_lite_holds_keys_around_the_action() -> None:
    action = action_of(ActionType.CLICK, **AT, modifiers=["ctrl", "shift"])
    assert lite_actions(action, SIZE) == [
        {"action": "key_down", "keys": ["ctrl", "shift"]},
        {"action": "click", "coordinate": [500, 250]},
        {"action": "key_up", "keys": ["shift", "ctrl"]},
    ]
