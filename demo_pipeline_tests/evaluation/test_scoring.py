"""Tests scores of predictions and baselines: tables, intervals, prefixes and counts."""

import json
from typing import Any

import pytest

from demo_pipeline.evaluation.scoring import (
    BASELINES,
    GUESSED_KINDS,
    PREDICTIONS,
    guessed_kind,
    score_steps,
)
from demo_pipeline.evaluation.true_steps import action_kind
from demo_pipeline.exports.answers import Answer, AnswerFormatError, ForeignAction
from demo_pipeline_tests.evaluation.steps import DONE, EVERY_ACTION, answer, made_step, predicted

TYPED = "hunter2"
CLICK = answer("click", x=500, y=300)
BOX = (400.0, 200.0, 200.0, 150.0)


def decode(text, _size):
    """Decodes an answer of these tests: the index of an action in `EVERY_ACTION`, or `wave`.

    `wave` is a foreign action. Any other text raises an error.
    """
    if text == "wave":
        return Answer((ForeignAction(TYPED),))
    if not text.isdigit():
        raise AnswerFormatError("nonsense")
    return EVERY_ACTION[int(text)]


def score(steps, rows, presets=("strict",), **options):
    with predicted(rows, {step.trajectory_id for step in steps}) as predictions:
        return score_steps(
            lambda add: list(map(add, steps)), presets, decode, predictions, **options
        )


def steps_of(trajectory, count, **labels):
    return [made_step(EVERY_ACTION[n], n, trajectory, **labels) for n in range(count)]


def test_right_answers_score_1_and_unusable_answers_are_counted_by_reason():
    steps = steps_of("a", 6)
    rows = [("a", 0, "0"), ("a", 1, "0"), ("a", 2, TYPED), ("a", 3, "3"), ("a", 3, "3")]
    rows += [("a", 4, "wave"), ("a", 9, "1"), ("b", 0, "0")]
    kept: list[Any] = []
    report = score(steps, rows, keep=kept.append)
    row = report.row("strict")
    assert (row["steps"], row["score"], row["success"]) == (6, 1 / 6, 1 / 6)
    assert report.unusable_steps == {"doubled": 1, "missing": 1, "nonsense": 1}
    assert report.unusable_lines == {"unknown step": 2}
    assert (report.steps, report.answered, report.lines) == (6, 5, 8)
    kinds = [row["answered_type"] for row in kept]
    assert kinds == ["left_click", "left_click", None, None, "other", None]
    assert TYPED not in json.dumps([kept, report.rows, repr(report)])


def test_the_table_has_every_dimension_and_every_baseline():
    steps = [*steps_of("a", 3, application="gimp"), *steps_of("b", 2, difficulty="hard")]
    report = score(steps, [], ("strict", "agentnetbench"))
    places = {(row["dimension"], row["value"]) for row in report.rows}
    assert ("application", "gimp") in places
    assert ("difficulty", "hard") in places
    assert ("platform", "linux") in places
    assert ("action_type", "middle_click") in places
    names = {row["answers"] for row in report.rows}
    assert names == {PREDICTIONS, *BASELINES, "frequent type"}
    assert len(report.rows) == 2 * len(places) * len(names)
    assert report.row("strict", "truth")["score"] == 1
    # Two of the five steps are middle clicks, for which AgentNetBench's rule never gives a score.
    assert report.row("agentnetbench", "truth")["score"] == 3 / 5


def test_prefixes_end_at_the_first_wrong_step_of_each_trajectory():
    steps = [*steps_of("a", 4), *steps_of("b", 2), *steps_of("c", 2)]
    rows = [("a", 0, "0"), ("a", 1, "1"), ("a", 3, "3"), ("b", 0, "0"), ("b", 1, "1")]
    row = score(steps, rows).row("strict")
    assert row["prefix_steps"] == pytest.approx((2 + 2 + 0) / 3)
    assert row["prefix_share"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert row["trajectory_score"] == pytest.approx((0.75 + 1 + 0) / 3)
    assert row["score"] == 5 / 8


def test_grounding_counts_points_in_the_target_whatever_else_is_answered():
    steps = [made_step(CLICK, n, box=BOX) for n in range(3)]
    steps += [made_step(CLICK, 3), made_step(answer("type", text="x"), 4, box=BOX)]
    rows = [("demo", 0, "1"), ("demo", 1, "3"), ("demo", 3, "0"), ("demo", 4, "8")]
    row = score(steps, rows).row("strict")
    assert (row["grounding"], row["grounded_steps"]) == (pytest.approx(1 / 3), 3)


def test_steps_that_a_rule_does_not_judge_are_left_out():
    steps = [made_step(CLICK, 0, box=BOX), made_step(answer("type", text="x"), 1, box=BOX)]
    row = score(steps, [("demo", 0, "0")], ("screenspot",)).row("screenspot")
    assert (row["steps"], row["score"], row["prefix_share"]) == (1, 1, 1)
    typing = score(steps[1:], [], ("screenspot",)).row("screenspot")
    assert (typing["steps"], typing["score"], typing["low"]) == (0, None, None)


def test_intervals_are_over_tasks_and_the_same_every_time():
    steps = []
    one_task = []
    for n in range(8):
        steps += steps_of(f"t{n}", 2)
        one_task += steps_of(f"t{n}", 2, task="same")
    rows = [(f"t{n}", step, str(step)) for n in range(4) for step in range(2)]
    rows_twice = [score(steps, rows).row("strict") for _ in range(2)]
    assert rows_twice[0] == rows_twice[1]
    low = rows_twice[0]["low"]
    high = rows_twice[0]["high"]
    assert 0 < low < 0.5 < high < 1
    assert score(one_task, rows).row("strict")["low"] is None


def test_each_baseline_answers_as_its_name_says():
    before = made_step(answer("type", text="x"))
    step = made_step(CLICK, 1, box=BOX)
    answers = {name: baseline(step, before) for name, baseline in BASELINES.items()}
    assert answers["screen centre"] == answer("click", x=500, y=500)
    assert answers["last action"] == before.answer
    assert answers["true, at centre"] == answer("click", x=500, y=500)
    assert answers["true, at target"] == answer("click", x=500, y=275)
    assert answers["truth"] == CLICK
    drag = made_step(answer("drag", start_x=1, start_y=2, end_x=3, end_y=4), box=BOX)
    moved = BASELINES["true, at target"](drag, None)
    assert moved == answer("drag", start_x=500, start_y=275, end_x=3, end_y=4)


def test_every_kind_has_a_default_action_and_the_most_frequent_kind_is_guessed():
    for kind in GUESSED_KINDS:
        guess = guessed_kind(kind, made_step(CLICK).size)
        assert [action_kind(action) for action in guess.actions] in ([kind], [])
    steps = [made_step(DONE, n) for n in range(3)] + [made_step(CLICK, 3)]
    assert score(steps, []).row("strict", "frequent type")["score"] == 3 / 4


def test_some_wrong_answers_of_every_kind_are_kept_for_the_sheet():
    steps = [made_step(CLICK, n) for n in range(9)] + [made_step(DONE, 9)]
    failures = score(steps, [("demo", 0, "5")]).failures
    assert [step.step_index for step, _, _ in failures] == [0, 1, 2, 3, 9]
    assert failures[0][1] == EVERY_ACTION[5]
    assert failures[1][2] == "missing"
