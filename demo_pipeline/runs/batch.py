"""Demonstrations through their stages, in worker processes: commands and Dagster both call it.

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
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog, show_log, shown_level
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.observation.frames.video_reader import HAS_SPARE_PROCESSOR
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.failures import (
    COMMAND_PAUSES,
    DefectError,
    SupersededError,
    TransientError,
    error_words,
    redacted_errors,
)
from demo_pipeline.runs.quarantine import (
    quarantine_demonstration,
    read_quarantine,
    record_crash,
    require_listed,
)
from demo_pipeline.runs.results import BuildResult, DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import AStage, StageLimit, run_stage
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.names import is_bucket, is_safe_id

_LOG = logging.getLogger(__package__)

KILLED = "its process ended without an error: killed, or out of memory"
_TICK = 1.0  # seconds between two looks at what else is to be done
_LOOK = 0.1  # seconds between two looks at what the workers use
_ORPHANED = 70  # the exit code of a worker whose parent is gone; no one reads it
_TICKS_PER_SECOND, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

RunLog = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class DemonstrationTask:
    """What is to be done with one demonstration.

    `listed`: listing fingerprint of the expected upload; None: the one that is there.
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
) -> Generator[BuildResult | DemonstrationResult]:
    """Yield what each stage gave as soon as it is done, and a result after each task's last.

    A demonstration whose process died, or needs more memory or CPU time than it may, is tried once
    more, alone, when the others are done; when that ends so again it is quarantined. An early end
    kills the workers. `log` gets level and message of what these log at INFO and above; `tick` is
    called about every second.
    """
    pool = _Pool(workspace, stages or STAGES, log, tick)
    again: list[DemonstrationTask] = []
    try:
        for worker, found in pool.finish(tasks, max(1, workers)):
            if found is None:
                again.append(worker.task)
            else:
                yield found
        for task in again:
            pool.close()
            for worker, found in pool.finish([task], 1):
                yield found or _died(workspace, worker)
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

    `pause` is called with what is waited for and the seconds to wait.
    """
    known = {task.demonstration: task for task in tasks}
    waiting: dict[str, DemonstrationResult] = {}

    def attempt(keys: Sequence[str]) -> Iterator[DemonstrationResult]:
        left, part = set(keys), [known[key] for key in keys]
        try:
            for result in process(workspace, part, workers=workers, log=log):
                if isinstance(result, BuildResult):
                    continue
                left.remove(result.demonstration)
                if result.status is Status.WAITING:
                    waiting[result.demonstration] = result
                else:
                    waiting.pop(result.demonstration, None)
                    yield result
        except OSError as error:  # of the workers themselves: too many processes, say
            why = error_words(error)
            waiting.update({key: _waits(key, why) for key in keys if key in left})

    yield from attempt(list(known))
    for seconds in COMMAND_PAUSES:
        if not waiting:
            return
        pause(next(iter(waiting.values())).reason, seconds)
        some = list(waiting)[: max(1, workers)]
        for keys in (some, [key for key in waiting if key not in some]):
            yield from attempt(keys)
            if waiting.keys() >= set(keys):  # the trouble lasts: the others would only fail, too
                break
    yield from waiting.values()


def _waits(key: str, reason: str, stage: str = "") -> DemonstrationResult:
    problem = Problem("waiting", ".", reason)
    return DemonstrationResult(key, Status.WAITING, stage=stage, problems=(problem,))


def run_demonstration(
    workspace: Workspace,
    stages: Sequence[AStage],
    task: DemonstrationTask,
    tell: Callable[[BuildResult | StageLimit | None], None] = lambda _news: None,
) -> DemonstrationResult:
    """Run the stages in order, until one gives nothing; no error of a stage is raised.

    `tell` is called with what each stage gave, and as the `watch` of `run_stage`.
    """
    reports: list[BuildResult] = []
    for stage in stages:
        outcome = _run_one(workspace, stage, task, tell, first=stage is stages[0])
        if isinstance(outcome, DemonstrationResult):
            return replace(outcome, stages=tuple(reports), stage=stage.name)
        reports.append(outcome)
        tell(outcome)
    built = any(report.status is Status.BUILT for report in reports)
    status = Status.BUILT if built else Status.CACHED
    return DemonstrationResult(task.demonstration, status, tuple(reports))


def _run_one(
    workspace: Workspace,
    stage: AStage,
    task: DemonstrationTask,
    watch: Callable[[StageLimit | None], None],
    *,
    first: bool,
) -> BuildResult | DemonstrationResult:
    """What a stage gave, or a result with why it gave nothing."""
    key, start = task.demonstration, time.process_time()
    try:
        with redacted_errors(stage.name, key):
            if first and (problems := _cannot_start(workspace, stage, key)):
                return DemonstrationResult(key, Status.REJECTED, problems=tuple(problems))
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
        status, *reasons = _meaning(stage, key, error)
        return DemonstrationResult(key, status, problems=tuple(reasons))
    if result.version is not None:
        return replace(result, cpu_seconds=time.process_time() - start)
    found = tuple(result.problems)
    return DemonstrationResult(key, Status.REJECTED, problems=found, checks=result.checks)


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
        if worker.task.listed is not None:
            require_listed(workspace, key, stage, worker.task.listed)
        if worker.exceeded:
            remedy = "split the recording; or raise that setting and run it with `--retry`"
            message = f"{stage} {worker.exceeded}, also alone in a process"
            problem = Problem("too_expensive", ".", message, remedy=remedy, demonstration=key)
            uploaded = workspace.uploads.identity(key)
            record = quarantine_demonstration(workspace.store, key, stage, uploaded, [problem])
        else:
            record = record_crash(workspace, key, stage, cause)
    except SupersededError as error:
        changed = Problem("upload_changed", ".", str(error))
        return DemonstrationResult(key, Status.SUPERSEDED, tuple(worker.done), stage, (changed,))
    except Exception as error:  # noqa: BLE001 - the others go on whatever it is
        return _waits(key, f"{cause}; {error_words(error)}", stage)
    problems = tuple(record.known_problems())
    return DemonstrationResult(key, Status.REJECTED, tuple(worker.done), stage, problems)


class _Worker:
    """One process and the demonstration that it works on.

    Attributes:
        connection: to the process.
        task: that it works on, or worked on last.
        idle: whether it has no task.
        done: what the stages of the task gave so far.
        exceeded: the limit because of which it was ended, in plain words.
    """

    def __init__(self, pool: "_Pool") -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.task, self.idle, self.exceeded = DemonstrationTask(""), True, ""
        self.done: list[BuildResult] = []
        self._pool, self._cpu = pool, 0.0
        self._limit: StageLimit | None = None
        # A copy of this process has imported everything. The threads that packages start then
        # (OpenBLAS, jemalloc, Arrow) are prepared for that on Linux; system libraries of macOS are
        # not, and neither are open connections to S3.
        urls = (pool.workspace.uploads.url, pool.workspace.store.url)
        forks = platform.system() == "Linux" and not any(map(is_bucket, urls))
        known = pool.stages if forks else [stage.name for stage in pool.stages]
        ours = [worker.connection for worker in (*pool.workers, self)] if forks else []
        level = None if forks else shown_level()
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        self._process = context.Process(
            target=_work,
            args=(
                *(theirs, ours, pool.workspace.settings, known, level, pool.log is not None),
                pool.has_spare_worker,
            ),
            daemon=True,
        )
        self._process.start()
        theirs.close()

    @property
    def stage(self) -> str:
        """Name of the stage that it is in, or was in last."""
        return self._pool.stages[: len(self.done) + 1][-1].name

    def give(self, task: DemonstrationTask) -> None:
        self.task, self.idle, self.done, self.exceeded = task, False, [], ""
        with suppress(OSError):  # it died already: the next message says so
            self.connection.send(task)

    def take(self) -> BuildResult | DemonstrationResult | None:
        """What a message says that others want to know. Raises `EOFError` from a dead process."""
        try:
            message = self.connection.recv()
        except OSError:  # reset by a process that was killed
            raise EOFError from None
        match message:
            case StageLimit() | None:
                self._limit, self._cpu = message, _usage(self._process.pid)[1]
            case (level, line) if self._pool.log is not None:
                self._pool.log(level, line)
            case BuildResult():
                self.done.append(message)
                return message
            case DemonstrationResult():
                self.idle, self._limit = True, None
                return message
        return None

    def end_when_exceeding(self) -> None:
        """End the process when it needs more than its stage may: killing is safe at any time."""
        if self._limit is not None and not self.idle and not self.exceeded:
            memory, seconds = _usage(self._process.pid)
            self.exceeded = self._limit.exceeded(memory, seconds - self._cpu)
            if self.exceeded:
                self._process.kill()

    def end(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


@dataclass
class _Pool:
    """The workers of one call of `process`."""

    workspace: Workspace
    stages: Sequence[AStage]
    log: RunLog | None
    tick: Callable[[], None]
    workers: list[_Worker] = field(default_factory=list)
    has_spare_worker: bool = False
    _unfinished: bool = False

    def finish(
        self, tasks: Sequence[DemonstrationTask], limit: int
    ) -> Iterator[tuple[_Worker, BuildResult | DemonstrationResult | None]]:
        """Yield who gave it and each report and result of the tasks; None when the worker died."""
        left, ticked = deque(tasks), time.monotonic()
        self.has_spare_worker = len(tasks) == 1 < limit
        while True:
            self._hand_out(left, limit)
            busy = {worker.connection: worker for worker in self.workers if not worker.idle}
            if not busy:
                return
            ready = wait(list(busy), timeout=_LOOK)
            for worker in [worker for connection, worker in busy.items() if connection in ready]:
                try:
                    found = worker.take()
                except EOFError:
                    self._unfinished = True
                    worker.end()
                    self.workers.remove(worker)
                    yield worker, None
                    continue
                self._hand_out(left, limit)  # before the result is reported
                if found is not None:
                    yield worker, found
            for worker in self.workers:
                worker.end_when_exceeding()
            if time.monotonic() - ticked >= _TICK:
                ticked = time.monotonic()
                self.tick()

    def close(self) -> None:
        """End every worker; what they had not committed yet is removed now, not by the next run."""
        unfinished = self._unfinished or not all(worker.idle for worker in self.workers)
        self._unfinished = False
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        if unfinished:
            with best_effort(_LOG, "removing what the workers left"):
                self.workspace.store.remove_leftovers()

    def _hand_out(self, left: deque[DemonstrationTask], limit: int) -> None:
        for worker in self.workers:
            if left and worker.idle:
                worker.give(left.popleft())
        while left and len(self.workers) < limit:
            self.workers.append(_Worker(self))
            self.workers[-1].give(left.popleft())


def _usage(pid: int | None) -> tuple[int, float]:
    """(resident bytes, seconds of CPU time) of a process; (0, 0) where the system does not tell."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return resident, (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return 0, 0.0


def _work(  # noqa: PLR0917 - of a process, which takes them by position
    connection: Connection,
    others: Sequence[Connection],
    settings: Settings,
    known: Sequence[AStage | str],
    level: int | None,
    passes_log_on: bool,
    has_spare_worker: bool,
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
        PassedOnLog(lambda level, message: connection.send((level, message))).begin()
    HAS_SPARE_PROCESSOR.set(has_spare_worker)
    workspace = Workspace.open(settings)
    stages = [STAGE_BY_NAME[one] if isinstance(one, str) else one for one in known]
    tasks: queue.SimpleQueue[DemonstrationTask] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    with suppress(BrokenPipeError):  # the other side is gone, and `_receive` did not see it yet
        while True:
            connection.send(run_demonstration(workspace, stages, tasks.get(), connection.send))


def _receive(connection: Connection, tasks: "queue.SimpleQueue[DemonstrationTask]") -> None:
    """Hand over what comes; end the process when the other side is gone, also amid a stage.

    That is safe: what a stage has not committed yet is invisible, and built again.
    """
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(_ORPHANED)
