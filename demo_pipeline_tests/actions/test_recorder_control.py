"""Tests which final actions of a log may have been made to stop the recorder."""

import pytest

from demo_pipeline.actions.build_actions import has_stop_form, possible_stop
from demo_pipeline.actions.inputs import Input
from demo_pipeline_tests.actions.streams import (
    Part,
    actions,
    chord,
    click,
    flattened,
    inputs,
    lift,
    move,
    press,
    tap,
    typed,
)


def stop_of(*parts: Part) -> str:
    """Describes the last action if it may have stopped the recorder, or returns an empty string."""
    read: list[Input] = inputs(flattened(parts))
    stop = possible_stop(actions(*parts), read)
    return stop.describe() if stop else ""


@pytest.mark.parametrize(
    ("keys", "is_stop"),
    [
        (("ctrl", "shift", "f9"), True),
        (("f10",), True),
        (("ctrl", "alt", "r"), True),
        (("command", "shift", "5"), True),
        (("pause",), True),
        (("alt", "printscreen"), True),
        (("playpause",), True),
        (("ctrl", "s"), False),
        (("command", "q"), False),
        (("enter",), False),
        (("esc",), False),
        (("f",), False),
        (("alt", "shift"), False),  # switches the input language
        (("win",), False),
        (("volumeup",), False),
        ((), False),
    ],
)
def test_the_forms_of_a_recorders_shortcut(keys, is_stop):
    assert has_stop_form(keys) is is_stop


def test_the_last_shortcut_or_click_of_a_log_may_be_its_stop():
    last = chord(900, "ControlLeft", "ShiftLeft", "F9")
    assert stop_of(click(0), last) == "hotkey(ctrl+shift+f9)"
    assert stop_of(typed(0, "KeyA"), move(500, 50, 60), click(900)) == "click(50, 60)"
    assert stop_of(tap(0, "KeyA"), move(500, 52, 61), click(900), move(1500, 52, 61))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([chord(0, "ControlLeft", "KeyS")], id="Ctrl+S saves"),
        pytest.param([click(0), typed(900, "KeyA", "KeyB")], id="typing"),
        pytest.param([click(0, button="Right")], id="a context menu"),
        pytest.param([click(0), click(200)], id="a double click"),
        pytest.param([press(0, 5, 5), move(50, 90, 90), lift(90, 90, 90)], id="a drag"),
        pytest.param([click(0), move(600, 300, 300)], id="the pointer went on"),
        pytest.param([tap(0, "F9"), lift(500, 4, 4)], id="input without an action follows"),
        pytest.param([], id="nothing"),
    ],
)
def test_actions_that_stop_no_recorder(parts):
    assert stop_of(*parts) == ""
