"""The tables of an evaluation, and adding the scores of steps up by group.

Belongs here: the score file (its columns, written and read in blocks, since their number grows with
the predictions), the sums of a group, the tables, and the intervals of their numbers. Steps of a
task are not independent, so tasks are drawn, not steps; the draws are kept in a file, since every
group needs all of them. No column holds a word that somebody typed or a model wrote. Memory holds
numbers per task of some groups at a time, none per step.
"""

import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demo_pipeline.files.parquet import described_schema

NO_PLACE = -1  # beside 0 and 1 of steps whose point is outside and inside the target's box
DIMENSIONS = ("action_type", "application", "platform", "difficulty")
_NAMED = ("task", *DIMENSIONS)
_CODES = ("trajectory", *_NAMED)
_BLOCK_STEPS = 4096
_FAST = 1  # the level of the compression: most scores of the baselines are 0


class ScoreFile:
    """Scores and labels of steps, in the order of trajectories and steps.

    A block ends where a trajectory ends. It is a context manager, which deletes the file.

    Args:
        answerers: number of answers to every step.
        presets: number of rules.
    """

    def __init__(self, answerers: int, presets: int) -> None:
        self._answerers = answerers
        self._columns: list[array[Any]] = [
            *(array("i") for _ in _CODES),
            *(array("b") for _ in range(answerers)),
            *(array("d") for _ in range(answerers * presets)),
        ]
        self._names: dict[str, dict[str, int]] = {name: {} for name in _NAMED}
        self._ends = array("q", [0])  # of the columns in the file, block by block
        self._trajectories, self._last = 0, ""
        self._file = TemporaryFile()  # noqa: SIM115 - `__exit__` closes it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(
        self,
        labels: Mapping[str, str],
        grounded: Sequence[bool | None],
        scores: Sequence[Sequence[float | None]],
    ) -> None:
        """Add a step.

        Args:
            labels: task, trajectory, and the value of every dimension.
            grounded: of every answer; None: no place or no known target.
            scores: by rule, of every answer; None: not judged.
        """
        if labels["trajectory"] != self._last or not self._trajectories:
            if len(self._columns[0]) >= _BLOCK_STEPS:
                self._write_block()
            self._trajectories, self._last = self._trajectories + 1, labels["trajectory"]
        values: list[float] = [self._trajectories]
        for name in _NAMED:
            known = self._names[name]
            values.append(known.setdefault(labels[name], len(known)))
        values += [NO_PLACE if hit is None else hit for hit in grounded]
        for row in scores:
            values += [np.nan if score is None else score for score in row]
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def names(self, label: str) -> Mapping[str, int]:
        """The values of `task` or of a dimension, with the numbers that stand for them."""
        return self._names[label]

    def blocks(self) -> range:
        """The numbers of the blocks, once all steps were added."""
        if self._columns[0]:
            self._write_block()
        return range((len(self._ends) - 1) // len(self._columns))

    def codes(self, block: int, label: str) -> NDArray[np.int32]:
        """What stands for the value of a label, step by step; of trajectories a running number."""
        return np.frombuffer(self._read(block, _CODES.index(label)), np.int32)

    def hits(self, block: int, answerer: int) -> NDArray[np.int8]:
        """1 in the target's box, 0 outside, `NO_PLACE`, step by step."""
        return np.frombuffer(self._read(block, len(_CODES) + answerer), np.int8)

    def scores(self, block: int, preset: int, answerer: int) -> NDArray[np.float64]:
        """The scores of an answerer under a rule, step by step; NaN: not judged."""
        first = len(_CODES) + self._answerers * (1 + preset)
        return np.frombuffer(self._read(block, first + answerer), np.float64)

    def _read(self, block: int, column: int) -> bytes:
        number = block * len(self._columns) + column
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        return zlib.decompress(self._file.read(end - start))

    def _write_block(self) -> None:
        self._file.seek(self._ends[-1])
        for column in self._columns:
            self._ends.append(self._ends[-1] + self._file.write(zlib.compress(column, _FAST)))
            del column[:]


RESAMPLES = 1000
_AT_ONCE = 50  # resamples in memory
_RESAMPLES_AT_ONCE = 2**16  # resamples times tasks in memory
_PERCENT = (2.5, 97.5)

FloatTable = NDArray[np.float64]
TaskSums = tuple[NDArray[np.int64], FloatTable, FloatTable]
"""Of a group of steps: the numbers of n tasks, and for some means what the steps of each task add
up to and how many count, (means, n) each."""


class TaskDraws:
    """Draws of tasks; the same seed gives the same. A context manager, which deletes its file.

    Args:
        tasks: their number.
        seed: of the draws.
    """

    def __init__(self, tasks: int, seed: int = 0) -> None:
        self._tasks = tasks
        self._rows = max(1, min(_AT_ONCE, _RESAMPLES_AT_ONCE // max(1, tasks)))
        self._file = TemporaryFile()  # noqa: SIM115 - `__exit__` closes it
        rng = np.random.default_rng(seed)
        for count in self._batches():
            times = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=count)
            self._file.write(times.astype(np.uint16).tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def intervals(self, groups: Sequence[TaskSums]) -> list[FloatTable]:
        """The 95 % intervals of the means of several groups of steps.

        Args:
            groups: their sums by task.

        Returns:
            For each group (means, 2): low and high; NaN where fewer than two tasks have a step that
            counts.
        """
        draws = [np.full((RESAMPLES, len(counts)), np.nan) for _, _, counts in groups]
        self._file.seek(0)
        start = 0
        for count in self._batches():
            data = self._file.read(2 * count * self._tasks)
            times = np.frombuffer(data, np.uint16).reshape(count, self._tasks).astype(np.float64)
            for drawn, (tasks, sums, counts) in zip(draws, groups, strict=True):
                weights = times if len(tasks) == self._tasks else times[:, tasks]
                total = weights @ counts.T
                known = total > 0
                drawn[start : start + count][known] = (weights @ sums.T)[known] / total[known]
            start += count
        return [
            _percentiles(drawn, (counts > 0).sum(axis=1) > 1)
            for drawn, (_, _, counts) in zip(draws, groups, strict=True)
        ]

    def _batches(self) -> Iterator[int]:
        """How many resamples are in memory at a time; none when there is nothing to draw from."""
        for start in range(0, RESAMPLES if self._tasks > 1 else 0, self._rows):
            yield min(self._rows, RESAMPLES - start)


def _percentiles(draws: FloatTable, usable: NDArray[np.bool_]) -> FloatTable:
    """Low and high of each column of draws, where it is usable; a NaN in it is passed over."""
    intervals = np.full((draws.shape[1], 2), np.nan)
    whole = usable & ~np.isnan(draws).any(axis=0)
    for columns, percentile in ((whole, np.percentile), (usable & ~whole, np.nanpercentile)):
        if columns.any():
            intervals[columns] = percentile(draws[:, columns], _PERCENT, axis=0).T
    return intervals


RIGHT = 1 - 1e-9
ALL_STEPS = "all"
_Numbers = NDArray[np.int64]
_Sums = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepGroups:
    """Some of the values of a dimension, and the tasks that have steps of each.

    Attributes:
        dimension: one of the score file, or `ALL_STEPS`, which has one group.
        values: their names, in the order of the table.
        codes: what stands for them in the score file.
        cells: group times the number of tasks, plus task; rising.
        tasks: the number of all tasks.
    """

    dimension: str
    values: Sequence[str]
    codes: _Numbers
    cells: _Numbers
    tasks: int

    def find(self, scores: ScoreFile, block: int) -> tuple[_Numbers, NDArray[np.bool_]]:
        """The group of every step of a block that is in one, and which steps are."""
        if self.dimension == ALL_STEPS:
            count = len(scores.codes(block, "task"))
            return np.zeros(count, np.int64), np.ones(count, np.bool_)
        order = np.argsort(self.codes)
        codes = scores.codes(block, self.dimension)
        place = np.minimum(np.searchsorted(self.codes[order], codes), len(order) - 1)
        group = order[place]
        inside = self.codes[group] == codes
        return group[inside], inside


@dataclass(slots=True)
class GroupSums:
    """What the steps of some groups add up to, for some answerers: first axis answerers.

    Attributes:
        groups: the groups, second axis.
        numbers: of the answerers.
        right: steps with the full score.
        grounded: steps that have a place and a known target; `hits`: those that hit it.
        means: sums of the means of trajectories; `trajectories`: how many.
        prefix_steps: right steps before the first wrong one of a trajectory, summed; all groups.
        prefix_shares: the same as shares of the trajectories.
    """

    groups: StepGroups
    numbers: Sequence[int]
    right: _Numbers = field(init=False)
    grounded: _Numbers = field(init=False)
    hits: _Numbers = field(init=False)
    means: _Sums = field(init=False)
    trajectories: _Numbers = field(init=False)
    prefix_steps: _Sums = field(init=False)
    prefix_shares: _Sums = field(init=False)
    _sums: _Sums = field(init=False)
    _counts: _Sums = field(init=False)

    def __post_init__(self) -> None:
        shape = (len(self.numbers), len(self.groups.values))
        self.right, self.grounded = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.hits, self.trajectories = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.means = np.zeros(shape)
        self.prefix_steps, self.prefix_shares = np.zeros(len(self.numbers)), np.zeros(shape[0])
        self._sums, self._counts = np.zeros((2, len(self.numbers), len(self.groups.cells)))

    def by_task(self, group: int) -> TaskSums:
        """The sums of a group by task."""
        tasks = self.groups.tasks
        start, end = np.searchsorted(self.groups.cells, (group * tasks, (group + 1) * tasks))
        numbers = self.groups.cells[start:end] - group * tasks
        return numbers, self._sums[:, start:end], self._counts[:, start:end]

    def add(self, scores: ScoreFile, preset: int, block: int) -> None:
        """Add the steps of a block under a rule."""
        group, inside = self.groups.find(scores, block)
        task = scores.codes(block, "task")[inside]
        cell = np.searchsorted(self.groups.cells, group * self.groups.tasks + task)
        trajectory = scores.codes(block, "trajectory")[inside]
        for row, number in enumerate(self.numbers):
            given = scores.scores(block, preset, number)[inside]
            judged = ~np.isnan(given)
            given, groups = given[judged], group[judged]
            np.add.at(self._sums[row], cell[judged], given)
            np.add.at(self._counts[row], cell[judged], 1)
            hits = scores.hits(block, number)[inside][judged]
            self._count(self.right, row, groups[given >= RIGHT])
            self._count(self.grounded, row, groups[hits != NO_PLACE])
            self._count(self.hits, row, groups[hits == 1])
            self._add_means(row, groups, trajectory[judged], given)
            if self.groups.dimension == ALL_STEPS and len(given):
                self._add_prefixes(row, trajectory[judged], given)

    def _count(self, table: _Numbers, row: int, groups: _Numbers) -> None:
        table[row] += np.bincount(groups, minlength=len(self.groups.values))

    def _add_means(
        self, row: int, groups: _Numbers, trajectory: NDArray[np.int32], given: _Sums
    ) -> None:
        """Add the means of the trajectories of a block; each is in one block."""
        low = trajectory.min(initial=0)
        width = int(trajectory.max(initial=0)) - low + 1
        pairs, place = np.unique(groups * width + (trajectory - low), return_inverse=True)
        means = np.bincount(place, weights=given) / np.bincount(place)
        self._count(self.trajectories, row, pairs // width)
        np.add.at(self.means[row], pairs // width, means)

    def _add_prefixes(self, row: int, trajectory: NDArray[np.int32], given: _Sums) -> None:
        """Add the steps before the first wrong one; those that are not judged are passed over."""
        starts = np.flatnonzero(np.r_[True, trajectory[1:] != trajectory[:-1]])
        ends = np.r_[starts[1:], len(given)]
        wrong = np.where(given >= RIGHT, len(given), np.arange(len(given)))
        lengths = np.minimum(np.minimum.reduceat(wrong, starts), ends) - starts
        self.prefix_steps[row] += lengths.sum()
        self.prefix_shares[row] += (lengths / (ends - starts)).sum()


def step_groups(
    scores: ScoreFile, dimension: str, at_once: int, cells_at_once: int
) -> list[StepGroups]:
    """The groups of a dimension in the order of their names, some at a time.

    Args:
        scores: of all steps.
        dimension: one of the score file, or `ALL_STEPS`.
        at_once: the most groups together.
        cells_at_once: the most pairs of group and task together, but for a group that has more.
    """
    tasks = len(scores.names("task"))
    if dimension == ALL_STEPS:
        everything = np.zeros(1, np.int64)
        return [StepGroups(dimension, (ALL_STEPS,), everything, np.arange(tasks), tasks)]
    names = scores.names(dimension)
    found = np.zeros(0, np.int64)
    for block in scores.blocks():
        pairs = scores.codes(block, dimension).astype(np.int64) * tasks
        found = np.union1d(found, pairs + scores.codes(block, "task"))
    sizes = np.bincount(found // tasks)
    chunks: list[list[str]] = []
    room = 0
    for value in sorted(names):
        size = int(sizes[names[value]])
        if not chunks or size > room or len(chunks[-1]) == at_once:
            chunks.append([])
            room = cells_at_once
        chunks[-1].append(value)
        room -= size
    return [_grouped(dimension, chunk, names, found, tasks) for chunk in chunks]


def _grouped(
    dimension: str, values: Sequence[str], names: Mapping[str, int], found: _Numbers, tasks: int
) -> StepGroups:
    cells = []
    for group, value in enumerate(values):
        start, end = np.searchsorted(found, (names[value] * tasks, (names[value] + 1) * tasks))
        cells.append(found[start:end] + (group - names[value]) * tasks)
    codes = np.array([names[value] for value in values])
    return StepGroups(dimension, values, codes, np.concatenate(cells), tasks)


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
