"""Runs that died: each leaves a quarantine record that says where, and what to do.

Belongs here: reading from Dagster's events what a run died of, and the two sensors about
quarantine. The words of an exception are not repeated: they may quote what somebody typed.
"""

import hashlib
import time

import dagster as dg

from demo_pipeline.defs.freshness import STATE_TAG, attempts, unfinished
from demo_pipeline.defs.jobs import demonstration_job, quarantine_job
from demo_pipeline.defs.tags import OUTCOME_TAG, PARTITION_NAME_TAG, WILL_RETRY_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import record_crash
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine import list_quarantine, read_quarantine
from demo_pipeline.pipeline.quarantine_table import QUARANTINE_OUTPUT, recipe_of
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id

_KILLED = "its process ended without a word: killed, or out of memory"
_RECORDED = "quarantined"  # the outcome of a run whose end is written down
_INTERVAL = 60  # seconds between two looks at the table
_Event = dg.DagsterEventType


class UnrecordedError(dg.DagsterError):
    """An end that could not be written down.

    Dagster goes past a failure whose sensor raised, but for its own kind of error: then the whole
    tick fails and is repeated from where it began.
    """


@dg.run_failure_sensor(
    monitored_jobs=[demonstration_job],
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Quarantines the demonstration of a run that died without saying why.",
)
def quarantine_failures(
    context: dg.RunFailureSensorContext, pipeline: dg.ResourceParam[Workspace]
) -> None:
    """Whatever is said goes to the log: an answer would end the tick after one run."""
    try:
        context.log.info(record_failure(context, pipeline))
    except StorageError as error:
        raise UnrecordedError(str(error)) from None


def record_failure(context: dg.RunFailureSensorContext, pipeline: Workspace) -> str:
    """Write down what a run died of, unless that is done or somebody else's; what was done.

    A stage that gives a demonstration up has said so itself; this is for all other ends.

    Raises:
        StorageError: the record cannot be read or written.
    """
    run, instance = context.dagster_run, context.instance
    key = run.tags.get(PARTITION_NAME_TAG, "")
    if not is_safe_id(key):
        return f"run {run.run_id} was not for one demonstration"
    if run.tags.get(OUTCOME_TAG) == _RECORDED:
        return f"{key}: the end of run {run.run_id} is written down"
    if run.tags.get(WILL_RETRY_TAG) == "true":
        return f"run {run.run_id} is tried once more"
    newest = instance.get_run_ids(dg.RunsFilter(tags={PARTITION_NAME_TAG: key}), limit=1)
    if newest and newest[0] != run.run_id:
        return f"{key}: another run came after {run.run_id}"
    meant = _was_meant(context)
    if meant and read_quarantine(pipeline.store, key) is not None:
        return f"{key}: the stage that gave it up has said why"
    stage, cause = _end_of(instance, run.run_id, context)
    record = record_crash(pipeline, key, stage, cause)
    instance.add_run_tags(run.run_id, {OUTCOME_TAG: _RECORDED})
    return f"{key}: quarantined at {record.stage}, {record.attempts} times now"


def _was_meant(context: dg.RunFailureSensorContext) -> bool:
    failed = context.get_step_failure_events()
    return bool(failed) and all(
        event.step_failure_data.user_failure_data is not None for event in failed
    )


def _end_of(
    instance: dg.DagsterInstance, run_id: str, context: dg.RunFailureSensorContext
) -> tuple[str, str]:
    """(the stage that a run ended in, what ended it)."""
    for event in context.get_step_failure_events():
        data = event.step_failure_data
        said = data.user_failure_data
        if said is not None:
            return str(event.step_key), "it failed without a record"
        error = data.error
        while error is not None and error.cause is not None:
            error = error.cause
        return str(event.step_key), (error.cls_name if error else None) or "an unknown error"
    begun = _begun(instance, run_id)
    return (begun[-1], _KILLED) if begun else (STAGES[0].name, "it never began a step")


def _begun(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Steps that were begun and not ended, in order."""
    entries = instance.all_logs(run_id, of_type={_Event.STEP_START, _Event.STEP_SUCCESS})
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    ended = {event.step_key for event in events if event.event_type is _Event.STEP_SUCCESS}
    begun = [str(event.step_key) for event in events if event.event_type is _Event.STEP_START]
    return [step for step in begun if step not in ended]


@dg.sensor(
    job=quarantine_job,
    minimum_interval_seconds=_INTERVAL,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Writes the table of the quarantined again when a record came, changed or went.",
)
def quarantine_changed(
    context: dg.SensorEvaluationContext, pipeline: dg.ResourceParam[Workspace]
) -> dg.SensorResult | dg.SkipReason:
    """The table itself says which records it holds, so that a run that failed is made up for."""
    try:
        wanted = recipe_of(list_quarantine(pipeline.store))
        table = pipeline.store.current(QUARANTINE_OUTPUT)
    except StorageError as error:
        return dg.SkipReason(str(error))
    if table is not None and table.manifest.recipe == wanted:
        return dg.SkipReason("the table holds every record")
    if unfinished(context.instance, (quarantine_job.name,)):
        return dg.SkipReason("the table is being written")
    both = f"{wanted.inputs}{table.manifest.recipe.inputs if table else None}"
    state = hashlib.sha256(both.encode()).hexdigest()[:16]
    tried = attempts(context.instance, quarantine_job.name, state)
    held_back = tried.held_back(time.time(), _INTERVAL)
    if held_back is not None:
        return dg.SkipReason(held_back)
    return dg.SensorResult(run_requests=[dg.RunRequest(tags={STATE_TAG: state})])
