"""Discovery: which uploads are complete, changed or gone, and which runs they need.

Belongs here: one tick, bounded in time and safe to interrupt between any two of its steps. Only a
poll of a single folder decides what happens to an upload; a page of a listing only marks folders as
due. Nothing is launched here: a request that is not launched is repeated, with the same key.
"""

import json
import logging
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.failures import FIRST_PAUSE_SECONDS, RETRIES_PER_HOUR
from demo_pipeline.runs.ledger import Ledger, ListingCursor, ListingKind
from demo_pipeline.runs.upload_decisions import (
    Launch,
    ObservedFile,
    Request,
    RunHistory,
    RunOutcome,
    UploadObservation,
    UploadRecord,
    UploadState,
    accept,
    apply_observation,
    is_complete,
    next_run_key,
    observed_file,
    reason_to_run,
    restart_wait,
)
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import printable_name, safe_id
from demo_pipeline.store.objects import Objects, Page


class TickBudget:
    """Time within one tick.

    Args:
        start: the ledger's time when the tick began, seconds.
        clock: a clock in seconds; only differences are used.

    Attributes:
        start: see above.
        errors: messages of the storage errors, in order.
    """

    def __init__(self, start: float, clock: Callable[[], float]) -> None:
        self.start = start
        self.errors: list[str] = []
        self._clock, self._begun = clock, clock()

    def spent(self) -> float:
        """Seconds since the tick began."""
        return max(0.0, self._clock() - self._begun)

    def time(self) -> float:
        """The ledger's time now, seconds."""
        return self.start + self.spent()


_LOG = logging.getLogger(__package__)


def mark_lost_due(ledger: Ledger, history: RunHistory, budget: TickBudget) -> None:
    """Mark accepted uploads as due when their run was lost or has to wait since the last tick."""
    ended = history.ended(ledger.listing_cursor(ListingKind.ENDS).token)
    pauses = {key: _pause(history, key) for key in ledger.idle(ended.ids)}
    with ledger.transaction():
        for key, pause in pauses.items():
            if pause is not None:
                ledger.mark_due([key], budget.start + pause)
        ledger.set_listing_cursor(ListingKind.ENDS, ListingCursor(ended.token))


def _pause(history: RunHistory, demonstration: str) -> float | None:
    """Seconds until its next run; None when none follows.

    0 also when the history cannot be read now: the poll reads it again.
    """
    try:
        last = history.last(demonstration)
    except Exception as error:  # noqa: BLE001 - the others are examined whatever it is
        _LOG.debug("%s: its runs are read again later (%s)", demonstration, type(error).__name__)
        return 0.0
    return last.retry_after if last is not None else None


_MAX_REFUSALS = 3  # of one token; then it counts as expired and the listing starts again


def list_folders(
    objects: Objects, ledger: Ledger, budget: TickBudget, pages: int, until: float
) -> int:
    """Read some pages of folders.

    Args:
        objects: the uploads.
        ledger: what is known.
        budget: the tick's time.
        pages: the most pages to read.
        until: seconds of the tick after which only one page is read.

    Returns:
        How many pages were requested.
    """

    def store(page: Page, _: ListingCursor) -> None:
        names = sorted({prefix.rstrip("/") for prefix in page.prefixes})
        _store_names(ledger, [name for name in names if _is_visible(name)], budget.start)

    return _read_pages(
        ListingKind.FOLDERS,
        fetch=objects.list_prefixes,
        store=store,
        ledger=ledger,
        budget=budget,
        pages=pages,
        until=until,
    )


def sweep(objects: Objects, ledger: Ledger, budget: TickBudget, pages: int, until: float) -> int:
    """Read some pages of all objects; the end of a sweep marks what it did not see as due.

    Arguments and result are those of `list_folders`.
    """

    def store(page: Page, cursor: ListingCursor) -> None:
        _store_objects(ledger, page, cursor.number, budget.start)
        if page.token is None:
            ledger.mark_unseen_due(cursor.number, budget.start)

    return _read_pages(
        ListingKind.SWEEP,
        fetch=objects.list_page,
        store=store,
        ledger=ledger,
        budget=budget,
        pages=pages,
        until=until,
    )


def _read_pages(
    kind: ListingKind,
    *,
    fetch: Callable[[str, str | None], Page],
    store: Callable[[Page, ListingCursor], None],
    ledger: Ledger,
    budget: TickBudget,
    pages: int,
    until: float,
) -> int:
    for used in range(pages):
        if used and budget.spent() >= until:
            return used
        cursor = ledger.listing_cursor(kind)
        try:
            page = fetch("", cursor.token)
        except StorageError as error:
            budget.errors.append(str(error))
            ledger.set_listing_cursor(kind, _refused(cursor))
            return used + 1
        ended = page.token is None
        with ledger.transaction():
            store(page, cursor)
            ledger.set_listing_cursor(kind, ListingCursor(page.token, cursor.number + ended))
        if ended:
            return used + 1
    return pages


def _refused(cursor: ListingCursor) -> ListingCursor:
    failures = cursor.failures + 1
    if failures < _MAX_REFUSALS:
        return replace(cursor, failures=failures)
    return ListingCursor(None, cursor.number)


def _is_visible(name: str) -> bool:
    return name != "" and not name.startswith(".")


def _new(name: str, time: float) -> UploadRecord:
    return UploadRecord(name, safe_id(name), changed=time, due=time)


def _store_names(ledger: Ledger, names: list[str], time: float) -> dict[str, UploadRecord]:
    """Record new and returned folders; returns the records of all of them, by name."""
    known = ledger.records(names)
    returned = [
        record for record in known.values() if record.missing or record.state is UploadState.GONE
    ]
    written = [_new(name, time) for name in names if name not in known]
    written += [_returned(record, time) for record in returned]
    ledger.save(written)
    return known | {record.name: record for record in written}


def _store_objects(ledger: Ledger, page: Page, number: int, time: float) -> None:
    folders: dict[str, dict[str, ObservedFile]] = defaultdict(dict)
    for info in page.objects:
        name, slash, rest = info.key.partition("/")
        if slash and _is_visible(name):
            folders[name] |= {rest: observed_file(rest, info)} if rest in RECORDING_FILES else {}
    known = _store_names(ledger, list(folders), time)
    ledger.save(
        _due_by(known[name], time)
        for name, files in folders.items()
        if _differs(known[name], files)
    )
    ledger.mark_seen(number, folders.items())


def _differs(record: UploadRecord, files: dict[str, ObservedFile]) -> bool:
    return any(file not in record.files for file in files.values())


def _due_by(record: UploadRecord, time: float) -> UploadRecord:
    soon = time if record.due is None else min(record.due, time)
    if record.state is UploadState.PENDING:  # it was stable and is no longer
        return restart_wait(record, soon)
    return replace(record, due=soon)


def _returned(record: UploadRecord, time: float) -> UploadRecord:
    state = UploadState.PENDING if record.state is UploadState.GONE else record.state
    return replace(record, state=state, missing=0, missing_sweep=-1, due=time)


_MAX_ERRORS = 3  # slow ones in a row; then storage counts as out of order
_SLOW_SECONDS = 0.5  # of an error; folders that cannot be read fail at once
_ERROR_WAIT_SECONDS = 30.0  # before a folder with an error is polled again, at least


def observe_folder(
    objects: Objects, name: str, marker: str, budget: TickBudget
) -> UploadObservation:
    """What one folder holds, by one request unless it holds more than a page.

    Args:
        objects: the uploads.
        name: the folder's name.
        marker: name of the file that marks an upload as complete; empty for none.
        budget: the tick's time.

    Raises:
        StorageError: the uploads cannot be read.
    """
    began = budget.time()
    prefix = f"{name}/"
    page = objects.list_page(prefix)
    infos = {info.key.removeprefix(prefix): info for info in page.objects}
    if page.token is not None:
        names = sorted({*RECORDING_FILES, marker} - {""})
        heads = {file: objects.head(f"{prefix}{file}") for file in names}
        infos = {file: info for file, info in heads.items() if info is not None}
    present = bool(page.objects or page.token or infos)
    files = tuple(observed_file(file, infos[file]) for file in RECORDING_FILES if file in infos)
    return UploadObservation(files, present, marker in infos, began, budget.time())


class Poller:
    """The polls of one tick.

    Args:
        objects: the uploads.
        ledger: what is known.
        history: the runs that were launched.
        settings: bounds.
        budget: the tick's time.

    Attributes:
        requests: runs to launch.
        complete: ids that were complete, whether a run is requested or was launched before.
        polls: number of folders polled.
    """

    def __init__(
        self,
        objects: Objects,
        ledger: Ledger,
        history: RunHistory,
        settings: DiscoverySettings,
        budget: TickBudget,
    ) -> None:
        self.requests: list[Request] = []
        self.complete: list[str] = []
        self.polls = 0
        self._objects, self._ledger, self._history = objects, ledger, history
        self._settings, self._budget = settings, budget
        self._failed = 0
        self._retries: int | None = None  # still allowed in this hour; counted when needed

    def confirm_launched(self, until: float) -> None:
        """Accept those whose requested run was launched; the others stay requested."""
        for done, record in enumerate(self._ledger.requested(self._settings.polls_per_tick)):
            if done and self._budget.spent() >= until:
                return
            if record.run_key is None or not self._history.has_run(record.run_key):
                continue
            self._attempt(record, partial(self._confirm, record))

    def poll(self, colliding: Collection[str]) -> None:
        """Poll those that are due: the complete first, while more runs may be requested."""
        sweep = self._ledger.listing_cursor(ListingKind.SWEEP).number
        for complete in (True, False):
            left = self._settings.polls_per_tick - self.polls
            due = self._ledger.due(self._budget.start, max(1, left), complete=complete)
            self._poll_each(due, sweep, colliding)

    def _poll_each(
        self, due: Sequence[UploadRecord], sweep: int, colliding: Collection[str]
    ) -> None:
        for done, record in enumerate(due):
            full = len(self.requests) >= self._settings.requests_per_tick
            late = done > 0 and self._budget.spent() >= self._settings.seconds_per_tick
            if late or self._failed >= _MAX_ERRORS or (full and record.fingerprint is not None):
                return
            self.polls += 1
            began = self._budget.spent()
            if self._attempt(record, partial(self._poll_one, record, sweep, colliding, full=full)):
                self._failed = 0
            else:  # storage that is out of order takes its time to say so; a bad folder does not
                self._failed += self._budget.spent() - began > _SLOW_SECONDS

    def _poll_one(
        self, record: UploadRecord, sweep: int, colliding: Collection[str], *, full: bool
    ) -> None:
        marker = self._settings.complete_marker
        observation = observe_folder(self._objects, record.name, marker, self._budget)
        observed = apply_observation(record, observation, sweep, self._settings)
        files = (len(observation.files), len(RECORDING_FILES))
        _LOG.debug("%s: %d of %d files, %s", record.id, *files, observed.state.value)
        self._decide(observed, observation, colliding, full=full)

    def _confirm(self, record: UploadRecord) -> None:
        last = self._history.last(record.id)
        with self._ledger.transaction():
            self._ledger.forget_reruns(record.id, record.run_key)
            self._ledger.save([_confirmed(record, last, self._budget)])

    def _attempt(self, record: UploadRecord, work: Callable[[], None]) -> bool:
        """Whether `work` succeeded; trouble with one folder is reported, and it is polled later."""
        try:
            work()
        except sqlite3.Error:  # of the ledger, which all of them need
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this folder's alone
            self._budget.errors.append(_described(record, error))
            wait = max(self._settings.stable_seconds, _ERROR_WAIT_SECONDS)
            self._ledger.save([replace(record, due=self._budget.time() + wait)])
            return False
        return True

    def _decide(
        self,
        record: UploadRecord,
        observation: UploadObservation,
        colliding: Collection[str],
        *,
        full: bool,
    ) -> None:
        """Write the record and, for a complete upload, what follows from it."""
        wait = self._settings.stable_seconds
        if record.fingerprint is None:
            self._write(record)
        elif record.id in colliding:
            accepted = record.state is UploadState.ACCEPTED
            self._write(replace(record, due=None if accepted else observation.ended + wait))
        elif full or not is_complete(
            record, observation, self._was_launched(record, observation), wait
        ):
            self._write(replace(record, due=record.since + wait))
        else:
            self._request_run(record, record.fingerprint, observation.ended)

    def _was_launched(self, record: UploadRecord, observation: UploadObservation) -> bool:
        return observation.marked and self._history.last(record.id) is not None

    def _request_run(self, record: UploadRecord, fingerprint: str, time: float) -> None:
        """Request a run for a complete upload, unless the last run was for it."""
        last = self._history.last(record.id)
        reason = reason_to_run(record, last, self._rerun_reason(record.id))
        if reason is None:
            self._write(accept(record))
        elif reason == RunOutcome.WAITING and not self._may_retry():
            self._write(replace(record, due=time + FIRST_PAUSE_SECONDS))
        else:
            key = next_run_key(self._history, record, fingerprint)
            self._write(
                replace(record, state=UploadState.REQUESTED, run_key=key, due=time), granted=key
            )
            self.requests.append(Request(record.id, key, fingerprint, reason))
            _LOG.info("%s: a run is requested: %s", record.id, reason)
        self.complete.append(record.id)

    def _may_retry(self) -> bool:
        """Whether another run that had to wait may be tried in this hour."""
        if self._retries is None:
            self._retries = RETRIES_PER_HOUR - self._history.recent_waits()
        self._retries -= 1
        return self._retries >= 0

    def _rerun_reason(self, demonstration: str) -> str | None:
        """The reason of a requested rerun that was not launched yet."""
        reruns = self._ledger.reruns(demonstration)
        for key in {key for _, key in reruns if key is not None and self._history.has_run(key)}:
            self._ledger.forget_reruns(demonstration, key)
        return next((reason for reason, _ in self._ledger.reruns(demonstration)), None)

    def _write(self, record: UploadRecord, granted: str | None = None) -> None:
        with self._ledger.transaction():
            self._ledger.save([record])
            if granted is not None:
                self._ledger.grant_reruns(record.id, granted)
            if record.state is UploadState.GONE:
                self._ledger.forget_reruns(record.id, None)


def _described(record: UploadRecord, error: Exception) -> str:
    """The words of an error that are ours, else what the system or Python calls it."""
    if isinstance(error, StorageError):
        return str(error)
    number = error.errno if isinstance(error, OSError) else None
    return f"{record.id}: {os.strerror(number) if number else type(error).__name__}"


def _confirmed(record: UploadRecord, last: Launch | None, budget: TickBudget) -> UploadRecord:
    """The accepted record, unless the requested run was superseded; due when it has to be rerun."""
    if last is None or last.fingerprint != record.fingerprint:
        return accept(record)
    if last.superseded:
        return restart_wait(record, budget.time())
    pause = last.retry_after
    return replace(accept(record), due=None if pause is None else budget.start + pause)


_SHARES = (0.2, 0.4, 0.6)  # of `seconds_per_tick`: the ends of confirming, listing and sweeping


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick.

    Attributes:
        new_ids: to register as partitions: every id that is requested or was complete in this tick.
        requests: runs to launch, at most one per id.
        collisions: ids that several folders have, with the folders' names; none is requested.
        states: how many folders are in each state.
        sweep: number of completed sweeps over all objects.
        pages: number of pages requested from listings in this tick.
        polls: number of folders polled in this tick.
        errors: messages of storage errors, in order; later ticks try again.
    """

    new_ids: tuple[str, ...]
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
    ledger: Ledger,
    history: RunHistory,
    now: float,
    settings: DiscoverySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Tick:
    """Find new, changed and vanished uploads, and the runs to launch for them.

    Args:
        objects: the uploads.
        ledger: kept between ticks; an empty one is filled again.
        history: the runs that were ever launched.
        now: epoch seconds by this machine's clock, which may jump.
        settings: thresholds and bounds.
        clock: a clock in seconds, for the bound on a tick's time.

    Raises:
        StorageError: the ledger cannot be read or written. Errors of the uploads' storage are in
            `Tick.errors` instead.
    """
    try:
        return _tick(objects, ledger, history, settings, TickBudget(ledger.begin_tick(now), clock))
    except sqlite3.Error as error:
        raise StorageError(
            f"the ledger of uploads cannot be used: {error}; check its disk"
        ) from None


def _tick(
    objects: Objects,
    ledger: Ledger,
    history: RunHistory,
    settings: DiscoverySettings,
    budget: TickBudget,
) -> Tick:
    confirming, listing, sweeping = (share * settings.seconds_per_tick for share in _SHARES)
    poller = Poller(objects, ledger, history, settings, budget)
    mark_lost_due(ledger, history, budget)
    poller.confirm_launched(confirming)
    pages = list_folders(objects, ledger, budget, settings.pages_per_tick // 2, listing)
    pages += sweep(objects, ledger, budget, settings.pages_per_tick - pages, sweeping)
    collisions = ledger.collisions()
    poller.poll(collisions.keys())
    return Tick(
        new_ids=tuple(sorted(set(poller.complete))),
        requests=tuple(poller.requests),
        collisions={key: tuple(map(printable_name, names)) for key, names in collisions.items()},
        states=ledger.counts(),
        sweep=ledger.listing_cursor(ListingKind.SWEEP).number,
        pages=pages,
        polls=poller.polls,
        errors=tuple(budget.errors),
    )
