"""Intervals of means by resampling whole tasks.

Belongs here: the one function. Steps of a task are not independent, so tasks are drawn, not steps.
"""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
_AT_ONCE = 50  # resamples in memory
_PERCENT = (2.5, 97.5)

FloatTable = NDArray[np.float64]


def bootstrap_intervals(sums: FloatTable, counts: FloatTable, seed: int = 0) -> FloatTable:
    """The 95 % intervals of several means over the same tasks.

    Args:
        sums: (tasks, means): what the steps of a task add up to.
        counts: (tasks, means): how many steps of the task count.
        seed: of the draws; the same seed gives the same numbers.

    Returns:
        (means, 2): low and high; NaN where fewer than two tasks have a step that counts.
    """
    tasks, means = sums.shape
    draws = np.full((RESAMPLES, means), np.nan)
    rng = np.random.default_rng(seed)
    for start in range(0, RESAMPLES if tasks > 1 else 0, _AT_ONCE):
        times = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=_AT_ONCE).astype(float)
        total = times @ counts
        known = total > 0
        draws[start : start + _AT_ONCE][known] = (times @ sums)[known] / total[known]
    intervals = np.full((means, 2), np.nan)
    usable = (counts > 0).sum(axis=0) > 1
    if tasks > 1 and usable.any():
        intervals[usable] = np.nanpercentile(draws[:, usable], _PERCENT, axis=0).T
    return intervals
