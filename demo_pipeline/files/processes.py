"""Settings of a process: memory and threads of libraries, and Python's garbage collector."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 100_000


def save_memory() -> None:
    """Let Arrow and NumPy use little memory, here and in child processes. Call it before Arrow.

    NumPy starts threads for products of large matrices, which spin for 40 ms. No code of this
    package multiplies large matrices.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def spare_existing_objects() -> None:
    """Exclude existing objects from garbage collection: going through Dagster's takes 0.8 CPU s."""
    if "duckdb" not in sys.modules:  # DuckDB reports excluded objects as leaks at the end
        gc.freeze()


@contextmanager
def reduced_python_gc(new_objects: int = _NEW_OBJECTS) -> Iterator[None]:
    """Collect garbage once per `new_objects` in a `with` block or a decorated function.

    UI trees contain no reference cycles, but looking for some takes a third of the time.
    """
    usual_thresholds = gc.get_threshold()
    gc.set_threshold(new_objects, *usual_thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual_thresholds)
