"""Batch runs that the command line executes in its own process.

Belongs here: one run for many demonstrations, their outcomes as they come, and Ctrl-C. The run is
executed in a thread, so that the main thread can hand on outcomes and be interrupted.
"""

import logging
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue

from demo_pipeline.defs.batch_execution import BatchWatcher, watchers
from demo_pipeline.defs.batch_members import BatchMember, batch_tags
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.jobs import BATCH_JOB
from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.run_recovery import close_own_run, heartbeat, local_run_tags
from demo_pipeline.defs.run_results import run_errors, waits_for
from demo_pipeline.defs.tags import INTERRUPTED_OUTCOME, OUTCOME_TAG
from demo_pipeline.defs.upload_sensor import batched
from demo_pipeline.defs.worker_pool import QUIET_RUN
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_run import DemonstrationResult
from demo_pipeline.pipeline.outcomes import (
    DemonstrationOutcome,
    DemonstrationStatus,
    trajectory_summary,
)
from demo_pipeline.pipeline.transient import transient_reason
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.settings import Settings
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_LOG = logging.getLogger(__package__)


def run_batches(
    settings: Settings, ids: Sequence[str], workers: int, forced: Collection[str]
) -> Iterator[DemonstrationOutcome]:
    """Process the demonstrations in as few runs as the settings allow; yields them as they end."""
    for force in (False, True):
        chosen = [key for key in ids if (key in forced) is force]
        for part in batched(chosen, settings.execution.partitions_per_run):
            yield from _run_batch(settings, part, workers, force=force)


def _run_batch(
    settings: Settings, ids: Sequence[str], workers: int, *, force: bool
) -> Iterator[DemonstrationOutcome]:
    run = _LocalRun(settings, ids, workers, force=force)
    left = dict.fromkeys(ids)
    try:
        while (result := run.results.get()) is not None:
            left.pop(result.demonstration, None)
            yield _outcome(result)
    except BaseException:
        run.interrupt()
        raise
    run.end()
    for key in left:
        status: DemonstrationStatus = "waiting" if run.waits else "crashed"
        yield DemonstrationOutcome(key, status, reasons=(run.waits or run.error,))


class _LocalRun:
    """A batch run in a thread of its own.

    Attributes:
        results: of the demonstrations, as they end; then None.
        waits: what the run as a whole waits for, in plain words; None when it does not.
        error: why the run ended early.
    """

    def __init__(
        self, settings: Settings, ids: Sequence[str], workers: int, *, force: bool
    ) -> None:
        self.results: SimpleQueue[DemonstrationResult | None] = SimpleQueue()
        self.waits: str | None = None
        self.error = "the run failed; open it in the UI"
        self._settings, self._ids, self._force = settings, ids, force
        self._run_id = str(uuid.uuid4())
        self._watcher = BatchWatcher(self.results.put, workers)
        watchers[self._run_id] = self._watcher
        self._thread = threading.Thread(target=self._execute, name="batch-run")
        self._thread.start()

    def end(self) -> None:
        """Wait for the end of the run."""
        self._thread.join()
        del watchers[self._run_id]

    def interrupt(self) -> None:
        """End the run now; its worker processes are killed, which is safe."""
        self._watcher.stopped.set()
        self.end()
        with best_effort(_LOG, "closing the run"), local_instance() as instance:
            instance.add_run_tags(self._run_id, {OUTCOME_TAG: INTERRUPTED_OUTCOME})
            close_own_run(instance, self._run_id)

    def _execute(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - it is the outcome of those that are left
            self.waits = transient_reason(error)
            self.error = f"the run failed with {type(error).__name__}"
        finally:
            self.results.put(None)

    def _run(self) -> None:
        uploads = Workspace.open(self._settings).uploads
        listed = {key: upload_listing_fingerprint(uploads, key) or "" for key in self._ids}
        tags = batch_tags([BatchMember(key, listed[key]) for key in self._ids])
        tags |= local_run_tags(self._run_id, force=self._force)
        job = build_defs(self._settings).resolve_job_def(BATCH_JOB)
        with local_instance() as instance, heartbeat(instance):
            result = job.execute_in_process(
                instance=instance,
                run_config=QUIET_RUN,
                tags=tags,
                raise_on_error=False,
                run_id=self._run_id,
            )
        if not result.success:
            self.waits = waits_for(result)
            self.error = run_errors(result)[0]


def _outcome(result: DemonstrationResult) -> DemonstrationOutcome:
    status: DemonstrationStatus = "quarantined" if result.status == "failed" else result.status
    summaries = {made.stage: dict(made.summary) for made in result.stages}
    reasons = tuple(
        problem.message
        if result.status == "waiting"
        else f"{result.stage}: {replace(problem, demonstration='')}"
        for problem in result.problems
    )
    shown = {}
    if status == "done":
        recording, trajectory = RAW_RECORDINGS_STAGE.name, TRAJECTORIES_STAGE.name
        shown = trajectory_summary(summaries[recording], summaries[trajectory])
    return DemonstrationOutcome(result.demonstration, status, shown, reasons)
