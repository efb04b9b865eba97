"""The tables of an evaluation, and adding the scores of steps up by group.

Belongs here: the columns of the tables, the file that the scores of steps are added up from, and
the intervals. Steps of a task are not independent, so tasks are drawn, not steps. No column holds a
word that somebody typed or a model wrote. Memory holds numbers per task, none per step.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demo_pipeline.files.parquet import described_schema

DIMENSIONS = ("action_type", "application", "platform", "difficulty")
ALL_STEPS = "all"
RIGHT = 1 - 1e-9
RESAMPLES = 1000
_DRAWN_AT_ONCE = 50  # resamples in memory as 64-bit numbers

SCORES_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "the rule"),
        ("answers", pa.string(), False, "predictions, or the name of a baseline"),
        ("dimension", pa.string(), False, "all, action_type, application, platform or difficulty"),
        ("value", pa.string(), False, "of the dimension; all: every step"),
        ("steps", pa.int32(), False, "that the rule judges"),
        ("tasks", pa.int32(), False, "task groups that these steps are of"),
        ("score", pa.float64(), True, "mean over steps, 0 to 1; null: no step"),
        ("low", pa.float64(), True, "95 % bootstrap interval over tasks; null: one task"),
        ("high", pa.float64(), True, "95 % bootstrap interval over tasks; null: one task"),
        ("trajectory_score", pa.float64(), True, "mean over trajectories of their means"),
        ("success", pa.float64(), True, "share of steps with the full score"),
        ("grounding", pa.float64(), True, "share of points in the target's box; null: no box"),
        ("grounded_steps", pa.int32(), False, "steps that have a place and a known target"),
        ("prefix_steps", pa.float64(), True, "right steps before the first wrong one, mean; all"),
        ("prefix_share", pa.float64(), True, "the same as share of the trajectory; all"),
    )
)
STEPS_SCHEMA = described_schema(
    (
        ("preset", pa.string(), False, "the rule"),
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("step_index", pa.int32(), False, "0-based; the number of steps for the closing terminate"),
        ("task", pa.string(), False, "task group"),
        ("application", pa.string(), False, "normalised name"),
        ("platform", pa.string(), False, "windows, macos, linux"),
        ("difficulty", pa.string(), False, "easy, medium, hard"),
        ("action_type", pa.string(), False, "what the person did"),
        ("answered_type", pa.string(), True, "what the answer does first; null: nothing usable"),
        ("score", pa.float64(), True, "0 to 1; null: the rule does not judge this step"),
        ("grounded", pa.bool_(), True, "the point is in the target's box; null: no place or box"),
        ("reason", pa.string(), True, "why there is no usable answer; null: there is one"),
    )
)


def answers_schema(answerers: int, presets: int) -> pa.Schema:
    """The columns of the file that is added up: a row per step, in order.

    `task` and `trajectory` are running numbers. `hit_<answerer>` tells whether the point is in the
    target's box, null without a place or box; `score_<preset>_<answerer>` is null where not judged.
    """
    numbers = range(answerers)
    names = [f"hit_{number}" for number in numbers]
    scores = [f"score_{preset}_{number}" for preset in range(presets) for number in numbers]
    columns = dict.fromkeys(("trajectory", "task", "step"), pa.int32())
    columns |= dict.fromkeys(DIMENSIONS, pa.string()) | dict.fromkeys(names, pa.bool_())
    return pa.schema(columns | dict.fromkeys(scores, pa.float64()))


_BY_TASK = """
    SELECT value, task, coalesce(sum(score), 0), count(score), count(*) FILTER (score >= ?),
        count(hit) FILTER (score IS NOT NULL), count(*) FILTER (hit AND score IS NOT NULL)
    FROM ({steps}) GROUP BY value, task ORDER BY value, task
"""
_BY_TRAJECTORY = """
    SELECT value, avg(mean), avg(prefix), avg(prefix / steps)
    FROM (
        SELECT value, avg(score) AS mean, count(*) AS steps,
            coalesce(min(place) FILTER (score < ?), count(*)) AS prefix
        FROM (
            SELECT value, trajectory, score,
                row_number() OVER (PARTITION BY value, trajectory ORDER BY step) - 1 AS place
            FROM ({steps}) WHERE score IS NOT NULL
        )
        GROUP BY value, trajectory ORDER BY value, trajectory
    )
    GROUP BY value
"""


def score_table(
    file: Path, presets: Sequence[str], shown: Mapping[str, int], tasks: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `SCORES_SCHEMA`, by rule, dimension, value and answerer.

    Args:
        file: Parquet, of `answers_schema`.
        presets: names of the rules.
        shown: name in the table → number of the answerer.
        tasks: number of all tasks.
        seed: of the bootstrap.
    """
    import duckdb  # noqa: PLC0415 - only an evaluation needs it

    draws = task_draws(tasks, seed)
    with duckdb.connect(config={"threads": 1}) as database:
        for preset, name in enumerate(presets):
            for dimension in (ALL_STEPS, *DIMENSIONS):
                rows = [
                    {"preset": name, "answers": answers, "dimension": dimension, **row}
                    for answers, number in shown.items()
                    for row in _groups(database, file, dimension, f"{preset}_{number}", draws)
                ]
                yield from sorted(rows, key=lambda row: str(row["value"]))


def _groups(
    database: Any, file: Path, dimension: str, column: str, draws: NDArray[np.uint16]
) -> Iterator[dict[str, Any]]:
    """Yield the numbers of one answerer under one rule for every value of a dimension."""
    value = f"'{ALL_STEPS}'" if dimension == ALL_STEPS else dimension
    hit = f"hit_{column.partition('_')[2]}"
    steps = (
        f"SELECT {value} AS value, trajectory, task, step, {hit} AS hit, score_{column} AS score "  # noqa: S608
        f"FROM read_parquet($${file}$$)"
    )
    numbers = database.execute(_BY_TRAJECTORY.format(steps=steps), [RIGHT]).fetchall()
    means = {name: found for name, *found in numbers}
    table = database.execute(_BY_TASK.format(steps=steps), [RIGHT]).fetchnumpy()
    values, task, *sums = table.values()
    for name in np.unique(values):
        total, count, right, grounded, hits = (column[values == name] for column in sums)
        steps_judged, places = int(count.sum()), int(grounded.sum())
        mean, prefix, share = means.get(name, (None, None, None))
        low, high = interval(draws, task[values == name], total, count)
        yield {
            "value": str(name),
            "steps": steps_judged,
            "tasks": int((count > 0).sum()),
            "score": _share(total.sum(), steps_judged),
            "low": low,
            "high": high,
            "trajectory_score": mean,
            "success": _share(right.sum(), steps_judged),
            "grounding": _share(hits.sum(), places),
            "grounded_steps": places,
            **({"prefix_steps": prefix, "prefix_share": share} if dimension == ALL_STEPS else {}),
        }


def _share(total: float, count: int) -> float | None:
    return float(total) / count if count else None


def task_draws(tasks: int, seed: int = 0) -> NDArray[np.uint16]:
    """(resamples, tasks): how often each task is drawn; the same seed gives the same."""
    draws = np.zeros((RESAMPLES, tasks), np.uint16)
    rng = np.random.default_rng(seed)
    for start in range(0, RESAMPLES if tasks > 1 else 0, _DRAWN_AT_ONCE):
        chances = np.full(tasks, 1 / tasks)
        draws[start : start + _DRAWN_AT_ONCE] = rng.multinomial(tasks, chances, _DRAWN_AT_ONCE)
    return draws


def interval(
    draws: NDArray[np.uint16],
    tasks: NDArray[np.int64],
    totals: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of the mean of a group of steps; none where fewer than two tasks count.

    Args:
        draws: of all tasks, see `task_draws`.
        tasks: the numbers of the tasks in the group.
        totals: what the scores of each of these tasks add up to.
        counts: the number of their steps.
    """
    if (counts > 0).sum() < 2:
        return None, None
    drawn = np.concatenate(
        [
            np.stack([weights @ totals, weights @ counts])
            for start in range(0, RESAMPLES, _DRAWN_AT_ONCE)
            for weights in [draws[start : start + _DRAWN_AT_ONCE, tasks].astype(np.float64)]
        ],
        axis=1,
    )
    sums, steps = drawn[:, drawn[1] > 0]
    low, high = np.percentile(sums / steps, (2.5, 97.5))
    return float(low), float(high)
