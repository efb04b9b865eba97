"""The datasets follow the trajectories: rebuilt when work has settled, or has waited long enough.

Belongs here: the decision and the sensor around it. Where things stand, progress.py asks Dagster.
"""

import time

import dagster as dg

from demo_pipeline.defs.freshness import STATE_TAG, Progress, progress
from demo_pipeline.defs.jobs import datasets_job
from demo_pipeline.pipeline.context import Workspace


def should_rebuild(
    state: Progress, now: float, patience_s: float, interval_s: float
) -> tuple[bool, str]:
    """(whether to build the datasets now, why or why not).

    Args:
        state: how far they are behind.
        now: epoch seconds.
        patience_s: while demonstrations are processed, the oldest change waits no longer.
        interval_s: between the first attempt that failed and the next.
    """
    if state.latest <= state.built:
        return False, "the datasets hold every trajectory"
    if state.building:
        return False, "the datasets are being built"
    held_back = state.attempts.held_back(now, interval_s)
    if held_back is not None:
        return False, held_back
    waited = now - state.waiting_since
    if not state.processing:
        return True, "trajectories changed, and no demonstration is being processed"
    if waited >= patience_s:
        return True, f"a trajectory has waited {waited:.0f} s for the datasets"
    return False, "demonstrations are being processed; the datasets are built after them"


def build_rebuild_datasets(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `rebuild_datasets`, looking every `interval_seconds`."""

    @dg.sensor(
        name="rebuild_datasets",
        job=datasets_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Builds the datasets when trajectories changed: after the last of a batch, or "
        "while a long one goes on, but never once per demonstration.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, pipeline: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        state = progress(context.instance)
        patience_s = pipeline.settings.discovery.max_dataset_age_seconds
        rebuild, why = should_rebuild(state, time.time(), patience_s, interval_seconds)
        if not rebuild:
            return dg.SkipReason(why)
        context.log.info(why)
        return dg.SensorResult(run_requests=[_request(state)])

    return evaluate


def _request(state: Progress) -> dg.RunRequest:
    """The key makes one request of two ticks that see the same state and the same attempts."""
    again = f"#{state.attempts.failed}" if state.attempts.failed else ""
    tags = {STATE_TAG: str(state.latest)}
    return dg.RunRequest(run_key=f"datasets@{state.latest}{again}", tags=tags)
