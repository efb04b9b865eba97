"""What is decided about one upload, from what was known of it and what was seen just now.

Belongs here: pure functions and the values they work on. Times are seconds of the ledger's own
clock. A time that the other side reports is only ever compared for being another one than before:
it tells that a file was written again, also when its bytes are what they were, never when.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from demo_pipeline.discovery.launched import Launch, Launched, Outcome
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.demonstrations import FILES
from demo_pipeline.storage.fingerprint import listing_fingerprint
from demo_pipeline.storage.objects import ObjectInfo

SUPERSEDED = Outcome.SUPERSEDED.value  # a wish with this reason asks to look again, not for a run
_PATIENCE = 10  # an abandoned upload is still looked at every so many quiet times

File = tuple[str, str, int, int]  # name, ETag, bytes, whole seconds of `modified`


class State(StrEnum):
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
class Entry:
    """What is known of one folder of the uploads.

    Attributes:
        name: the folder's own name.
        id: safe id; several names may meet on one.
        state: see `State`.
        files: of `FILES`, those there when the folder was last looked at.
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
    state: State = State.PENDING
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
class Sight:
    """One look at one folder.

    Attributes:
        files: of `FILES`, those there, sorted.
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
class Clock:
    """The ledger's time, which never runs backwards.

    Attributes:
        time: the ledger's seconds.
        wall: what the machine's clock said then, epoch seconds.
        debt: by how much the machine's clock was set back and not yet forward again, seconds.
    """

    time: float
    wall: float
    debt: float = 0.0


def advance(clock: Clock, now: float) -> Clock:
    """The clock at machine time `now`; a jump back, and its undoing, count as no time at all."""
    passed = now - clock.wall
    if passed < 0:
        return Clock(clock.time, now, clock.debt - passed)
    if clock.debt and passed >= clock.debt:
        return Clock(clock.time + passed - clock.debt, now)
    return Clock(clock.time + passed, now, clock.debt)


def described(name: str, info: ObjectInfo) -> File:
    """A file as it is compared; listings give fractions of a second that a HEAD does not."""
    return name, info.etag, info.size, int(info.modified)


def fingerprint_of(files: Iterable[File]) -> str | None:
    """The fingerprint of an upload with all its files, None while some are missing."""
    listed = [(name, etag, size) for name, etag, size, _ in files if name in FILES]
    return listing_fingerprint(listed) if len(listed) == len(FILES) else None


def observe(entry: Entry, sight: Sight, sweep: int, settings: DiscoverySettings) -> Entry:
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
        state=State.PENDING,
        fingerprint=fingerprint,
        since=sight.ended,
        run_key=None,
        due=sight.ended + settings.quiet_seconds,
    )


def is_complete(entry: Entry, sight: Sight, launched_before: bool, quiet_seconds: float) -> bool:
    """Whether an upload with all its files may be taken: quiet long enough, or marked.

    A marker speaks for the first upload only: beside a later one it may be the first one's.
    """
    if sight.marked and not launched_before:
        return True
    return not quiet_seconds or sight.began - entry.since >= quiet_seconds


def reason_to_run(entry: Entry, last: Launch | None, wish: str | None) -> str | None:
    """Why a complete upload needs a run; None when the last run was for it, and not lost."""
    if wish is not None:
        return wish
    if last is None:
        return None if entry.accepted == entry.fingerprint else "new"
    if last.fingerprint != entry.fingerprint:
        return "changed"
    return last.outcome.value if last.superseded or last.made_up_for else None


def next_run_key(launched: Launched, entry: Entry, fingerprint: str) -> str:
    """The key of a run that is not launched yet; the same until it is."""
    if entry.state is State.REQUESTED and entry.run_key is not None:
        return entry.run_key
    before = launched.times(entry.id, fingerprint)
    while launched.has_run(key := _run_key(entry.id, fingerprint, before)):
        before += 1
    return key


def accept(entry: Entry) -> Entry:
    """A run was launched for what lies there."""
    return replace(entry, state=State.ACCEPTED, accepted=entry.fingerprint, run_key=None, due=None)


def look_again(entry: Entry, time: float) -> Entry:
    """As if its files had only just been seen to change."""
    return replace(entry, state=State.PENDING, fingerprint=None, run_key=None, due=time)


def _run_key(demonstration: str, fingerprint: str, before: int) -> str:
    return f"{demonstration}@{fingerprint[:16]}" + (f"#{before}" if before else "")


def _incomplete(entry: Entry, sight: Sight, settings: DiscoverySettings) -> Entry:
    """Waits half as long as nothing has happened: an upload under way is looked at every time."""
    wait = min((sight.ended - entry.changed) / 2, _PATIENCE * settings.quiet_seconds)
    due = sight.ended + wait
    return replace(entry, state=State.PENDING, fingerprint=None, run_key=None, due=due)


def _absent(entry: Entry, sight: Sight, sweep: int, settings: DiscoverySettings) -> Entry:
    if sweep != entry.missing_sweep:
        entry = replace(entry, missing=entry.missing + 1, missing_sweep=sweep)
    entry = _incomplete(entry, sight, settings)
    return replace(entry, state=State.GONE, due=None) if entry.missing >= 2 else entry
