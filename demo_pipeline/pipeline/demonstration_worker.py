"""A process that takes one demonstration after the other through the stages.

Belongs here: the process's own side: what it is told, what it answers, and how it ends. Who starts
it and gives it work is in demonstration_pool.py. It knows nothing of the orchestrator.
"""

import os
import queue
import threading
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from demo_pipeline.files.logs import PassedOnLog, show_log
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_run import DemonstrationTask, run_demonstration
from demo_pipeline.pipeline.stage_limits import EarlierAttempts
from demo_pipeline.pipeline.stages import STAGE_BY_NAME
from demo_pipeline.settings import Settings

_AGAIN_ALONE = EarlierAttempts(exceeded=lambda: True)
_ORPHANED = 70  # the exit code of a worker whose parent is gone; nobody reads it


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What a worker is told first.

    Attributes:
        settings: every path and threshold, as plain JSON values.
        stages: names of the stages that it runs, in order.
        log_level: of what it writes to standard error.
        passes_log_on: whether it sends the lines of its log at INFO and above.
    """

    settings: dict[str, Any]
    stages: tuple[str, ...]
    log_level: int
    passes_log_on: bool = False


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """One demonstration; `again`: an earlier attempt at it was stopped, and this one is alone."""

    task: DemonstrationTask
    again: bool


@dataclass(frozen=True, slots=True)
class StageBegan:
    """A worker begins a stage."""

    stage: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a worker's log."""

    level: int
    message: str


@dataclass(frozen=True, slots=True)
class WorkerEnds:
    """A worker ends at once, because its stage cannot be stopped in another way."""

    reason: str


def work(descriptor: int) -> None:
    """Answer every task that comes with a result, until the other side closes the connection."""
    connection = Connection(descriptor)
    start: WorkerStart = connection.recv()
    show_log(start.log_level)
    if start.passes_log_on:
        PassedOnLog(lambda level, message: connection.send(LogLine(level, message))).begin()
    workspace = Workspace.open(Settings(**start.settings))
    stages = [STAGE_BY_NAME[name] for name in start.stages]
    tasks: queue.SimpleQueue[WorkerTask] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    while True:
        given = tasks.get()
        earlier = _AGAIN_ALONE if given.again else EarlierAttempts()
        result = run_demonstration(
            workspace,
            stages,
            given.task,
            replace(earlier, note=lambda reason: connection.send(WorkerEnds(reason))),
            lambda stage: connection.send(StageBegan(stage)),
        )
        connection.send(result)


def _receive(connection: Connection, tasks: "queue.SimpleQueue[WorkerTask]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a stage.

    That is safe: what a stage has not committed yet is invisible, and built again.
    """
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
