"""Many demonstrations through their stages, in worker processes that are started once.

Belongs here: handing out demonstrations, and what the death of a worker means: it costs the
demonstration that it worked on, and no other. What a worker does is in demonstration_worker.py, how
its process is started in worker_processes.py.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self

from demo_pipeline.files.logs import shown_level
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import record_crash
from demo_pipeline.pipeline.demonstration_run import DemonstrationResult, DemonstrationTask
from demo_pipeline.pipeline.demonstration_worker import (
    LogLine,
    StageBegan,
    WorkerEnds,
    WorkerStart,
    WorkerTask,
)
from demo_pipeline.pipeline.transient import transient_reason
from demo_pipeline.pipeline.worker_processes import WorkerProcesses
from demo_pipeline.problems import Problem

_LOG = logging.getLogger(__package__)

KILLED = "its process ended without an error: killed, or out of memory"
_TICK = 1.0  # seconds between two looks at what else is to be done


RunLog = Callable[[int, str], None]


class _Worker:
    """One process and the demonstration that it works on.

    Attributes:
        pid: the id of the process.
        connection: to the process.
        task: that it works on, or worked on last.
        idle: whether it has no task.
        stage: that it began last.
        reason: why it said that it ends.
    """

    def __init__(self, processes: WorkerProcesses, start: WorkerStart, log: RunLog | None) -> None:
        self.pid, self.connection = processes.start()
        self.task, self.idle = DemonstrationTask(""), True
        self.stage, self.reason = start.stages[0], ""
        self._processes, self._log = processes, log
        with suppress(OSError):  # it died already: the next message says so
            self.connection.send(start)

    def give(self, task: DemonstrationTask, *, again: bool) -> None:
        """Let it work on a demonstration."""
        self.task, self.idle, self.reason = task, False, ""
        with suppress(OSError):
            self.connection.send(WorkerTask(task, again))

    def take(self) -> DemonstrationResult | None:
        """A result, or None for another message. Raises `EOFError` when the process is dead."""
        try:
            message = self.connection.recv()
        except OSError:  # reset by a process that was killed
            raise EOFError from None
        match message:
            case StageBegan(stage):
                self.stage = stage
            case WorkerEnds(reason):
                self.reason = reason
            case LogLine(level, line) if self._log is not None:
                self._log(level, line)
            case DemonstrationResult():
                self.idle = True
                return message
        return None

    def end(self) -> None:
        """Kill the process, which is safe at any time."""
        self.connection.close()
        self._processes.kill(self.pid)


class DemonstrationPool:
    """Worker processes for many demonstrations; a context, whose end kills them.

    Args:
        workspace: roots and settings.
        stages: names of the stages to run, in order.
        workers: the most processes at once.
        stopped: when it is set, no result follows any more.
        log: gets level and message of what the processes log at INFO and above; None: nobody does.
    """

    def __init__(
        self,
        workspace: Workspace,
        stages: Sequence[str],
        workers: int,
        stopped: threading.Event | None = None,
        log: RunLog | None = None,
    ) -> None:
        self._workspace = workspace
        values = workspace.settings.model_dump(mode="json")
        self._start = WorkerStart(values, tuple(stages), shown_level(), log is not None)
        self._log = log
        self._limit, self._workers = max(1, workers), list[_Worker]()
        self._processes = WorkerProcesses()
        self._stopped = stopped or threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._processes.close()
        for worker in self._workers:
            worker.connection.close()
        unfinished = not all(worker.idle for worker in self._workers)
        self._workers.clear()
        if unfinished:  # what they had not committed yet is removed now, not by the next run
            with best_effort(_LOG, "removing what the workers left"):
                self._workspace.store.remove_leftovers()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [worker.pid for worker in self._workers]

    def run(
        self, tasks: Sequence[DemonstrationTask], tick: Callable[[], None] = lambda: None
    ) -> Iterator[DemonstrationResult]:
        """Yield a result for each task, in the order in which they end.

        A demonstration whose process died, or whose stage exceeded its limits, is tried once more
        when the others are done, alone; when that ends so again it is quarantined.

        Args:
            tasks: the demonstrations.
            tick: called about every second.
        """
        again: list[DemonstrationTask] = []
        for worker, result in self._finish(deque(tasks), tick, self._limit, again=False):
            if result is None:
                again.append(worker.task)
            elif result.exceeded:
                again += [task for task in tasks if task.demonstration == result.demonstration]
            else:
                yield result
        for task in again:
            for worker in self._workers:
                worker.end()
            self._workers.clear()
            for worker, result in self._finish(deque([task]), tick, 1, again=True):
                yield result or self._died(worker)

    def _finish(
        self, left: deque[DemonstrationTask], tick: Callable[[], None], limit: int, *, again: bool
    ) -> Iterator[tuple[_Worker, DemonstrationResult | None]]:
        """Yield the worker and the result of each task; no result when the worker died."""
        looked = time.monotonic()
        while not self._stopped.is_set():
            self._hand_out(left, limit, again=again)
            busy = {worker.connection: worker for worker in self._workers if not worker.idle}
            if not busy:
                return
            ready = wait(list(busy), timeout=_TICK)
            for worker in [worker for connection, worker in busy.items() if connection in ready]:
                try:
                    result = worker.take()
                except EOFError:
                    worker.end()
                    self._workers.remove(worker)
                    yield worker, None
                else:
                    if result is not None:
                        self._hand_out(left, limit, again=again)  # before the result is reported
                        yield worker, result
            if time.monotonic() - looked >= _TICK:
                looked = time.monotonic()
                tick()

    def _hand_out(self, left: deque[DemonstrationTask], limit: int, *, again: bool) -> None:
        for worker in self._workers:
            if left and worker.idle:
                worker.give(left.popleft(), again=again)
        while left and len(self._workers) < limit:
            self._workers.append(_Worker(self._processes, self._start, self._log))
            self._workers[-1].give(left.popleft(), again=again)

    def _died(self, worker: _Worker) -> DemonstrationResult:
        """Quarantine a demonstration whose process died though it was alone."""
        demonstration = worker.task.demonstration
        cause = f"it {worker.reason}" if worker.reason else KILLED
        try:
            record = record_crash(self._workspace, demonstration, worker.stage, cause)
        except Exception as error:  # noqa: BLE001 - the others go on whatever it is
            reason = transient_reason(error) or type(error).__name__
            waits = Problem("waiting", ".", f"{cause}; {reason}")
            return DemonstrationResult(demonstration, "waiting", (), worker.stage, (waits,))
        found = tuple(record.known_problems())
        return DemonstrationResult(demonstration, "failed", (), worker.stage, found)
