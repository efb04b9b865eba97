"""A pool of worker processes that survives the death of a worker.

The workers are forked from a *forker*, a process that is itself forked from the pool's process.
Workers therefore inherit the imported modules of both processes. The forker never starts a thread,
because a fork copies only one thread.

The alternative `pebble` with a forkserver was measured: 4 idle workers took 167 MB instead of 104
MB (Pss), and a single task 143 to 167 MB instead of 87 MB. A forkserver shares no memory with the
process that starts it.
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

# Number of workers that may die on a task before the task is given up. A single death may have a
# cause outside the task.
_MAX_DEATHS = 3
_LEAVE_SECONDS = 10.0  # seconds to wait for the forker to kill all workers
_ORPHANED = 70  # exit code of a worker that outlives the pool
_FORK = multiprocessing.get_context("fork")
_START = b"s"  # a message to the forker: fork a worker
_END = b"e"  # a message to the forker: end all workers

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class WorkersError(TransientError):
    """Raised if no worker can be started, or if three workers died on the same task."""


@dataclass
class Pool(Generic[_Task, _Answer]):
    """Starts worker processes and gives them tasks.

    Create the pool while this process has no other thread, because a fork copies only one thread.

    Attributes:
        begin: `module:function`, called in each worker before its first task. It returns the
            function that answers tasks. The forker imports the module; this process does not.
        arguments: the arguments of `begin`.
        workers: the largest number of processes at once.
    """

    begin: str
    arguments: tuple[Any, ...]
    workers: int
    # Maps the connection to each worker to its current task, or to None while the worker is idle.
    _tasks: dict[Any, _Task | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Starts the forker."""
        self._to_forker, end_of_forker = socket.socketpair()
        self._to_forker.settimeout(_LEAVE_SECONDS)
        arguments = (self._to_forker, end_of_forker, self.begin, self.arguments)
        self._forker = _FORK.Process(target=_fork_workers, args=arguments)
        self._forker.start()
        end_of_forker.close()

    def ask(self, task: _Task) -> _Answer:
        """Returns the answer to a single task.

        Raises:
            WorkersError: three workers died on the task, or the forker has ended.
            InstanceError, TransientError: see `process`.
        """
        for _, answer in self.process([task]):
            if answer is not None:
                return answer
        raise WorkersError("a worker process ended without an error: killed, or out of memory")

    def process(self, tasks: Sequence[_Task]) -> Generator[tuple[_Task, _Answer | None]]:
        """Yields each task with its answer, or with None if three workers died on this task.

        If the caller stops the iteration early, the workers are killed.

        Raises:
            WorkersError: the forker has ended.
            InstanceError, TransientError: a worker failed for a reason unrelated to its task.
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
                    self._hand_out(waiting)  # so that the worker is busy while the caller works
                    if task is not None:
                        yield task, answer
        finally:
            if self._is_busy():
                self.end()

    def _is_busy(self) -> bool:
        return any(task is not None for task in self._tasks.values())

    def _hand_out(self, waiting: deque[_Task]) -> None:
        """Gives tasks to idle workers and to new workers."""
        idle = [connection for connection, task in self._tasks.items() if task is None]
        while waiting and (idle or len(self._tasks) < self.workers):
            connection = idle.pop() if idle else self._new_worker()
            self._tasks[connection] = waiting.popleft()
            with suppress(OSError):  # the worker died; `process` notices it
                connection.send(self._tasks[connection])

    def _new_worker(self) -> Connection:
        connection, end_of_worker = multiprocessing.Pipe()
        with end_of_worker:
            try:
                socket.send_fds(self._to_forker, [_START], [end_of_worker.fileno()])
            except OSError:
                raise WorkersError("the process that starts the workers has ended") from None
        return connection

    def end(self) -> None:
        """Kills all workers, even in the middle of a task."""
        for connection in self._tasks:
            connection.close()
        self._tasks.clear()
        try:
            self._to_forker.send(_END)
            self._to_forker.recv(1)
        except OSError:  # the forker was killed; the workers end when their connections close
            self._forker.kill()

    def close(self) -> None:
        """Ends the workers and the forker."""
        self.end()
        self._to_forker.close()
        self._forker.kill()
        self._forker.join()


@reduced_python_gc(10_000)  # workers inherit the threshold; with 100,000 they take 17 MB more
def _fork_workers(
    to_forker: socket.socket, from_pool: socket.socket, begin: str, arguments: tuple[Any, ...]
) -> None:
    """The main function of the forker."""
    os.setpgrp()  # Ctrl-C in a terminal reaches only the parent, which ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    to_forker.close()
    module, _, function = begin.partition(":")
    begin_function = getattr(import_module(module), function)
    workers = []
    gc.freeze()  # otherwise garbage collection in the workers would copy the shared memory
    while True:
        message, handles, *_ = socket.recv_fds(from_pool, 1, 1)
        if message == _START:
            with Connection(handles[0]) as connection:  # closed here, but open in the worker
                arguments_of_worker = (from_pool, connection, begin_function, arguments)
                workers.append(_FORK.Process(target=_work, args=arguments_of_worker))
                workers[-1].start()
            continue
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
        workers.clear()
        if not message:
            return
        from_pool.send(message)


def _work(
    from_pool: socket.socket,
    connection: Connection,
    begin: Callable[..., Callable[[Any], Any]],
    arguments: tuple[Any, ...],
) -> None:
    """The main function of a worker."""
    from_pool.close()
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError):  # the pool has ended, but `_receive` has not noticed yet
        try:
            work = begin(*arguments)
            for task in iter(tasks.get, None):  # never ends, because a task is never None
                connection.send(work(task))
        except (InstanceError, TransientError) as error:
            connection.send(error)


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Any]") -> None:
    """Receives tasks. When the pool has ended, ends the process, even in the middle of a task."""
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
