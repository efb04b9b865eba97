"""Finds and ends the processes that `make ray` started, with /proc.

Orphans become children of this process. Therefore every started process is a descendant of this
process until it ends.
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
_LEAVE = 20.0  # seconds after which a process that was asked to end is killed


class ProcessState(NamedTuple):
    """The state and the parent of a process in /proc/<pid>/stat."""

    state: str
    parent: int


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


@contextmanager
def running(process: subprocess.Popen[bytes], stop: signal.Signals) -> Iterator[None]:
    """Ends a process at the end of the context, by a signal or else by force."""
    try:
        yield
    finally:
        process.send_signal(stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE)
        process.kill()
        process.wait()


def process_states() -> dict[int, ProcessState]:
    """Returns the state of every process of this machine by process id."""
    states = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            states[int(path.parent.name)] = ProcessState(fields[0], int(fields[1]))
    return states


def title_of(pid: int) -> str:
    """Returns the command line of a process, or "" if it has ended."""
    with suppress(OSError):
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
        return data.replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def end_descendants() -> list[str]:
    """Kills all descendants, reaps all children, and returns the command lines of the killed."""
    titles: dict[int, str] = {}
    end = time.monotonic() + _LEAVE
    while (pids := descendants(os.getpid())[1:]) and time.monotonic() < end:
        for pid in pids:
            # A dying process has no command line any more, so an earlier one is kept.
            titles[pid] = titles.get(pid) or title_of(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return list(titles.values())


def descendants(pid: int) -> list[int]:
    """Returns a living process and all its living descendants; the process itself is first."""
    states = process_states()
    living = {number: state for number, state in states.items() if state.state != "Z"}
    family = [pid] if pid in living else []
    for parent in family:
        family += [child for child, state in living.items() if state.parent == parent]
    return family
