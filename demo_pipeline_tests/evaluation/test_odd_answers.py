"""Tests that unusual answers never stop an evaluation.

Every answer is scored in every answer format, for every type of step and by every scoring rule.
"""

import json
from itertools import cycle, pairwise, product
from typing import Any

import pytest

from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS
from demo_pipeline.evaluation.rules import PRESETS
from demo_pipeline.evaluation.scoring import score_steps
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.evaluation.steps import EVERY_ACTION, made_step, predicted

BOX = (400.0, 200.0, 200.0, 150.0)
AT = {"coordinate": [500, 540]}
CALLS = (
    *({"action": kind, **AT} for kind in ("mouse_move", "left_click_drag", "middle_click")),
    *({"action": kind, **AT, "pixels": 0} for kind in ("scroll", "hscroll")),
    {"action": "key", "keys": ["", "no such key"]},
    {"action": "wait", "time": 1e9},
    {"action": "answer", "text": "\ud800"},
    {"action": "terminate", "status": "failure"},
)
CODES = (
    "pyautogui.moveTo(x=0.5, y=0.54)",
    "pyautogui.dragTo(x=0.5, y=0.54)",
    "pyautogui.click(x=0.5, y=0.3, clicks=2, button='right')",
    "pyautogui.doubleClick(x=0.5, y=0.3, button='right')",
    "pyautogui.middleClick(x=0.5, y=0.3)",
    "pyautogui.scroll(-3)",
    "pyautogui.hscroll(1)",
    "pyautogui.press(['up', 'down'])",
    "computer.wait(1e8)",
    "computer.terminate(status='failure')",
)


def odd_answers(form):
    """Returns answers of one call, answers of two successive calls, and answers without a call."""
    parts: tuple[str, ...] = CODES
    if form != "opencua":
        calls = ({"name": "computer_use", "arguments": arguments} for arguments in CALLS)
        parts = tuple(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return [*parts, *map("\n".join, pairwise((*parts, parts[0]))), "", "no answer"]


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_an_answer_never_ends_a_run(form):
    answers = odd_answers(form)
    truths = list(zip(EVERY_ACTION, cycle((BOX, None)), strict=False))
    steps = [
        made_step(right, number, box=box, tolerance=(10, 10))
        for number, ((right, box), _) in enumerate(product(truths, answers))
    ]
    rows = [
        ("demo", step.step_index, text)
        for step, (_, text) in zip(steps, product(truths, answers), strict=True)
    ]
    decode = ANSWER_FORMS[form].decoder(DatasetSettings())
    kept = list[Any]()
    with predicted(rows, {"demo"}) as predictions:
        score_steps(
            lambda add: list(map(add, steps)), list(PRESETS), decode, predictions, keep=kept.append
        )
    assert len(kept) == len(steps) * len(PRESETS)
    assert all(row["score"] is None or 0 <= row["score"] <= 1 for row in kept)
