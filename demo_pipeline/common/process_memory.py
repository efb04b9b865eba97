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
_NOTABLE_BYTES = 24 * 2**20  # free memory between blocks that is worth the page faults to come


class _Mallinfo(ctypes.Structure):
    """What mallinfo2(3) returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


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
    """Give back what is free between blocks in use, if it is much.

    A stage may leave 50 MB of it. Small recordings leave 10, which the next stage takes again.
    """
    counted, trim = _of_malloc("mallinfo2"), _of_malloc("malloc_trim")
    if counted is None or trim is None:
        return
    counted.restype = _Mallinfo
    if counted().fordblks >= _NOTABLE_BYTES:
        trim(0)


def _of_malloc(function: str) -> Any:
    """A function of glibc's allocator; None on a system without it."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), function, None)
