"""The sensors for uploads, datasets and task files.

Belongs here: the sensors around decisions, and the few queries of Dagster that these depend on;
none of them grows with the number of demonstrations.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import dagster as dg

from demo_pipeline.defs.claims import unreported
from demo_pipeline.defs.jobs import (
    BATCH_JOB,
    DEMONSTRATION_JOBS,
    DEMONSTRATIONS,
    demonstration_job,
    tasks_job,
    unregistered,
)
from demo_pipeline.defs.run_history import (
    BatchMember,
    InstanceRuns,
    batch_run_key,
    batch_tags,
    claims_folder,
    open_ledger,
)
from demo_pipeline.defs.run_recovery import recover
from demo_pipeline.defs.tags import (
    FINGERPRINT_TAG,
    OUTCOME_TAG,
    PRIORITY_TAG,
    REASON_TAG,
    STATE_TAG,
    WAITING_OUTCOME,
)
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.runs.discovery import Tick, tick
from demo_pipeline.runs.failures import DATASET_ATTEMPTS, retry_pause
from demo_pipeline.runs.quarantine import quarantine_collisions
from demo_pipeline.runs.stages import DATASET_STAGES
from demo_pipeline.runs.task_catalog import CATALOG_OUTPUT
from demo_pipeline.runs.upload_decisions import Request, RunOutcome
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import ExecutionSettings, Settings
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.store.errors import StorageError

SEEN = "trajectories_seen"
_RECORDS = dg.AssetKey(RECORDS_STAGE.name)
_MANUAL_JOB = "__ASSET_JOB"  # Dagster's name for what people materialize by hand
_UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Attempts:
    """The failed runs for one state.

    Attributes:
        failed: number of runs that failed or were cancelled.
        ended: when the last of them ended, epoch seconds.
        waited: how many of them something passing stopped, such as a full disk; these are tried
            again without end.
    """

    failed: int = 0
    ended: float = 0.0
    waited: int = 0

    def postponed(self, now: float, interval_s: float) -> str | None:
        """Why the next attempt has to wait; None when it may start.

        The pause after a failed attempt doubles with each, starting at `interval_s` seconds, up to
        half an hour.
        """
        if not self.failed:
            return None
        if self.failed - self.waited >= DATASET_ATTEMPTS:
            return f"{self.failed} attempts failed: open the last run, then launch the job by hand"
        left = self.ended + retry_pause(self.failed, interval_s) - now
        return f"attempt {self.failed} failed; the next is in {left:.0f} s" if left > 0 else None


@dataclass(frozen=True)
class Progress:
    """How far the datasets are.

    Attributes:
        latest: storage id of the newest materialization of a trajectory; 0: none exists.
        built: the newest materialization that every dataset contains.
        waiting_since: when the oldest trajectory after `built` was materialized, epoch seconds.
        processing: a demonstration is queued or being processed.
        building: the datasets are queued or being built.
        attempts: the failed runs that should have built `latest`.
    """

    latest: int
    built: int
    waiting_since: float
    processing: bool
    building: bool
    attempts: Attempts = field(default_factory=Attempts)


def latest_trajectory(instance: dg.DagsterInstance) -> int:
    """Storage id of the newest materialization of any trajectory; 0 without one."""
    records = instance.get_asset_records([_RECORDS])
    return (records[0].asset_entry.last_materialization_storage_id or 0) if records else 0


def followed_datasets(settings: Settings) -> list[dg.AssetKey]:
    """The datasets that have to contain every trajectory."""
    return [
        dg.AssetKey(stage.name)
        for stage in DATASET_STAGES
        if stage.reads_trajectories and stage.is_built(settings)
    ]


def progress(instance: dg.DagsterInstance, settings: Settings) -> Progress:
    """Query the instance."""
    latest = latest_trajectory(instance)
    built = _built(instance, followed_datasets(settings))
    return Progress(
        latest=latest,
        built=built,
        waiting_since=_first_after(instance, built) if latest > built else 0.0,
        processing=unfinished(instance, (*DEMONSTRATION_JOBS, _MANUAL_JOB)),
        building=unfinished(instance, (DATASETS_JOB,)),
        attempts=attempts(instance, DATASETS_JOB, str(latest)),
    )


def attempts(instance: dg.DagsterInstance, job: str, state: str) -> Attempts:
    """The failed runs of a job for this state."""
    filters = dg.RunsFilter(job_name=job, tags={STATE_TAG: state}, statuses=_FAILED)
    records = instance.get_run_records(filters, limit=1)
    ends = [record.end_time or record.update_timestamp.timestamp() for record in records]
    tags = {STATE_TAG: state, OUTCOME_TAG: WAITING_OUTCOME}
    waiting = dg.RunsFilter(job_name=job, tags=tags, statuses=_FAILED)
    return Attempts(
        instance.get_runs_count(filters),
        max(ends, default=0.0),
        instance.get_runs_count(waiting),
    )


def last_failed(instance: dg.DagsterInstance, job: str, state: str) -> bool:
    """Whether the newest run of a job for this state failed or was cancelled."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, tags={STATE_TAG: state}), limit=1)
    return bool(runs) and runs[0].status in _FAILED


def unfinished(instance: dg.DagsterInstance, jobs: Sequence[str]) -> bool:
    """Whether a run of one of these jobs is queued or running."""
    filters = [dg.RunsFilter(job_name=job, statuses=_UNFINISHED) for job in jobs]
    return any(instance.get_run_ids(filter_, limit=1) for filter_ in filters)


def _built(instance: dg.DagsterInstance, datasets: Sequence[dg.AssetKey]) -> int:
    """The newest trajectory that every dataset has seen; 0 while a dataset is missing."""
    seen = []
    for record in instance.get_asset_records(datasets):
        entry = record.asset_entry.last_materialization
        built = entry.asset_materialization if entry else None
        value = built.metadata[SEEN].value if built and SEEN in built.metadata else 0
        seen.append(value if isinstance(value, int) else 0)
    return min(seen) if len(seen) == len(datasets) else 0


def _first_after(instance: dg.DagsterInstance, storage_id: int) -> float:
    newer = dg.AssetRecordsFilter(asset_key=_RECORDS, after_storage_id=storage_id)
    records = instance.fetch_materializations(newer, limit=1, ascending=True).records
    return records[0].timestamp if records else 0.0


def build_tasks_changed(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `tasks_changed`, evaluated every `interval_seconds`."""

    @dg.sensor(
        name="tasks_changed",
        job=tasks_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds the catalog of OSWorld tasks when it is missing or the task files "
        "changed. Existing trajectories are compared again by the job `reprocess_changed`.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        instance, listing = context.instance, _listing_hash(workspace.tasks)
        again = last_failed(instance, tasks_job.name, listing)
        try:
            built = workspace.store.current(CATALOG_OUTPUT) is not None
        except StorageError as failure:
            return dg.SkipReason(str(failure))
        if listing == context.cursor and built and not again:
            return dg.SkipReason("the task files did not change")
        if unfinished(instance, (tasks_job.name,)):
            return dg.SkipReason("the catalog is being built")
        if again:
            failed = attempts(instance, tasks_job.name, listing)
            postponed = failed.postponed(time.time(), interval_seconds)
            if postponed is not None:
                return dg.SkipReason(postponed)
        # A key launches once: without the number, one failed run would be the last.
        before = instance.get_runs_count(dg.RunsFilter(job_name=tasks_job.name))
        key = f"tasks@{listing}" + (f"#{before}" if before else "")
        request = dg.RunRequest(run_key=key, tags={STATE_TAG: listing})
        return dg.SensorResult(run_requests=[request], cursor=listing)

    return evaluate


def needs_catalog(workspace: Workspace) -> bool:
    """Whether there are task files without a catalog that demonstrations can be compared with."""
    return workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None


def _listing_hash(folder: Path) -> str:
    """A hash over names, sizes and times of the JSON files below a folder, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.json")):
        try:
            status = path.stat()
        except OSError:  # removed meanwhile, or a link that leads nowhere
            continue
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace")
        )
    return digest.hexdigest()[:16]


_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)

_T = TypeVar("_T")
_TRIED_BEFORE = {RunOutcome.LOST, RunOutcome.WAITING}


def build_new_uploads(interval_seconds: int, *batch_jobs: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor `new_uploads`, evaluated every `interval_seconds`; it launches these jobs too."""

    @dg.sensor(
        name="new_uploads",
        jobs=[demonstration_job, *batch_jobs],
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers complete uploads in a folder or bucket, and requests a run for each "
        "new or changed one, or one run for many that arrived together.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        for line in recover(context.instance, workspace):
            context.log.warning(line)
        try:
            if needs_catalog(workspace):
                return dg.SkipReason(_NO_CATALOG)
            result = _tick(context.instance, workspace)
        except StorageError as failure:
            return dg.SkipReason(str(failure))
        for error in result.errors:
            context.log.warning(error)
        new = unregistered(context.instance, result.new_ids)
        if not new and not result.requests:
            reason = "; ".join(result.errors) or "no new or changed upload is complete"
            return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=result.cursor)
        return dg.SensorResult(
            dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(new)] if new else [],
            run_requests=list(run_requests(result.requests, workspace.settings.execution)),
            cursor=result.cursor,
        )

    return evaluate


def _tick(instance: dg.DagsterInstance, workspace: Workspace) -> Tick:
    runs, settings = InstanceRuns(instance, workspace), workspace.settings.discovery
    with open_ledger(instance, workspace) as ledger:
        for file, ids in unreported(claims_folder(instance, workspace)).items():
            for key in ids:
                ledger.request_rerun(key, "unreported")
            file.unlink(missing_ok=True)
        result = tick(workspace.uploads.objects, ledger, runs, time.time(), settings)
        released, errors = quarantine_collisions(workspace, result.collisions)
        for key in released:
            ledger.request_rerun(key, "collision ended")
        return replace(result, errors=(*result.errors, *errors))


def run_requests(
    requests: Sequence[Request], settings: ExecutionSettings
) -> Iterator[dg.RunRequest]:
    """One run for each request; from `execution.batch_from` requests on, they share runs.

    In the queue, what was tried before waits for new and changed uploads.
    """
    if len(requests) < settings.batch_from or settings.partitions_per_run == 1:
        yield from map(_run_request, requests)
        return
    for again in (False, True):
        chosen = [one for one in requests if (one.reason in _TRIED_BEFORE) is again]
        for part in batched(chosen, settings.partitions_per_run):
            yield _batch_request(part) if len(part) > 1 else _run_request(part[0])


def batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The items in order, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _batch_request(requests: Sequence[Request]) -> dg.RunRequest:
    members = [BatchMember(one.id, one.fingerprint, one.run_key) for one in requests]
    reasons = sorted({one.reason for one in requests})
    tags = batch_tags(members) | {REASON_TAG: ", ".join(reasons)}
    if requests[0].reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    run_key = batch_run_key(one.run_key for one in requests)
    return dg.RunRequest(run_key=run_key, job_name=BATCH_JOB, tags=tags)


def _run_request(request: Request) -> dg.RunRequest:
    tags = {FINGERPRINT_TAG: request.fingerprint, REASON_TAG: request.reason}
    if request.reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    return dg.RunRequest(
        run_key=request.run_key,
        job_name=demonstration_job.name,
        partition_key=request.id,
        tags=tags,
    )


def should_rebuild(
    state: Progress, now: float, max_age_s: float, interval_s: float
) -> tuple[bool, str]:
    """(whether to build the datasets now, the reason).

    Args:
        state: how far they are behind.
        now: epoch seconds.
        max_age_s: the longest time that a new trajectory waits while others are processed.
        interval_s: pause after the first failed attempt.
    """
    if state.latest <= state.built:
        return False, "the datasets contain every trajectory"
    if state.building:
        return False, "the datasets are being built"
    postponed = state.attempts.postponed(now, interval_s)
    if postponed is not None:
        return False, postponed
    waited = now - state.waiting_since
    if not state.processing:
        return True, "trajectories changed, and no demonstration is being processed"
    if waited >= max_age_s:
        return True, f"a trajectory has been waiting for {waited:.0f} s"
    return False, "demonstrations are being processed; the datasets are built afterwards"


def build_rebuild_datasets(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `rebuild_datasets`, evaluated every `interval_seconds`."""

    @dg.sensor(
        name="rebuild_datasets",
        job_name=DATASETS_JOB,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds the datasets after trajectories changed: when no demonstration is "
        "being processed, or a trajectory has waited for `discovery.max_dataset_age_seconds`.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        for line in recover(context.instance, workspace):
            context.log.warning(line)
        state = progress(context.instance, workspace.settings)
        max_age_s = workspace.settings.discovery.max_dataset_age_seconds
        rebuild, reason = should_rebuild(state, time.time(), max_age_s, interval_seconds)
        if not rebuild:
            return dg.SkipReason(reason)
        context.log.info(reason)
        return dg.SensorResult(run_requests=[_request(state)])

    return evaluate


def _request(state: Progress) -> dg.RunRequest:
    """A run; ticks that see the same state and attempts request the same run key."""
    attempt = f"#{state.attempts.failed}" if state.attempts.failed else ""
    tags = {STATE_TAG: str(state.latest)}
    return dg.RunRequest(run_key=f"datasets@{state.latest}{attempt}", tags=tags)
