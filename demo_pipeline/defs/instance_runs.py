"""Which runs were launched for which upload, by their tags.

Belongs here: discovery's `RunHistory` over a Dagster instance, and the path of discovery's ledger.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

import dagster as dg

from demo_pipeline.defs.batch_members import (
    demonstrations_of,
    has_run_key,
    is_waiting,
    launched_for,
    noted_outcomes,
    records_of,
)
from demo_pipeline.defs.jobs import DEMONSTRATION_JOBS
from demo_pipeline.defs.tags import (
    BATCH_TAG,
    FINGERPRINT_TAG,
    INTERRUPTED_OUTCOME,
    KILLED_OUTCOME,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    SUPERSEDED_OUTCOME,
    WAITING_OUTCOME,
    WAITING_TAG,
    WILL_RETRY_TAG,
)
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import EndedRuns, Launch, RunOutcome
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.stages import STAGES

FAILURE_GRACE_SECONDS = 300.0  # for the sensor quarantine_failures to record a failed run
_EVENT_DELAY_SECONDS = 60.0  # at most between the times of an event and of its run
_NEWEST_RUNS = 50  # read per demonstration; runs that people launch have no fingerprint
_EVENTS = 200  # of each type, per tick
_PAGE = 500
_HOUR = 3600.0
_NOTED_OUTCOMES = {
    WAITING_OUTCOME: RunOutcome.WAITING,
    KILLED_OUTCOME: RunOutcome.LOST,
    INTERRUPTED_OUTCOME: RunOutcome.LOST,
}
_MEMBER_OUTCOMES = {"superseded": RunOutcome.SUPERSEDED, "waiting": RunOutcome.WAITING}
_NOT_LOST = {SUPERSEDED_OUTCOME, WAITING_OUTCOME, INTERRUPTED_OUTCOME}  # they cost no attempt
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_LAST = dg.AssetKey(STAGES[-1].name)
_Event = dg.DagsterEventType
_Kind = Literal[dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED]


class InstanceRuns:
    """The `RunHistory` of discovery/run_history.py over a Dagster instance.

    Args:
        instance: that holds the runs.
        workspace: with the uploads, and the store that holds the quarantine records.
    """

    def __init__(self, instance: dg.DagsterInstance, workspace: Workspace) -> None:
        self._instance, self._workspace = instance, workspace
        self._identities: dict[str, str | None] = {}  # in a folder, each costs reading the files

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the protocol's word
        """The newest run of this partition that has a fingerprint.

        Raises:
            StorageError: it failed, and its quarantine record or its upload cannot be read.
        """
        records = _newest(self._instance, id)
        if not records:
            return None
        launch = records[-1].dagster_run
        fingerprint = launched_for(launch, id) or ""
        outcome = self._outcome(id, records[-1])
        if outcome in {RunOutcome.LOST, RunOutcome.WAITING}:
            outcome = _manual_outcome(records[:-1]) or outcome
        if outcome is RunOutcome.WAITING:
            noted = (noted_outcomes(launch) or {}).get(id)
            reason = noted.reason if noted else launch.tags.get(WAITING_TAG, "")
            return Launch(fingerprint, outcome, waits=self._waits(id, fingerprint), reason=reason)
        lost = self._lost(id, fingerprint) if outcome is RunOutcome.LOST else 0
        return Launch(fingerprint, outcome, lost)

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """Number of runs of this partition with this fingerprint, including Dagster's retries."""
        tags = {PARTITION_NAME_TAG: id, FINGERPRINT_TAG: fingerprint}
        alone = self._instance.get_runs_count(dg.RunsFilter(tags=tags))
        return alone + sum(BATCH_TAG in r.dagster_run.tags for r in self._same(id, fingerprint))

    def has_run(self, run_key: str) -> bool:
        """Whether a run with this key exists."""
        return has_run_key(self._instance, run_key)

    def recent_waits(self) -> int:
        """Number of runs that ended waiting within the last hour."""
        hour = dt.datetime.fromtimestamp(time.time() - _HOUR, dt.UTC)
        tags = {OUTCOME_TAG: WAITING_OUTCOME}
        return self._instance.get_runs_count(dg.RunsFilter(tags=tags, updated_after=hour))

    def ended(self, token: str | None) -> EndedRuns:
        """Partitions of the runs that failed or were cancelled since `token`.

        Dagster numbers its events. The token holds, per type, the number of the last event that is
        old enough for the outcome of its run to be final.
        """
        read = [int(part) for part in token.split(",")] if token else [0, 0]
        failed, first = self._ends(_Event.RUN_FAILURE, read[0])
        canceled, second = self._ends(_Event.RUN_CANCELED, read[1])
        keys = self._partitions([*failed, *canceled])
        return EndedRuns(tuple(sorted(keys)), f"{first},{second}")

    def failed(self) -> set[str]:
        """Partitions with a run that failed or was cancelled."""
        keys: set[str] = set()
        for job in DEMONSTRATION_JOBS:
            filters = dg.RunsFilter(job_name=job, statuses=_FAILED)
            cursor = None
            while records := self._instance.get_run_records(filters, limit=_PAGE, cursor=cursor):
                for run in (record.dagster_run for record in records):
                    noted = noted_outcomes(run)
                    keys.update(demonstrations_of(run) if noted is None else noted)
                cursor = records[-1].dagster_run.run_id
        return keys

    def _outcome(self, demonstration: str, record: dg.RunRecord) -> RunOutcome:
        run = record.dagster_run
        if BATCH_TAG in run.tags:
            return self._member_outcome(demonstration, run)
        if run.tags.get(OUTCOME_TAG) == SUPERSEDED_OUTCOME:
            return RunOutcome.SUPERSEDED
        if run.status is dg.DagsterRunStatus.FAILURE:
            return self._failed_outcome(demonstration, record)
        if run.status is dg.DagsterRunStatus.CANCELED:
            return RunOutcome.LOST
        return RunOutcome.ENDED if run.is_finished else RunOutcome.LIVE

    def _failed_outcome(self, demonstration: str, record: dg.RunRecord) -> RunOutcome:
        run = record.dagster_run
        noted = run.tags.get(OUTCOME_TAG)
        if run.tags.get(WILL_RETRY_TAG) == "true":
            return RunOutcome.LIVE
        if noted in _NOTED_OUTCOMES:
            return _NOTED_OUTCOMES[noted]
        if read_quarantine(self._workspace.store, demonstration) is not None:
            return RunOutcome.ENDED
        ended = record.end_time or record.update_timestamp.timestamp()
        return RunOutcome.LIVE if time.time() - ended < FAILURE_GRACE_SECONDS else RunOutcome.LOST

    def _member_outcome(self, demonstration: str, run: dg.DagsterRun) -> RunOutcome:
        noted = noted_outcomes(run)
        if noted is not None and demonstration not in noted:
            return RunOutcome.ENDED
        if noted is not None and noted[demonstration].status in _MEMBER_OUTCOMES:
            return _MEMBER_OUTCOMES[noted[demonstration].status]
        if noted is None and (not run.is_finished or run.tags.get(WILL_RETRY_TAG) == "true"):
            return RunOutcome.LIVE
        if self._is_built_by(demonstration, run):
            return RunOutcome.ENDED
        rejected = noted is not None and noted[demonstration].status == "failed"
        if self._is_recorded(demonstration, rejected=rejected):
            return RunOutcome.ENDED
        return _NOTED_OUTCOMES.get(run.tags.get(OUTCOME_TAG, ""), RunOutcome.LOST)

    def _is_recorded(self, demonstration: str, *, rejected: bool) -> bool:
        """Whether the quarantine says why a batch run did not process the present upload.

        After a correction, the record of the earlier files stays until a stage has read the new
        ones. A run that noted that a stage rejected them needs no comparison.
        """
        record = read_quarantine(self._workspace.store, demonstration)
        if record is None or rejected:
            return record is not None
        if demonstration not in self._identities:
            self._identities[demonstration] = self._workspace.uploads.identity(demonstration)
        return record.fingerprint == self._identities[demonstration]

    def _is_built_by(self, demonstration: str, run: dg.DagsterRun) -> bool:
        """Whether a run came to the last stage of a demonstration."""
        wanted = dg.AssetRecordsFilter(asset_key=_LAST, asset_partitions=[demonstration])
        records = self._instance.fetch_materializations(wanted, limit=1).records
        return bool(records) and records[0].run_id == run.run_id

    def _same(self, demonstration: str, fingerprint: str) -> list[dg.RunRecord]:
        """The newest runs for one upload, newest first."""
        records = records_of(self._instance, demonstration, _NEWEST_RUNS)
        return [r for r in records if launched_for(r.dagster_run, demonstration) == fingerprint]

    def _lost(self, demonstration: str, fingerprint: str) -> int:
        runs = [record.dagster_run for record in self._same(demonstration, fingerprint)]
        return sum(run.status in _FAILED and self._was_lost(demonstration, run) for run in runs)

    def _was_lost(self, demonstration: str, run: dg.DagsterRun) -> bool:
        if run.tags.get(WILL_RETRY_TAG) == "true":
            return False
        if BATCH_TAG not in run.tags:
            return run.tags.get(OUTCOME_TAG) not in _NOT_LOST
        interrupted = run.tags.get(OUTCOME_TAG) == INTERRUPTED_OUTCOME
        return not interrupted and self._member_outcome(demonstration, run) is RunOutcome.LOST

    def _waits(self, demonstration: str, fingerprint: str) -> int:
        runs = (record.dagster_run for record in self._same(demonstration, fingerprint))
        return sum(1 for _ in takewhile(lambda run: is_waiting(run, demonstration), runs))

    def _ends(self, kind: _Kind, after: int) -> tuple[list[str], int]:
        """(ids of runs with such an event, number of the last event not to be read again)."""
        newer = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=after)
        records = self._instance.fetch_run_status_changes(
            newer, limit=_EVENTS, ascending=True
        ).records
        old = time.time() - FAILURE_GRACE_SECONDS - _EVENT_DELAY_SECONDS
        for record in records:
            if record.timestamp > old:
                break
            after = record.storage_id
        return [record.run_id for record in records], after

    def _partitions(self, run_ids: list[str]) -> set[str]:
        if not run_ids:
            return set()
        runs = self._instance.get_runs(dg.RunsFilter(run_ids=run_ids))
        ours = [run for run in runs if run.job_name in DEMONSTRATION_JOBS]
        return {key for run in ours for key in demonstrations_of(run)}


def newest_launch(instance: dg.DagsterInstance, demonstration: str) -> dg.DagsterRun | None:
    """The newest run that was launched for an upload, by the sensor or the command line."""
    records = _newest(instance, demonstration)
    return records[-1].dagster_run if records else None


def _newest(instance: dg.DagsterInstance, demonstration: str) -> list[dg.RunRecord]:
    """The newest runs, up to the first that has a fingerprint; empty without such a run."""
    records = records_of(instance, demonstration, _NEWEST_RUNS)
    for index, record in enumerate(records):
        if launched_for(record.dagster_run, demonstration) is not None:
            return records[: index + 1]
    return []


def _manual_outcome(later: Sequence[dg.RunRecord]) -> RunOutcome | None:
    """The outcome of a complete run that a person launched after a lost one."""
    for run in (record.dagster_run for record in later):
        if run.asset_selection is not None and _LAST not in run.asset_selection:
            continue
        if not run.is_finished:
            return RunOutcome.LIVE
        if run.is_success:
            return RunOutcome.ENDED
    return None


def ledger_path(instance: dg.DagsterInstance, workspace: Workspace) -> Path:
    """Path of the ledger: `<instance>/storage/discovery/<hash of the uploads' URL>.sqlite`."""
    name = hashlib.sha256(workspace.uploads.url.encode()).hexdigest()[:12]
    return Path(instance.storage_directory()) / "discovery" / f"{name}.sqlite"


def open_ledger(instance: dg.DagsterInstance, workspace: Workspace) -> Ledger:
    """Open the ledger of these uploads, creating it if missing; the caller closes it."""
    return Ledger.open(ledger_path(instance, workspace))
