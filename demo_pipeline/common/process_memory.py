"""How a process of this package takes memory from the system, and gives it back.

Belongs here: the settings of the allocators. As they come, they learn to keep blocks of many
megabytes once one was freed, and between those thousands of small blocks hold on to memory that
nothing uses: together about 60 MB after ten minutes of a busy screen.
"""

import ctypes
import os
import sys
from functools import cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3) in glibc's malloc.h
_LARGE_BYTES = 2**20  # a larger block goes back to the system when it is freed
_SPARE_BYTES = 8 * 2**20  # free memory at the end of the heap that is kept


def save_memory() -> None:
    """Let this process, and those it starts, keep little freed memory; call it first.

    Arrow reads its setting when it is imported; one that somebody made is left as it is.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    return_large_blocks()


@cache
def return_large_blocks() -> None:
    """Give large freed blocks back at once, from now on; nothing where that cannot be set."""
    if (mallopt := _of_malloc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def return_free_memory() -> None:
    """Give back what is free between blocks in use: a stage may leave 30 MB of that."""
    if (trim := _of_malloc("malloc_trim")) is not None:
        trim(0)


def _of_malloc(function: str) -> Any:
    """A function of glibc's allocator; None on a system without it."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), function, None)
