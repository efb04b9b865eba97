"""Polling single folders; only a poll decides what happens to an upload.

Belongs here: the poll, and carrying out what `decisions` decides. Storage and run history are asked
before the ledger is written, in one transaction per upload.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from demo_pipeline.discovery.cursors import ListingKind
from demo_pipeline.discovery.decisions import (
    Request,
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
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.retry_pauses import FIRST_PAUSE_SECONDS, RETRIES_PER_HOUR
from demo_pipeline.discovery.run_history import Launch, RunHistory, RunOutcome
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import Objects

_MAX_ERRORS = 3  # slow ones in a row; then storage counts as out of order
_SLOW_SECONDS = 0.5  # of an error; folders that cannot be read fail at once
_ERROR_WAIT_SECONDS = 30.0  # before a folder with an error is polled again, at least
_LOG = logging.getLogger(__package__)


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
