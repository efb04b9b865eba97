"""The tables of an evaluation: a row per group of steps and answerer, and a row per step.

Belongs here: columns, and the numbers of a group. No column holds a word that somebody typed or a
model wrote. Memory holds numbers per task of some groups at a time, none per step.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from demo_pipeline.common.parquet import described_schema
from demo_pipeline.evaluation.bootstrap import TaskDraws
from demo_pipeline.evaluation.group_sums import ALL_STEPS, GroupSums, StepGroups, step_groups
from demo_pipeline.evaluation.score_file import DIMENSIONS, ScoreFile

_GROUPS_AT_ONCE = 8
_CELLS_AT_ONCE = 2**14  # groups times tasks

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


def score_table(
    scores: ScoreFile, presets: Sequence[str], shown: Mapping[str, int], seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `SCORES_SCHEMA`, by rule, dimension, value and answerer.

    Args:
        scores: of all steps.
        presets: names of the rules.
        shown: name in the table → number of the answerer.
        seed: of the bootstrap.
    """
    with TaskDraws(len(scores.names("task")), seed) as draws:
        for number, preset in enumerate(presets):
            for dimension in (ALL_STEPS, *DIMENSIONS):
                for groups in step_groups(scores, dimension, _GROUPS_AT_ONCE, _CELLS_AT_ONCE):
                    sums = GroupSums(groups, tuple(shown.values()))
                    for block in scores.blocks():
                        sums.add(scores, number, block)
                    for row in _rows(sums, groups, tuple(shown), draws):
                        yield {"preset": preset, **row}


def _rows(
    sums: GroupSums, groups: StepGroups, answerers: Sequence[str], draws: TaskDraws
) -> Iterator[dict[str, Any]]:
    by_task = [sums.by_task(group) for group in range(len(groups.values))]
    intervals = draws.intervals(by_task)
    for group, (value, (_, totals, counts)) in enumerate(zip(groups.values, by_task, strict=True)):
        for row, name in enumerate(answerers):
            steps, trajectories = int(counts[row].sum()), int(sums.trajectories[row, group])
            grounded = int(sums.grounded[row, group])
            made = {
                "answers": name,
                "dimension": groups.dimension,
                "value": value,
                "steps": steps,
                "tasks": int((counts[row] > 0).sum()),
                "score": _share(totals[row].sum(), steps),
                "low": _number(intervals[group][row, 0]),
                "high": _number(intervals[group][row, 1]),
                "trajectory_score": _share(sums.means[row, group], trajectories),
                "success": _share(sums.right[row, group], steps),
                "grounding": _share(sums.hits[row, group], grounded),
                "grounded_steps": grounded,
            }
            if groups.dimension == ALL_STEPS:
                made["prefix_steps"] = _share(sums.prefix_steps[row], trajectories)
                made["prefix_share"] = _share(sums.prefix_shares[row], trajectories)
            yield made


def _share(total: float, count: int) -> float | None:
    return float(total) / count if count else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
