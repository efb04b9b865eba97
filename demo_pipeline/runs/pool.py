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
_LEAVE_SECONDS = 10.0  # that the workers have to be gone
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it
_FORK = multiprocessing.get_context("fork")
_START, _END = b"s", b"e"  # what the process that forks the workers is told

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class WorkersError(TransientError):
    """No worker can be started, or all end before they have done what all need."""


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
    _tasks: dict[Any, _Task | None] = field(default_factory=dict)  # by the worker's connection

    def __post_init__(self) -> None:
        """Fork the process that workers are forked from, which imports while this one goes on."""
        self._asked, theirs = socket.socketpair()
        self._asked.settimeout(_LEAVE_SECONDS)
        arguments = (self._asked, theirs, self.begin, self.arguments)
        self._forker = _FORK.Process(target=_fork_workers, args=arguments)
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
            WorkersError: the process that starts the workers has ended.
            InstanceError, TransientError: raised in a worker, whose task is not at fault.
        """
        waiting = deque(tasks)
        deaths = Counter[int]()
        try:
            while waiting or self._is_busy():
                self._hand_out(waiting)
                ready: Any = wait(list(self._tasks))
                for connection in ready:
                    task = self._tasks.pop(connection)
                    answer = None
                    try:
                        answer = connection.recv()
                        self._tasks[connection] = None
                    except (EOFError, OSError):
                        connection.close()
                        deaths[id(task)] += 1
                        if task is not None and deaths[id(task)] < _MAX_DEATHS:
                            waiting.append(task)
                            continue
                    if isinstance(answer, InstanceError | TransientError):
                        raise answer
                    self._hand_out(waiting)  # before the answer is looked at
                    if task is not None:
                        yield task, answer
        finally:
            if self._is_busy():
                self.end()

    def _is_busy(self) -> bool:
        return any(task is not None for task in self._tasks.values())

    def _hand_out(self, waiting: deque[_Task]) -> None:
        """Give tasks to the workers without one, and to new ones."""
        idle = [connection for connection, task in self._tasks.items() if task is None]
        while waiting and (idle or len(self._tasks) < self.workers):
            connection = idle.pop() if idle else self._new_worker()
            self._tasks[connection] = waiting.popleft()
            with suppress(OSError):  # it died already: the next look at it says so
                connection.send(self._tasks[connection])

    def _new_worker(self) -> Connection:
        connection, theirs = multiprocessing.Pipe()
        with theirs:
            try:
                socket.send_fds(self._asked, [_START], [theirs.fileno()])
            except OSError:
                raise WorkersError("the process that starts the workers has ended") from None
        return connection

    def end(self) -> None:
        """End the workers, also amid a task; none is left then."""
        for connection in self._tasks:
            connection.close()
        self._tasks.clear()
        try:
            self._asked.send(_END)
            self._asked.recv(1)
        except OSError:  # it was killed; the workers see that their connections are closed
            self._forker.kill()

    def close(self) -> None:
        """End the workers, and the process that they are forked from."""
        self.end()
        self._asked.close()
        self._forker.kill()
        self._forker.join()


@reduced_python_gc(10_000)  # also in the workers, which take 17 MB more with 100,000
def _fork_workers(
    parents: socket.socket, asked: socket.socket, begin: str, arguments: tuple[Any, ...]
) -> None:
    """The life of the process that forks the workers, until the other side is gone."""
    os.setpgrp()  # a terminal's Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parents.close()
    module, _, function = begin.partition(":")
    begins = getattr(import_module(module), function)
    workers = []
    gc.freeze()  # what all workers have in common
    while True:
        told, handles, *_ = socket.recv_fds(asked, 1, 1)
        if told == _START:
            with Connection(handles[0]) as theirs:  # the worker alone keeps it
                of_work = (asked, theirs, begins, arguments)
                workers.append(_FORK.Process(target=_work, args=of_work))
                workers[-1].start()
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
