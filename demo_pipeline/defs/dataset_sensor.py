"""The sensor that rebuilds the datasets after the trajectories changed.

Belongs here: the decision and the sensor around it. The state that it depends on is read from
Dagster in freshness.py.
"""

import time

import dagster as dg

from demo_pipeline.defs.freshness import Progress, progress
from demo_pipeline.defs.run_recovery import recover
from demo_pipeline.defs.tags import STATE_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.stage import DATASETS_JOB


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
