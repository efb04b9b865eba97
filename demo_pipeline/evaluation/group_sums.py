"""Adds the scores of steps up: by group, by group and task, and over trajectories.

Belongs here: one pass over the blocks of a score file. Scores of a task are added in the order of
the steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from demo_pipeline.evaluation.bootstrap import TaskSums
from demo_pipeline.evaluation.score_file import NO_PLACE, ScoreFile

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
