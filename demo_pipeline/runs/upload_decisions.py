"""The rules of discovery: what an observation of an upload changes, and which run follows from it.

Belongs here: pure functions, the values they work on, and the questions that are asked about runs.
Times are seconds of the ledger's own clock. The modification time that storage reports is only
compared for equality: another value means that a file was written again, even with the same bytes;
it never tells when.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.failures import MAX_LOST_RUNS, retry_pause
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.objects import ObjectInfo
from demo_pipeline.store.uploads import listing_fingerprint


class RunOutcome(StrEnum):
    """How a run ended.

    `live`: it is queued or running, or it failed so recently that its quarantine record may follow.
    `ended`: with a result, or with a quarantine record.
    `superseded`: without a result, because the upload had changed.
    `lost`: cancelled, or dead without a quarantine record.
    `waiting`: stopped by something that passes by itself, such as a full disk.
    """

    LIVE = "live"
    ENDED = "ended"
    SUPERSEDED = "superseded"
    LOST = "lost"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that was launched for a demonstration.

    Attributes:
        fingerprint: of the upload it was launched for, 64 hex.
        outcome: how it ended.
        lost: how many runs for this fingerprint were lost; only counted when this run was.
        waits: how many runs in a row ended waiting, this one included.
        reason: what a waiting run waits for, in plain words.
    """

    fingerprint: str
    outcome: RunOutcome = RunOutcome.LIVE
    lost: int = 0
    waits: int = 0
    reason: str = ""

    @property
    def superseded(self) -> bool:
        """Whether it ended without a result because the upload had changed."""
        return self.outcome is RunOutcome.SUPERSEDED

    @property
    def should_retry(self) -> bool:
        """Whether it was lost, and fewer than `MAX_LOST_RUNS` were."""
        return self.outcome is RunOutcome.LOST and self.lost < MAX_LOST_RUNS

    @property
    def retry_after(self) -> float | None:
        """Seconds from its end to the next run for the same upload; None when none follows."""
        if self.outcome is RunOutcome.WAITING:
            return retry_pause(self.waits)
        return 0.0 if self.should_retry else None


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Ids whose runs were cancelled or failed, and the token to continue from."""

    ids: tuple[str, ...]
    token: str | None


class RunHistory(Protocol):
    """The runs that were ever launched. It outlives the ledger."""

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the field's word
        """The last run launched for this id; None when no run was."""
        ...

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """How many runs were launched for this id and fingerprint."""
        ...

    def has_run(self, run_key: str) -> bool:
        """Whether a run with this key was launched."""
        ...

    def recent_waits(self) -> int:
        """How many runs ended waiting within the last hour."""
        ...

    def ended(self, token: str | None) -> EndedRuns:
        """Runs cancelled or failed since `token`; those that may still change are repeated."""
        ...


SUPERSEDED_REASON = RunOutcome.SUPERSEDED.value
"""A requested rerun with this reason asks for another poll, not for a run."""
_MAX_WAIT = 10  # times `stable_seconds`: the longest time between polls of an incomplete upload


class ObservedFile(NamedTuple):
    """A file of an upload as it is compared; `modified` is cut to whole epoch seconds."""

    name: str
    etag: str
    size: int
    modified: int


class UploadState(StrEnum):
    """State of an upload.

    `pending`: incomplete, or not yet stable.
    `requested`: complete; a run is requested and not yet launched.
    `accepted`: a run was launched for the present files.
    `gone`: no longer in the uploads.
    """

    PENDING = "pending"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Request:
    """A run to launch. Equal uploads have equal keys, so that a repeated request launches once.

    Attributes:
        id: the demonstration, which is the partition.
        run_key: `id@fingerprint[:16]`, with `#n` when runs with the keys before were launched.
        fingerprint: of the upload, 64 hex.
        reason: `new`, `changed`, `superseded`, `lost`, `waiting` or the reason of a requested
            rerun.
    """

    id: str
    run_key: str
    fingerprint: str
    reason: str


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """What the ledger knows about one folder of the uploads.

    Attributes:
        name: the folder's own name.
        id: safe id; several names may have the same.
        state: see `UploadState`.
        files: those of `RECORDING_FILES` that the last poll found.
        fingerprint: of those files when they are complete, else None.
        since: when that fingerprint was first observed; no file was written since.
        changed: when the files were last observed to differ.
        run_key: of the run that was requested for the fingerprint.
        accepted: fingerprint that the last known run was launched for.
        missing: number of consecutive sweeps in which the folder was empty or missing.
        missing_sweep: the last of those.
        due: when to poll again; None: not before a listing shows a difference.
    """

    name: str
    id: str
    state: UploadState = UploadState.PENDING
    files: tuple[ObservedFile, ...] = ()
    fingerprint: str | None = None
    since: float = 0.0
    changed: float = 0.0
    run_key: str | None = None
    accepted: str | None = None
    missing: int = 0
    missing_sweep: int = -1
    due: float | None = 0.0


@dataclass(frozen=True, slots=True)
class UploadObservation:
    """What a poll of one folder found.

    Attributes:
        files: those of `RECORDING_FILES` in the folder, sorted.
        present: whether the folder holds anything at all.
        marked: whether it holds the marker of completeness.
        began: when the poll began.
        ended: when it ended.
    """

    files: tuple[ObservedFile, ...]
    present: bool
    marked: bool
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class LedgerClock:
    """The ledger's time, which never runs backwards.

    Attributes:
        time: the ledger's seconds.
        wall: the machine's clock at that time, epoch seconds.
        debt: seconds by which the machine's clock was set back and not yet forward again.
    """

    time: float
    wall: float
    debt: float = 0.0


def advance_clock(clock: LedgerClock, now: float) -> LedgerClock:
    """The clock at machine time `now`; a machine clock set back and forth adds nothing."""
    passed = now - clock.wall
    if passed < 0:
        return LedgerClock(clock.time, now, clock.debt - passed)
    if clock.debt and passed >= clock.debt:
        return LedgerClock(clock.time + passed - clock.debt, now)
    return LedgerClock(clock.time + passed, now, clock.debt)


def observed_file(name: str, info: ObjectInfo) -> ObservedFile:
    """A file as it is compared; listings give fractions of a second that a HEAD does not."""
    return ObservedFile(name, info.etag, info.size, int(info.modified))


def fingerprint_of(files: Iterable[ObservedFile]) -> str | None:
    """The fingerprint of a complete upload, None while a file is missing."""
    listed = [(name, etag, size) for name, etag, size, _ in files if name in RECORDING_FILES]
    return listing_fingerprint(listed) if len(listed) == len(RECORDING_FILES) else None


def apply_observation(
    record: UploadRecord, observation: UploadObservation, sweep: int, settings: DiscoverySettings
) -> UploadRecord:
    """The record after a poll; it stays accepted or requested only if nothing changed.

    Args:
        record: what was known.
        observation: what the poll found.
        sweep: number of the current sweep, so that two absences count in two different sweeps.
        settings: thresholds.
    """
    same = observation.files == record.files
    changed = record.changed if same else observation.ended
    record = replace(record, files=observation.files, changed=changed)
    if not observation.present:
        return _absent(record, observation, sweep, settings)
    record = replace(record, missing=0, missing_sweep=-1)
    fingerprint = fingerprint_of(observation.files)
    if fingerprint is None:
        return _incomplete(record, observation, settings)
    if same and fingerprint == record.fingerprint:
        return record
    return replace(
        record,
        state=UploadState.PENDING,
        fingerprint=fingerprint,
        since=observation.ended,
        run_key=None,
        due=observation.ended + settings.stable_seconds,
    )


def is_complete(
    record: UploadRecord,
    observation: UploadObservation,
    launched_before: bool,
    stable_seconds: float,
) -> bool:
    """Whether an upload with all its files may be processed: stable long enough, or marked.

    A marker counts for the first upload only: after a later upload it may still be the old marker.
    """
    if observation.marked and not launched_before:
        return True
    return not stable_seconds or observation.began - record.since >= stable_seconds


def reason_to_run(record: UploadRecord, last: Launch | None, rerun: str | None) -> str | None:
    """Why a complete upload needs a run; None when the last run was for it and was not lost.

    Args:
        record: the upload.
        last: the last run launched for it.
        rerun: reason of a requested rerun.
    """
    if rerun is not None:
        return rerun
    if last is None:
        return None if record.accepted == record.fingerprint else "new"
    if last.fingerprint != record.fingerprint:
        return "changed"
    again = last.superseded or last.retry_after is not None
    return last.outcome.value if again else None


def next_run_key(history: RunHistory, record: UploadRecord, fingerprint: str) -> str:
    """The key of the next run; it stays the same until that run is launched."""
    if record.state is UploadState.REQUESTED and record.run_key is not None:
        return record.run_key
    before = history.times(record.id, fingerprint)
    while history.has_run(key := _run_key(record.id, fingerprint, before)):
        before += 1
    return key


def accept(record: UploadRecord) -> UploadRecord:
    """The record after a run was launched for the present files."""
    return replace(
        record, state=UploadState.ACCEPTED, accepted=record.fingerprint, run_key=None, due=None
    )


def restart_wait(record: UploadRecord, time: float) -> UploadRecord:
    """The record as if its files had just changed: it has to be stable again before a run."""
    return replace(record, state=UploadState.PENDING, fingerprint=None, run_key=None, due=time)


def _run_key(demonstration: str, fingerprint: str, before: int) -> str:
    return f"{demonstration}@{fingerprint[:16]}" + (f"#{before}" if before else "")


def _incomplete(
    record: UploadRecord, observation: UploadObservation, settings: DiscoverySettings
) -> UploadRecord:
    """Poll again after half the time since the last change: an active upload in every tick."""
    wait = min((observation.ended - record.changed) / 2, _MAX_WAIT * settings.stable_seconds)
    due = observation.ended + wait
    return replace(record, state=UploadState.PENDING, fingerprint=None, run_key=None, due=due)


def _absent(
    record: UploadRecord, observation: UploadObservation, sweep: int, settings: DiscoverySettings
) -> UploadRecord:
    if sweep != record.missing_sweep:
        record = replace(record, missing=record.missing + 1, missing_sweep=sweep)
    record = _incomplete(record, observation, settings)
    return replace(record, state=UploadState.GONE, due=None) if record.missing >= 2 else record
