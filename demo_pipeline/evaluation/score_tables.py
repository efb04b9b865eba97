"""The tables of an evaluation: a row per group of steps and answerer, and a row per step.

Belongs here: columns, and the numbers of a group. No column holds a word that somebody typed or a
model wrote.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demo_pipeline.common.parquet import described_schema
from demo_pipeline.evaluation.bootstrap import FloatTable, bootstrap_intervals

RIGHT = 1 - 1e-9
ALL_STEPS = "all"
DIMENSIONS = ("action_type", "application", "platform", "difficulty")
_GROUPS_AT_ONCE = 8
_NO_PLACE = -1  # beside 0 and 1 of steps whose point is outside and inside the target's box

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


@dataclass(slots=True)
class ScoreColumns:
    """The scores of all steps as columns of numbers, in the order of trajectories and steps.

    Attributes:
        answerers: names, the predictions first.
    """

    answerers: Sequence[str]
    _codes: dict[str, "array[int]"] = field(default_factory=dict)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)
    _scores: list["array[float]"] = field(default_factory=list)
    _grounded: list["array[int]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("task", "trajectory", *DIMENSIONS)
        self._codes = {name: array("i") for name in names}
        self._names = {name: {} for name in names}
        self._scores = [array("d") for _ in self.answerers]
        self._grounded = [array("b") for _ in self.answerers]

    def append(
        self,
        labels: Mapping[str, str],
        scores: Sequence[float | None],
        grounded: Sequence[bool | None],
    ) -> None:
        """Add a step.

        Args:
            labels: task, trajectory, and the value of every dimension.
            scores: of every answerer; None: not judged.
            grounded: of every answerer; None: no place or no known target.
        """
        for name, value in labels.items():
            known = self._names[name]
            self._codes[name].append(known.setdefault(value, len(known)))
        for column, score in zip(self._scores, scores, strict=True):
            column.append(np.nan if score is None else score)
        for hits, hit in zip(self._grounded, grounded, strict=True):
            hits.append(_NO_PLACE if hit is None else hit)

    def count(self, dimension: str) -> Mapping[str, int]:
        """Value of a dimension → number of steps, in the order of their names."""
        numbers = np.bincount(self._array(dimension), minlength=len(self._names[dimension]))
        return {name: int(numbers[code]) for name, code in sorted(self._names[dimension].items())}

    def rows(self, preset: str, shown: Mapping[str, int], seed: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of `SCORES_SCHEMA`, grouped by dimension and value.

        Args:
            preset: name of the rule.
            shown: name in the table → number of the answerer.
            seed: of the bootstrap.
        """
        groups: list[tuple[str, str, int | None]] = [(ALL_STEPS, ALL_STEPS, None)]
        for dimension in DIMENSIONS:
            known = sorted(self._names[dimension].items())
            groups += [(dimension, name, code) for name, code in known]
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            chunk = groups[start : start + _GROUPS_AT_ONCE]
            yield from self._chunk(preset, chunk, shown, seed)

    def _chunk(
        self,
        preset: str,
        groups: Sequence[tuple[str, str, int | None]],
        shown: Mapping[str, int],
        seed: int,
    ) -> Iterator[dict[str, Any]]:
        made, sums, counts = [], [], []
        for dimension, value, code in groups:
            mask = np.True_ if code is None else self._array(dimension) == code
            for name, number in shown.items():
                row, total, steps = self._row(number, mask)
                prefix = self._prefix(number) if code is None else {}
                head = {"preset": preset, "answers": name, "dimension": dimension, "value": value}
                made.append({**head, **row, **prefix})
                sums.append(total)
                counts.append(steps)
        intervals = bootstrap_intervals(np.stack(sums, 1), np.stack(counts, 1), seed)
        for row, (low, high) in zip(made, intervals, strict=True):
            yield {**row, "low": _number(low), "high": _number(high)}

    def _row(
        self, number: int, mask: NDArray[np.bool_] | np.bool_
    ) -> tuple[dict[str, Any], FloatTable, FloatTable]:
        scores = np.frombuffer(self._scores[number], np.float64)
        judged = mask & ~np.isnan(scores)
        chosen, hits = scores[judged], np.frombuffer(self._grounded[number], np.int8)
        hits = hits[judged & (hits != _NO_PLACE)]
        task, length = self._array("task")[judged], len(self._names["task"])
        sums = np.bincount(task, weights=chosen, minlength=length).astype(np.float64)
        counts = np.bincount(task, minlength=length).astype(np.float64)
        trajectory = self._array("trajectory")[judged]
        per = np.bincount(trajectory)
        means = np.bincount(trajectory, weights=chosen)[per > 0] / per[per > 0]
        return (
            {
                "steps": len(chosen),
                "tasks": int((counts > 0).sum()),
                "score": _mean(chosen),
                "trajectory_score": _mean(means),
                "success": _mean(chosen >= RIGHT),
                "grounding": _mean(hits),
                "grounded_steps": len(hits),
            },
            sums,
            counts,
        )

    def _prefix(self, number: int) -> dict[str, float | None]:
        """The mean number, and share, of steps before the first wrong one of a trajectory.

        Steps that the rule does not judge are passed over.
        """
        scores = np.frombuffer(self._scores[number], np.float64)
        judged = ~np.isnan(scores)
        scores, trajectory = scores[judged], self._array("trajectory")[judged]
        if not len(scores):
            return {"prefix_steps": None, "prefix_share": None}
        starts = np.flatnonzero(np.r_[True, trajectory[1:] != trajectory[:-1]])
        ends = np.r_[starts[1:], len(scores)]
        wrong = np.where(scores >= RIGHT, len(scores), np.arange(len(scores)))
        lengths = np.minimum(np.minimum.reduceat(wrong, starts), ends) - starts
        return {"prefix_steps": _mean(lengths), "prefix_share": _mean(lengths / (ends - starts))}

    def _array(self, name: str) -> NDArray[np.int32]:
        return np.frombuffer(self._codes[name], np.int32)


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean(dtype=np.float64)) if len(values) else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
