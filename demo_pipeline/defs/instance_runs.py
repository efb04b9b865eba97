"""Which runs were launched for which upload, by their tags, whoever launched them.

Belongs here: discovery's `Launched` over a Dagster instance, and where discovery's ledger lies.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import dagster as dg

from demo_pipeline.defs.jobs import demonstration_job
from demo_pipeline.defs.tags import (
    FINGERPRINT_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    RUN_KEY_TAG,
    SUPERSEDED,
    WILL_RETRY_TAG,
)
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import EndedRuns, Launch, RunOutcome
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.storage.store.store import Store

FAILURE_GRACE_SECONDS = (
    300.0  # seconds a failed run waits for the sensor quarantine_failures to say why
)
_SLACK = 60.0  # seconds between an event's time and its run's
_LOOKED_AT = 50  # newest runs of a demonstration; people's own runs bear no fingerprint
_EVENTS = 200  # of each kind, in one look
_PAGE = 500
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_LAST = dg.AssetKey(STAGES[-1].name)
_Event = dg.DagsterEventType
_Kind = Literal[dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED]


class InstanceRuns:
    """See `RunHistory`.

    Args:
        instance: whose runs.
        store: where quarantine records lie.
    """

    def __init__(self, instance: dg.DagsterInstance, store: Store) -> None:
        self._instance, self._store = instance, store

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the protocol's word
        """The newest run of this partition that bears a fingerprint.

        Raises:
            StorageError: it failed, and its quarantine record cannot be read.
        """
        records = _newest(self._instance, id)
        if not records:
            return None
        fingerprint = records[-1].dagster_run.tags[FINGERPRINT_TAG]
        outcome = self._outcome(id, records[-1])
        if outcome is RunOutcome.LOST:
            outcome = _made_up_by_hand(records[:-1]) or outcome
        lost = self._lost(id, fingerprint) if outcome is RunOutcome.LOST else 0
        return Launch(fingerprint, outcome, lost)

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """Runs of this partition with this fingerprint, retries by Dagster included."""
        tags = {PARTITION_NAME_TAG: id, FINGERPRINT_TAG: fingerprint}
        return self._instance.get_runs_count(dg.RunsFilter(tags=tags))

    def has_run(self, run_key: str) -> bool:
        """Whether there is a run with this key."""
        return bool(self._instance.get_run_ids(dg.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1))

    def ended(self, token: str | None) -> EndedRuns:
        """Partitions of the runs that failed or were cancelled since.

        Dagster numbers its events; the token holds the last one of each kind that is old enough
        for everything to be known of its run.
        """
        seen = [int(part) for part in token.split(",")] if token else [0, 0]
        failed, first = self._ends(_Event.RUN_FAILURE, seen[0])
        canceled, second = self._ends(_Event.RUN_CANCELED, seen[1])
        keys = self._partitions([*failed, *canceled])
        return EndedRuns(tuple(sorted(keys)), f"{first},{second}")

    def failed(self) -> set[str]:
        """Partitions of which any run was cancelled or failed."""
        of_it = dg.RunsFilter(job_name=demonstration_job.name, statuses=_FAILED)
        keys: set[str] = set()
        cursor = None
        while records := self._instance.get_run_records(of_it, limit=_PAGE, cursor=cursor):
            keys |= {record.dagster_run.tags.get(PARTITION_NAME_TAG, "") for record in records}
            cursor = records[-1].dagster_run.run_id
        return keys - {""}

    def _outcome(self, demonstration: str, record: dg.RunRecord) -> RunOutcome:
        run = record.dagster_run
        if run.tags.get(OUTCOME_TAG) == SUPERSEDED:
            return RunOutcome.SUPERSEDED
        if run.status is dg.DagsterRunStatus.CANCELED:
            return RunOutcome.LOST
        if not run.is_finished or run.tags.get(WILL_RETRY_TAG) == "true":
            return RunOutcome.LIVE
        if run.is_success or read_quarantine(self._store, demonstration) is not None:
            return RunOutcome.ENDED
        ended = record.end_time or record.update_timestamp.timestamp()
        return RunOutcome.LIVE if time.time() - ended < FAILURE_GRACE_SECONDS else RunOutcome.LOST

    def _lost(self, demonstration: str, fingerprint: str) -> int:
        tags = {PARTITION_NAME_TAG: demonstration, FINGERPRINT_TAG: fingerprint}
        ended = self._instance.get_runs(
            dg.RunsFilter(tags=tags, statuses=_FAILED), limit=_LOOKED_AT
        )
        return sum(
            run.tags.get(WILL_RETRY_TAG) != "true" and run.tags.get(OUTCOME_TAG) != SUPERSEDED
            for run in ended
        )

    def _ends(self, kind: _Kind, after: int) -> tuple[list[str], int]:
        """(runs with such an event, number of the last event that need not be seen again)."""
        newer = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=after)
        records = self._instance.fetch_run_status_changes(
            newer, limit=_EVENTS, ascending=True
        ).records
        old = time.time() - FAILURE_GRACE_SECONDS - _SLACK
        for record in records:
            if record.timestamp > old:
                break
            after = record.storage_id
        return [record.run_id for record in records], after

    def _partitions(self, run_ids: list[str]) -> set[str]:
        if not run_ids:
            return set()
        of_it = dg.RunsFilter(run_ids=run_ids, job_name=demonstration_job.name)
        runs = self._instance.get_runs(of_it)
        return {run.tags[PARTITION_NAME_TAG] for run in runs if PARTITION_NAME_TAG in run.tags}


def newest_launch(instance: dg.DagsterInstance, demonstration: str) -> dg.DagsterRun | None:
    """The newest run that was launched for an upload, by the sensor or the command line."""
    records = _newest(instance, demonstration)
    return records[-1].dagster_run if records else None


def _newest(instance: dg.DagsterInstance, demonstration: str) -> list[dg.RunRecord]:
    """The newest runs, up to the first that bears a fingerprint; none when there is no such."""
    of_it = dg.RunsFilter(tags={PARTITION_NAME_TAG: demonstration})
    records = list(instance.get_run_records(of_it, limit=_LOOKED_AT))
    for place, one in enumerate(records):
        if FINGERPRINT_TAG in one.dagster_run.tags:
            return records[: place + 1]
    return []


def _made_up_by_hand(later: Sequence[dg.RunRecord]) -> RunOutcome | None:
    """What came of a run to the end that a person launched after one that was lost."""
    for run in (record.dagster_run for record in later):
        if run.asset_selection is not None and _LAST not in run.asset_selection:
            continue
        if not run.is_finished:
            return RunOutcome.LIVE
        if run.is_success:
            return RunOutcome.ENDED
    return None


def ledger_path(instance: dg.DagsterInstance, pipeline: Workspace) -> Path:
    """The ledger of these uploads: `<instance>/storage/discovery/<hash of their URL>.sqlite`."""
    name = hashlib.sha256(pipeline.uploads.url.encode()).hexdigest()[:12]
    return Path(instance.storage_directory()) / "discovery" / f"{name}.sqlite"


def open_ledger(instance: dg.DagsterInstance, pipeline: Workspace) -> Ledger:
    """The ledger of these uploads, made when there is none; to be closed."""
    return Ledger.open(ledger_path(instance, pipeline))
