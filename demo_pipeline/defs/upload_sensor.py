"""The sensor on uploads, and the job that takes many of them through their stages at once.

Belongs here: asking Dagster what is in work, and requesting runs. What is whole and new is decided
in runs/discovery.py; the runs of many are made by runs/local_runs.py.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.dataset_assets import watching
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
    Request,
    Seen,
    Settled,
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

MANY = 25  # requests a tick: each takes 0.3 CPU s, in which the sensor says nothing (measured)
_NO_CATALOG = (
    "waiting for the catalog of OSWorld tasks, which demonstrations are compared with; the sensor "
    "tasks_changed launches the job read_osworld_tasks"
)
_settled: dict[str, Settled] = {}  # URL of a store → what this process knows of it


class Ids(dg.Config):
    """Which demonstrations to process; those that are built or refused as they are, are skipped."""

    ids: list[str] = Field(description="ids of demonstrations in the uploads")


@dg.op(
    name="demonstrations",
    description="Takes each demonstration through its stages by a run of its own, in "
    "`execution.workers` processes of this machine.",
)
def _demonstrations(context: dg.OpExecutionContext, config: Ids, roots: Roots) -> None:
    workspace = roots.workspace
    todo = [key for key in dict.fromkeys(config.ids) if not is_settled(workspace, key)]
    process_ids(context, workspace, todo)


def process_ids(context: dg.OpExecutionContext, workspace: Workspace, ids: Sequence[str]) -> None:
    """The work of an op over many demonstrations; its metadata say what became of them."""
    if not runs_here(context.instance):
        raise dg.Failure(
            "this job makes its runs on this machine, which needs Dagster's default launcher; "
            f"launch a backfill of process_demonstration instead, over {', '.join(ids)}",
            allow_retries=False,
        )
    counts, refused = dict.fromkeys(Status, 0), list[str]()
    home, workers = Path(context.instance.root_directory), workspace.settings.execution.workers
    with closing(LocalRuns(workspace, home, workers, context.job_name)) as runs:
        runs.prepare(ids)
        for one in runs.process(ids):
            counts[one.status] += 1
            if not one.status.is_done:
                refused.append(one.demonstration)
                context.log.warning("%s: %s", one.demonstration, one.problems[0])
    context.add_output_metadata(
        {
            "done": counts[Status.BUILT],
            "refused": counts[Status.REJECTED],
            "failed": counts[Status.FAILED],
            "not_done": dg.MetadataValue.text(", ".join(refused) or "none"),
        }
    )


def process_many(roots: dg.ResourceDefinition) -> dg.JobDefinition:
    """The job `process_many`; it has its resource already, as jobs of sensors have to."""

    @dg.job(
        name=PROCESS_MANY,
        description="Processes the demonstrations `ids`, a run for each.",
        resource_defs={"roots": roots},
    )
    def job() -> None:
        _demonstrations()

    return job


def runs_here(instance: dg.DagsterInstance) -> bool:
    """Whether a process may execute runs that no launcher started.

    Run monitoring asks the launchers of Ray and Kubernetes about every run, and ends those that
    they do not know.
    """
    return isinstance(instance.run_launcher, dg.DefaultRunLauncher)


def new_uploads(interval_seconds: int, many: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor `new_uploads`."""

    @watching(
        "new_uploads",
        interval_seconds,
        "Registers whole uploads in a folder or bucket, and requests a run for each new, changed "
        f"or newly reviewed one, or one run of {PROCESS_MANY} for more than {MANY} at once.",
        process_demonstration,
        many,
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: Workspace
    ) -> dg.SensorResult | dg.SkipReason:
        instance = context.instance
        settled = _settled.setdefault(workspace.store.url, Settled())
        settled.forget(close_dead_runs(instance) if runs_here(instance) else ())
        if workspace.tasks.is_dir() and workspace.store.current(CATALOG_OUTPUT) is None:
            return dg.SkipReason(_NO_CATALOG)
        seen = from_plain(_json(context.cursor))
        look = _look(instance, workspace, settled, seen)
        cursor = json.dumps(as_plain(look.seen))
        if not look.requests:
            waits = f"{look.unstable} uploads are not still yet" if look.unstable else ""
            if look.misnamed:
                waits = f"refused: {counted(look.misnamed, 'folders')} of the uploads: {NAME_RULE}"
            reason = dg.SkipReason(waits or "no new or changed upload is complete")
            return dg.SensorResult(skip_reason=reason, cursor=cursor)
        new = unregistered(instance, [one.id for one in look.requests])
        return dg.SensorResult(
            dynamic_partitions_requests=[DEMONSTRATIONS.build_add_request(new)] if new else [],
            run_requests=_run_requests(look.requests, together=runs_here(instance)),
            cursor=cursor,
        )

    return evaluate


def _look(
    instance: dg.DagsterInstance, workspace: Workspace, settled: Settled, seen: dict[str, Seen]
) -> Look:
    settled.begin(workspace)
    listed = list_uploads(workspace)
    busy = _in_work(instance)
    many = _last_of_many(instance)
    ends = {
        key: max(_last_end(instance, key), many.get(key, NO_END))
        for key in stuck(seen)
        if key not in busy
    }
    look = decide(listed, seen, settled, ends, busy, workspace.settings.discovery)
    if runs_here(instance) or len(look.requests) <= MANY:
        return look
    later = {one.id for one in look.requests[MANY:]}  # as if they had not been looked at yet
    kept = {key: seen.get(key, one) if key in later else one for key, one in look.seen.items()}
    return replace(look, requests=look.requests[:MANY], seen=kept)


def _run_requests(requests: Sequence[Request], *, together: bool) -> list[dg.RunRequest]:
    if not together or len(requests) <= MANY:
        return [
            dg.RunRequest(
                one.run_key,
                job_name=process_demonstration.name,
                partition_key=one.id,
                tags={REASON_TAG: one.reason},
            )
            for one in requests
        ]
    keys = "\n".join(sorted(one.run_key for one in requests))
    config = dg.RunConfig(ops={"demonstrations": Ids(ids=[one.id for one in requests])})
    key = f"{PROCESS_MANY}@{hashlib.sha256(keys.encode()).hexdigest()[:16]}"
    return [dg.RunRequest(key, job_name=PROCESS_MANY, run_config=config)]


def _in_work(instance: dg.DagsterInstance) -> set[str]:
    """The demonstrations with a run that is queued or running, also as one of many."""
    found = set[str]()
    for record in instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED)):
        run = record.dagster_run
        if key := run.tags.get(PARTITION_TAG):
            found.add(key)
        elif run.job_name == PROCESS_MANY:
            found.update(_ids_of(run))
    return found


def _ids_of(run: dg.DagsterRun) -> list[str]:
    """The demonstrations that a run of many was requested for."""
    config: Any = run.run_config
    return list(config.get("ops", {}).get("demonstrations", {}).get("config", {}).get("ids", ()))


def _last_end(instance: dg.DagsterInstance, key: str) -> tuple[bool, float]:
    """Whether a person cancelled the last run of a demonstration, and when it ended."""
    runs = instance.get_run_records(dg.RunsFilter(tags={PARTITION_TAG: key}), limit=1)
    return next(map(_end_of, runs), NO_END)


def _last_of_many(instance: dg.DagsterInstance) -> dict[str, tuple[bool, float]]:
    """The same of the last run of many, for each of its demonstrations."""
    runs = instance.get_run_records(dg.RunsFilter(job_name=PROCESS_MANY), limit=1)
    return {key: _end_of(record) for record in runs for key in _ids_of(record.dagster_run)}


def _end_of(record: dg.RunRecord) -> tuple[bool, float]:
    cancelled = record.dagster_run.status is dg.DagsterRunStatus.CANCELED
    return cancelled, record.end_time or record.update_timestamp.timestamp()


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "{}")
    except ValueError:  # a person wrote it
        return {}
