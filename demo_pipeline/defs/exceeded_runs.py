"""Runs whose stage exceeded its limits: the tag that says so, and the next attempt.

Belongs here: what the instance knows about such attempts. A first attempt waits and is repeated
alone in a process; a second one is quarantined by pipeline/runner.py.
"""

from dataclasses import dataclass

import dagster as dg

from demo_pipeline.defs.batch_members import launched_for, records_of
from demo_pipeline.defs.tags import EXCEEDED_TAG, PARTITION_NAME_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.crash_quarantine import record_crash
from demo_pipeline.pipeline.stage_limits import EarlierAttempts


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """The stage of a run that exceeded a limit, and which, in plain words."""

    stage: str
    reason: str


def earlier_attempts(
    instance: dg.DagsterInstance, run: dg.DagsterRun, stage: str
) -> EarlierAttempts:
    """What the instance knows about attempts at a stage, for a run of one demonstration."""

    def exceeded() -> bool:
        before = _run_before(instance, run)
        return before is not None and exceeded_limit(before) is not None

    def note(reason: str) -> None:
        mark_exceeded(instance, run.run_id, ExceededLimit(stage, reason))

    return EarlierAttempts(exceeded, note)


def mark_exceeded(instance: dg.DagsterInstance, run_id: str, limit: ExceededLimit) -> None:
    """Tag a run; the id tells this tag from one that Dagster copied from the run before."""
    instance.add_run_tags(run_id, {EXCEEDED_TAG: f"{run_id} {limit.stage} {limit.reason}"})


def exceeded_limit(run: dg.DagsterRun) -> ExceededLimit | None:
    """The stage of a run that exceeded a limit; None when none did."""
    run_id, _, rest = run.tags.get(EXCEEDED_TAG, "").partition(" ")
    stage, _, reason = rest.partition(" ")
    return ExceededLimit(stage, reason) if run_id == run.run_id else None


def quarantine_exceeded(
    instance: dg.DagsterInstance, workspace: Workspace, demonstration: str
) -> str | None:
    """Quarantine a demonstration whose newest process ended because a stage could not be stopped.

    Returns:
        The reason, None when its newest run did not end so.
    """
    records = records_of(instance, demonstration, 1)
    limit = exceeded_limit(records[0].dagster_run) if records else None
    if limit is None:
        return None
    record_crash(workspace, demonstration, limit.stage, f"it {limit.reason}")
    return f"{limit.stage}: it {limit.reason}"


def _run_before(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun | None:
    """The newest other run for the same upload of the same demonstration."""
    key = run.tags.get(PARTITION_NAME_TAG)
    if key is None:
        return None
    newest = [record.dagster_run for record in records_of(instance, key, 2)]
    others = [other for other in newest if other.run_id != run.run_id]
    same = others and launched_for(others[0], key) == launched_for(run, key)
    return others[0] if same else None
