"""The sensor `new_uploads`, and the job `process_many`, which processes many uploads.

runs/discovery.py decides which uploads are complete and new. runs/local_runs.py executes the runs
of `process_many`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.dataset_sensors import SensorAnswer, store_sensor
from demo_pipeline.defs.dead_runs import close_dead_runs
from demo_pipeline.defs.demonstrations import process_demonstration
from demo_pipeline.defs.partitions import (
    DEMONSTRATIONS,
    PARTITION_TAG,
    REASON_TAG,
    UNFINISHED,
    unregistered,
)
from demo_pipeline.defs.resources import Roots
from demo_pipeline.files.shown_text import counted
from demo_pipeline.runs.discovery import (
    NO_END,
    Look,
    SeenUpload,
    SettledUploads,
    UploadRequest,
    as_plain,
    decide,
    from_plain,
    is_settled,
    list_uploads,
    stuck,
)
from demo_pipeline.runs.local_runs import LocalRuns
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.task_catalog import CATALOG_OUTPUT
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import PROCESS_MANY
from demo_pipeline.store.uploads import NAME_RULE

# Maximum number of runs that one evaluation of the sensor requests. A request takes 0.3 CPU s
# (measured).
MANY = 25
_KEYS_PER_QUERY = 10_000  # maximum number of demonstrations in a query to Dagster's database
_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)
# Maps the URL of a store to the uploads that need no run, as far as this process knows.
_settled: dict[str, SettledUploads] = {}
_RunEnd = tuple[bool, float]
"""Whether a person cancelled a run, and when it ended, in epoch seconds."""


class Ids(dg.Config):
    """The demonstrations to process; those that are already built or quarantined are skipped."""

    ids: list[str] = Field(description="ids of uploaded demonstrations")


@dg.op(
    name="demonstrations",
    description="Processes each demonstration in a run of its own, in `execution.workers` "
    "processes on this machine.",
)
def _demonstrations(context: dg.OpExecutionContext, config: Ids, roots: Roots) -> None:
    workspace = roots.workspace
    ids = [key for key in dict.fromkeys(config.ids) if not is_settled(workspace, key)]
    process_ids(context, workspace, ids)


def process_ids(context: dg.OpExecutionContext, workspace: Workspace, ids: Sequence[str]) -> None:
    """Processes demonstrations inside an op, and adds the counts of results to the metadata."""
    if not runs_here(context.instance):
        raise dg.Failure(
            "this job executes its runs on this machine, which needs Dagster's default launcher; "
            f"launch a backfill of process_demonstration instead, over {', '.join(ids)}",
            allow_retries=False,
        )
    counts = dict.fromkeys(Status, 0)
    not_done = []
    home = Path(context.instance.root_directory)
    workers = workspace.settings.execution.workers
    with closing(LocalRuns(workspace, home, workers, context.job_name)) as runs:
        runs.prepare(ids)
        for result in runs.process(ids):
            counts[result.status] += 1
            if not result.status.is_done:
                not_done.append(result.demonstration)
                context.log.warning("%s: %s", result.demonstration, result.problems[0])
    context.add_output_metadata(
        {
            "done": counts[Status.BUILT],
            "refused": counts[Status.REJECTED],
            "failed": counts[Status.FAILED],
            "not_done": dg.MetadataValue.text(", ".join(not_done) or "none"),
        }
    )


def process_many(roots: dg.ResourceDefinition) -> dg.JobDefinition:
    """Returns the job `process_many`.

    Args:
        roots: the resource `roots`. Dagster requires it for the jobs of a sensor.
    """

    @dg.job(
        name=PROCESS_MANY,
        description="Processes the demonstrations in `ids`, each in a run of its own.",
        resource_defs={"roots": roots},
    )
    def job() -> None:
        _demonstrations()

    return job


def runs_here(instance: dg.DagsterInstance) -> bool:
    """Returns whether a process on this machine may execute runs that no launcher started.

    This is possible if Dagster is configured with its default launcher. With any other launcher,
    Dagster's run monitoring ends such runs.
    """
    return isinstance(instance.run_launcher, dg.DefaultRunLauncher)


def new_uploads(interval_seconds: int, many: dg.JobDefinition) -> dg.SensorDefinition:
    """Returns the sensor `new_uploads`, which requests runs for new and changed uploads."""

    @store_sensor(
        "new_uploads",
        interval_seconds,
        "Registers complete uploads in a folder or bucket, and requests a run for each upload that "
        f"is new, changed or newly reviewed. If there are more than {MANY} at once, a single run "
        f"of the job `{PROCESS_MANY}` processes them.",
        process_demonstration,
        many,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> SensorAnswer:
        instance = context.instance
        settled = _settled.setdefault(workspace.store.url, SettledUploads())
        if runs_here(instance):
            settled.forget(close_dead_runs(instance))
        if workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None:
            return dg.SkipReason(_NO_CATALOG)
        seen = from_plain(_parse_json(context.cursor))
        look = _look(instance, workspace, settled, seen)
        cursor = json.dumps(as_plain(look.seen))
        if not look.requests:
            return dg.SensorResult(skip_reason=dg.SkipReason(_skip_reason(look)), cursor=cursor)
        new_ids = unregistered(instance, [request.id for request in look.requests])
        return dg.SensorResult(
            dynamic_partitions_requests=(
                [DEMONSTRATIONS.build_add_request(new_ids)] if new_ids else []
            ),
            run_requests=_run_requests(look.requests, together=runs_here(instance)),
            cursor=cursor,
        )

    return evaluate


def _skip_reason(look: Look) -> str:
    if look.misnamed:
        return f"refused: {counted(look.misnamed, 'folders')} of the uploads: {NAME_RULE}"
    if look.unstable:
        return f"{counted(look.unstable, 'uploads')} may still change"
    return "no new or changed upload is complete"


def _look(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    settled: SettledUploads,
    seen: dict[str, SeenUpload],
) -> Look:
    """Decides which uploads need a run.

    Returns at most `MANY` requests if the requests cannot be combined into one run.
    """
    settled.begin(workspace)
    listed = list_uploads(workspace)
    in_work = _in_work(instance)
    ends = _last_ends(instance, [key for key in stuck(seen) if key not in in_work])
    look = decide(listed, seen, settled, ends, in_work, workspace.settings.discovery)
    if runs_here(instance) or len(look.requests) <= MANY:
        return look
    later_ids = {request.id for request in look.requests[MANY:]}
    remembered = dict(look.seen)
    for key in later_ids:  # the next evaluation requests these ids
        remembered[key] = seen.get(key, look.seen[key])
    return replace(look, requests=look.requests[:MANY], seen=remembered)


def _run_requests(requests: Sequence[UploadRequest], *, together: bool) -> list[dg.RunRequest]:
    if not together or len(requests) <= MANY:
        return [
            dg.RunRequest(
                request.run_key,
                job_name=process_demonstration.name,
                partition_key=request.id,
                tags={REASON_TAG: request.reason},
            )
            for request in requests
        ]
    keys = "\n".join(sorted(request.run_key for request in requests))
    run_key = f"{PROCESS_MANY}@{hashlib.sha256(keys.encode()).hexdigest()[:16]}"
    ids = [request.id for request in requests]
    config = dg.RunConfig(ops={"demonstrations": Ids(ids=ids)})
    return [dg.RunRequest(run_key, job_name=PROCESS_MANY, run_config=config)]


def _in_work(instance: dg.DagsterInstance) -> set[str]:
    """Returns the demonstrations with a queued or active run, including runs of `process_many`."""
    in_work = set[str]()
    for record in instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED)):
        run = record.dagster_run
        if key := run.tags.get(PARTITION_TAG):
            in_work.add(key)
        elif run.job_name == PROCESS_MANY:
            in_work.update(_ids_of(run))
    return in_work


def _ids_of(run: dg.DagsterRun) -> list[str]:
    """Returns the demonstrations of a run of `process_many`."""
    config: Any = run.run_config
    return list(config.get("ops", {}).get("demonstrations", {}).get("config", {}).get("ids", ()))


def _last_ends(instance: dg.DagsterInstance, ids: Sequence[str]) -> dict[str, _RunEnd]:
    """Returns whether the last run of each demonstration was cancelled, and when it ended.

    The newest run of `process_many` counts as well, if it processed the demonstration.
    """
    ends: dict[str, _RunEnd] = {}
    for record in instance.get_run_records(dg.RunsFilter(job_name=PROCESS_MANY), limit=1):
        ends = dict.fromkeys(_ids_of(record.dagster_run), _end_of(record))
    for key, end in _newest_of_each(instance, ids):
        ends[key] = max(end, ends.get(key, NO_END), key=lambda run_end: run_end[1])
    return ends


def _newest_of_each(
    instance: dg.DagsterInstance, ids: Sequence[str]
) -> Iterator[tuple[str, _RunEnd]]:
    """Yields each demonstration with the end of its newest run, ignoring runs of `process_many`.

    Queries many ids at once. With a query for each id, 3,000 uploads took 20 to 30 s.
    """
    for start in range(0, len(ids), _KEYS_PER_QUERY):
        runs_of_ids = dg.RunsFilter(tags={PARTITION_TAG: ids[start : start + _KEYS_PER_QUERY]})
        newest: dict[str, dg.RunRecord] = {}
        for record in instance.get_run_records(runs_of_ids):
            # Dagster returns the newest run first.
            newest.setdefault(record.dagster_run.tags[PARTITION_TAG], record)
        for key, record in newest.items():
            yield key, _end_of(record)


def _end_of(record: dg.RunRecord) -> _RunEnd:
    is_cancelled = record.dagster_run.status is dg.DagsterRunStatus.CANCELED
    return is_cancelled, record.end_time or record.update_timestamp.timestamp()


def _parse_json(text: str | None) -> object:
    try:
        return json.loads(text or "{}")
    except ValueError:  # a person edited the cursor
        return {}
