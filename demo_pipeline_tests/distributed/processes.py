"""The processes of `make ray`: their CPU time, who started whom, and that none is left.

Belongs here: reading /proc. Orphans become children of this process, so that every process that was
started is a descendant until it has ended.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_LEAVE = 20.0  # seconds that a process has to end by itself
_SAMPLE = 1.0  # seconds between two looks; a process can use so much more than was seen
_KINDS = {  # what a command line contains; the first that fits, of a process or its ancestors
    "runs": ("dagster api execute_run", "demo-pipeline run"),
    "Dagster's daemon": ("dagster-daemon", "dagster api grpc", "dagster code-server"),
    "S3 server": ("weed mini",),
    "Ray": ("ray::", "ray start", "raylet", "gcs_server", "/ray/dashboard", "/ray/_private"),
    "Postgres": ("postgres",),
}
_OTHER = "this command"


class ProcessState(NamedTuple):
    """What /proc/<pid>/stat says about a process; `ticks` is its CPU time without children's."""

    state: str
    parent: int
    ticks: int
    started: str


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


class CpuMeter:
    """Adds up the CPU time of this process and its descendants, by what they are for.

    Looking again and again also counts processes whose parents ignore how they end, as Ray's do.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[str, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cpu-meter", daemon=True)
        self._thread.start()

    def seconds(self) -> Counter[str]:
        """Seconds so far, by kind."""
        self._look()
        totals: Counter[str] = Counter()
        for kind, ticks in list(self._seen.values()):
            totals[kind] += ticks
        return Counter({kind: round(ticks / _TICKS) for kind, ticks in totals.items()})

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE):
            self._look()

    def _look(self) -> None:
        states = process_states()
        for pid, state in states.items():
            line = list(ancestry(pid, states))
            if os.getpid() in line:
                self._seen[pid, state.started] = (_kind_of(line), state.ticks)


def process_states() -> dict[int, ProcessState]:
    """Every process of this machine by its id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            found[int(path.parent.name)] = ProcessState(
                fields[0], int(fields[1]), ticks, fields[19]
            )
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
    while (pids := _living_descendants()) and time.monotonic() < end:
        for pid in pids:
            titles[pid] = titles.get(pid) or title_of(pid)  # a dying process has none
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return list(titles.values())


def _living_descendants() -> list[int]:
    states, here = process_states(), os.getpid()
    living = [pid for pid, state in states.items() if state.state != "Z" and pid != here]
    return [pid for pid in living if here in ancestry(pid, states)]


def ancestry(pid: int, states: Mapping[int, ProcessState]) -> Iterator[int]:
    """A process and its ancestors, up to this process."""
    while pid in states:
        yield pid
        if pid == os.getpid():
            return
        pid = states[pid].parent


def _kind_of(line: list[int]) -> str:
    for pid in line[:-1]:  # the last is this process
        title = title_of(pid)
        for kind, marks in _KINDS.items():
            if any(mark in title for mark in marks):
                return kind
    return _OTHER
