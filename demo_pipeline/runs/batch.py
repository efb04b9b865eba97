"""Demonstrations through their stages, in worker processes: the one route from every door.

Belongs here: `process`, which the assets, the jobs and the command line call; what a worker does,
and what its death means: it costs the demonstration that it worked on, and no other. Running a
single stage is in stage_runs.py. Nothing here knows the orchestrator.
"""

import logging
import multiprocessing
import os
import platform
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from demo_pipeline import __version__
from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog, show_log, shown_level
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.failures import (
    COMMAND_PAUSES,
    DefectError,
    TransientError,
    redacted_errors,
    transient_reason,
)
from demo_pipeline.runs.quarantine import quarantine_demonstration, read_quarantine, record_crash
from demo_pipeline.runs.results import DemonstrationResult, StageReport, Status
from demo_pipeline.runs.stage_runs import StageLimit, SupersededError, run_stage
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.names import is_bucket, is_safe_id

_LOG = logging.getLogger(__package__)

KILLED = "its process ended without an error: killed, or out of memory"
_TICK = 1.0  # seconds between two looks at what else is to be done
_LOOK = 0.1  # seconds between two looks at what the workers use
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it
_TICKS_PER_SECOND, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

AStage = Stage[RecordingInputs]
RunLog = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class DemonstrationTask:
    """What is to be done with one demonstration.

    Attributes:
        demonstration: its id.
        listed: listing fingerprint of the expected upload; None: the one that is there.
        force: build although nothing changed.
    """

    demonstration: str
    listed: str | None = None
    force: bool = False


def process(
    workspace: Workspace,
    tasks: Sequence[DemonstrationTask],
    stages: Sequence[AStage] = (),
    *,
    workers: int = 1,
    log: RunLog | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Generator[DemonstrationResult]:
    """Yield a result for each task, in the order in which they end; an early end kills the workers.

    A demonstration whose process died, or needs more memory or CPU time than it may, is tried once
    more, alone, when the others are done; when that ends so again it is quarantined.

    Args:
        workspace: roots and settings.
        tasks: the demonstrations.
        stages: to run, in order; none: all.
        workers: the most processes at once.
        log: gets level and message of what the processes log at INFO and above; None: no one does.
        tick: called about every second.
    """
    pool = _Pool(workspace, stages or STAGES, log, tick)
    again: list[DemonstrationTask] = []
    try:
        for worker, result in pool.finish(tasks, max(1, workers), alone=False):
            if result is None:
                again.append(worker.task)
            else:
                yield result
        for task in again:
            for worker, result in pool.finish([task], 1, alone=True):
                yield result or _died(workspace, worker)
    finally:
        pool.close()


def process_patiently(
    workspace: Workspace,
    tasks: Sequence[DemonstrationTask],
    workers: int,
    pause: Callable[[str, float], None],
    log: RunLog | None = None,
) -> Generator[DemonstrationResult]:
    """As `process`; those that wait are tried again after pauses, a few of them first.

    Args:
        workspace: roots and settings.
        tasks: the demonstrations.
        workers: the most processes at once.
        pause: called with what is waited for and the seconds to wait.
        log: as of `process`.
    """
    known = {task.demonstration: task for task in tasks}
    waiting: dict[str, DemonstrationResult] = {}

    def attempt(keys: Sequence[str]) -> Iterator[DemonstrationResult]:
        left = dict.fromkeys(keys)
        try:
            tasks = [known[key] for key in keys]
            for result in process(workspace, tasks, workers=workers, log=log):
                del left[result.demonstration]
                if result.status is Status.WAITING:
                    waiting[result.demonstration] = result
                else:
                    waiting.pop(result.demonstration, None)
                    yield result
        except OSError as error:  # of the workers themselves: too many processes, say
            waits = Problem("waiting", ".", transient_reason(error) or type(error).__name__)
            waiting.update(
                {key: DemonstrationResult(key, Status.WAITING, problems=(waits,)) for key in left}
            )

    yield from attempt(list(known))
    for seconds in COMMAND_PAUSES if waiting else ():
        if not waiting:
            return
        pause(next(iter(waiting.values())).reason, seconds)
        some = list(waiting)[: max(1, workers)]
        for part in (some, [key for key in waiting if key not in some]):
            yield from attempt(part)
            if waiting.keys() >= set(part):  # the trouble lasts: the others would only fail, too
                break
    yield from waiting.values()


def run_demonstration(
    workspace: Workspace,
    stages: Sequence[AStage],
    task: DemonstrationTask,
    began: Callable[[str], None] = lambda _stage: None,
    watch: Callable[[StageLimit | None], None] = lambda _limit: None,
) -> DemonstrationResult:
    """Run the stages in order, until one gives nothing; no error of a stage is raised.

    Args:
        workspace: roots and settings.
        stages: some or all of a demonstration's stages, in their order.
        task: which demonstration, and how.
        began: called with the name of each stage before it runs.
        watch: as of `run_stage`.
    """
    reports: list[StageReport] = []
    for stage in stages:
        began(stage.name)
        outcome = _run_one(workspace, stage, task, watch, first=stage is stages[0])
        if isinstance(outcome, DemonstrationResult):
            return replace(outcome, stages=tuple(reports), stage=stage.name)
        reports.append(outcome)
    built = any(report.status is Status.BUILT for report in reports)
    return DemonstrationResult(
        task.demonstration, Status.BUILT if built else Status.CACHED, tuple(reports)
    )


def _run_one(
    workspace: Workspace,
    stage: AStage,
    task: DemonstrationTask,
    watch: Callable[[StageLimit | None], None],
    *,
    first: bool,
) -> StageReport | DemonstrationResult:
    """What a stage gave, or a result with why it gave nothing."""
    key = task.demonstration

    def ended(status: Status, *problems: Problem) -> DemonstrationResult:
        return DemonstrationResult(key, status, problems=problems)

    try:
        with redacted_errors(stage.name, key):
            if first and (problems := _cannot_start(workspace, stage, key)):
                return ended(Status.REJECTED, *problems)
            result = run_stage(
                workspace, stage, key, force=task.force, listed=task.listed, watch=watch
            )
    except (
        SupersededError,
        DemonstrationError,
        TransientError,
        StorageError,
        DefectError,
    ) as error:
        return ended(*_meaning(stage, key, error))
    rejected = DemonstrationResult(
        key, Status.REJECTED, problems=tuple(result.problems), checks=result.checks
    )
    return StageReport.of(stage.name, result) or rejected


def _meaning(stage: AStage, key: str, error: Exception) -> tuple[Status, *tuple[Problem, ...]]:
    """What an error of a stage means for its demonstration."""
    match error:
        case SupersededError():
            return Status.SUPERSEDED, Problem("upload_changed", ".", str(error))
        case DemonstrationError():
            return Status.REJECTED, *error.problems
        case MissingOutput():
            remedy = f"materialize {', '.join(stage.inputs)} of this demonstration first"
            words = storage_message(error)
            return Status.REJECTED, Problem("missing_input", stage.folder, words, remedy=remedy)
        case TransientError():
            return Status.WAITING, Problem("waiting", ".", error.reason)
    cause = f"{type(error).__name__}: {error}"
    return Status.FAILED, Problem("run_failed", ".", cause, demonstration=key)


def _cannot_start(workspace: Workspace, stage: AStage, demonstration: str) -> list[Problem]:
    """Why a stage cannot run: the key is not an id, or an earlier stage quarantined it.

    The outputs that the later stages built before are of another upload.
    """
    if not is_safe_id(demonstration):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        message = f"{demonstration!r} is not a demonstration id"
        return [Problem("unsafe_id", ".", message, remedy=remedy)]
    record = read_quarantine(workspace.store, demonstration)
    names = [known.name for known in STAGES]
    if record is None or record.stage not in names[: names.index(stage.name)]:
        return []
    return record.known_problems()


def _died(workspace: Workspace, worker: "_Worker") -> DemonstrationResult:
    """Quarantine a demonstration whose process died, or had to be ended, though it was alone."""
    key, stage, cause = worker.task.demonstration, worker.stage, worker.exceeded or KILLED
    try:
        if worker.exceeded:
            remedy = "split the recording; or raise that setting and run it with `--retry`"
            message = f"{stage} {worker.exceeded}, also alone in a process"
            problem = Problem("too_expensive", ".", message, remedy=remedy, demonstration=key)
            uploaded = workspace.uploads.identity(key)
            record = quarantine_demonstration(
                workspace.store, key, stage, uploaded, __version__, problems=[problem]
            )
        else:
            record = record_crash(workspace, key, stage, cause)
    except Exception as error:  # noqa: BLE001 - the others go on whatever it is
        reason = transient_reason(error) or type(error).__name__
        waits = Problem("waiting", ".", f"{cause}; {reason}")
        return DemonstrationResult(key, Status.WAITING, stage=stage, problems=(waits,))
    return DemonstrationResult(
        key, Status.REJECTED, stage=stage, problems=tuple(record.known_problems())
    )


@dataclass(frozen=True, slots=True)
class _Began:
    """A worker begins a stage."""

    stage: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a worker's log."""

    level: int
    message: str


def _forks(workspace: Workspace) -> bool:
    """Whether a worker is a copy of this process, which has imported everything.

    The threads that packages start when they are imported (OpenBLAS, jemalloc, Arrow) are prepared
    for that on Linux; system libraries of macOS are not, and neither are open connections to S3.
    """
    urls = (workspace.uploads.url, workspace.store.url)
    return platform.system() == "Linux" and not any(map(is_bucket, urls))


class _Worker:
    """One process and the demonstration that it works on.

    Attributes:
        process: of the system.
        connection: to the process.
        task: that it works on, or worked on last.
        idle: whether it has no task.
        stage: that it began last.
        exceeded: the limit because of which it was ended, in plain words.
    """

    def __init__(self, workspace: Workspace, stages: Sequence[AStage], pool: "_Pool") -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.task, self.idle = DemonstrationTask(""), True
        self.stage, self.exceeded = stages[0].name, ""
        self._log, self._cpu = pool.log, 0.0
        self._limit: StageLimit | None = None
        forks = _forks(workspace)
        known = list(stages) if forks else [stage.name for stage in stages]
        ours = [worker.connection for worker in (*pool.workers, self)] if forks else []
        values, passes = workspace.settings.model_dump(mode="json"), pool.log is not None
        context = (
            multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
        )
        self.process = context.Process(
            target=_work,
            args=(theirs, ours, values, known),
            kwargs={"level": None if forks else shown_level(), "passes_log_on": passes},
            daemon=True,
        )
        self.process.start()
        theirs.close()

    def give(self, task: DemonstrationTask) -> None:
        """Let it work on a demonstration."""
        self.task, self.idle, self.exceeded = task, False, ""
        with suppress(OSError):  # it died already: the next message says so
            self.connection.send(task)

    def take(self) -> DemonstrationResult | None:
        """A result, or None for another message. Raises `EOFError` when the process is dead."""
        try:
            message = self.connection.recv()
        except OSError:  # reset by a process that was killed
            raise EOFError from None
        match message:
            case _Began(stage):
                self.stage, self._limit = stage, None
            case StageLimit() | None:
                self._limit, self._cpu = message, _usage(self.process.pid)[1]
            case _Line(level, line) if self._log is not None:
                self._log(level, line)
            case DemonstrationResult():
                self.idle, self._limit = True, None
                return message
        return None

    def end_when_exceeding(self) -> None:
        """End the process when it needs more than its stage may: killing is safe at any time."""
        if self._limit is not None and not self.idle and not self.exceeded:
            memory, seconds = _usage(self.process.pid)
            self.exceeded = self._limit.exceeded(memory, seconds - self._cpu)
            if self.exceeded:
                self.process.kill()

    def end(self) -> None:
        """Kill the process."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class _Pool:
    """The workers of one call of `process`."""

    def __init__(
        self,
        workspace: Workspace,
        stages: Sequence[AStage],
        log: RunLog | None,
        tick: Callable[[], None],
    ) -> None:
        self.workers: list[_Worker] = []
        self.log, self._unfinished = log, False
        self._workspace, self._stages, self._tick = workspace, stages, tick

    def finish(
        self, tasks: Sequence[DemonstrationTask], limit: int, *, alone: bool
    ) -> Iterator[tuple[_Worker, DemonstrationResult | None]]:
        """Yield the worker and the result of each task; no result when the worker died."""
        left, ticked = deque(tasks), time.monotonic()
        if alone:
            self.close()
        while True:
            self._hand_out(left, limit)
            busy = {worker.connection: worker for worker in self.workers if not worker.idle}
            if not busy:
                return
            ready = wait(list(busy), timeout=_LOOK)
            for worker in [worker for connection, worker in busy.items() if connection in ready]:
                try:
                    result = worker.take()
                except EOFError:
                    self._unfinished = True
                    worker.end()
                    self.workers.remove(worker)
                    yield worker, None
                else:
                    if result is not None:
                        self._hand_out(left, limit)  # before the result is reported
                        yield worker, result
            for worker in self.workers:
                worker.end_when_exceeding()
            if time.monotonic() - ticked >= _TICK:
                ticked = time.monotonic()
                self._tick()

    def close(self) -> None:
        """End every worker; what they had not committed yet is removed now, not by the next run."""
        unfinished = self._unfinished or not all(worker.idle for worker in self.workers)
        self._unfinished = False
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        if unfinished:
            with best_effort(_LOG, "removing what the workers left"):
                self._workspace.store.remove_leftovers()

    def _hand_out(self, left: deque[DemonstrationTask], limit: int) -> None:
        for worker in self.workers:
            if left and worker.idle:
                worker.give(left.popleft())
        while left and len(self.workers) < limit:
            self.workers.append(_Worker(self._workspace, self._stages, self))
            self.workers[-1].give(left.popleft())


def _usage(pid: int | None) -> tuple[int, float]:
    """(resident bytes, seconds of CPU time) of a process; (0, 0) where the system does not tell."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return resident, (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return 0, 0.0


def _work(
    connection: Connection,
    others: Sequence[Connection],
    values: dict[str, Any],
    known: Sequence[AStage | str],
    *,
    level: int | None,
    passes_log_on: bool,
) -> None:
    """The life of a worker: answer every task with a result, until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is its parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # copies of its parent's, which would hide the parent's end
        other.close()
    if level is not None:
        show_log(level)
    logger = logging.getLogger(LOG_ROOT)
    logger.handlers[:] = [one for one in logger.handlers if not isinstance(one, PassedOnLog)]
    if passes_log_on:
        PassedOnLog(lambda level, message: connection.send(_Line(level, message))).begin()
    workspace = Workspace.open(Settings(**values))
    stages = [STAGE_BY_NAME[one] if isinstance(one, str) else one for one in known]
    tasks: queue.SimpleQueue[DemonstrationTask] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    while True:
        result = run_demonstration(
            workspace,
            stages,
            tasks.get(),
            lambda stage: connection.send(_Began(stage)),
            connection.send,
        )
        connection.send(result)


def _receive(connection: Connection, tasks: "queue.SimpleQueue[DemonstrationTask]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a stage.

    That is safe: what a stage has not committed yet is invisible, and built again.
    """
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
