"""The two sensors about quarantine: for runs that crashed, and for the table of records.

Belongs here: reading from Dagster's events why a run ended. Messages of exceptions are not
repeated, since they may quote typed text.
"""

import hashlib
from collections.abc import Mapping

import dagster as dg

from demo_pipeline.defs.demonstrations import CRASH_ENTRY
from demo_pipeline.defs.jobs import demonstration_job, quarantine_job
from demo_pipeline.defs.run_history import records_of, waiting_tags
from demo_pipeline.defs.sensors import Said, run_unless_tried, watching
from demo_pipeline.defs.tags import (
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    RECORDED_OUTCOME,
    WAITING_OUTCOME,
    WAITING_TAG,
)
from demo_pipeline.runs.batch import KILLED
from demo_pipeline.runs.datasets import wanted_recipe
from demo_pipeline.runs.quarantine import read_quarantine, record_crash
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_safe_id

_PASSING = {"OSError", "OperationalError", "MemoryError"}  # names of classes
_INTERVAL = 60  # seconds between two evaluations of quarantine_changed


class UnrecordedError(dg.DagsterError):
    """A failure that could not be recorded.

    Dagster skips a failure whose sensor raised, except for its own type of error: then the whole
    tick fails and is repeated.
    """


@dg.run_failure_sensor(
    monitored_jobs=[demonstration_job],
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Quarantines the demonstration of a run that crashed without a quarantine record.",
)
def quarantine_failures(
    context: dg.RunFailureSensorContext, workspace: dg.ResourceParam[Workspace]
) -> None:
    """Log the result; returning it would end the tick after one run."""
    try:
        context.log.info(record_failure(context, workspace))
    except StorageError as error:
        raise UnrecordedError(str(error)) from None


def record_failure(context: dg.RunFailureSensorContext, workspace: Workspace) -> str:
    """Quarantine the demonstration of a crashed run, unless it is recorded; says what was done.

    A stage that rejects a demonstration writes the record itself; this is for all other failures.

    Raises:
        StorageError: the record cannot be read or written.
    """
    run, instance = context.dagster_run, context.instance
    key = run.tags.get(PARTITION_NAME_TAG, "")
    needless = _needs_no_record(instance, run, key)
    if needless is not None:
        return needless
    steps = context.get_step_failure_events()  # a run has one step
    told, errors = _told(steps[0]) if steps else ({}, [])
    passing = [f"Dagster's storage failed with {name}" for name in errors if name in _PASSING]
    if WAITING_TAG in told or passing:  # the run's tag could not be written
        reason = str(told[WAITING_TAG].value if WAITING_TAG in told else passing[0])
        instance.add_run_tags(run.run_id, waiting_tags(reason))
        return f"{key}: waiting: {reason}"
    if told and CRASH_ENTRY not in told and read_quarantine(workspace.store, key) is not None:
        return f"{key}: the stage that failed wrote the quarantine record"
    if not steps:
        stage, cause = _killed_in(instance, run.run_id)
    else:
        stage = str(told["stage"].value if "stage" in told else steps[0].step_key)
        unknown = "it failed without a quarantine record" if told else "an unknown error"
        said = [str(told[CRASH_ENTRY].value)] if CRASH_ENTRY in told else errors
        cause = said[-1] if said else unknown
    record = record_crash(workspace, key, stage, cause)
    instance.add_run_tags(run.run_id, {OUTCOME_TAG: RECORDED_OUTCOME})
    return f"{key}: quarantined in {record.stage}, {record.attempts} times in all"


def _needs_no_record(instance: dg.DagsterInstance, run: dg.DagsterRun, key: str) -> str | None:
    """Why no record is written, whatever ended the run; None when that decides."""
    if not is_safe_id(key):
        return f"run {run.run_id} was not for one demonstration"
    if run.tags.get(OUTCOME_TAG) == WAITING_OUTCOME:
        return f"{key}: run {run.run_id} was not stopped by its recording, and is tried again"
    if run.tags.get(OUTCOME_TAG) == RECORDED_OUTCOME:
        return f"{key}: the failure of run {run.run_id} is already recorded"
    if run.is_complete_and_waiting_to_retry:
        return f"Dagster retries run {run.run_id}"
    newest = records_of(instance, key, 1)
    if newest and newest[0].dagster_run.run_id != run.run_id:
        return f"{key}: a newer run than {run.run_id} exists"
    return None


def _told(event: dg.DagsterEvent) -> tuple[Mapping[str, dg.MetadataValue], list[str]]:
    """(metadata of our own failure of a step, else names of the errors that ended it).

    The cause is last. Only Dagster's own reading and writing raises errors of the system unchanged.
    """
    data = event.step_failure_data
    if data.user_failure_data is not None:
        return data.user_failure_data.metadata, []
    names, error = [], data.error
    while error is not None:
        names.append(error.cls_name or "an unknown error")
        error = error.cause
    return {}, names


def _killed_in(instance: dg.DagsterInstance, run_id: str) -> tuple[str, str]:
    """(the stage that a run was in when its process ended, why it ended)."""
    if not instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_START}):
        return STAGES[0].name, "it ended before its first step"
    said = {entry.message.partition(":")[0] for entry in instance.all_logs(run_id)}
    begun = [stage.name for stage in STAGES if stage.name in said]  # each says what it builds
    return begun[-1] if begun else STAGES[0].name, KILLED


@watching(
    "quarantine_changed",
    _INTERVAL,
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
    return run_unless_tried(context.instance, job, state, _INTERVAL, busy)
