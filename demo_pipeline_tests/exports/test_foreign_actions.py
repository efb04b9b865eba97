"""Tests of actions in the formats of other projects.

Actions that a format cannot express are counted. The projects' own readers accept the code of all
others.
"""

import os
from typing import Any

import pytest
from hypothesis import given, settings

from demo_pipeline.desktopd.models import PARAMETERS, ActionType
from demo_pipeline.exports.agentnet_code import agentnet_code, decode_agentnet_answer
from demo_pipeline.exports.answers import AnsweredAction, InexpressibleError
from demo_pipeline.exports.cua_lite_actions import lite_actions
from demo_pipeline.exports.tool_calls import (
    WheelUnits,
    cudag_decoder,
    render_tool_calls,
    write_calls,
)
from demo_pipeline_tests.exports.cudag.test_decoder import ACTIONS

# Number of random examples for each test. `make property` sets several thousand.
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "200"))


def action_of(kind: ActionType, **parameters: Any) -> AnsweredAction:
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(parameters))


AT = {"x": 960, "y": 270}
SIZE = (1920, 1080)


@given(ACTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_agentnet_code_is_read_back_as_the_same_actions(action):
    kind, parameters = action
    code = agentnet_code(action_of(ActionType(kind), **parameters), SIZE)
    [read] = decode_agentnet_answer(code, SIZE).actions
    assert isinstance(read, AnsweredAction)
    assert agentnet_code(read, SIZE) == code
    members = read.parameters.members()
    assert (read.action_type, members) == (kind, {**members, **parameters})


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (action_of(ActionType.CLICK, **AT, modifiers=["altgr"]), "unknown_key"),
        (action_of(ActionType.CLICK, **AT, button="middle", clicks=3), "clicks_of_button"),
        (action_of(ActionType.HOTKEY, keys=["altgr", "q"]), "unknown_key"),
        (action_of(ActionType.HOTKEY, keys=["apps"]), "unknown_key"),
    ],
)
def test_agentnet_counts_actions_that_it_cannot_express(action, reason):
    with pytest.raises(InexpressibleError) as caught:
        agentnet_code(action, SIZE)
    assert caught.value.reason == reason


@pytest.mark.parametrize("key", ["altgr", "fn", "é", "numlock"])
def test_cua_lite_counts_actions_that_it_cannot_express(key):
    with pytest.raises(InexpressibleError) as caught:
        lite_actions(action_of(ActionType.HOTKEY, keys=["ctrl", key]), SIZE)
    assert caught.value.reason == "unknown_key"
    with pytest.raises(InexpressibleError):
        lite_actions(action_of(ActionType.CLICK, **AT, modifiers=[key]), SIZE)


def test_agentnet_code_has_the_spelling_that_its_readers_expect():
    drag = {"start_x": 0, "start_y": 108, "end_x": 960, "end_y": 540}
    assert agentnet_code(action_of(ActionType.DRAG, **drag), SIZE) == (
        "pyautogui.moveTo(x=0.0, y=0.1)\n"
        "pyautogui.dragTo(x=0.5, y=0.5, duration=0.6, button='left')"
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
def test_agentnet_readers_accept_a_key_that_was_held_for_long(presses):
    key = action_of(ActionType.HOTKEY, keys=["down"], presses=presses)
    assert decode_agentnet_answer(agentnet_code(key, SIZE), SIZE).actions == (key,)


@pytest.mark.parametrize("width", [1280, 1366, 1440, 1680, 1920, 2560, 3440, 3840])
def test_a_share_times_the_side_is_the_pixel(width):
    for x in range(width):
        code = agentnet_code(action_of(ActionType.CLICK, x=x, y=0), (width, 1080))
        share = float(code.removeprefix("pyautogui.click(x=").partition(",")[0])
        assert round(share * width) == x


def test_agentnet_holds_keys_around_the_action():
    click = action_of(ActionType.CLICK, **AT, modifiers=["ctrl", "shift"])
    assert agentnet_code(click, SIZE).split("\n") == [
        "pyautogui.keyDown('ctrl')",
        "pyautogui.keyDown('shift')",
        "pyautogui.click(x=0.5, y=0.25)",
        "pyautogui.keyUp('shift')",
        "pyautogui.keyUp('ctrl')",
    ]
    assert decode_agentnet_answer(agentnet_code(click, SIZE), SIZE).actions == (click,)


def test_agentnet_holds_the_first_keys_of_many_presses():
    keys = action_of(ActionType.HOTKEY, keys=["ctrl", "z"], presses=9)
    assert agentnet_code(keys, SIZE).split("\n") == [
        "pyautogui.keyDown('ctrl')",
        "pyautogui.press('z', presses=9)",
        "pyautogui.keyUp('ctrl')",
    ]
    assert decode_agentnet_answer(agentnet_code(keys, SIZE), SIZE).actions == (keys,)


def test_cua_lite_holds_keys_around_the_action():
    action = action_of(ActionType.CLICK, **AT, modifiers=["ctrl", "shift"])
    assert lite_actions(action, SIZE) == [
        {"action": "key_down", "keys": ["ctrl", "shift"]},
        {"action": "click", "coordinate": [500, 250]},
        {"action": "key_up", "keys": ["shift", "ctrl"]},
    ]


OPENED = AnsweredAction(
    ActionType.CLICK,
    PARAMETERS[ActionType.CLICK].model_validate(AT),
    hovered=((192, 108), (960, 108)),
)


def test_a_menu_is_opened_by_moves_of_the_pointer_before_the_click():
    assert agentnet_code(OPENED, SIZE).split("\n") == [
        "pyautogui.moveTo(x=0.1, y=0.1)",
        "pyautogui.moveTo(x=0.5, y=0.1)",
        "pyautogui.click(x=0.5, y=0.25)",
    ]
    assert lite_actions(OPENED, SIZE) == [
        {"action": "mouse_move", "coordinate": [100, 100]},
        {"action": "mouse_move", "coordinate": [500, 100]},
        {"action": "click", "coordinate": [500, 250]},
    ]
    calls = write_calls(OPENED, SIZE, WheelUnits())
    assert [call.action for call in calls] == ["mouse_move", "mouse_move", "left_click"]


def test_the_moves_are_read_as_part_of_the_click():
    (code,) = decode_agentnet_answer(agentnet_code(OPENED, SIZE), SIZE).actions
    text = render_tool_calls(write_calls(OPENED, SIZE, WheelUnits()))[0]
    (calls,) = cudag_decoder(WheelUnits())(text, SIZE).actions
    for action in (code, calls):
        assert isinstance(action, AnsweredAction)
        assert action == OPENED
        assert action.hovered == OPENED.hovered


def test_a_menu_may_be_opened_before_a_drag():
    ends = {"start_x": 0, "start_y": 108, "end_x": 960, "end_y": 540}
    parameters = PARAMETERS[ActionType.DRAG].model_validate(ends)
    drag = AnsweredAction(ActionType.DRAG, parameters, hovered=((192, 108),))
    (read,) = decode_agentnet_answer(agentnet_code(drag, SIZE), SIZE).actions
    assert isinstance(read, AnsweredAction)
    assert (read, read.hovered) == (drag, drag.hovered)
