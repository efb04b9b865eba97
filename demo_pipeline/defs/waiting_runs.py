"""Runs that something passing stopped, such as a full disk: marked as waiting, never quarantined.

Belongs here: how a run says that it waits, and which demonstrations wait now. When such a run is
tried again is decided in discovery/.
"""

import logging
from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs.batch_members import (
    demonstrations_of,
    is_waiting,
    noted_outcomes,
    records_of,
)
from demo_pipeline.defs.home_files import WaitingDemonstration
from demo_pipeline.defs.tags import OUTCOME_TAG, WAITING_OUTCOME, WAITING_TAG
from demo_pipeline.files.system_errors import best_effort

_LOG = logging.getLogger(__package__)

_LONGEST_REASON = 500  # characters
_MOST_RUNS = 2000  # that are looked through for demonstrations that wait


def waiting_failure(instance: dg.DagsterInstance, run_id: str, reason: str) -> dg.Failure:
    """Mark a run as waiting; returns what ends it.

    The metadata says it a second time, since the tag cannot be written when that disk is full.
    """
    with best_effort(_LOG, "marking the run as waiting"):
        instance.add_run_tags(run_id, waiting_tags(reason))
    return dg.Failure(
        description=f"waiting: {reason}; it is tried again by itself",
        metadata={OUTCOME_TAG: WAITING_OUTCOME, WAITING_TAG: reason},
        allow_retries=False,
    )


def waiting_tags(reason: str) -> dict[str, str]:
    """The tags of a run that waits."""
    return {OUTCOME_TAG: WAITING_OUTCOME, WAITING_TAG: reason[:_LONGEST_REASON]}


def waiting_reason(step_failure: object) -> str | None:
    """What a failed step waits for; None when it failed for another reason.

    Args:
        step_failure: Dagster's `StepFailureData`.
    """
    data = getattr(step_failure, "user_failure_data", None)
    entry = data.metadata.get(WAITING_TAG) if data is not None else None
    return None if entry is None else str(entry.value)


def waiting_demonstrations(instance: dg.DagsterInstance) -> list[WaitingDemonstration]:
    """The demonstrations whose newest run waits, sorted by id."""
    found: dict[str, list[str]] = {}
    for run in instance.get_runs(
        dg.RunsFilter(tags={OUTCOME_TAG: WAITING_OUTCOME}), limit=_MOST_RUNS
    ):
        for key in demonstrations_of(run):
            if is_waiting(run, key):
                found.setdefault(key, []).append(run.run_id)
    return sorted(_newest_waiting(instance, found), key=lambda waiting: waiting.demonstration)


def _newest_waiting(
    instance: dg.DagsterInstance, found: dict[str, list[str]]
) -> Iterator[WaitingDemonstration]:
    for key, ids in found.items():
        newest = [record.dagster_run for record in records_of(instance, key, 1)]
        if newest and newest[0].run_id == ids[0]:
            noted = (noted_outcomes(newest[0]) or {}).get(key)
            reason = noted.reason if noted else newest[0].tags.get(WAITING_TAG, "")
            yield WaitingDemonstration(key, reason, len(ids))
