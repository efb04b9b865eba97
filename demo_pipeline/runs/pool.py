"""Worker processes that take one task after the other, and what the death of one means.

Belongs here: starting, feeding and ending the workers, with no knowledge of what the work is. Each
attempt at a task has a ticket that the parent chose, so that the parent can end in other records
what a dead worker had begun.
"""

import multiprocessing
import os
import pickle
import queue
import signal
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from demo_pipeline.runs.failures import TransientError

_MAX_DEATHS = 3  # of the workers of one task: one alone may be the system's or a person's doing
_MAX_EARLY_DEATHS = 5  # in a row, of workers that had not begun
_LEAVE_SECONDS = 10.0  # that a worker has to end by itself
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it

_Answer = TypeVar("_Answer")
Work = Callable[[str, str], _Answer]
"""Gets a task and a ticket."""
Lost = Callable[[str, str, bool], None]
"""Gets a task, the ticket of an unfinished attempt, and whether its worker died by itself."""


class WorkersError(TransientError):
    """The worker processes end before they have begun."""


@dataclass
class Pool(Generic[_Answer]):
    """Up to `workers` processes for some tasks.

    Attributes:
        begin: called in each worker before its first task; returns what does the work. A function
            of a module, as the workers are new processes.
        arguments: of `begin`.
        workers: most processes at once.
        lost: called here for every attempt that was not finished.
    """

    begin: Callable[..., Work[_Answer]]
    arguments: tuple[Any, ...]
    workers: int
    lost: Lost
    _live: dict[Connection, "_Worker"] = field(default_factory=dict)
    _died_early: int = 0

    def process(self, tasks: Sequence[str]) -> Generator[tuple[str, _Answer | None]]:
        """Yield each task with its answer as it is done; None after its worker died three times.

        An early end of the iteration ends the workers, which is safe at any moment for tasks that
        can be killed.

        Raises:
            WorkersError: the workers cannot begin.
            TransientError: raised in a worker, whose task is not at fault.
        """
        waiting, deaths = deque(tasks), Counter[str]()
        try:
            while waiting or any(worker.task for worker in self._live.values()):
                self._start(len(waiting))
                ready = wait(list(self._live))
                for worker in [one for key, one in self._live.items() if key in ready]:
                    task = worker.task
                    try:
                        answer = worker.connection.recv()
                    except (EOFError, OSError):
                        self._bury(worker)
                        if task is None:
                            continue
                        deaths[task[0]] += 1
                        if deaths[task[0]] < _MAX_DEATHS:
                            waiting.append(task[0])
                        else:
                            yield task[0], None
                        continue
                    if isinstance(answer, TransientError):
                        raise answer
                    worker.is_ready, worker.task, self._died_early = True, None, 0
                    self._hand_out(waiting)  # before the answer is looked at
                    if task is not None:
                        yield task[0], answer
                self._hand_out(waiting)
        finally:
            self._end()

    def _start(self, waiting: int) -> None:
        idle = sum(worker.task is None for worker in self._live.values())
        for _ in range(min(self.workers - len(self._live), waiting - idle)):
            worker = _Worker(self.begin, self.arguments)
            self._live[worker.connection] = worker

    def _hand_out(self, waiting: deque[str]) -> None:
        for worker in self._live.values():
            if waiting and worker.is_ready and worker.task is None:
                worker.give(waiting.popleft())

    def _bury(self, worker: "_Worker") -> None:
        del self._live[worker.connection]
        worker.end()
        if worker.task is not None:
            self.lost(*worker.task, True)
        elif not worker.is_ready:
            self._died_early += 1
            if self._died_early >= _MAX_EARLY_DEATHS:
                raise WorkersError("the worker processes end before they have begun")

    def _end(self) -> None:
        for worker in self._live.values():
            worker.connection.close()
        for worker in self._live.values():
            worker.end()
        for worker in self._live.values():
            if worker.task is not None:
                self.lost(*worker.task, False)
        self._live.clear()


class _Worker:
    """One process, and the task and ticket that it works on."""

    def __init__(self, begin: Callable[..., Work[Any]], arguments: tuple[Any, ...]) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.task: tuple[str, str] | None = None
        self.is_ready = False
        context = multiprocessing.get_context("spawn")
        # Opened by the worker itself, which may import for seconds then, and is on the watch first.
        packed = pickle.dumps((begin, arguments))
        self._process = context.Process(target=_work, args=(theirs, packed), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: str) -> None:
        self.task = (task, str(uuid.uuid4()))
        with suppress(OSError):  # it died already: the next message says so
            self.connection.send(self.task)

    def end(self) -> None:
        self.connection.close()
        self._process.join(_LEAVE_SECONDS)
        self._process.kill()
        self._process.join()


def _work(connection: Connection, packed: bytes) -> None:
    """The life of a worker: answer every task, until the other side is gone."""
    os.setpgrp()  # a terminal's Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tasks: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError):  # the other side is gone, and `_receive` did not see it yet
        try:
            begin, arguments = pickle.loads(packed)  # noqa: S301 - our own
            work = begin(*arguments)
            connection.send(None)
            for task, ticket in _taken(tasks):
                connection.send(work(task, ticket))
        except TransientError as error:
            connection.send(error)


def _taken(tasks: "queue.SimpleQueue[tuple[str, str]]") -> Iterator[tuple[str, str]]:
    while True:
        yield tasks.get()


def _receive(connection: Connection, tasks: "queue.SimpleQueue[tuple[str, str]]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a task."""
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
