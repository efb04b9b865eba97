"""Tests that pyautogui programs are read as actions, and that too large programs are rejected."""

import pytest

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.pyautogui_code import CodeReader
from demo_pipeline.importers.python_program import NotPythonError, UnreadCodeError


def test_loops_variables_and_arithmetic_are_evaluated():
    acts = CodeReader().read(
        "x = 10 + 5\nfor i in range(2):\n    pyautogui.click(x * 2, 20 + i, button='right')"
    )
    assert [(act.kind, act.at) for act in acts] == [
        (ActionType.RIGHT_CLICK, (30, 20)),
        (ActionType.RIGHT_CLICK, (30, 21)),
    ]


def test_two_clicks_of_the_right_button_are_two_actions():
    acts = CodeReader().read("pyautogui.click(7, 8, clicks=2, button='right')")
    assert [(act.kind, act.at) for act in acts] == [(ActionType.RIGHT_CLICK, (7, 8))] * 2


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(10**9):\n    pyautogui.moveTo(1, 1)",
        "for i in range(10**9):\n    pass",
        "for i in range(2000):\n    pyautogui.click(1, 1)",
        "pyautogui.press('a', presses=10**9)",
        "pyautogui.click(1, 1, clicks=10**9)",
    ],
)
def test_a_program_that_does_too_much_is_not_read(code):
    with pytest.raises(UnreadCodeError):
        CodeReader().read(code.replace("10**9", "1000000000"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("click here", NotPythonError),
        ("import os\nos.system('ls')", UnreadCodeError),
        ("while True:\n    pass", UnreadCodeError),
        ("pyautogui.click(*places)", UnreadCodeError),
    ],
)
def test_other_programs_are_refused(code, error):
    with pytest.raises(error):
        CodeReader().read(code)
