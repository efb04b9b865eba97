"""Measuring a piece of work in a process of its own: CPU, wall, and the most memory it held."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

_KB_PER_MB = 1024


class Spent(NamedTuple):
    """What a piece of work took.

    Attributes:
        wall, cpu: seconds; CPU is user and system, of the process and of those that it started.
        peak_mb: the most memory that one process held by the end, with Python and its packages.
    """

    wall: float
    cpu: float
    peak_mb: float


def cpu_seconds() -> float:
    """User and system time of this process and of its ended children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def peak_mb() -> float:
    """The most memory that this process or a child of it has held."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / _KB_PER_MB


def spent(work: Callable[[], object]) -> Spent:
    """Measure work in this process."""
    wall = time.perf_counter()
    cpu = cpu_seconds()
    work()
    return Spent(time.perf_counter() - wall, cpu_seconds() - cpu, peak_mb())


def in_child(function: Callable[..., Any], *arguments: object) -> Any:
    """The result of a module-level function, called in a fresh process."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        return pool.submit(function, *arguments).result()
