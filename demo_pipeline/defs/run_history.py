"""Runs and their demonstrations: for which uploads they were launched, and how they ended.

Belongs here: reading and writing the tags that say so. A run of one demonstration has the tag of
its partition; a batch run has a short tag per member, to be found by, and one list of all of them.
"""

import datetime as dt
import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

import dagster as dg

from demo_pipeline.defs.claims import living_claims
from demo_pipeline.defs.home_files import WaitingDemonstration
from demo_pipeline.defs.jobs import DEMONSTRATION_JOBS
from demo_pipeline.defs.tags import (
    BATCH_OUTCOMES_TAG,
    BATCH_TAG,
    FINGERPRINT_TAG,
    INTERRUPTED_OUTCOME,
    KILLED_OUTCOME,
    MEMBER_TAG_PREFIX,
    MEMBERS_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    RUN_KEY_TAG,
    SUPERSEDED_OUTCOME,
    WAITING_OUTCOME,
    WAITING_TAG,
    WILL_RETRY_TAG,
)
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.ledger import Ledger
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.upload_decisions import EndedRuns, Launch, RunOutcome
from demo_pipeline.runs.workspace import Workspace

_MEMBER = "yes"
_KEY_LENGTH = 24  # hex digits of a member's tag; names of tags are short


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One demonstration of a batch run.

    Attributes:
        demonstration: its id.
        fingerprint: of the listing of the upload that the run is for; empty: the present one.
        run_key: that discovery requested; empty when it did not.
    """

    demonstration: str
    fingerprint: str = ""
    run_key: str = ""


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """How a batch run ended for a member that is not done, and why in plain words."""

    status: Status
    reason: str = ""


def batch_tags(members: Sequence[BatchMember]) -> dict[str, str]:
    """The tags of a run for these demonstrations."""
    listed = json.dumps([astuple(member) for member in members], separators=(",", ":"))
    each = {_tag_of(member.demonstration): _MEMBER for member in members}
    return {BATCH_TAG: str(len(members)), MEMBERS_TAG: listed, **each}


def members_of(run: dg.DagsterRun) -> list[BatchMember]:
    """The members of a batch run; empty for any other run."""
    text = run.tags.get(MEMBERS_TAG)
    return [BatchMember(*values) for values in json.loads(text)] if text else []


def demonstrations_of(run: dg.DagsterRun) -> list[str]:
    """The ids of the demonstrations that a run is for; empty when they are not in its tags."""
    key = run.tags.get(PARTITION_NAME_TAG)
    return [member.demonstration for member in members_of(run)] if key is None else [key]


def launched_for(run: dg.DagsterRun, demonstration: str) -> str | None:
    """Fingerprint of the upload that a run was launched for; None without one."""
    found = _member(run, demonstration)
    return found.fingerprint or None if found else run.tags.get(FINGERPRINT_TAG)


def records_of(instance: dg.DagsterInstance, demonstration: str, limit: int) -> list[dg.RunRecord]:
    """The newest runs for a demonstration, batch runs included, newest first."""
    found = [
        record
        for tags in ({PARTITION_NAME_TAG: demonstration}, {_tag_of(demonstration): _MEMBER})
        for record in instance.get_run_records(dg.RunsFilter(tags=tags), limit=limit)
    ]
    return sorted(found, key=lambda record: record.storage_id, reverse=True)[:limit]


def has_run_key(instance: dg.DagsterInstance, run_key: str) -> bool:
    """Whether a run with this key exists, or a batch run that serves it."""
    if instance.get_run_ids(dg.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1):
        return True
    demonstration = run_key.partition("@")[0]
    runs = instance.get_runs(dg.RunsFilter(tags={_tag_of(demonstration): _MEMBER}))
    members = (_member(run, demonstration) for run in runs)
    return any(member is not None and member.run_key == run_key for member in members)


def note_outcomes(
    instance: dg.DagsterInstance, run_id: str, outcomes: Mapping[str, MemberOutcome]
) -> None:
    """Write down which members are not done, at the end of the run; the others are done.

    The id tells this tag from one that Dagster copied from the run before.
    """
    values = {key: astuple(outcome) for key, outcome in sorted(outcomes.items())}
    text = json.dumps({"run": run_id, "not_done": values}, separators=(",", ":"))
    reasons = [one.reason for one in outcomes.values() if one.status == WAITING_OUTCOME]
    waits = {OUTCOME_TAG: WAITING_OUTCOME, WAITING_TAG: reasons[0]} if reasons else {}
    instance.add_run_tags(run_id, {BATCH_OUTCOMES_TAG: text, **waits})


def noted_outcomes(run: dg.DagsterRun) -> dict[str, MemberOutcome] | None:
    """The members that are not done; None when the run came to no end."""
    values = json.loads(run.tags.get(BATCH_OUTCOMES_TAG, "{}"))
    if values.get("run") != run.run_id:
        return None
    return {
        key: MemberOutcome(Status(status), reason)
        for key, (status, reason) in values["not_done"].items()
    }


def is_waiting(run: dg.DagsterRun, demonstration: str) -> bool:
    """Whether a run ended because something passing stopped it or this member of it."""
    noted = noted_outcomes(run)
    if noted is not None:
        return demonstration in noted and noted[demonstration].status == WAITING_OUTCOME
    return run.tags.get(OUTCOME_TAG) == WAITING_OUTCOME and not run.is_success


def batch_run_key(run_keys: Iterable[str]) -> str:
    """The key of a batch run: equal for equal members."""
    digest = hashlib.sha256("\n".join(sorted(run_keys)).encode()).hexdigest()
    return f"batch@{digest[:32]}"


def _member(run: dg.DagsterRun, demonstration: str) -> BatchMember | None:
    found = (member for member in members_of(run) if member.demonstration == demonstration)
    return next(found, None)


def _tag_of(demonstration: str) -> str:
    digest = hashlib.sha256(demonstration.encode()).hexdigest()[:_KEY_LENGTH]
    return f"{MEMBER_TAG_PREFIX}_{digest}"


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
_MEMBER_OUTCOMES = {Status.SUPERSEDED: RunOutcome.SUPERSEDED, Status.WAITING: RunOutcome.WAITING}
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
        self._claims = living_claims(claims_folder(instance, workspace))

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the protocol's word
        """The newest run of this partition that has a fingerprint.

        Raises:
            StorageError: it failed, and its quarantine record or its upload cannot be read.
        """
        if id in self._claims:
            return Launch(self._claims[id])
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
        rejected = noted is not None and noted[demonstration].status is Status.REJECTED
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


def claims_folder(instance: dg.DagsterInstance, workspace: Workspace) -> Path:
    """Where commands of this machine say which of these uploads they work on."""
    return ledger_path(instance, workspace).with_suffix("")


def open_ledger(instance: dg.DagsterInstance, workspace: Workspace) -> Ledger:
    """Open the ledger of these uploads, creating it if missing; the caller closes it."""
    return Ledger.open(ledger_path(instance, workspace))


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
