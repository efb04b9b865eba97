"""Tests the values in the table of scores, and the memory that their computation needs."""

import tracemalloc

import pytest

from demo_pipeline.evaluation.scoring import DIMENSIONS, answers_schema, score_table
from demo_pipeline.files.parquet import TableWriter

KINDS = ("left_click", "type", "scroll")


def label(number):
    """Returns the labels of a step.

    A trajectory has seven steps and one application, and a task has three trajectories.
    """
    trajectory = number // 7
    return {
        "task": f"task {trajectory % 11}",
        "trajectory": f"demo{trajectory}",
        "action_type": KINDS[number * number % 3],
        "application": f"application {trajectory % 5}",
        "platform": "linux",
        "difficulty": ("easy", "hard")[trajectory % 2],
    }


def given(number):
    """Returns the scores of two answerers under two rules; some steps are not scored."""
    first = (number * 37 % 10) / 9
    second = float(number % 3 == 0)
    return [[first, 1.0], [None if number % 4 else second, None]]


def rows(folder, count=33 * 7):
    file = folder / "answers.parquet"
    with TableWriter(file, answers_schema(2, 2), batch_rows=100) as writer:
        for number in range(count):
            labels = label(number)
            first, second = given(number)
            hits = [number % 2 == 0, None]
            writer.append(
                [
                    number // 7,
                    number // 7 % 11,
                    number % 7,
                    *map(labels.get, DIMENSIONS),
                    *hits,
                    *first,
                    *second,
                ]
            )
    return list(score_table(file, ["a", "b"], {"model": 0, "truth": 1}, 11, seed=1))


def expected(preset, answerer, dimension, value):
    """Returns the expected means of a group, computed with simpler code than the tested one."""
    steps = [
        (label(n)["trajectory"], score)
        for n in range(33 * 7)
        if dimension == "all" or label(n)[dimension] == value
        if (score := given(n)[preset][answerer]) is not None
    ]
    by_trajectory: dict[str, list[float]] = {}
    for trajectory, score in steps:
        by_trajectory.setdefault(trajectory, []).append(score)
    means = [sum(scores) / len(scores) for scores in by_trajectory.values()]
    if not steps:
        return 0, None, None, None
    full = sum(score >= 1 for _, score in steps) / len(steps)
    mean = sum(score for _, score in steps) / len(steps)
    return len(steps), mean, sum(means) / len(means), full


def test_every_row_has_the_numbers_of_its_steps(tmp_path):
    table = rows(tmp_path)
    assert {row["dimension"] for row in table} == {"all", *DIMENSIONS}
    for row in table:
        place = ("ab".index(row["preset"]), ("model", "truth").index(row["answers"]))
        steps, score, trajectory_score, success = expected(*place, row["dimension"], row["value"])
        assert row["steps"] == steps
        assert row["score"] == pytest.approx(score)
        assert row["trajectory_score"] == pytest.approx(trajectory_score)
        assert row["success"] == pytest.approx(success)
        assert (row["low"] is None) == (row["high"] is None) == (row["tasks"] < 2)
    hits = [row["grounding"] for row in table if row["dimension"] == "all"]
    assert hits == [pytest.approx(116 / 231), None, 1.0, None]


def held(call):
    """Returns the peak memory of Python objects during a function call, bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_scores_of_more_steps_need_no_more_memory(tmp_path):
    rows(tmp_path, 7)  # imports
    few, many = (held(lambda steps=steps: rows(tmp_path, steps)) for steps in (6_000, 24_000))
    # The limit is 10 bytes per additional step. Keeping the labels and scores of a step in memory
    # (two answerers, two rules) would take 58 bytes.
    assert many - few < 18_000 * 10
