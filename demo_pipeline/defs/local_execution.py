"""Runs of demonstrations that the command line launches, each in a worker process.

Belongs here: registering uploads, running the job of each demonstration, and collecting the
outcomes. The runs are recorded in the instance like any other, so that the UI shows them.
"""

import time
import uuid
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

from demo_pipeline.defs import partitions
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.exceeded_runs import exceeded_limit, quarantine_exceeded
from demo_pipeline.defs.home_files import WaitingDemonstration
from demo_pipeline.defs.jobs import demonstration_job
from demo_pipeline.defs.local_batches import run_batches
from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.run_recovery import (
    close_dead_runs,
    heartbeat,
    local_run_tags,
    recover,
)
from demo_pipeline.defs.run_results import (
    only_failed_deliberately,
    run_errors,
    waits_for,
)
from demo_pipeline.defs.tags import (
    FINGERPRINT_TAG,
    OUTCOME_TAG,
    SUPERSEDED_OUTCOME,
)
from demo_pipeline.defs.waiting_runs import waiting_demonstrations
from demo_pipeline.defs.worker_pool import QUIET_RUN, RETRY_PAUSES, RetryPause, worker_pool
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.outcomes import DemonstrationOutcome, trajectory_summary
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.transient import transient_reason
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.settings import Settings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_CHANGED = "raw_recordings: the upload changed while it was read; run it again"
_DIED = "the worker process died; open the run in the UI and the system's log"


def register_uploads(workspace: Workspace) -> tuple[list[str], list[str]]:
    """(all ids in the uploads root, the ids that were not registered before).

    What dead processes left behind is cleared away first.
    """
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]
    with local_instance() as instance:
        recover(instance, workspace)
        return ids, partitions.register_partitions(instance, ids)


def read_waiting() -> list[WaitingDemonstration]:
    """The demonstrations that something passing stopped, such as a full disk."""
    with local_instance() as instance:
        return waiting_demonstrations(instance)


def close_interrupted_runs() -> None:
    """Close the runs whose processes were ended by Ctrl-C."""
    with local_instance() as instance:
        close_dead_runs(instance, interrupted=True)


def process(
    settings: Settings,
    ids: Sequence[str],
    workers: int,
    pause: RetryPause = lambda _, seconds: time.sleep(seconds),
    *,
    force: bool = False,
    forced: Collection[str] = (),
) -> Generator[DemonstrationOutcome]:
    """Run the stages of each demonstration in worker processes; yields outcomes as they finish.

    When a worker dies, the unfinished demonstrations are tried once more, each in its own process.
    Those that wait are tried again after each of `RETRY_PAUSES`, a few of them first.

    Args:
        settings: every path and threshold.
        ids: to process.
        workers: number of processes.
        pause: called with what is waited for and the seconds to wait.
        force: build every output of every demonstration again.
        forced: only of these demonstrations.
    """
    forced = ids if force else forced
    waiting: dict[str, DemonstrationOutcome] = {}
    for outcome in _process_all(settings, ids, workers, forced):
        if outcome.status == "waiting":
            waiting[outcome.demonstration] = outcome
        else:
            yield outcome
    for seconds in RETRY_PAUSES:
        if not waiting:
            return
        pause(next(iter(waiting.values())).reasons[0], seconds)
        some = list(waiting)[: max(1, workers)]
        for part in (some, [key for key in waiting if key not in some]):
            for outcome in _process_all(settings, part, workers, forced):
                if outcome.status == "waiting":
                    waiting[outcome.demonstration] = outcome
                else:
                    del waiting[outcome.demonstration]
                    yield outcome
            if waiting.keys() >= set(part):  # the trouble lasts: the others would only fail, too
                break
    yield from waiting.values()


def _process_all(
    settings: Settings, ids: Sequence[str], workers: int, forced: Collection[str]
) -> Iterator[DemonstrationOutcome]:
    """Every demonstration once, and once more alone when a worker died or a stage was stopped."""
    if not ids:
        return
    if settings.execution.partitions_per_run > 1:
        yield from run_batches(settings, ids, workers, forced)
        return
    values = settings.model_dump(mode="json")
    unfinished: list[str] = []
    with worker_pool(max(1, min(workers, len(ids)))) as pool:
        running: dict[Future[DemonstrationOutcome], str] = {
            pool.submit(_process_one, values, key, force=key in forced): key for key in ids
        }
        for future in as_completed(running):
            try:
                outcome = future.result()
            except BrokenProcessPool:
                unfinished.append(running[future])
            except Exception as error:  # noqa: BLE001 - the others go on whatever it is
                yield _crashed(running[future], error)
            else:
                if outcome.again_alone:
                    unfinished.append(outcome.demonstration)
                else:
                    yield outcome
    for key in sorted(unfinished):
        _close_dead_runs()
        with worker_pool(1) as pool:
            try:
                yield pool.submit(_process_one, values, key, force=key in forced).result()
            except BrokenProcessPool:
                yield _died(settings, key)
            except Exception as error:  # noqa: BLE001
                yield _crashed(key, error)
    if unfinished:
        _close_dead_runs()


def _died(settings: Settings, demonstration: str) -> DemonstrationOutcome:
    """The outcome of a run whose process died though it was alone in it."""
    with local_instance() as instance:
        try:
            reason = quarantine_exceeded(instance, Workspace.open(settings), demonstration)
        except Exception as error:  # noqa: BLE001 - the others go on whatever it is
            return _crashed(demonstration, error)
    if reason is not None:
        return DemonstrationOutcome(demonstration, "quarantined", reasons=(reason,))
    return DemonstrationOutcome(demonstration, "crashed", reasons=(_DIED,))


def _crashed(demonstration: str, error: Exception) -> DemonstrationOutcome:
    """The outcome of a run that could not begin or end; other words than ours may quote text."""
    ours = isinstance(error, StorageError)
    reason = str(error) if ours else f"the run failed with {type(error).__name__}"
    return DemonstrationOutcome(demonstration, "crashed", reasons=(reason,))


def _close_dead_runs() -> None:
    with local_instance() as instance:
        close_dead_runs(instance)


def _process_one(
    values: dict[str, Any], demonstration: str, *, force: bool
) -> DemonstrationOutcome:
    """Any error is the outcome of this demonstration, and of no other."""
    try:
        return _run_stages(Settings(**values), demonstration, force=force)
    except Exception as error:  # noqa: BLE001 - the other demonstrations go on
        reason = transient_reason(error)
        if reason is not None:
            return DemonstrationOutcome(demonstration, "waiting", reasons=(reason,))
        cause = f"a defect of the pipeline: {type(error).__name__}; please report it"
        return DemonstrationOutcome(demonstration, "crashed", reasons=(cause,))


def _run_stages(settings: Settings, demonstration: str, *, force: bool) -> DemonstrationOutcome:
    workspace = Workspace.open(settings)
    job = build_defs(settings).resolve_job_def(demonstration_job.name)
    run_id = str(uuid.uuid4())
    with local_instance() as instance, heartbeat(instance):
        result = job.execute_in_process(
            partition_key=demonstration,
            instance=instance,
            run_config=QUIET_RUN,
            tags=_upload_tag(workspace, demonstration) | local_run_tags(run_id, force=force),
            raise_on_error=False,
            run_id=run_id,
        )
        run = instance.get_run_by_id(run_id)
    if run is not None and run.tags.get(OUTCOME_TAG) == SUPERSEDED_OUTCOME:
        return DemonstrationOutcome(demonstration, "superseded", reasons=(_CHANGED,))
    if result.success:
        stages = (RAW_RECORDINGS_STAGE, TRAJECTORIES_STAGE)
        current = [workspace.store.current(stage.output(demonstration)) for stage in stages]
        summaries = [version.manifest.summary for version in current if version]
        shown = trajectory_summary(*summaries) if len(summaries) == len(stages) else {}
        return DemonstrationOutcome(demonstration, "done", shown)
    waits = waits_for(result)
    if waits is not None:
        alone = run is not None and exceeded_limit(run) is not None
        return DemonstrationOutcome(demonstration, "waiting", reasons=(waits,), again_alone=alone)
    record = read_quarantine(workspace.store, demonstration)
    if record is None or not only_failed_deliberately(result):
        return DemonstrationOutcome(demonstration, "crashed", reasons=tuple(run_errors(result)))
    problems = (replace(problem, demonstration="") for problem in record.known_problems())
    reasons = tuple(f"{record.stage}: {problem}" for problem in problems)
    return DemonstrationOutcome(demonstration, "quarantined", reasons=reasons)


def _upload_tag(workspace: Workspace, demonstration: str) -> dict[str, str]:
    """The tag that the sensor gives its runs, so that it does not launch the same run again."""
    listed = upload_listing_fingerprint(workspace.uploads, demonstration)
    return {FINGERPRINT_TAG: listed} if listed is not None else {}
