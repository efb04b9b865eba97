"""Tunes this process: memory and threads of libraries, and Python's garbage collector."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 100_000  # objects created between two garbage collections; Python's default is 700


def save_memory() -> None:
    """Reduces the memory of Arrow and the threads of NumPy in this process and its children.

    Call this function before Arrow and NumPy are imported. NumPy is limited to one thread, because
    additional threads spin for 40 ms. They only speed up products of large matrices, which this
    package does not compute.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def spare_existing_objects() -> None:
    """Excludes existing objects from garbage collection.

    A collection that visits the objects of Dagster's modules takes 0.8 s of CPU time.
    """
    # DuckDB reports objects that are excluded from garbage collection as leaks at exit.
    if "duckdb" not in sys.modules:
        gc.freeze()


@contextmanager
def reduced_python_gc(new_objects: int = _NEW_OBJECTS) -> Iterator[None]:
    """Makes garbage collections rare in a `with` block or a decorated function.

    With Python's usual thresholds, the search for reference cycles in UI trees takes a third of the
    time of a build, although the trees contain no cycles.
    """
    usual_thresholds = gc.get_threshold()
    gc.set_threshold(new_objects, *usual_thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual_thresholds)
