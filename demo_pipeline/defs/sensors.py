"""The sensors for uploads, datasets, task files and quarantine records.

Belongs here: the sensors around decisions, and the few queries of Dagster that these depend on;
none of them grows with the number of demonstrations.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.defs.claims import unreported
from demo_pipeline.defs.demonstration_runs import (
    BatchMember,
    InstanceRuns,
    batch_run_key,
    batch_tags,
    claims_folder,
    member_tags,
    open_table,
)
from demo_pipeline.defs.jobs import (
    BATCH_JOB,
    DEMONSTRATION_JOBS,
    DEMONSTRATIONS,
    AssetJob,
    demonstration_job,
    quarantine_job,
    tasks_job,
    unregistered,
)
from demo_pipeline.defs.run_recovery import recover
from demo_pipeline.defs.tags import (
    OUTCOME_TAG,
    PRIORITY_TAG,
    REASON_TAG,
    STATE_TAG,
    WAITING_OUTCOME,
)
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.runs.datasets import wanted_recipe
from demo_pipeline.runs.discovery import Request, Tick, tick
from demo_pipeline.runs.failures import DATASET_ATTEMPTS, retry_pause
from demo_pipeline.runs.quarantine import quarantine_collisions
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.stages import DATASET_STAGES, is_built
from demo_pipeline.runs.task_catalog import CATALOG_OUTPUT
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import ExecutionSettings, Settings
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.store import Store

SEEN = "trajectories_seen"
_UNBUILT = "unbuilt_decisions"
_RECORDS = dg.AssetKey(RECORDS_STAGE.name)
# Dagster's name for what people materialize by hand, which is the same for all assets.
_MANUAL_JOB = dg.Definitions([dg.AssetSpec("any")]).resolve_implicit_global_asset_job_def().name
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_UNFINISHED = [
    status
    for status in dg.DagsterRunStatus
    if status not in {*_FAILED, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.MANAGED}
]
_TABLE_INTERVAL = 60  # seconds between two evaluations of quarantine_changed
_TRIED_BEFORE = (Status.LOST, Status.WAITING)
_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)
Said = dg.SensorResult | dg.RunRequest | dg.SkipReason
_Evaluate = Callable[[dg.SensorEvaluationContext, Workspace], Said]
_T = TypeVar("_T")


def watching(
    name: str, interval_seconds: int, description: str, *jobs: Any
) -> Callable[[_Evaluate], dg.SensorDefinition]:
    """A sensor that is on from the start; while storage cannot be read, it says so and skips."""

    def decorated(evaluate: _Evaluate) -> dg.SensorDefinition:
        @dg.sensor(
            name=name,
            jobs=jobs,
            minimum_interval_seconds=interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=description,
        )
        def evaluated(
            context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
        ) -> Said:
            try:
                return evaluate(context, workspace)
            except StorageError as error:
                return dg.SkipReason(str(error))

        return evaluated

    return decorated


def unfinished(instance: dg.DagsterInstance, jobs: Sequence[str]) -> bool:
    """Whether a run of one of these jobs is queued or running."""
    filters = [dg.RunsFilter(job_name=job, statuses=_UNFINISHED) for job in jobs]
    return any(instance.get_run_ids(filter_, limit=1) for filter_ in filters)


def postponed(failed: int, waited: int, since_s: float, interval_s: float) -> str | None:
    """Why the next attempt at building a state has to wait; None when it may start.

    Of `failed` runs, something passing stopped those that `waited`: they are tried without end.
    The last ended `since_s` ago; the pause `interval_s` doubles with each, up to half an hour.
    """
    if failed - waited >= DATASET_ATTEMPTS:
        return f"{failed} attempts failed: open the last run, then launch the job by hand"
    left = retry_pause(failed, interval_s) - since_s if failed else 0.0
    return f"attempt {failed} failed; the next is in {left:.0f} s" if left > 0 else None


def run_unless_tried(
    instance: dg.DagsterInstance, job: str, state: str, interval_s: float, busy: str
) -> dg.RunRequest | dg.SkipReason:
    """A run of a job for a state of what it reads that is not built yet, or why there is none now.

    `interval_s`: pause after the first failed attempt; `busy`: said while a run is under way.
    """
    if unfinished(instance, (job,)):
        return dg.SkipReason(busy)
    tags = {STATE_TAG: state}
    failed = dg.RunsFilter(job_name=job, tags=tags, statuses=_FAILED)
    waits = {**tags, OUTCOME_TAG: WAITING_OUTCOME}
    waited = dg.RunsFilter(job_name=job, tags=waits, statuses=_FAILED)
    last = instance.get_run_records(failed, limit=1)
    ends = [record.end_time or record.update_timestamp.timestamp() for record in last]
    counts = instance.get_runs_count(failed), instance.get_runs_count(waited)
    reason = postponed(*counts, time.time() - max(ends, default=0.0), interval_s)
    if reason is not None:
        return dg.SkipReason(reason)
    # A key launches once: without the number, the first run would be the last.
    before = instance.get_runs_count(dg.RunsFilter(job_name=job, tags=tags))
    return dg.RunRequest(run_key=f"{job}@{state}#{before}", tags=tags)


@dataclass(frozen=True)
class Progress:
    """How far the datasets are.

    Attributes:
        latest: storage id of the newest materialization of a trajectory; 0: none exists.
        built: the newest materialization that every dataset contains.
        waiting_since: when the oldest trajectory after `built` was materialized, epoch seconds.
        processing: a demonstration is queued or being processed.
    """

    latest: int
    built: int
    waiting_since: float
    processing: bool


def latest_trajectory(instance: dg.DagsterInstance) -> int:
    """Storage id of the newest materialization of any trajectory; 0 without one.

    Its annotations count: with every decision of a person they are made again, records are not.
    """
    records = instance.get_asset_records([_RECORDS, dg.AssetKey(ANNOTATIONS_STAGE.name)])
    return max((one.asset_entry.last_materialization_storage_id or 0 for one in records), default=0)


def followed_datasets(settings: Settings) -> list[dg.AssetKey]:
    """The datasets that have to contain every trajectory."""
    return [
        dg.AssetKey(stage.name)
        for stage in DATASET_STAGES
        if stage.reads_trajectories and is_built(stage, settings)
    ]


def progress(instance: dg.DagsterInstance, settings: Settings) -> Progress:
    """Query the instance."""
    latest, waiting_since = latest_trajectory(instance), 0.0
    built = _built(instance, followed_datasets(settings))
    if latest > built:
        newer = dg.AssetRecordsFilter(asset_key=_RECORDS, after_storage_id=built)
        found = instance.fetch_materializations(newer, limit=1, ascending=True).records
        waiting_since = found[0].timestamp if found else time.time()
    processing = unfinished(instance, (*DEMONSTRATION_JOBS, _MANUAL_JOB))
    return Progress(latest, built, waiting_since, processing)


def _built(instance: dg.DagsterInstance, datasets: Sequence[dg.AssetKey]) -> int:
    """The newest trajectory that every dataset has seen; 0 while a dataset is missing."""
    seen = []
    for record in instance.get_asset_records(datasets):
        entry = record.asset_entry.last_materialization
        built = entry.asset_materialization if entry else None
        value = built.metadata[SEEN].value if built and SEEN in built.metadata else 0
        seen.append(value if isinstance(value, int) else 0)
    return min(seen) if len(seen) == len(datasets) else 0


def should_rebuild(state: Progress, now: float, max_age_s: float) -> tuple[bool, str]:
    """(whether to build the datasets now, the reason).

    A new trajectory waits while others are processed, for `max_age_s` at most.
    """
    if state.latest <= state.built:
        return False, "the datasets contain every trajectory"
    if not state.processing:
        return True, "trajectories changed, and no demonstration is being processed"
    waited = now - state.waiting_since
    if waited >= max_age_s:
        return True, f"a trajectory has been waiting for {waited:.0f} s"
    return False, "demonstrations are being processed; the datasets are built afterwards"


def build_rebuild_datasets(interval_seconds: int, job: AssetJob) -> dg.SensorDefinition:
    """The sensor `rebuild_datasets`, evaluated every `interval_seconds`; it launches this job."""

    @watching(
        "rebuild_datasets",
        interval_seconds,
        "Builds the datasets after trajectories changed: when no demonstration is being processed, "
        "or a trajectory has waited for `discovery.max_dataset_age_seconds`.",
        job,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> Said:
        for line in recover(context.instance, workspace):
            context.log.warning(line)
        state = progress(context.instance, workspace.settings)
        max_age_s = workspace.settings.discovery.max_dataset_age_seconds
        rebuild, reason = should_rebuild(state, time.time(), max_age_s)
        if not rebuild:
            return dg.SkipReason(reason)
        context.log.info(reason)
        wanted, busy = str(state.latest), "the datasets are being built"
        return run_unless_tried(context.instance, DATASETS_JOB, wanted, interval_seconds, busy)

    return evaluate


def build_tasks_changed(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `tasks_changed`, evaluated every `interval_seconds`."""

    @watching(
        "tasks_changed",
        interval_seconds,
        "Builds the catalog of OSWorld tasks when it is missing or the task files changed. "
        "Existing trajectories are compared again by the job `reprocess_changed`.",
        tasks_job,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> Said:
        instance, job, state = context.instance, tasks_job.name, _listing_hash(workspace.tasks)
        runs = instance.get_runs(dg.RunsFilter(job_name=job, tags={STATE_TAG: state}), limit=1)
        failed = bool(runs) and runs[0].status in _FAILED
        built = workspace.store.current(CATALOG_OUTPUT) is not None
        if state == context.cursor and built and not failed:
            return dg.SkipReason("the task files did not change")
        busy = "the catalog is being built"
        said = run_unless_tried(instance, job, state, interval_seconds, busy)
        if isinstance(said, dg.SkipReason):
            return said
        return dg.SensorResult(run_requests=[said], cursor=state)

    return evaluate


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


def build_new_uploads(interval_seconds: int, *batch_jobs: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor `new_uploads`, evaluated every `interval_seconds`; it launches these jobs too."""

    @watching(
        "new_uploads",
        interval_seconds,
        "Registers complete uploads in a folder or bucket, and requests a run for each new, "
        "changed or newly reviewed one, or one run for many that arrived together.",
        demonstration_job,
        *batch_jobs,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> Said:
        for line in recover(context.instance, workspace):
            context.log.warning(line)
        if workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None:
            return dg.SkipReason(_NO_CATALOG)
        before = _requested_decisions(context.cursor)
        unbuilt = unbuilt_decisions(workspace.store)
        decided = [key for key, digest in unbuilt.items() if before.get(key) != digest]
        result = discover(context.instance, workspace, decided)
        cursor = json.dumps({**json.loads(result.cursor), _UNBUILT: unbuilt})
        for error in result.errors:
            context.log.warning(error)
        new = unregistered(context.instance, sorted(one.id for one in result.requests))
        if not result.requests:
            reason = "; ".join(result.errors) or "no new or changed upload is complete"
            return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=cursor)
        return dg.SensorResult(
            dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(new)] if new else [],
            run_requests=list(run_requests(result.requests, workspace.settings.execution)),
            cursor=cursor,
        )

    return evaluate


def discover(
    instance: dg.DagsterInstance, workspace: Workspace, decided: Sequence[str] = ()
) -> Tick:
    """One tick of discovery; before it, runs for what was `decided` and what was not reported."""
    runs, settings = InstanceRuns(instance, workspace), workspace.settings.discovery
    runs.record_crashes()
    with open_table(instance, workspace) as table:
        for file, ids in unreported(claims_folder(instance, workspace)).items():
            for key in ids:
                table.request_rerun(key, "unreported")
            file.unlink(missing_ok=True)
        for key in decided:
            table.request_rerun(key, "reviewed")
        result = tick(workspace.uploads.objects, table, runs, time.time(), settings)
        released, errors = quarantine_collisions(workspace, result.collisions)
        for key in released:
            table.request_rerun(key, "collision ended")
        return replace(result, errors=(*result.errors, *errors))


def _requested_decisions(cursor: str | None) -> dict[str, str]:
    """The `unbuilt_decisions` of the tick before; none in a cursor that a person wrote."""
    try:
        return dict(json.loads(cursor or "")[_UNBUILT])
    except (ValueError, KeyError, TypeError):
        return {}


def unbuilt_decisions(store: Store) -> dict[str, str]:
    """Demonstration → hash of the decisions of people that its annotations were built without.

    The cursor has them, so that each is requested once: one whose run fails not for ever.
    """
    decisions: defaultdict[str, list[str]] = defaultdict(list)
    for key in store.list_documents(REVIEWS):
        match key.split("/"):
            case [_, name, file]:  # any other was put there by a person
                decisions[name].append(file.removesuffix(".json"))
    found = {}
    for name, ids in decisions.items():
        digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
        built = store.published(ANNOTATIONS_STAGE.output(name))
        if built and built.manifest.inputs.get(REVIEWS) != digest:
            found[name] = digest
    return found


def run_requests(
    requests: Sequence[Request], settings: ExecutionSettings
) -> Iterator[dg.RunRequest]:
    """One run for each request; from `execution.batch_from` requests on, they share runs.

    In the queue, what was tried before waits for new and changed uploads. What waited always shares
    a run, since a failed run costs about 400 kB of history: so there is one in a tick.
    """
    for tried in ("", *_TRIED_BEFORE):
        chosen = [
            one for one in requests if (one.reason if one.reason in _TRIED_BEFORE else "") == tried
        ]
        shared = tried == Status.WAITING or len(requests) >= settings.batch_from
        size = settings.partitions_per_run if shared else 1
        yield from map(_run_request, batched(chosen, size))


def batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The items in order, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _run_request(requests: Sequence[Request]) -> dg.RunRequest:
    first = requests[0]
    tags = {REASON_TAG: ", ".join(sorted({one.reason for one in requests}))}
    if first.reason in _TRIED_BEFORE:
        tags[PRIORITY_TAG] = "-1"
    members = [BatchMember(one.id, one.fingerprint, one.run_key) for one in requests]
    if len(requests) == 1:
        job, key, tags = demonstration_job.name, first.run_key, tags | member_tags(members)
        return dg.RunRequest(key, job_name=job, partition_key=first.id, tags=tags)
    key = batch_run_key(one.run_key for one in requests)
    return dg.RunRequest(key, job_name=BATCH_JOB, tags=tags | batch_tags(members))


@watching(
    "quarantine_changed",
    _TABLE_INTERVAL,
    "Builds the table of quarantined demonstrations when a record was added, changed or deleted.",
    quarantine_job,
)
def quarantine_changed(context: dg.SensorEvaluationContext, workspace: Workspace) -> Said:
    """Compare the records with those in the table, so that failed runs are repeated."""
    wanted = wanted_recipe(workspace, QUARANTINE_STAGE)
    table = workspace.store.current(QUARANTINE_STAGE.folder)
    if table is not None and table.manifest.recipe == wanted:
        return dg.SkipReason("the table contains every record")
    both = f"{wanted.inputs}{table.manifest.recipe.inputs if table else None}"
    state = hashlib.sha256(both.encode()).hexdigest()[:16]
    job, busy = quarantine_job.name, "the table is being written"
    return run_unless_tried(context.instance, job, state, _TABLE_INTERVAL, busy)
