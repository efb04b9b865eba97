"""Tests the score of an answer under each scoring rule."""

import itertools
import random

import pytest

from demo_pipeline.evaluation.rules import (
    PRESETS,
    edit_distance,
    normalised_text,
    score_step_mind2web,
    score_step_screenspot,
    score_step_strict,
)
from demo_pipeline.evaluation.true_steps import action_kind
from demo_pipeline.exports.answers import Answer, ForeignAction
from demo_pipeline_tests.evaluation.steps import DONE, EVERY_ACTION, answer, made_step

NOTHING = Answer(())
BOX = (400.0, 200.0, 200.0, 150.0)
CLICK = answer("click", x=500, y=300)
PASSED_OVER = {"middle_click", "wait"}


def name_of(right):
    if not right.actions:
        return "terminate"
    kind = action_kind(right.actions[0])
    if kind == "scroll":
        return f"{kind} {right.actions[0].parameters.direction}"
    return kind


@pytest.mark.parametrize("preset", PRESETS)
def test_the_true_answer_scores_1_and_a_missing_answer_0(preset):
    for right in EVERY_ACTION:
        step = made_step(right)
        truth = PRESETS[preset](step, right)
        if truth is None:
            assert preset in ("mind2web", "screenspot")
        elif preset.startswith("agentnetbench") and name_of(right) in PASSED_OVER:
            assert truth == 0
        else:
            assert truth == 1
        assert not PRESETS[preset](step, NOTHING)


@pytest.mark.parametrize("preset", PRESETS)
def test_any_answer_to_any_step_has_a_score_from_0_to_1(preset):
    foreign = [ForeignAction("mouse_move", (3.0, 4.0)), ForeignAction("answer")]
    answers = [*EVERY_ACTION, *(Answer((action,)) for action in foreign), NOTHING]
    for first, second in list(itertools.product(answers, answers)):
        answers.append(Answer(first.actions + second.actions, second.status))
    for right in EVERY_ACTION:
        for given in answers:
            score = PRESETS[preset](made_step(right, box=BOX, tolerance=(10, 10)), given)
            assert score is None or 0 <= score <= 1


STRICT = [
    (CLICK, answer("click", x=599, y=349), 1),
    (CLICK, answer("click", x=601, y=300), 0),
    (CLICK, answer("right_click", x=500, y=300), 0),
    (CLICK, answer("double_click", x=500, y=300), 0),
    (CLICK, answer("click", x=500, y=300, clicks=3), 0),
    (CLICK, answer("click", x=500, y=300, modifiers=["ctrl"]), 0),
    (CLICK, Answer(CLICK.actions * 2), 0),
    (CLICK, Answer(CLICK.actions, "success"), 0),
    (answer("right_click", x=500, y=300), answer("click", x=500, y=300, button="right"), 1),
    (answer("type", text="Ab\n"), answer("type", text="Ab"), 1),
    (answer("type", text="Ab"), answer("type", text="ab"), 0),
    (answer("type", text="Ab"), answer("type", text=" Ab"), 0),
    (answer("hotkey", keys=["ctrl", "c"]), answer("hotkey", keys=["Ctrl", "c"]), 1),
    (answer("hotkey", keys=["ctrl", "c"]), answer("hotkey", keys=["c", "ctrl"]), 0),
    (answer("hotkey", keys=["down"]), answer("hotkey", keys=["down"], presses=2), 0),
    (answer("wait", seconds=2.0), answer("wait", seconds=60.0), 1),
    (DONE, Answer((), "failure"), 0),
    (DONE, Answer(CLICK.actions, "success"), 0),
]


@pytest.mark.parametrize(("right", "given", "score"), STRICT, ids=range(len(STRICT)))
def test_the_strict_rule_compares_all_parts(right, given, score):
    assert score_step_strict(made_step(right, box=BOX), given) == score


def test_without_a_target_the_strict_rule_accepts_one_percent_of_each_side():
    step = made_step(CLICK)
    assert score_step_strict(step, answer("click", x=510, y=290)) == 1
    assert score_step_strict(step, answer("click", x=511, y=300)) == 0


def test_the_strict_rule_compares_direction_amount_and_both_ends():
    up = answer("scroll", x=500, y=300, direction="up", amount=3)
    step = made_step(up, box=BOX)
    assert score_step_strict(step, answer("scroll", x=500, y=300, direction="up", amount=4)) == 1
    assert score_step_strict(step, answer("scroll", x=500, y=300, direction="up", amount=5)) == 0
    assert score_step_strict(step, answer("scroll", x=500, y=300, direction="down", amount=3)) == 0
    ends = {"start_x": 500, "start_y": 300, "end_x": 900, "end_y": 540}
    step = made_step(answer("drag", **ends), box=BOX)
    assert score_step_strict(step, answer("drag", **{**ends, "end_x": 910})) == 1
    assert score_step_strict(step, answer("drag", **{**ends, "end_x": 911})) == 0
    assert score_step_strict(step, answer("drag", **{**ends, "start_y": 340})) == 0
    assert score_step_strict(step, answer("drag", **ends, button="right")) == 0


def test_text_is_normalised_as_documented():
    assert normalised_text("e\u0301\r\n") == "\u00e9"
    assert normalised_text("a\n\n") == "a\n"
    assert normalised_text(" a ") == " a "


def test_mind2web_requires_the_element_and_the_same_words():
    step = made_step(CLICK, box=BOX)
    assert score_step_mind2web(step, answer("click", x=600, y=350)) == 1
    assert score_step_mind2web(step, answer("click", x=601, y=350)) == 0
    assert score_step_mind2web(step, answer("double_click", x=500, y=300)) == 0
    assert score_step_mind2web(made_step(CLICK), CLICK) is None
    typed = made_step(answer("type", text="New York !"), box=BOX)
    assert score_step_mind2web(typed, answer("type", text="york NEW")) == 1
    assert score_step_mind2web(typed, answer("type", text="New")) == 0


def test_screenspot_compares_only_the_point():
    step = made_step(CLICK, box=BOX)
    assert score_step_screenspot(step, answer("right_click", x=400, y=200)) == 1
    assert score_step_screenspot(step, Answer((ForeignAction("mouse_move", (600.0, 350.0)),))) == 1
    assert score_step_screenspot(step, answer("click", x=399, y=200)) == 0
    assert score_step_screenspot(step, answer("type", text="x")) == 0
    assert score_step_screenspot(made_step(answer("type", text="x"), box=BOX), CLICK) is None


def test_cudag_takes_the_last_call_and_the_tolerance_of_each_axis():
    score = PRESETS["cudag"]
    step = made_step(CLICK, tolerance=(10, 3))
    assert score(step, answer("click", x=510, y=303)) == 1
    assert score(step, answer("click", x=511, y=300)) == 0
    assert score(step, answer("click", x=500, y=304)) == 0
    drag = answer("drag", start_x=0, start_y=0, end_x=900, end_y=540)
    end = Answer((ForeignAction("left_click_drag", (900.0, 540.0)),))
    assert score(made_step(drag, tolerance=(5, 5)), end) == 1
    down = answer("scroll", x=500, y=540, direction="down", amount=3)
    assert score(made_step(down), answer("scroll", x=500, y=540, direction="down", amount=9)) == 1
    assert score(made_step(down), answer("scroll", x=500, y=540, direction="up", amount=3)) == 0


def plain_distance(left, right):
    row = list(range(len(right) + 1))
    for number, character in enumerate(left, 1):
        following = [number]
        for place, other in enumerate(right, 1):
            changed = row[place - 1] + (character != other)
            following.append(min(following[-1] + 1, row[place] + 1, changed))
        row = following
    return row[-1]


def test_the_edit_distance_equals_that_of_the_usual_algorithm():
    chance = random.Random(3)
    for _ in range(300):
        left, right = ("".join(chance.choices("abc\u00e9", k=chance.randint(0, 9))) for _ in "12")
        assert edit_distance(left, right) == plain_distance(left, right)
    assert edit_distance("x" * 1000, "y" * 200_000) == 200_000
