"""Worker processes that take one task after the other, and what the death of one means.

Belongs here: starting, feeding and ending the workers, with no knowledge of what the work is. They
are forked from one process that has imported what all of them need, and has no thread yet.
"""

import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from demo_pipeline.runs.failures import InstanceError, TransientError

_MAX_DEATHS = 3  # of the workers of one task: one alone may be the system's or a person's doing
_MAX_EARLY_DEATHS = 5  # in a row, of workers that had not begun
_LEAVE_SECONDS = 10.0  # that a worker has to end by itself
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class WorkersError(TransientError):
    """The worker processes end before they have begun, or before they have done what all need."""


@dataclass
class Pool(Generic[_Task, _Answer]):
    """Up to `workers` processes, which are kept from one call to the next until `end`.

    Attributes:
        begin: `module:function`, called in each worker before its first task; returns what does
            the work: it gets a task and returns the answer. This process does not import it.
        arguments: of `begin`.
        workers: most processes at once.
    """

    begin: str
    arguments: tuple[Any, ...]
    workers: int
    _live: dict[Connection, "_Worker"] = field(default_factory=dict)
    _died_early: int = 0

    def start(self) -> None:
        """Start a worker, which imports while this process goes on."""
        self._start(1)

    def ask(self, task: _Task) -> _Answer:
        """The answer to one task.

        Raises:
            WorkersError: its worker died three times.
            InstanceError, TransientError: as `process`.
        """
        for _, answer in self.process([task]):
            if answer is not None:
                return answer
        raise WorkersError("a worker process ended without an error: killed, or out of memory")

    def process(self, tasks: Sequence[_Task]) -> Generator[tuple[_Task, _Answer | None]]:
        """Yield each task with its answer as it is done; None after its worker died three times.

        An early end of the iteration ends the workers, which is safe at any moment for tasks that
        can be killed.

        Raises:
            WorkersError: the workers cannot begin.
            InstanceError, TransientError: raised in a worker, whose task is not at fault.
        """
        waiting, deaths = deque(tasks), Counter[int]()
        try:
            self._hand_out(waiting)
            while waiting or any(worker.is_busy for worker in self._live.values()):
                self._start(len(waiting))
                ready = wait(list(self._live))
                for worker in [one for key, one in self._live.items() if key in ready]:
                    task = worker.task
                    try:
                        answer = worker.connection.recv()
                    except (EOFError, OSError):
                        self._bury(worker)
                        if not worker.is_busy:
                            continue
                        deaths[id(task)] += 1
                        if deaths[id(task)] < _MAX_DEATHS:
                            waiting.append(task)
                        else:
                            yield task, None
                        continue
                    if isinstance(answer, InstanceError | TransientError):
                        raise answer
                    was_busy, worker.is_ready, worker.is_busy = worker.is_busy, True, False
                    self._died_early = 0
                    self._hand_out(waiting)  # before the answer is looked at
                    if was_busy:
                        yield task, answer
                self._hand_out(waiting)
        finally:
            if any(worker.is_busy for worker in self._live.values()):
                self.end()

    def _start(self, waiting: int) -> None:
        idle = sum(not worker.is_busy for worker in self._live.values())
        for _ in range(min(self.workers - len(self._live), waiting - idle)):
            worker = _Worker(self.begin, self.arguments)
            self._live[worker.connection] = worker

    def _hand_out(self, waiting: deque[_Task]) -> None:
        for worker in self._live.values():
            if waiting and worker.is_ready and not worker.is_busy:
                worker.give(waiting.popleft())

    def _bury(self, worker: "_Worker") -> None:
        del self._live[worker.connection]
        worker.end()
        if not worker.is_ready:
            self._died_early += 1
            if self._died_early >= _MAX_EARLY_DEATHS:
                raise WorkersError("the worker processes end before they have begun")

    def end(self) -> None:
        """End the workers, also amid a task."""
        for worker in self._live.values():
            worker.connection.close()
        for worker in self._live.values():
            worker.end()
        self._live.clear()


class _Worker:
    """One process, and the task that it works on."""

    def __init__(self, begin: str, arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([begin.partition(":")[0]])
        self.connection, theirs = context.Pipe()
        self.task: Any = None
        self.is_ready = self.is_busy = False
        # Opened by the worker itself, which may import for seconds then, and is on the watch first.
        packed = pickle.dumps((dict(os.environ), begin, arguments))
        self._process = context.Process(target=_work, args=(theirs, packed), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: object) -> None:
        self.task, self.is_busy = task, True
        with suppress(OSError):  # it died already: the next message says so
            self.connection.send(task)

    def end(self) -> None:
        self.connection.close()
        self._process.join(_LEAVE_SECONDS)
        self._process.kill()
        self._process.join()


def _work(connection: Connection, packed: bytes) -> None:
    """The life of a worker: answer every task, until the other side is gone."""
    os.setpgrp()  # a terminal's Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError):  # the other side is gone, and `_receive` did not see it yet
        try:
            environment, begin, arguments = pickle.loads(packed)  # noqa: S301 - our own
            os.environ.clear()  # that of the first command, when a process has several
            os.environ.update(environment)
            module, _, function = begin.partition(":")
            work: Callable[[Any], Any] = getattr(import_module(module), function)(*arguments)
            connection.send(None)
            for task in _taken(tasks):
                connection.send(work(task))
        except (InstanceError, TransientError) as error:
            connection.send(error)


def _taken(tasks: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    while True:
        yield tasks.get()


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Any]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a task."""
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
