"""Looking at one demonstration by itself, which alone decides what becomes of it.

Belongs here: the look, and carrying out what `decisions` says. What is asked of the outside world
is asked before the ledger is written, in one transaction a demonstration.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from demo_pipeline.discovery.cursors import ListingKind
from demo_pipeline.discovery.decisions import (
    Request,
    UploadObservation,
    UploadRecord,
    UploadState,
    accept,
    described,
    is_complete,
    look_again,
    next_run_key,
    observe,
    reason_to_run,
)
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import Launch, RunHistory
from demo_pipeline.discovery.tick_budget import TickBudget
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import Objects
from demo_pipeline.storage.uploads.upload_listing import UPLOAD_FILES

_MAX_ERRORS = 3  # of a look; then the place is taken to be out of order


def look(objects: Objects, name: str, marker: str, watch: TickBudget) -> UploadObservation:
    """What lies in one folder, in one request unless it holds more than a page.

    Raises:
        StorageError: the place cannot be read.
    """
    began = watch.time()
    prefix = f"{name}/"
    wanted = {*UPLOAD_FILES, marker} - {""}
    page = objects.list_page(prefix)
    found = {each.key.removeprefix(prefix): each for each in page.objects}
    if page.token is not None:
        heads = {each: objects.head(f"{prefix}{each}") for each in sorted(wanted)}
        found = {each: info for each, info in heads.items() if info is not None}
    present = bool(page.objects or page.token or found)
    files = tuple(described(each, found[each]) for each in UPLOAD_FILES if each in found)
    return UploadObservation(files, present, marker in found, began, watch.time())


class Poller:
    """The polls of one look.

    Args:
        objects: the place of the uploads.
        ledger: what is known.
        launched: what was launched.
        settings: bounds.
        watch: the look's time.

    Attributes:
        requests: runs to launch.
        complete: ids found complete, whether a run is requested or was launched before.
        polls: how many folders were looked at.
    """

    def __init__(
        self,
        objects: Objects,
        ledger: Ledger,
        launched: RunHistory,
        settings: DiscoverySettings,
        watch: TickBudget,
    ) -> None:
        self.requests: list[Request] = []
        self.complete: list[str] = []
        self.polls = 0
        self._objects, self._ledger, self._launched = objects, ledger, launched
        self._settings, self._watch = settings, watch
        self._failed = 0

    def confirm(self, until: float) -> None:
        """Accept those whose requested run was launched; the others stay requested."""
        for done, entry in enumerate(self._ledger.requested(self._settings.polls_per_tick)):
            if done and self._watch.spent() >= until:
                return
            if entry.run_key is None or not self._launched.has_run(entry.run_key):
                continue
            last = self._launched.last(entry.id)
            with self._ledger.transaction():
                self._ledger.forget_wishes(entry.id, entry.run_key)
                self._ledger.save([_confirmed(entry, last, self._watch)])

    def poll(self, colliding: Collection[str]) -> None:
        """Look at those that are due: the complete first, as far as runs may be requested."""
        sweep = self._ledger.listing(ListingKind.SWEEP).number
        for complete in (True, False):
            left = self._settings.polls_per_tick - self.polls
            due = self._ledger.due(self._watch.start, max(1, left), complete=complete)
            self._poll_each(due, sweep, colliding)

    def _poll_each(
        self, due: Sequence[UploadRecord], sweep: int, colliding: Collection[str]
    ) -> None:
        for done, entry in enumerate(due):
            full = len(self.requests) >= self._settings.requests_per_tick
            late = done > 0 and self._watch.spent() >= self._settings.seconds_per_tick
            if late or self._failed >= _MAX_ERRORS or (full and entry.fingerprint is not None):
                return
            self.polls += 1
            try:
                sight = look(self._objects, entry.name, self._settings.complete_marker, self._watch)
            except StorageError as error:
                self._watch.errors.append(str(error))
                self._failed += 1
                due_again = self._watch.time() + self._settings.stable_seconds
                self._ledger.save([replace(entry, due=due_again)])
                continue
            seen = observe(entry, sight, sweep, self._settings)
            self._decide(seen, sight, colliding, full=full)

    def _decide(
        self,
        entry: UploadRecord,
        sight: UploadObservation,
        colliding: Collection[str],
        *,
        full: bool,
    ) -> None:
        """Write what is now known and, for a complete upload, what follows from it."""
        quiet = self._settings.stable_seconds
        if entry.fingerprint is None:
            self._write(entry)
        elif entry.id in colliding:
            accepted = entry.state is UploadState.ACCEPTED
            self._write(replace(entry, due=None if accepted else sight.ended + quiet))
        elif full or not is_complete(entry, sight, self._was_launched(entry, sight), quiet):
            self._write(replace(entry, due=entry.since + quiet))
        else:
            self._take(entry, entry.fingerprint, sight.ended)

    def _was_launched(self, entry: UploadRecord, sight: UploadObservation) -> bool:
        return sight.marked and self._launched.last(entry.id) is not None

    def _take(self, entry: UploadRecord, fingerprint: str, time: float) -> None:
        """Request a run for a complete upload, unless the last one was for it."""
        last = self._launched.last(entry.id)
        reason = reason_to_run(entry, last, self._wish(entry.id))
        if reason is None:
            self._write(accept(entry))
        else:
            key = next_run_key(self._launched, entry, fingerprint)
            self._write(
                replace(entry, state=UploadState.REQUESTED, run_key=key, due=time), granted=key
            )
            self.requests.append(Request(entry.id, key, fingerprint, reason))
        self.complete.append(entry.id)

    def _wish(self, demonstration: str) -> str | None:
        """Why somebody wants a run that was not launched yet."""
        wishes = self._ledger.wishes(demonstration)
        for key in {key for _, key in wishes if key is not None and self._launched.has_run(key)}:
            self._ledger.forget_wishes(demonstration, key)
        return next((reason for reason, _ in self._ledger.wishes(demonstration)), None)

    def _write(self, entry: UploadRecord, granted: str | None = None) -> None:
        with self._ledger.transaction():
            self._ledger.save([entry])
            if granted is not None:
                self._ledger.grant(entry.id, granted)
            if entry.state is UploadState.GONE:
                self._ledger.forget_wishes(entry.id, None)


def _confirmed(entry: UploadRecord, last: Launch | None, watch: TickBudget) -> UploadRecord:
    """Accepted, unless the run that was requested has come to nothing already."""
    if last is None or last.fingerprint != entry.fingerprint:
        return accept(entry)
    if last.superseded:
        return look_again(entry, watch.time())
    return replace(accept(entry), due=watch.start if last.should_retry else None)
