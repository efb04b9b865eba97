"""What is decided about one upload, from what was known of it and what was seen just now.

Belongs here: pure functions and the values they work on. Times are seconds of the ledger's own
clock. A time that the other side reports is only ever compared for being another one than before:
it tells that a file was written again, also when its bytes are what they were, never when.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from demo_pipeline.discovery.run_history import Launch, RunHistory, RunOutcome
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.objects.object_store import ObjectInfo
from demo_pipeline.storage.uploads.fingerprint import listing_fingerprint
from demo_pipeline.storage.uploads.upload_listing import UPLOAD_FILES

SUPERSEDED_REASON = (
    RunOutcome.SUPERSEDED.value
)  # a wish with this reason asks to look again, not for a run
_PATIENCE = 10  # an abandoned upload is still looked at every so many quiet times

File = tuple[str, str, int, int]  # name, ETag, bytes, whole seconds of `modified`


class UploadState(StrEnum):
    """Where a demonstration stands. `accepted`: a run was launched for what lies there."""

    PENDING = "pending"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Request:
    """A run to launch. The same upload has the same key, so that asking twice launches once.

    Attributes:
        id: the demonstration, which is the partition.
        run_key: `id@fingerprint[:16]`, and `#n` when a run with that key is not to be the last.
        fingerprint: of the upload, 64 hex.
        reason: `new`, `changed`, `superseded`, `lost` or a wish's.
    """

    id: str
    run_key: str
    fingerprint: str
    reason: str


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """What is known of one folder of the uploads.

    Attributes:
        name: the folder's own name.
        id: safe id; several names may meet on one.
        state: see `UploadState`.
        files: of `UPLOAD_FILES`, those there when the folder was last looked at.
        fingerprint: of those files when they were all there, else None.
        since: when that fingerprint was first seen and no file was written since.
        changed: when the files were last seen to differ.
        run_key: of the run that was requested for the fingerprint.
        accepted: fingerprint that the last known run was launched for.
        missing: in how many sweeps in a row nothing was there.
        missing_sweep: the last of those.
        due: when to look again; None: not before a listing shows a difference.
    """

    name: str
    id: str
    state: UploadState = UploadState.PENDING
    files: tuple[File, ...] = ()
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
    """One look at one folder.

    Attributes:
        files: of `UPLOAD_FILES`, those there, sorted.
        present: whether anything at all was there.
        marked: whether the marker of completeness was.
        began: just before the look.
        ended: just after it.
    """

    files: tuple[File, ...]
    present: bool
    marked: bool
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class LedgerClock:
    """The ledger's time, which never runs backwards.

    Attributes:
        time: the ledger's seconds.
        wall: what the machine's clock said then, epoch seconds.
        debt: by how much the machine's clock was set back and not yet forward again, seconds.
    """

    time: float
    wall: float
    debt: float = 0.0


def advance(clock: LedgerClock, now: float) -> LedgerClock:
    """The clock at machine time `now`; a jump back, and its undoing, count as no time at all."""
    passed = now - clock.wall
    if passed < 0:
        return LedgerClock(clock.time, now, clock.debt - passed)
    if clock.debt and passed >= clock.debt:
        return LedgerClock(clock.time + passed - clock.debt, now)
    return LedgerClock(clock.time + passed, now, clock.debt)


def described(name: str, info: ObjectInfo) -> File:
    """A file as it is compared; listings give fractions of a second that a HEAD does not."""
    return name, info.etag, info.size, int(info.modified)


def fingerprint_of(files: Iterable[File]) -> str | None:
    """The fingerprint of an upload with all its files, None while some are missing."""
    listed = [(name, etag, size) for name, etag, size, _ in files if name in UPLOAD_FILES]
    return listing_fingerprint(listed) if len(listed) == len(UPLOAD_FILES) else None


def observe(
    entry: UploadRecord, sight: UploadObservation, sweep: int, settings: DiscoverySettings
) -> UploadRecord:
    """What is known after a look; it stays accepted or requested only if nothing changed.

    Args:
        entry: what was known.
        sight: the look.
        sweep: number of the sweep under way, so that two absences are two sweeps apart.
        settings: thresholds.
    """
    same = sight.files == entry.files
    entry = replace(entry, files=sight.files, changed=entry.changed if same else sight.ended)
    if not sight.present:
        return _absent(entry, sight, sweep, settings)
    entry = replace(entry, missing=0, missing_sweep=-1)
    fingerprint = fingerprint_of(sight.files)
    if fingerprint is None:
        return _incomplete(entry, sight, settings)
    if same and fingerprint == entry.fingerprint:
        return entry
    return replace(
        entry,
        state=UploadState.PENDING,
        fingerprint=fingerprint,
        since=sight.ended,
        run_key=None,
        due=sight.ended + settings.stable_seconds,
    )


def is_complete(
    entry: UploadRecord, sight: UploadObservation, launched_before: bool, stable_seconds: float
) -> bool:
    """Whether an upload with all its files may be taken: quiet long enough, or marked.

    A marker speaks for the first upload only: beside a later one it may be the first one's.
    """
    if sight.marked and not launched_before:
        return True
    return not stable_seconds or sight.began - entry.since >= stable_seconds


def reason_to_run(entry: UploadRecord, last: Launch | None, wish: str | None) -> str | None:
    """Why a complete upload needs a run; None when the last run was for it, and not lost."""
    if wish is not None:
        return wish
    if last is None:
        return None if entry.accepted == entry.fingerprint else "new"
    if last.fingerprint != entry.fingerprint:
        return "changed"
    return last.outcome.value if last.superseded or last.should_retry else None


def next_run_key(launched: RunHistory, entry: UploadRecord, fingerprint: str) -> str:
    """The key of a run that is not launched yet; the same until it is."""
    if entry.state is UploadState.REQUESTED and entry.run_key is not None:
        return entry.run_key
    before = launched.times(entry.id, fingerprint)
    while launched.has_run(key := _run_key(entry.id, fingerprint, before)):
        before += 1
    return key


def accept(entry: UploadRecord) -> UploadRecord:
    """A run was launched for what lies there."""
    return replace(
        entry, state=UploadState.ACCEPTED, accepted=entry.fingerprint, run_key=None, due=None
    )


def look_again(entry: UploadRecord, time: float) -> UploadRecord:
    """As if its files had only just been seen to change."""
    return replace(entry, state=UploadState.PENDING, fingerprint=None, run_key=None, due=time)


def _run_key(demonstration: str, fingerprint: str, before: int) -> str:
    return f"{demonstration}@{fingerprint[:16]}" + (f"#{before}" if before else "")


def _incomplete(
    entry: UploadRecord, sight: UploadObservation, settings: DiscoverySettings
) -> UploadRecord:
    """Waits half as long as nothing has happened: an upload under way is looked at every time."""
    wait = min((sight.ended - entry.changed) / 2, _PATIENCE * settings.stable_seconds)
    due = sight.ended + wait
    return replace(entry, state=UploadState.PENDING, fingerprint=None, run_key=None, due=due)


def _absent(
    entry: UploadRecord, sight: UploadObservation, sweep: int, settings: DiscoverySettings
) -> UploadRecord:
    if sweep != entry.missing_sweep:
        entry = replace(entry, missing=entry.missing + 1, missing_sweep=sweep)
    entry = _incomplete(entry, sight, settings)
    return replace(entry, state=UploadState.GONE, due=None) if entry.missing >= 2 else entry
