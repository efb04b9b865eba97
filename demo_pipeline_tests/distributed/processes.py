"""The processes of `make ray`: who started whom, and that none is left.

Belongs here: reading /proc. Orphans become children of this process, so that every process that was
started is a descendant until it has ended.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_LEAVE = 20.0  # seconds that a process has to end by itself


class ProcessState(NamedTuple):
    """What /proc/<pid>/stat says about a process."""

    state: str
    parent: int


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


@contextmanager
def running(process: subprocess.Popen[bytes], stop: signal.Signals) -> Iterator[None]:
    """End a process with the context: by a signal, and by force when that does not help."""
    try:
        yield
    finally:
        process.send_signal(stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE)
        process.kill()
        process.wait()


def process_states() -> dict[int, ProcessState]:
    """Every process of this machine by its id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = ProcessState(fields[0], int(fields[1]))
    return found


def title_of(pid: int) -> str:
    """The command line of a process, empty when it has ended."""
    with suppress(OSError):
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
        return data.replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def end_descendants() -> list[str]:
    """Kill what is left, and take every child that has ended; returns the titles of the killed."""
    titles: dict[int, str] = {}
    end = time.monotonic() + _LEAVE
    while (pids := descendants(os.getpid())[1:]) and time.monotonic() < end:
        for pid in pids:
            titles[pid] = titles.get(pid) or title_of(pid)  # a dying process has none
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return list(titles.values())


def descendants(pid: int) -> list[int]:
    """A living process and those that it and they started, itself first."""
    states = {one: found for one, found in process_states().items() if found.state != "Z"}
    found = [pid] if pid in states else []
    for parent in found:
        found += [child for child, state in states.items() if state.parent == parent]
    return found
