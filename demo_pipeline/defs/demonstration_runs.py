"""Runs and their demonstrations: for which uploads they were launched, and how they ended.

Belongs here: reading and writing the tags that say so. A run that discovery or a command launched
has a short tag per demonstration, to be found by, and one list of all of them; a run of one,
whoever launched it, has the tag of its partition.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.claims import living_claims
from demo_pipeline.defs.tags import (
    BATCH_OUTCOMES_TAG,
    BATCH_TAG,
    MEMBER_TAG_PREFIX,
    MEMBERS_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    WAITING_OUTCOME,
    WAITING_TAG,
)
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.batch import KILLED
from demo_pipeline.runs.discovery import EndedRun, Ending, is_settled
from demo_pipeline.runs.discovery_table import DiscoveryTable, table_path
from demo_pipeline.runs.failures import SupersededError, error_words
from demo_pipeline.runs.quarantine import is_quarantined, record_crash
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.uploads import folder_files

_LOG = logging.getLogger(__package__)
_MEMBER = "yes"
_KEY_LENGTH = 24  # hex digits of a member's tag; names of tags are short
_NEWEST_RUNS = 50  # read per demonstration
_PAGE = 500
_LONGEST_REASON = 500  # characters
_LAST = dg.AssetKey(STAGES[-1].name)
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_PASSING = {"OSError", "OperationalError", "MemoryError"}  # names of classes
_told: set[str] = set()  # runs of which this process said that they cannot be judged
_DONE, _LOST = Ending(Status.BUILT), Ending(Status.LOST)


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One demonstration of a run.

    Attributes:
        demonstration: its id.
        fingerprint: of the listing of the upload that the run is for; empty: the present one.
        run_key: that discovery requested; empty when it did not.
    """

    demonstration: str
    fingerprint: str = ""
    run_key: str = ""


def member_tags(members: Sequence[BatchMember]) -> dict[str, str]:
    """The tags of a run for these demonstrations; Dagster copies them when it retries the run."""
    listed = json.dumps([astuple(member) for member in members], separators=(",", ":"))
    return {MEMBERS_TAG: listed, **{_tag_of(one.demonstration): _MEMBER for one in members}}


def batch_tags(members: Sequence[BatchMember]) -> dict[str, str]:
    """The same of a batch run, of which people see how many it has."""
    return {BATCH_TAG: str(len(members)), **member_tags(members)}


def members_of(run: dg.DagsterRun) -> list[BatchMember]:
    """The demonstrations that discovery or a command launched a run for."""
    text = run.tags.get(MEMBERS_TAG)
    return [BatchMember(*values) for values in json.loads(text)] if text else []


def demonstrations_of(run: dg.DagsterRun) -> list[str]:
    """The ids of the demonstrations that a run is for; empty when they are not in its tags."""
    key = run.tags.get(PARTITION_NAME_TAG)
    return [member.demonstration for member in members_of(run)] if key is None else [key]


def launched_for(run: dg.DagsterRun, demonstration: str) -> str | None:
    """Fingerprint of the upload that a run was launched for; None without one."""
    found = (one.fingerprint for one in members_of(run) if one.demonstration == demonstration)
    return next(found, "") or None


def records_of(instance: dg.DagsterInstance, demonstration: str, limit: int) -> list[dg.RunRecord]:
    """The newest runs for a demonstration, batch runs included, newest first."""
    found = {
        record.storage_id: record
        for tags in ({PARTITION_NAME_TAG: demonstration}, {_tag_of(demonstration): _MEMBER})
        for record in instance.get_run_records(dg.RunsFilter(tags=tags), limit=limit)
    }
    return [found[number] for number in sorted(found, reverse=True)[:limit]]


def note_outcomes(
    instance: dg.DagsterInstance, run_id: str, outcomes: Mapping[str, Ending]
) -> None:
    """Write down how the run ended for members that are not done; the others are done.

    The id tells this tag from one that Dagster copied from the run before.
    """
    text = json.dumps({"run": run_id, "not_done": outcomes}, separators=(",", ":"), sort_keys=True)
    reasons = [one.reason for one in outcomes.values() if one.status is Status.WAITING]
    waits = waiting_tags(reasons[0]) if reasons else {}
    instance.add_run_tags(run_id, {BATCH_OUTCOMES_TAG: text, **waits})


def noted_outcomes(run: dg.DagsterRun) -> dict[str, Ending] | None:
    """How it ended for the members that are not done; None when the run came to no end."""
    values = json.loads(run.tags.get(BATCH_OUTCOMES_TAG, "{}"))
    if values.get("run") != run.run_id:
        return None
    return {key: Ending(Status(one), why) for key, (one, why) in values["not_done"].items()}


def batch_run_key(run_keys: Iterable[str]) -> str:
    """The key of a batch run: equal for equal members."""
    digest = hashlib.sha256("\n".join(sorted(run_keys)).encode()).hexdigest()
    return f"batch@{digest[:32]}"


def _tag_of(demonstration: str) -> str:
    digest = hashlib.sha256(demonstration.encode()).hexdigest()[:_KEY_LENGTH]
    return f"{MEMBER_TAG_PREFIX}_{digest}"


def _tell_once(run_id: str, error: Exception) -> None:
    """Say that a run cannot be judged now: every tick tries it again."""
    if run_id not in _told:
        _told.add(run_id)
        _LOG.warning("run %s ended, and is judged later: %s", run_id, error_words(error))


class InstanceRuns:
    """What discovery asks about runs (`Runs` of runs/discovery.py), over a Dagster instance."""

    def __init__(self, instance: dg.DagsterInstance, workspace: Workspace) -> None:
        self._instance, self._workspace = instance, workspace
        self.claimed: Collection[str] = living_claims(claims_folder(instance, workspace))

    def launched(self, demonstration: str) -> dict[str, str]:
        """Key → id of the newest run with it, maybe among others."""
        runs = self._instance.get_runs(dg.RunsFilter(tags={_tag_of(demonstration): _MEMBER}))
        return {
            one.run_key: run.run_id
            for run in reversed(runs)
            for one in members_of(run)
            if one.demonstration == demonstration and one.run_key
        }

    def live(self, demonstration: str) -> tuple[str, str | None] | None:
        """Id of the newest run, if it is under way, and the fingerprint that it is for."""
        for record in records_of(self._instance, demonstration, _NEWEST_RUNS):
            run = record.dagster_run
            if run.asset_selection is None or _LAST in run.asset_selection:
                lives = not run.is_finished or run.is_complete_and_waiting_to_retry
                return (run.run_id, launched_for(run, demonstration)) if lives else None
        return None

    def ended(self, runs: Sequence[str]) -> Iterator[EndedRun]:
        """Those of these runs that ended, or were deleted. One that cannot be judged now is not."""
        for start in range(0, len(runs), _PAGE):
            part = runs[start : start + _PAGE]
            existing = set(self._instance.get_run_ids(dg.RunsFilter(run_ids=part)))
            yield from (EndedRun(run_id, _LOST) for run_id in part if run_id not in existing)
            finished = dg.RunsFilter(run_ids=part, statuses=ENDED)
            for record in self._instance.get_run_records(finished):
                try:
                    ended = self._ended(record)
                except Exception as error:  # noqa: BLE001 - the others are judged whatever it is
                    _tell_once(record.dagster_run.run_id, error)
                    continue
                if ended is not None:
                    yield ended

    def settled(self, demonstration: str, fingerprint: str) -> bool:
        """Whether the store has outputs or a quarantine record of this upload, known to Dagster.

        A run that finds everything built tells a new instance so.
        """
        if not is_settled(self._workspace, demonstration, fingerprint):
            return False
        return bool(records_of(self._instance, demonstration, 1))

    def record_crashes(self) -> None:
        """Quarantine what runs were killed at that a person or a backfill launched."""
        failed = [dg.DagsterRunStatus.FAILURE]
        recent = dg.RunsFilter(
            statuses=failed, updated_after=datetime.now(UTC) - timedelta(hours=1)
        )
        for record in self._instance.get_run_records(recent):
            run = record.dagster_run
            if PARTITION_NAME_TAG in run.tags and not members_of(run):
                try:
                    if not is_quarantined(self._workspace, run.tags[PARTITION_NAME_TAG]):
                        self._ended(record)
                except Exception as error:  # noqa: BLE001 - the others are judged whatever it is
                    _tell_once(run.run_id, error)

    def _ended(self, record: dg.RunRecord) -> EndedRun | None:
        """How a run ended; None while Dagster is going to repeat it."""
        run = record.dagster_run
        if run.is_complete_and_waiting_to_retry:
            return None
        noted = noted_outcomes(run)
        if noted is not None:
            return EndedRun(run.run_id, _DONE, noted)
        if run.is_success:
            return EndedRun(run.run_id, _DONE)
        first = next(iter(members_of(run)), BatchMember(""))
        newest = self.launched(first.demonstration).get(first.run_key, run.run_id)
        if newest != run.run_id:
            return EndedRun(run.run_id, _LOST, successor=newest)
        if run.tags.get(OUTCOME_TAG) == WAITING_OUTCOME:
            return EndedRun(run.run_id, Ending(Status.WAITING, run.tags.get(WAITING_TAG, "")))
        failed = run.status is dg.DagsterRunStatus.FAILURE and PARTITION_NAME_TAG in run.tags
        return EndedRun(run.run_id, self._crashed(run) if failed else _LOST)

    def _crashed(self, run: dg.DagsterRun) -> Ending:
        """What it means that the run of one demonstration failed and noted nothing of it.

        Trouble of Dagster's storage passes by itself; all else quarantines the demonstration.
        """
        [key] = demonstrations_of(run)
        logs = self._instance.all_logs(run.run_id)
        stage, errors, told = _end_of(logs)
        passing = [f"Dagster's storage failed with {name}" for name in errors if name in _PASSING]
        if WAITING_TAG in told or passing:  # the run's tag could not be written
            reason = str(told[WAITING_TAG].value if WAITING_TAG in told else passing[0])
            return Ending(Status.WAITING, reason)
        [newest] = records_of(self._instance, key, 1)
        if newest.dagster_run.run_id != run.run_id:  # a person repeats it
            return _LOST
        try:
            if not is_quarantined(self._workspace, key):
                record_crash(self._workspace, key, stage, errors[-1], launched_for(run, key))
        except SupersededError:
            return Ending(Status.SUPERSEDED)
        return _DONE


def _end_of(
    logs: Sequence[dg.EventLogEntry],
) -> tuple[str, Sequence[str], Mapping[str, dg.MetadataValue]]:
    """(the stage that a run ended in, names of errors, the cause last, metadata of our failure).

    Messages of errors may quote typed text. Only Dagster's own reading and writing raises errors
    of the system unchanged.
    """
    events = [one.dagster_event for one in logs if one.dagster_event is not None]
    if not any(event.event_type is dg.DagsterEventType.STEP_START for event in events):
        return STAGES[0].name, ["it ended before its first step"], {}
    said = {entry.message.partition(":")[0] for entry in logs}
    begun = [stage.name for stage in STAGES if stage.name in said]  # each says what it builds
    stage = begun[-1] if begun else STAGES[0].name
    for failed in (event.step_failure_data for event in events if event.is_step_failure):
        if failed.user_failure_data is not None:
            told = failed.user_failure_data.metadata
            return stage, ["it failed without a quarantine record"], told
        names, error = list[str](), failed.error
        while error is not None:
            names.append(error.cls_name or "an unknown error")
            error = error.cause
        return stage, names or ["an unknown error"], {}
    return stage, [KILLED], {}


def discovery_path(instance: dg.DagsterInstance, workspace: Workspace) -> Path:
    """Path of the table of discovery of these uploads."""
    return table_path(Path(instance.storage_directory()), workspace.uploads.url)


def claims_folder(instance: dg.DagsterInstance, workspace: Workspace) -> Path:
    """Where commands of this machine say which of these uploads they work on."""
    return discovery_path(instance, workspace).with_suffix("")


def open_table(instance: dg.DagsterInstance, workspace: Workspace) -> DiscoveryTable:
    """Open the table of discovery of these uploads, creating it if missing."""
    return DiscoveryTable.open(discovery_path(instance, workspace))


def note_results(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    results: Iterable[DemonstrationResult],
    listed: Mapping[str, str],
) -> None:
    """Note in the table of discovery which results of a command wait, and which do not any more.

    `listed`: demonstration → fingerprint of the upload that was processed.
    """
    done = {one.demonstration: one.status is Status.WAITING and one.reason for one in results}
    if not any(done.values()) and not discovery_path(instance, workspace).is_file():
        return
    with open_table(instance, workspace) as table:
        table.note_done(key for key, reason in done.items() if not reason)
        for key, reason in done.items():
            if reason:
                names, _ = folder_files(workspace.uploads.objects, key)
                table.note_waiting(key, names, listed[key], reason)


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
