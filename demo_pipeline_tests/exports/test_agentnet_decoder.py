"""Tests of decoding a model's answers in AgentNet's format."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.agentnet_code import decode_agentnet_answer, read_code
from demo_pipeline.exports.answers import AnsweredAction, AnswerFormatError, ForeignAction

SIZE = (1920, 1080)
ANSWER = """## Observation:
A desktop.

## Thought:
The button is there.

## Action:
Click it.

## Code:
```python
pyautogui.click(x=0.5, y=0.25)
```
"""


def plain(code: str) -> list[tuple[str, dict[str, object]]]:
    """Decodes an answer that is only code; returns type and parameters of its actions."""
    return [
        (action.action_type.value, action.parameters.members())
        for action in decode_agentnet_answer(code, SIZE).actions
        if isinstance(action, AnsweredAction)
    ]


def at(x: int, y: int, **more: object) -> dict[str, object]:
    return {"x": x, "y": y, **more}


@pytest.mark.parametrize(
    ("code", "kind", "parameters"),
    [
        ("pyautogui.click(x=0.5, y=0.25)", "click", at(960, 270, button="left")),
        ("pyautogui.click(0.5, 0.25)", "click", at(960, 270, button="left")),
        ("pyautogui.click(x=1.0, y=1)", "click", at(1919, 1079, button="left")),
        ("pyautogui.middleClick(x=0.5, y=0)", "click", at(960, 0, button="middle")),
        ("computer.tripleClick(x=0, y=0)", "click", at(0, 0, button="left", clicks=3)),
        ("pyautogui.rightClick(x=0.5, y=0.25)", "right_click", at(960, 270)),
        ("pyautogui.doubleClick(x=0.5, y=0.25)", "double_click", at(960, 270)),
        ("pyautogui.click(x=0.5, y=0.25, clicks=2)", "double_click", at(960, 270)),
        ("pyautogui.click(x=0.5, y=0.25, button='right')", "right_click", at(960, 270)),
        (
            "pyautogui.moveTo(x=0, y=0.1)\npyautogui.dragTo(x=0.5, y=0.5, button='left')",
            "drag",
            {"start_x": 0, "start_y": 108, "end_x": 960, "end_y": 540},
        ),
        (
            "pyautogui.moveTo(x=0.5, y=0.5)\npyautogui.scroll(-3)",
            "scroll",
            at(960, 540, direction="down", amount=3),
        ),
        ("pyautogui.hscroll(2, x=0, y=0)", "scroll", at(0, 0, direction="right", amount=2)),
        ("pyautogui.hotkey(['ctrl', 'c'])", "hotkey", {"keys": ["ctrl", "c"]}),
        ("pyautogui.hotkey('ctrl', 'C')", "hotkey", {"keys": ["ctrl", "c"]}),
        ("pyautogui.press('return')", "hotkey", {"keys": ["enter"]}),
        ("pyautogui.press(keys='tab', presses=3)", "hotkey", {"keys": ["tab"], "presses": 3}),
        (
            "pyautogui.hotkey(['alt', 'tab'])\npyautogui.hotkey(['alt', 'tab'])",
            "hotkey",
            {"keys": ["alt", "tab"], "presses": 2},
        ),
        (
            "pyautogui.keyDown('ctrl')\npyautogui.click(x=0.5, y=0.5)\npyautogui.keyUp('ctrl')",
            "click",
            at(960, 540, button="left", modifiers=["ctrl"]),
        ),
        (
            "pyautogui.keyDown('ctrl')\npyautogui.press('z', presses=9)\npyautogui.keyUp('ctrl')",
            "hotkey",
            {"keys": ["ctrl", "z"], "presses": 9},
        ),
        (
            "pyautogui.keyDown('ctrl')\npyautogui.press('c')\npyautogui.keyUp('ctrl')",
            "hotkey",
            {"keys": ["ctrl", "c"]},
        ),
        (
            "pyautogui.keyDown('win')\npyautogui.keyUp('win')",
            "hotkey",
            {"keys": ["win"]},
        ),
        ("pyautogui.write(message='a\\nb')", "type", {"text": "a\nb"}),
        ("pyautogui.typewrite('x', interval=0.1)", "type", {"text": "x"}),
        ("computer.wait()", "wait", {"seconds": 1.0}),
        ("computer.wait(2.5)", "wait", {"seconds": 2.5}),
    ],
)
def test_a_call_is_one_of_our_actions(code, kind, parameters):
    assert plain(code) == [(kind, parameters)]


def test_keys_pressed_in_turn_are_actions_in_turn():
    assert plain("pyautogui.press(['up', 'down'], presses=2)") == [
        ("hotkey", {"keys": [key]}) for key in ("up", "down", "up", "down")
    ]


class TestWords:
    """The code of an answer can be in a section, in a code fence, or be the whole text."""

    def test_below_its_heading(self):
        answer = decode_agentnet_answer(ANSWER, SIZE)
        assert (len(answer.actions), answer.thought) == (1, "The button is there.")

    def test_in_the_last_block(self):
        text = "First.\n```\nno\n```\nSo:\n```python\ncomputer.wait()\n```"
        answer = decode_agentnet_answer(text, SIZE)
        assert (len(answer.actions), answer.thought) == (1, "First.\n```\nno\n```\nSo:")

    def test_a_block_that_is_cut_off(self):
        assert plain("## Code\n```python\ncomputer.wait()") == [("wait", {"seconds": 1.0})]

    def test_the_end_of_the_task(self):
        answer = decode_agentnet_answer("computer.terminate(status='failure')", SIZE)
        assert (answer.actions, answer.status) == ((), "failure")
        answer = decode_agentnet_answer("computer.wait()\ncomputer.terminate('success')", SIZE)
        assert (len(answer.actions), answer.status) == (1, "success")


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("pyautogui.moveTo(x=0.5, y=0.5)", ForeignAction("moveTo", (960, 540))),
        ("pyautogui.dragTo(x=0.5, y=0.5)", ForeignAction("dragTo", (960, 540))),
        ("pyautogui.scroll(5)", ForeignAction("scroll")),
        (
            "pyautogui.keyDown('ctrl')\npyautogui.write('a')\npyautogui.keyUp('ctrl')",
            ForeignAction("write"),
        ),
        ("pyautogui.click(x=0, y=0, button='middle', clicks=2)", ForeignAction("click", (0, 0))),
    ],
)
def test_calls_without_an_action_of_ours_are_foreign_actions(code, wanted):
    assert decode_agentnet_answer(code, SIZE).actions == (wanted,)


WRONG = {
    "": "no code",
    "I am done.": "not Python",
    "import os": "not a call",
    "x = pyautogui.click(x=0, y=0)": "not a call",
    "os.remove('a')": "unknown call",
    "pyautogui.keyDown('ctrl')": "a key stays held",
    "pyautogui.keyUp('ctrl')": "a key stays held",
    "pyautogui.keyDown('nokey')": "unknown key",
    "pyautogui.dragTo(x=0, y=0, duration='long')": "wrong arguments",
    "pyautogui.click(x=0.5, y=1.01)": "place outside the screen",
    "pyautogui.click(x=960, y=540)": "place outside the screen",
    "pyautogui.click(x=-0.1, y=0)": "place outside the screen",
    "pyautogui.click()": "wrong arguments",
    "pyautogui.click(x=True, y=0)": "wrong arguments",
    "pyautogui.click(x=a, y=0)": "wrong arguments",
    "pyautogui.click(x=0, y=0, x=1)": "wrong arguments",
    "pyautogui.click(0, x=0, y=1)": "wrong arguments",
    "pyautogui.click(**{'x': 0, 'y': 0})": "wrong arguments",
    "pyautogui.click(x=0, y=0, clicks=4)": "wrong arguments",
    "pyautogui.scroll(0)": "wrong arguments",
    "pyautogui.scroll(1.5)": "wrong arguments",
    "pyautogui.press('nokey')": "unknown key",
    "pyautogui.press('tab', presses=0)": "wrong arguments",
    "pyautogui.hotkey([])": "wrong arguments",
    "pyautogui.write(message=5)": "wrong arguments",
    "pyautogui.write(message='\\ud800')": "wrong arguments",
    "computer.wait(0)": "wrong arguments",
    "computer.wait(1e999)": "wrong arguments",
    "computer.terminate()": "wrong arguments",
    "computer.terminate(status='maybe')": "wrong arguments",
    "computer.terminate(status='success')\ncomputer.wait()": "a call after the end",
    "(" * 5000: "not Python",
}


@pytest.mark.parametrize("code", WRONG, ids=lambda code: code[:40])
def test_an_invalid_answer_is_refused_with_a_reason(code):
    with pytest.raises(AnswerFormatError) as caught:
        decode_agentnet_answer(code, SIZE)
    assert caught.value.reason == WRONG[code]


@pytest.mark.parametrize(
    "code",
    [
        "pyautogui.hotkey('ctrl', 'c')",
        "pyautogui.hotkey('ctrl')",
        "pyautogui.press('return')",
        "pyautogui.press('A')",
        "pyautogui.press('apps')",
        "pyautogui.scroll(1, x=0, y=0)",
        "pyautogui.typewrite('a')",
        "pyautogui.click(x=0, y=0, clicks=2)",
        "computer.tripleClick(x=0, y=0)",
        "computer.terminate(status='fail')",
    ],
)
def test_strict_reading_rejects_other_spellings(code):
    assert decode_agentnet_answer(code, SIZE)
    with pytest.raises(AnswerFormatError):
        read_code(code)


_PIECES = st.sampled_from(
    ["pyautogui.", "computer.", "click", "scroll", "(", ")", "x=", "y=", "0.5", ",", "'", "[", "]",
     "\n", "## Code", "```", "-", "\ud800", "\0", "hotkey", "write", "9" * 5000, "\\", "{", "1j"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(_PIECES).map("".join)))
@settings(max_examples=300, deadline=None)
def test_any_text_is_decoded_or_refused(text):
    with suppress(AnswerFormatError):
        decode_agentnet_answer(text, SIZE)
