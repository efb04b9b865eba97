"""Worker processes that take one task after the other, and what the death of one means.

Belongs here: starting, feeding and ending the workers, with no knowledge of what the work is. They
are forked from a process that was forked from this one: what is imported here is not imported
again, and that process imports what they need besides, and never has a thread.
"""

import gc
import multiprocessing
import os
import queue
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.runs.failures import InstanceError, TransientError

_MAX_DEATHS = 3  # of the workers of one task: one alone may be the system's or a person's doing
_MAX_EARLY_DEATHS = 5  # in a row, of workers that had not begun
_LEAVE_SECONDS = 10.0  # that the workers have to be gone
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it
_START, _END = b"s", b"e"  # what the process that forks the workers is told

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class WorkersError(TransientError):
    """The worker processes end before they have begun, or before they have done what all need."""


@dataclass
class Pool(Generic[_Task, _Answer]):
    """Up to `workers` processes, which are kept from one call to the next until `end`.

    Make it while this process has no thread at work, and `close` it.

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

    def __post_init__(self) -> None:
        """Fork the process that workers are forked from, which imports while this one goes on."""
        context = multiprocessing.get_context("fork")
        self._asked, theirs = socket.socketpair()
        self._asked.settimeout(_LEAVE_SECONDS)
        arguments = (self._asked, theirs, self.begin, self.arguments)
        self._forker = context.Process(target=_fork_workers, args=arguments)
        self._forker.start()
        theirs.close()

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
            connection, theirs = multiprocessing.Pipe()
            with theirs:
                try:
                    socket.send_fds(self._asked, [_START], [theirs.fileno()])
                except OSError:
                    raise WorkersError("the process that starts the workers has ended") from None
            self._live[connection] = _Worker(connection)

    def _hand_out(self, waiting: deque[_Task]) -> None:
        for worker in self._live.values():
            if waiting and worker.is_ready and not worker.is_busy:
                worker.task, worker.is_busy = waiting.popleft(), True
                with suppress(OSError):  # it died already: the next message says so
                    worker.connection.send(worker.task)

    def _bury(self, worker: "_Worker") -> None:
        del self._live[worker.connection]
        worker.connection.close()
        if not worker.is_ready:
            self._died_early += 1
            if self._died_early >= _MAX_EARLY_DEATHS:
                raise WorkersError("the worker processes end before they have begun")

    def end(self) -> None:
        """End the workers, also amid a task; none is left then."""
        for worker in self._live.values():
            worker.connection.close()
        self._live.clear()
        try:
            self._asked.send(_END)
            self._asked.recv(1)
        except OSError:  # it was killed; the workers see that their connections are closed
            self._forker.kill()

    def close(self) -> None:
        """End the workers, and the process that they are forked from."""
        self.end()
        self._asked.close()
        self._forker.join()


@dataclass
class _Worker:
    """One process, and the task that it works on."""

    connection: Connection
    task: Any = None
    is_ready: bool = False
    is_busy: bool = False


@reduced_python_gc(10_000)  # also in the workers, which take 17 MB more with 100,000
def _fork_workers(
    parents: socket.socket, asked: socket.socket, begin: str, arguments: tuple[Any, ...]
) -> None:
    """The life of the process that forks the workers, until the other side is gone."""
    os.setpgrp()  # a terminal's Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parents.close()
    context = multiprocessing.get_context("fork")
    module, _, function = begin.partition(":")
    begins, workers = getattr(import_module(module), function), []
    gc.freeze()  # what all workers have in common
    while True:
        told, handles, *_ = socket.recv_fds(asked, 1, 1)
        for handle in handles:
            with Connection(handle) as theirs:  # the worker alone keeps it
                of_work = (asked, theirs, begins, arguments)
                workers.append(context.Process(target=_work, args=of_work))
                workers[-1].start()
        if told == _START:
            continue
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
        workers.clear()
        if not told:
            return
        asked.send(told)


def _work(
    asked: socket.socket,
    connection: Connection,
    begin: Callable[..., Callable[[Any], Any]],
    arguments: tuple[Any, ...],
) -> None:
    """The life of a worker: answer every task, until the other side is gone."""
    asked.close()
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError):  # the other side is gone, and `_receive` did not see it yet
        try:
            work = begin(*arguments)
            connection.send(None)
            for task in iter(tasks.get, None):  # which no task is
                connection.send(work(task))
        except (InstanceError, TransientError) as error:
            connection.send(error)


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Any]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a task."""
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
