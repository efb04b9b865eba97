"""Discovery: which uploads are complete, changed or gone, and which runs they need.

Belongs here: the rules, as pure functions, and one tick, bounded in time and safe to interrupt
between any two of its steps. Only a poll of a single folder decides what happens to an upload; a
page of a listing only marks folders as due. Nothing is launched here: a request that is not
launched is repeated, with the same key. The modification time that storage reports is only compared
for equality: another value means that a file was written again; it never tells when.
"""

import json
import logging
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import NamedTuple, Protocol

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery_table import (
    DiscoveryTable,
    ObservedFile,
    Position,
    Upload,
    UploadState,
)
from demo_pipeline.runs.failures import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MAX_LOST_RUNS,
    RETRIES_PER_HOUR,
    retry_pause,
)
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import printable_name, safe_id
from demo_pipeline.store.objects import ObjectInfo, Objects, Page
from demo_pipeline.store.uploads import listing_fingerprint

_LOG = logging.getLogger(__package__)
_MAX_WAIT = 10  # times `stable_seconds`: the longest time between polls of an incomplete upload
_MAX_REFUSALS = 3  # of one token; then it counts as expired and the listing starts again
_ERROR_WAIT_SECONDS = 30.0  # before a folder with an error is polled again, at least
_CONFIRMING, _LISTING = 0.2, 0.6  # shares of `seconds_per_tick` after which these end


class RunOutcome(StrEnum):
    """How a run ended for an upload.

    `superseded`: without a result, as the upload had changed. `lost`: cancelled or dead, though the
    store may hold a result. `waiting`: stopped by something that passes.
    """

    DONE = "done"
    SUPERSEDED = "superseded"
    LOST = "lost"
    WAITING = "waiting"


class Ending(NamedTuple):
    """How a run ended, and what a waiting one waits for, in plain words."""

    outcome: RunOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The id of a run that ended, and how: for each of its `members`, and for all others.

    With a `successor`, which repeats it, nothing has ended yet.
    """

    run: str
    ending: Ending
    members: Mapping[str, Ending] = field(default_factory=dict)
    successor: str | None = None


class Runs(Protocol):
    """What discovery asks about runs, and about what they left in the store."""

    @property
    def claimed(self) -> Collection[str]:
        """Ids that a command of this machine works on."""

    def launched(self, run_key: str) -> str | None:
        """Id of the newest run with this key."""

    def live(self, demonstration: str) -> tuple[str, str | None] | None:
        """Id of the newest run, if it is under way, and the fingerprint that it is for."""

    def ended(self, runs: Sequence[str]) -> Iterable[EndedRun]:
        """Those of these runs that ended, or were deleted."""

    def settled(self, demonstration: str, fingerprint: str) -> bool:
        """Whether the store has outputs or a quarantine record of this upload."""

    def recent_waits(self) -> int:
        """How many runs ended waiting within the last hour."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run to launch for a demonstration and the fingerprint of its upload; see `Upload.cause`.

    Equal uploads have equal keys, so that a repeated request launches once: `id@fingerprint[:16]`,
    with `#n` when runs with the keys before were launched.
    """

    id: str
    run_key: str
    fingerprint: str
    reason: str


@dataclass(frozen=True, slots=True)
class UploadObservation:
    """What a poll of one folder found: its `RECORDING_FILES`, anything at all, and the marker."""

    files: tuple[ObservedFile, ...]
    present: bool
    marked: bool
    began: float
    ended: float


def observed_file(name: str, info: ObjectInfo) -> ObservedFile:
    """A file as it is compared; listings give fractions of a second that a HEAD does not."""
    return ObservedFile(name, info.etag, info.size, int(info.modified))


def fingerprint_of(files: Iterable[ObservedFile]) -> str | None:
    """The fingerprint of a complete upload, None while a file is missing."""
    listed = [(name, etag, size) for name, etag, size, _ in files if name in RECORDING_FILES]
    return listing_fingerprint(listed) if len(listed) == len(RECORDING_FILES) else None


def advance(position: Position | None, now: float) -> Position:
    """The position at machine time `now`; a machine clock set back and forth adds no time."""
    if position is None:
        return Position(now, now)
    passed = now - position.wall
    debt = position.debt - min(passed, 0.0)
    passed = max(passed, 0.0)
    if debt and passed >= debt:
        passed, debt = passed - debt, 0.0
    return replace(position, time=position.time + passed, wall=now, debt=debt)


def observe(upload: Upload, seen: UploadObservation, settings: DiscoverySettings) -> Upload:
    """The row after a poll; it stays accepted or requested only if nothing changed.

    An upload is gone when a second poll, after another listing that lacks it, finds nothing.
    """
    same = seen.files == upload.files
    fingerprint = fingerprint_of(seen.files)
    if same and fingerprint is not None and fingerprint == upload.fingerprint:
        return upload
    if not seen.present and not upload.files:
        return replace(upload, state=UploadState.GONE, fingerprint=None, run_key=None, due=None)
    since = upload.since if same and fingerprint is None else seen.ended
    if fingerprint is not None:
        due: float | None = seen.ended + settings.stable_seconds
    elif not seen.present:
        due = None
    else:  # again after half the time since the last change: an active upload in every tick
        wait = min((seen.ended - since) / 2, _MAX_WAIT * settings.stable_seconds)
        due = seen.ended + wait
    return replace(
        upload,
        state=UploadState.PENDING,
        files=seen.files,
        fingerprint=fingerprint,
        since=since,
        run_key=None,
        due=due,
    )


def is_complete(upload: Upload, seen: UploadObservation, stable_seconds: float) -> bool:
    """Whether an upload with all its files may be processed: stable long enough, or marked.

    A marker counts for the first upload only: after a later upload it may still be the old marker.
    """
    if seen.marked and upload.accepted is None:
        return True
    return not stable_seconds or seen.began - upload.since >= stable_seconds


def end(upload: Upload, ending: Ending, time: float) -> Upload:
    """The row after its run ended; due when another run may have to follow."""
    cause = ending.outcome
    if cause is RunOutcome.DONE:
        return replace(upload, run=None, cause="", reason="", attempts=0)
    attempts = 1 + (upload.attempts if upload.cause == cause else 0)
    ended = replace(upload, run=None, cause=cause, reason=ending.reason, attempts=attempts)
    if upload.state is not UploadState.ACCEPTED or upload.accepted != upload.fingerprint:
        return ended  # its files changed meanwhile
    if cause is RunOutcome.SUPERSEDED:  # as if its files had just changed
        return replace(ended, state=UploadState.PENDING, fingerprint=None, due=time)
    pause = retry_pause(attempts) if cause is RunOutcome.WAITING else 0.0
    return replace(ended, due=time + pause)


def accept(upload: Upload, run: str | None = None) -> Upload:
    """The row of an upload that needs no run, or for which a run is under way."""
    return replace(
        upload,
        state=UploadState.ACCEPTED,
        accepted=upload.fingerprint,
        run_key=None,
        run=run,
        due=None,
    )


def reason_to_run(upload: Upload) -> str:
    """Why a complete upload may need a run; empty when its row tells that it needs none."""
    if upload.accepted is None:
        return "new"
    if upload.accepted != upload.fingerprint:
        return "changed"
    return "" if upload.run is not None else upload.cause


def is_given_up(upload: Upload) -> bool:
    """Whether so many runs for an upload were lost that no other follows."""
    lost = upload.run is None and upload.cause == RunOutcome.LOST
    return lost and upload.accepted == upload.fingerprint and upload.attempts >= MAX_LOST_RUNS


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick: runs to launch, at most one per id, and how far it is.

    Ids that several folders have are in `collisions`, with the folders' names, and not requested.
    `sweep`: number of completed sweeps over all objects; `errors`: messages of storage errors, in
    order; later ticks try again.
    """

    requests: tuple[Request, ...]
    collisions: dict[str, tuple[str, ...]]
    states: dict[UploadState, int]
    sweep: int
    pages: int
    polls: int
    errors: tuple[str, ...]

    @property
    def cursor(self) -> str:
        """Counts as JSON, under 1 KB, for people; nothing is read back from it."""
        counts = {state.value: count for state, count in self.states.items()}
        return json.dumps({**counts, "sweep": self.sweep}, sort_keys=True)


def tick(  # noqa: PLR0917 - what a tick needs, in the order of its steps
    objects: Objects,
    table: DiscoveryTable,
    runs: Runs,
    now: float,
    settings: DiscoverySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Tick:
    """Find new, changed and vanished uploads, and the runs to launch for them.

    The table is kept between ticks; an empty one is filled again. `now`: epoch seconds by this
    machine's clock, which may jump; `clock`: in seconds, for the bound on a tick's time.

    Raises:
        StorageError: the table cannot be used; errors of the uploads' storage are in `Tick.errors`.
    """
    try:
        position = advance(table.position(), now)
        with table.transaction():
            table.set_position(position)
            table.mark_wished_due(position.time)
        return _Tick(objects, table, runs, settings, position, clock).run()
    except sqlite3.Error as error:
        raise StorageError(
            f"the table of uploads cannot be used: {error}; check its disk"
        ) from None


class _Tick:
    """The steps of one tick over the same things."""

    def __init__(  # noqa: PLR0917 - see `tick`
        self,
        objects: Objects,
        table: DiscoveryTable,
        runs: Runs,
        settings: DiscoverySettings,
        position: Position,
        clock: Callable[[], float],
    ) -> None:
        self._objects, self._table, self._runs, self._settings = objects, table, runs, settings
        self._position, self._start = position, position.time
        self._clock, self._begun = clock, clock()
        self._errors: list[str] = []
        self._requests: list[Request] = []
        self._polls = 0
        self._retries: int | None = None  # still allowed in this hour; counted when needed

    def run(self) -> Tick:
        """All steps, in order."""
        self._confirm_launched()
        self._end_runs()
        pages = self._sweep()
        collisions = self._table.collisions()
        for complete in (True, False):
            left = max(1, self._settings.polls_per_tick - self._polls)
            due = self._table.due(self._start, left, complete=complete)
            self._poll_each(due, collisions.keys())
        shown = {key: tuple(map(printable_name, names)) for key, names in collisions.items()}
        return Tick(
            requests=tuple(self._requests),
            collisions=shown,
            states=self._table.counts(),
            sweep=self._position.sweep,
            pages=pages,
            polls=self._polls,
            errors=tuple(self._errors),
        )

    def _spent(self) -> float:
        return max(0.0, self._clock() - self._begun)

    def _time(self) -> float:
        return self._start + self._spent()

    def _confirm_launched(self) -> None:
        """Accept those whose requested run was launched; the others stay requested."""
        until = _CONFIRMING * self._settings.seconds_per_tick
        for done, upload in enumerate(self._table.requested(self._settings.polls_per_tick)):
            if done and self._spent() >= until:
                return
            with self._own_trouble(upload):
                run = self._runs.launched(upload.run_key or "")
                if run is not None:
                    with self._table.transaction():
                        self._table.save([accept(upload, run)])

    def _end_runs(self) -> None:
        """Take in how runs ended since the last tick."""
        for ended in self._runs.ended(self._table.runs()):
            uploads = self._table.of_run(ended.run)
            with self._table.transaction():
                self._table.save(
                    replace(upload, run=ended.successor)
                    if ended.successor
                    else end(upload, ended.members.get(upload.id, ended.ending), self._start)
                    for upload in uploads
                )

    def _sweep(self) -> int:
        """Read some pages of all objects; its end marks what it did not see as due."""
        pages, until = self._settings.pages_per_tick, _LISTING * self._settings.seconds_per_tick
        for used in range(pages):
            if used and self._spent() >= until:
                return used
            try:
                page = self._objects.list_page("", self._position.token)
            except StorageError as error:
                self._errors.append(str(error))
                at = self._position
                if at.refusals + 1 < _MAX_REFUSALS:
                    self._go_on_from(replace(at, refusals=at.refusals + 1))
                else:
                    self._go_on_from(replace(at, token=None, sweep=at.sweep + 1, refusals=0))
                return used + 1
            with self._table.transaction():
                self._store_page(page)
                sweep = self._position.sweep + (page.token is None)
                self._go_on_from(replace(self._position, token=page.token, sweep=sweep, refusals=0))
            if page.token is None:
                return used + 1
        return pages

    def _go_on_from(self, position: Position) -> None:
        self._position = position
        self._table.set_position(position)

    def _store_page(self, page: Page) -> None:
        folders: dict[str, list[ObservedFile]] = defaultdict(list)
        for info in page.objects:
            name, slash, rest = info.key.partition("/")
            if slash and name and not name.startswith("."):
                folders[name] += [observed_file(rest, info)] if rest in RECORDING_FILES else []
        known = self._table.named(list(folders))
        self._table.save(_listed(folders, known, self._start))
        counts = ((name, len(files)) for name, files in folders.items())
        self._table.mark_seen(self._position.sweep, counts)
        if page.token is None:
            self._table.mark_unseen_due(self._position.sweep, self._start)

    def _poll_each(self, due: Sequence[Upload], colliding: Collection[str]) -> None:
        for done, upload in enumerate(due):
            full = len(self._requests) >= self._settings.requests_per_tick
            late = done > 0 and self._spent() >= self._settings.seconds_per_tick
            if late or (full and upload.fingerprint):
                return
            self._polls += 1
            with self._own_trouble(upload):
                self._poll(upload, colliding, full=full)

    @contextmanager
    def _own_trouble(self, upload: Upload) -> Iterator[None]:
        """Report trouble with one folder, in words of ours or of the system; poll it later."""
        try:
            yield
        except sqlite3.Error:  # of the table, which all of them need
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this folder's alone
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number else type(error).__name__
            said = str(error) if isinstance(error, StorageError) else f"{upload.id}: {why}"
            self._errors.append(said)
            wait = max(self._settings.stable_seconds, _ERROR_WAIT_SECONDS)
            self._table.save([replace(upload, due=self._time() + wait)])

    def _observation(self, name: str) -> UploadObservation:
        """What one folder holds, by one request unless it holds more than a page."""
        began, marker, prefix = self._time(), self._settings.complete_marker, f"{name}/"
        page = self._objects.list_page(prefix)
        infos = {info.key.removeprefix(prefix): info for info in page.objects}
        if page.token is not None:
            names = sorted({*RECORDING_FILES, marker} - {""})
            heads = {file: self._objects.head(f"{prefix}{file}") for file in names}
            infos = {file: info for file, info in heads.items() if info is not None}
        present = bool(page.objects or page.token or infos)
        files = tuple(observed_file(file, infos[file]) for file in RECORDING_FILES if file in infos)
        return UploadObservation(files, present, marker in infos, began, self._time())

    def _poll(self, before: Upload, colliding: Collection[str], *, full: bool) -> None:
        seen = self._observation(before.name)
        upload = observe(before, seen, self._settings)
        files = (len(seen.files), len(RECORDING_FILES))
        _LOG.debug("%s: %d of %d files, %s", upload.id, *files, upload.state.value)
        wait = self._settings.stable_seconds
        if upload.fingerprint is None:
            with self._table.transaction():
                self._table.save([upload])
                if upload.state is UploadState.GONE:
                    self._table.clear_wish(upload.id)
        elif upload.id in colliding or upload.id in self._runs.claimed:
            accepted = upload.state is UploadState.ACCEPTED and upload.id in colliding
            self._table.save([replace(upload, due=None if accepted else seen.ended + wait)])
        elif full or not is_complete(upload, seen, wait):
            self._table.save([replace(upload, due=upload.since + wait)])
        else:
            self._decide(upload, upload.fingerprint, seen.ended)

    def _decide(self, upload: Upload, fingerprint: str, time: float) -> None:
        """Request a run for a complete upload, or note that it needs none."""
        reason = upload.wish or reason_to_run(upload)
        later = time + self._settings.stable_seconds
        if upload.state is UploadState.REQUESTED:  # it was not launched yet
            self._request(upload, fingerprint, upload.cause, time)
        elif upload.wish:
            self._request(upload, fingerprint, upload.wish, time)
        elif not reason:
            self._table.save([accept(upload, upload.run)])
        elif (live := self._runs.live(upload.id)) is not None and live[1] in {None, fingerprint}:
            known = live[1] is not None  # which upload a person's run reads is seen in the store
            self._table.save([accept(upload, live[0]) if known else replace(upload, due=later)])
        elif live is None and self._runs.settled(upload.id, fingerprint):
            self._table.save([replace(accept(upload), cause="", reason="", attempts=0)])
        elif is_given_up(upload):  # unless a person has it processed
            self._table.save([replace(accept(upload), due=time + LONGEST_PAUSE_SECONDS)])
        elif reason == RunOutcome.WAITING and not self._may_retry():
            self._table.save([replace(upload, due=time + FIRST_PAUSE_SECONDS)])
        else:
            self._request(upload, fingerprint, reason, time)

    def _request(self, upload: Upload, fingerprint: str, reason: str, time: float) -> None:
        key = upload.run_key
        numbers = count(upload.attempts if upload.accepted == fingerprint else 0)
        while key is None:  # the first that no run has
            number = next(numbers)
            wanted = f"{upload.id}@{fingerprint[:16]}{f'#{number}' if number else ''}"
            key = None if self._runs.launched(wanted) else wanted
        requested = replace(
            upload,
            state=UploadState.REQUESTED,
            cause=reason,
            attempts=upload.attempts if reason == upload.cause else 0,
            run_key=key,
            run=None,
            due=time,
        )
        with self._table.transaction():
            self._table.save([requested])
            if reason == upload.wish:
                self._table.clear_wish(upload.id)
        self._requests.append(Request(upload.id, key, fingerprint, reason))
        _LOG.info("%s: a run is requested: %s", upload.id, reason)

    def _may_retry(self) -> bool:
        """Whether another run that had to wait may be tried in this hour."""
        if self._retries is None:
            self._retries = RETRIES_PER_HOUR - self._runs.recent_waits()
        self._retries -= 1
        return self._retries >= 0


def _listed(
    folders: Mapping[str, Sequence[ObservedFile]], known: Mapping[str, Upload], time: float
) -> Iterator[Upload]:
    """The rows that a page of a listing changes: new and returned folders, and changed ones."""
    for name, files in folders.items():
        upload = known.get(name)
        if upload is None:
            yield Upload(name, safe_id(name), since=time, due=time)
        elif upload.state is UploadState.GONE:
            yield replace(upload, state=UploadState.PENDING, due=time)
        elif any(file not in upload.files for file in files):
            soon = time if upload.due is None else min(upload.due, time)
            pending = upload.state is UploadState.PENDING  # it was stable and is no longer
            yield replace(upload, due=soon, fingerprint=None if pending else upload.fingerprint)
