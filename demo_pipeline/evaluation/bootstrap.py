"""Intervals of means by resampling whole tasks.

Belongs here: the draws, and the intervals that they give. Steps of a task are not independent, so
tasks are drawn, not steps. The draws are kept in a file: every group of steps needs all of them.
"""

from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
_AT_ONCE = 50  # resamples in memory
_CELLS_AT_ONCE = 2**16  # resamples times tasks in memory
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
        self._rows = max(1, min(_AT_ONCE, _CELLS_AT_ONCE // max(1, tasks)))
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
