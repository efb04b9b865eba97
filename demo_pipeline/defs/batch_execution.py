"""A batch run: many demonstrations in one run of Dagster, each reported by itself.

Belongs here: running them in a pool of worker processes, and what is reported while they run. The
work is done by pipeline/demonstration_pool.py; what the run says at its end is in batch_report.py.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.batch_members import BatchMember, MemberOutcome, note_outcomes
from demo_pipeline.defs.batch_report import BatchReport
from demo_pipeline.defs.event_writing import EventWriter
from demo_pipeline.defs.input_versions import InputVersions, parents_of
from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.tags import FORCE_TAG, SUPERSEDED_OUTCOME, WAITING_OUTCOME
from demo_pipeline.discovery.decisions import SUPERSEDED_REASON
from demo_pipeline.pipeline.batch_progress import BatchProgress
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import record_crash
from demo_pipeline.pipeline.demonstration_pool import DemonstrationPool
from demo_pipeline.pipeline.demonstration_run import (
    DemonstrationResult,
    DemonstrationTask,
)
from demo_pipeline.pipeline.stages import STAGE_BY_NAME
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import StorageError

_Context = dg.AssetExecutionContext | dg.OpExecutionContext
_LONGEST_REASON = 500  # characters


@dataclass(frozen=True)
class BatchWatcher:
    """Who waits for the results of a batch run in the process that executes it.

    Attributes:
        tell: gets every result as it comes.
        stopped: ends the run when it is set.
        workers: number of processes.
    """

    tell: Callable[[DemonstrationResult], None]
    workers: int
    stopped: threading.Event = field(default_factory=threading.Event)


watchers: dict[str, BatchWatcher] = {}
"""Run id → who waits for the results of that run in this process."""


@dataclass(frozen=True)
class _Known:
    """What the instance knew when the run began.

    Attributes:
        versions: what Dagster shows of the stages and their inputs.
        ranged: whether the run is for these partitions by Dagster's own tags; then Dagster wrote
            down that each of them was to be materialized.
        events: gets what is said of single demonstrations.
        in_full: whether so few are in the run that as much is said of each as in a run of its own.
    """

    versions: InputVersions
    ranged: bool
    events: EventWriter
    in_full: bool


def execute_batch(
    context: _Context,
    workspace: Workspace,
    stages: Sequence[Stage],
    members: Sequence[BatchMember],
    *,
    step: str,
    ranged: bool,
) -> BatchReport:
    """Take the demonstrations through the stages; reports each as it ends.

    Args:
        context: of the step.
        workspace: roots and settings.
        stages: to run, in order.
        members: the demonstrations.
        step: name of the step that does it.
        ranged: whether the run is for these partitions by Dagster's own tags.

    Raises:
        KeyboardInterrupt: the watcher stopped it.
    """
    force = context.run.tags.get(FORCE_TAG) == "true"
    tasks = [DemonstrationTask(m.demonstration, m.fingerprint or None, force) for m in members]
    progress = BatchProgress(len(tasks), time.monotonic)
    report = BatchReport(tuple(stages), progress)
    ids = [member.demonstration for member in members]
    versions = InputVersions(context.instance, stages, ids)
    events = EventWriter(context.instance, context.run, step, versions.events)
    in_full = len(members) < workspace.settings.execution.batch_from
    known = _Known(versions, ranged, events, in_full)
    with _flushing(events):
        _work(context, workspace, tasks, report, known)
    context.log.info(progress.last_line())
    note_outcomes(context.instance, context.run.run_id, _outcomes(report))
    return report


def _work(
    context: _Context,
    workspace: Workspace,
    tasks: Sequence[DemonstrationTask],
    report: BatchReport,
    known: _Known,
) -> None:
    """Hand the demonstrations to worker processes, and report the results as they come."""
    watcher = watchers.get(context.run.run_id)
    workers = watcher.workers if watcher else workspace.settings.execution.workers
    workers = min(workers, len(tasks))
    stopped = watcher.stopped if watcher else threading.Event()

    def tick() -> None:
        known.events.flush_when_due()
        line = report.progress.due_line()
        if line is not None:
            context.log.info(line)

    names = [stage.name for stage in report.stages]
    context.log.info("%d demonstrations, %d processes", len(tasks), workers)
    log = context.log.log if known.in_full else None
    with DemonstrationPool(workspace, names, workers, stopped, log) as pool:
        for found in pool.run(tasks, tick):
            result = _recorded(context, workspace, found)
            report.progress.add(result)
            report.add(result)
            _report(context, workspace, report, result, known)
            if watcher is not None:
                watcher.tell(result)
            tick()
    if stopped.is_set():
        raise KeyboardInterrupt


@contextmanager
def _flushing(events: EventWriter) -> Iterator[None]:
    """Write the last events, also of a run that ends early."""
    try:
        yield
    finally:
        events.flush()


def _recorded(
    context: _Context, workspace: Workspace, result: DemonstrationResult
) -> DemonstrationResult:
    """The result; a crash in a run that Dagster launched is quarantined first."""
    if result.status != "crashed" or context.run.remote_job_origin is None:
        return result
    cause = result.reason.partition(":")[0]
    try:
        record_crash(workspace, result.demonstration, result.stage, cause)
    except (StorageError, OSError) as error:  # discovery requests another run
        context.log.warning("%s cannot be quarantined: %s", result.demonstration, error)
    return result


def _report(
    context: _Context,
    workspace: Workspace,
    report: BatchReport,
    result: DemonstrationResult,
    known: _Known,
) -> None:
    """Say what became of one demonstration, where people look for it."""
    key = result.demonstration
    versions = {made.stage: made.content[:16] for made in result.stages}
    for made in result.stages:
        # Of a run that was killed, the store has outputs without an event.
        told_before = known.versions.shown[made.stage].get(key) == versions[made.stage]
        repeated = made.status == "unchanged" and told_before
        if repeated and not known.ranged:  # in a backfill, one without an event counts as failed
            continue
        location = f"{workspace.store.url}/{report.folder(made.stage)}/{key}"
        told = (
            reporting.preview(workspace, made.stage, key)
            | reporting.report_metadata(made, location)
            if known.in_full
            else reporting.short_metadata(made, location)
        )
        stage = STAGE_BY_NAME[made.stage]
        tags = known.versions.tags(stage, key, versions)
        event = dg.AssetMaterialization(made.stage, partition=key, metadata=told, tags=tags)
        known.events.materialized(event, parents_of(stage))
    if result.status == "done":
        return
    why = report.line(result).removeprefix(f"{key}: ")
    context.log.warning("%s: %s in %s: %s", key, result.status, result.stage, why)
    if result.status == "superseded":
        _again(context, workspace, key, SUPERSEDED_REASON)
        metadata = {"outcome": SUPERSEDED_OUTCOME}
        known.events.observed(dg.AssetObservation(result.stage, partition=key, metadata=metadata))
        return
    if result.status == "waiting" and known.ranged:
        _again(context, workspace, key, WAITING_OUTCOME)
    for name in () if known.ranged else report.missing(result):
        known.events.planned(name, key)


def _again(context: _Context, workspace: Workspace, key: str, reason: str) -> None:
    """Have discovery look at a demonstration again; when that fails, its next sweep does."""
    try:
        with open_ledger(context.instance, workspace) as ledger:
            ledger.request_rerun(key, reason)
    except Exception as error:  # noqa: BLE001 - the other demonstrations go on
        context.log.warning("%s cannot be requested again: %s", key, type(error).__name__)


def _outcomes(report: BatchReport) -> dict[str, MemberOutcome]:
    return {
        result.demonstration: MemberOutcome(
            result.status, result.reason[:_LONGEST_REASON] if result.status == "waiting" else ""
        )
        for result in report.results
        if result.status != "done"
    }
