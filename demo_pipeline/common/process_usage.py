"""What this process uses of the machine: resident memory and CPU time.

Belongs here: reading both from the system, cheaply enough to be asked many times a second.
"""

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")  # counts pages; its second number is of the resident ones
_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM now; None where the system does not tell (macOS)."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def cpu_time() -> float:
    """Seconds of CPU time that all threads of this process used so far."""
    return time.process_time()
