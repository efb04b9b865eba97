"""Processes: which one did something, what it uses of the machine, how it gives memory back.

Belongs here: identifying this process and finding out whether another one is gone (a process id
alone is not enough, since the system gives it to other processes later), and the allocators. As
these come, they learn to keep blocks of many megabytes once one was freed, and between those
thousands of small blocks hold on to memory that nothing uses: together about 60 MB after ten
minutes of a busy screen.
"""

import ctypes
import gc
import hashlib
import os
import platform
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

_IS_LINUX = platform.system() == "Linux"  # else macOS
_FIELDS = 4
_HEX = 12  # digits of a hash
_START_FIELD = 22  # of /proc/<pid>/stat, 1-based: ticks from boot to the start of the process
_DEAD_STATES = {"Z", "X", "x"}  # a zombie has ended, and its parent has not noticed yet
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_PS_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of a machine. No field contains a space; a field that is unknown is `-`.

    The host has a hash over the machine's id and its space of process ids, so that two containers
    with one name differ. `start` is as the system states it, `boot` the id of the machine's boot.
    """

    host: str
    pid: int
    start: str
    boot: str

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.start} {self.boot}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The identity that `str` turned into `text`; None for any other text."""
        parts = text.split(" ")
        if len(parts) != _FIELDS or not (parts[1].isascii() and parts[1].isdigit()):
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3])

    @property
    def mark(self) -> str:
        """A short form for names of files: hashes of host and of boot and start, with the pid."""
        known = "-" not in {self.boot, self.start}
        started = _hash(f"{self.boot} {self.start}") if known else "-"
        return f"{_hash(self.host)}-{self.pid}-{started}"


def has_ended(mark: str) -> bool:
    """Whether the process with this `ProcessIdentity.mark` has certainly ended."""
    return _lives(mark) is False


def is_running(mark: str) -> bool:
    """Whether the process with this `ProcessIdentity.mark` is known to run."""
    return _lives(mark) is True


def _lives(mark: str) -> bool | None:
    """None: of a process of another host, or of any other text, nothing is known."""
    here = this_process()
    host, _, rest = mark.partition("-")
    pid, _, started = rest.partition("-")
    if host != _hash(here.host) or not pid.isdigit():
        return None
    start = process_start(int(pid))
    unknown = "-" in {start, here.boot, started}
    return start is not None and (unknown or _hash(f"{here.boot} {start}") == started)


def this_process() -> ProcessIdentity:
    """The identity of the running process."""
    return _identity(os.getpid())


@lru_cache(maxsize=1)
def _identity(pid: int) -> ProcessIdentity:  # a child process gets the parent's cache
    name = "".join(c for c in socket.gethostname() if c.isalnum() or c in ".-_") or "-"
    machine = next(filter(None, map(_read, _MACHINE_FILES)), "") or f"{uuid.getnode():x}"
    processes = ""
    with suppress(OSError):
        processes = str(Path("/proc/self/ns/pid").readlink())
    host = f"{name}/{_hash(f'{machine} {processes}')}"
    if _IS_LINUX:
        boot = _read("/proc/sys/kernel/random/boot_id")
    else:
        boot = _output("sysctl", "-n", "kern.bootsessionuuid")
    return ProcessIdentity(host, pid, process_start(pid) or "-", boot or "-")


def process_start(pid: int) -> str | None:
    """When a process of this machine started; `-` when that is unknown, None when it has ended."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:  # of another user
        pass
    if not _IS_LINUX:
        text = _output("ps", "-o", "stat=,lstart=", "-p", str(pid)).split()
        started = _hash(" ".join(text[1:])) if text else "-"
        return None if text and text[0][0] in _DEAD_STATES else started
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # hidden from this user, or it has just ended: the next call will tell
        return "-"
    fields = data.rpartition(b")")[2].split()  # a process's name may contain anything
    state, start = fields[0].decode(), fields[_START_FIELD - 3].decode()
    return None if state in _DEAD_STATES else start


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _output(*command: str) -> str:
    """What a command of the system prints; empty when it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - constants and a number
            command, capture_output=True, text=True, check=False, timeout=_PS_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX]


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3) in glibc's malloc.h
_LARGE_BYTES = 2**20  # a larger block goes back to the system when it is freed
_SPARE_BYTES = 8 * 2**20  # free memory at the end of the heap that is kept


def save_memory() -> None:
    """Let this process, and those it starts, keep little freed memory; call it before Arrow."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
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
