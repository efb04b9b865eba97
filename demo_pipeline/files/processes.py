"""What a process uses of the machine, and how it gives memory back.

Belongs here: the allocators and Python's search for cycles. As the allocators come, they learn to
keep blocks of many megabytes once one was freed, and between those thousands of small blocks hold
on to memory that nothing uses: together about 60 MB after ten minutes of a busy screen.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3) in glibc's malloc.h
# A larger block goes back to the system when it is freed. A plane of 1080p is smaller: got anew
# for each picture it costs 500 page faults, three times what is done with it.
_LARGE_BYTES = 2**22
_SPARE_BYTES = 4 * 2**20  # free memory at the end of the heap that is kept


def save_memory() -> None:
    """Let this process, and those it starts, keep little freed memory; call it before Arrow.

    Nothing here multiplies large matrices, for which NumPy starts threads: 40 ms of spinning.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return_large_blocks()


@cache
def return_large_blocks() -> None:
    """Give large freed blocks back at once, from now on; nothing where that cannot be set."""
    if (mallopt := _of_malloc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def return_free_memory() -> None:
    """Give back what is free between blocks in use: a stage may leave 50 MB; takes 0.5 ms."""
    if (trim := _of_malloc("malloc_trim")) is not None:
        trim(0)


def _of_malloc(function: str) -> Any:
    """A function of glibc's allocator; None on a system without it."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), function, None)


def spare_existing_objects() -> None:
    """Let no search for cycles go through what there is now: through Dagster it takes 0.8 CPU s."""
    if "duckdb" not in sys.modules:  # which calls objects that are left at the end a leak
        gc.freeze()


_NEW_OBJECTS = 100_000


@contextmanager
def reduced_python_gc(new_objects: int = _NEW_OBJECTS) -> Iterator[None]:
    """Collect garbage once per this many objects in a `with` block or a decorated function.

    UI trees of plain values have no cycles, but searching them for some takes a third of the time.
    """
    usual = gc.get_threshold()
    gc.set_threshold(new_objects, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
