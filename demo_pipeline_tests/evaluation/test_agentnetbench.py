"""Tests the scores of AgentNetBench's rules.

The expected scores were computed by hand from AgentNetBench's script.
"""

import math

import pytest

from demo_pipeline.evaluation.rules import (
    BenchAction,
    as_ground_truth,
    bench_answer,
    bench_truth,
    score_bench,
)
from demo_pipeline_tests.evaluation.steps import DONE, answer, made_step

NEAR = 0.01 * 2**0.5
BOX = ((0.4, 0.4, 0.2, 0.1),)


def click(x, y, boxes=()):
    return BenchAction("click", (x, y), boxes)


def write(text):
    return BenchAction("write", text)


def press(*keys):
    return BenchAction("press", list(keys))


def hotkey(*keys):
    return BenchAction("hotkey", list(keys))


def move(x, y):
    return BenchAction("moveTo", (x, y))


def scroll(amount):
    return BenchAction("scroll", amount)


def end(status):
    return BenchAction("terminate", status)


SUCCESS = end("success")
WAIT = BenchAction("wait")

# Correct actions, answered actions, score of the first script, score of the revised script.
CASES = [
    ([click(0.5, 0.5)], [], 0, 0),
    ([], [click(0.5, 0.5)], 0, 0),
    ([click(0.5, 0.5)], [click(0.5, 0.51)], 1, 1),
    ([click(0.5, 0.5)], [click(0.5 + NEAR + 0.01, 0.5)], math.exp(-1.2), math.exp(-1.2)),
    ([click(0.9, 0.9, BOX)], [click(0.6, 0.5)], 1, 1),
    ([click(0.5, 0.5)], [BenchAction("doubleClick", (0.5, 0.5))], 0, 0),
    ([BenchAction("middleClick", (0.5, 0.5))], [BenchAction("middleClick", (0.5, 0.5))], 0, 0),
    ([WAIT], [WAIT], 0, 0),
    ([write("Hello")], [write(" hello\n")], 1, 1),
    ([write("abcde")], [write("abcdx")], 1, 1),
    ([write("abcd")], [write("abxx")], 0.5 / 0.8, 0.5 / 0.8),
    ([write("")], [write(" ")], 1, 1),
    ([write("abcd"), press("enter")], [write("abcd")], 1, 1),
    ([write("abcd"), hotkey("Return")], [write("abcd"), press("enter")], 1, 1),
    ([write("abcd")], [write("abcd"), hotkey("enter")], 1, 0.5),
    ([write("abcd")], [write("abcd"), press("enter")], 1, 1),
    ([hotkey("ctrl", "c")], [hotkey("C", "CTRL")], 1, 0),
    ([press("down", "down")], [press("down")], 1, 0),
    ([hotkey("ctrl", "c")], [press("ctrl", "c")], 0, 0),
    # A missing position and missing keys are wrong.
    ([move(0.5, 0.5)], [BenchAction("moveTo")], 0, 0),
    ([press("a")], [BenchAction("press")], 0, 0),
    ([scroll(-3)], [scroll(3)], 1, 0),
    ([scroll(-6)], [scroll(-3)], 1, 0.5),
    ([scroll(-6)], [scroll(0)], 1, 0),
    ([scroll(-2)], [BenchAction("scroll")], 1, 0),
    ([SUCCESS], [SUCCESS], 1, 1),
    ([SUCCESS], [end("failure")], 0, 0),
    ([SUCCESS], [SUCCESS, click(0.5, 0.5)], 1, 0.5),
    # The type of the first answered action must be among the correct types. Then actions are
    # compared position by position.
    ([move(0.5, 0.5), scroll(1)], [scroll(1)], 0, 0),
    ([move(0.5, 0.5), scroll(1)], [move(0.5, 0.5)], 0.5, 0.5),
    # A type with a right and a wrong action scores 0.5. The total score is the mean over types.
    (
        [click(0.1, 0.1), click(0.9, 0.9), press("a")],
        [click(0.1, 0.1), press("a"), press("a")],
        0.75,
        0.75,
    ),
    # The script does not score some types of actions. They do not lower the mean of the others.
    ([click(0.1, 0.1), WAIT], [click(0.1, 0.1), WAIT], 1, 1),
    ([click(0.1, 0.1), WAIT], [click(0.1, 0.1)], 0.5, 0.5),
]


@pytest.mark.parametrize(("truth", "given", "first", "revised"), CASES, ids=range(len(CASES)))
def test_a_case_has_the_score_of_the_script(truth, given, first, revised):
    before = list(truth)
    assert score_bench(truth, given) == pytest.approx(first, abs=1e-12)
    assert score_bench(truth, given, revised=True) == pytest.approx(revised, abs=1e-12)
    assert truth == before  # unlike AgentNetBench's script, ours must not change its argument


def test_our_actions_are_converted_to_the_actions_of_the_script():
    step = made_step(answer("drag", start_x=100, start_y=200, end_x=900, end_y=540))
    assert bench_truth(step) == [move(0.1, 0.2), BenchAction("dragTo", (0.9, 0.54))]
    size = (1000, 500)
    assert bench_answer(answer("hotkey", keys=["down"], presses=2), size) == [press("down", "down")]
    assert bench_answer(answer("hotkey", keys=["ctrl", "c"]), size) == [hotkey("ctrl", "c")]
    down = answer("scroll", x=5, y=5, direction="down", amount=2)
    assert bench_answer(down, size) == [move(0.005, 0.01), scroll(-2)]
    right = answer("scroll", x=5, y=5, direction="right", amount=2)
    assert bench_answer(right, size)[1:] == [BenchAction("hscroll", 2)]
    assert bench_answer(DONE, size) == [SUCCESS]


def test_the_target_is_a_box_of_the_true_action():
    step = made_step(answer("click", x=500, y=250), size=(1000, 500), box=(400, 200, 200, 100))
    (truth,) = bench_truth(step)
    assert as_ground_truth(truth) == {
        "type": "click",
        "params": {"position": {"x": 0.5, "y": 0.5}},
        "metadata": {"bboxes": [{"category_id": 1, "rel_bbox": [0.4, 0.4, 0.2, 0.2]}]},
    }
    typed = made_step(answer("type", text="x"), box=(400, 200, 200, 100))
    assert bench_truth(typed) == [write("x")]
