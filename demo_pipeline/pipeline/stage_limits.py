"""The limits of memory and CPU time of one stage, enforced in the process that runs it.

Belongs here: how large they are for a recording, and stopping a stage that exceeds them. What a
stopped stage means for its demonstration is decided in runner.py.
"""

import ctypes
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from demo_pipeline.files.processes import cpu_time, resident_bytes
from demo_pipeline.pipeline.transient import TransientError
from demo_pipeline.settings import LimitSettings

EXCEEDED_EXIT = 71  # exit code of a process whose stage could not be stopped in another way
_INTERVAL = 0.05  # seconds between two looks
_AGAIN = 1.0  # seconds from one attempt to stop a stage to the next
_PATIENCE = 10.0  # seconds that a stage has to stop; then its process ends
_FAR_ABOVE = 1.5  # times the limit of memory: the process ends at once, before the machine suffers
_GB = 2**30
_ROUNDS = 100  # a pending error is raised in the first


class ExceededLimitError(TransientError):
    """A stage used more memory or CPU time than it may; alone in a process it may do with less."""


class _StageStop(BaseException):
    """Raised in the thread of a stage from outside, wherever that is."""


@dataclass(frozen=True, slots=True)
class StageLimit:
    """What one build, or one round of checks, of a stage may use.

    Attributes:
        memory_bytes: resident memory of its process.
        cpu_seconds: CPU time of its process, from the stage's start.
    """

    memory_bytes: int
    cpu_seconds: float

    @classmethod
    def of(cls, limits: LimitSettings, video_seconds: float, actions: int) -> "StageLimit":
        """The limit for a recording of this length with so many actions."""
        seconds = limits.cpu_seconds
        seconds += limits.cpu_seconds_per_video_second * max(video_seconds, 0.0)
        seconds += limits.cpu_seconds_per_action * actions
        return cls(limits.max_memory_bytes, seconds)

    def exceeded(self, memory: int | None, seconds: float) -> str | None:
        """Which limit is exceeded, in plain words; None when none is."""
        if memory is not None and memory > self.memory_bytes:
            return (
                f"needs more than {self.memory_bytes / _GB:.3g} GB of memory "
                "(limits.max_memory_bytes)"
            )
        if seconds > self.cpu_seconds:
            return f"needs more than {self.cpu_seconds:.4g} s of CPU time (limits.cpu_seconds)"
        return None


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """What is known about earlier attempts at a stage that exceeds its limits.

    Attributes:
        exceeded: whether the attempt before this one exceeded them, and this one is alone in its
            process.
        note: writes down why the process ends now; the stage could not be stopped otherwise.
    """

    exceeded: Callable[[], bool] = lambda: False
    note: Callable[[str], None] = lambda _reason: None


class _Watch:
    """A thread that looks at memory and CPU time while a stage runs in the thread that made it."""

    def __init__(self, limit: StageLimit, note: Callable[[str], None]) -> None:
        self.reason: str | None = None
        self._limit, self._note = limit, note
        self._stage, self._start = threading.get_ident(), cpu_time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stage-limits", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop looking; afterwards nothing is raised in the stage's thread any more."""
        self._ended.set()
        self._thread.join()
        if self.reason is not None:
            _take_pending_stop()

    def _look(self) -> None:
        """Look until the stage ends; stop it when it exceeds a limit."""
        while self.reason is None:
            if self._ended.wait(_INTERVAL):
                return
            self.reason = self._limit.exceeded(resident_bytes(), cpu_time() - self._start)
        self._stop(self.reason)

    def _stop(self, reason: str) -> None:
        for _ in range(int(_PATIENCE / _AGAIN)):
            if (resident_bytes() or 0) > _FAR_ABOVE * self._limit.memory_bytes:
                break
            if not self._ended.is_set():
                _raise_in(self._stage, _StageStop)
            if self._ended.wait(_AGAIN):
                return
        writer = threading.Thread(target=self._note, args=(reason,), daemon=True)
        writer.start()
        writer.join(_PATIENCE)
        os._exit(EXCEEDED_EXIT)


@contextmanager
def within_limit(limit: StageLimit, note: Callable[[str], None]) -> Iterator[None]:
    """Stop what the context does when this process exceeds a limit.

    Args:
        limit: for what is done.
        note: gets the reason before the process ends, because the context could not be stopped.

    Raises:
        ExceededLimitError: it was stopped.
    """
    watch = _Watch(limit, note)
    try:
        try:
            with _killed_after(limit.cpu_seconds + 2 * _PATIENCE):
                yield
        finally:
            watch.end()
    except _StageStop:
        watch.end()
        raise ExceededLimitError(watch.reason or "") from None
    except MemoryError:
        if watch.reason is not None:
            raise ExceededLimitError(watch.reason) from None
        raise


@contextmanager
def _killed_after(seconds: float) -> Iterator[None]:
    """Have the system kill this process after so much more CPU time.

    For code that never lets another thread of Python run, such as a regular expression.
    """
    before, most = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = math.ceil(cpu_time() + seconds)
    lower = [limit for limit in (before, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_CPU, (min([wanted, *lower]), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (before, most))


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Have a thread raise an error soon."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _take_pending_stop() -> None:
    """Catch a stop that this thread was asked for and has not raised yet.

    Taking the request back instead would leave Python 3.11 looking for it for ever: under a tracer
    it never goes on.
    """
    with suppress(_StageStop):
        for _ in range(_ROUNDS):
            time.sleep(0)
