"""Discovery: which uploads are complete, changed or gone, and which runs they need.

Belongs here: the rules, as pure functions, and one tick, bounded in time and safe to interrupt
between any two of its steps. A listing of all objects goes on from tick to tick; at its end, every
folder is compared with what was known, and what is complete and stable is decided about. Nothing is
launched here: a request that is not launched is repeated, with the same key. No upload is lost:
listed = accepted + quarantined + pending + gone, which is checked here, too.
"""

import json
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple, Protocol

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.discovery_table import (
    DiscoveryTable,
    ObservedFile,
    Position,
    Upload,
    UploadState,
)
from demo_pipeline.runs.failures import (
    LONGEST_PAUSE_SECONDS,
    MAX_LOST_RUNS,
    error_words,
    retry_pause,
)
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import Objects, Page
from demo_pipeline.store.names import printable_name

_LOG = logging.getLogger(__package__)
_ERROR_WAIT_SECONDS = 30.0  # before an upload with an error is decided about again, at least
_AGAIN = {Status.SUPERSEDED, Status.LOST, Status.WAITING}  # another run may have to follow
_LISTING = 0.6  # share of `seconds_per_tick` after which the listing pauses


class Ending(NamedTuple):
    """How a run ended for an upload, and what a waiting one waits for, in plain words."""

    status: Status
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


class _Runs(Protocol):
    """What discovery asks about runs, and about what they left in the store."""

    @property
    def claimed(self) -> Collection[str]:
        """Ids that a command of this machine works on."""

    def launched(self, demonstration: str) -> Mapping[str, str]:
        """Key → id of the newest run with it, of the runs that were launched for requests."""

    def live(self, demonstration: str) -> tuple[str, str | None] | None:
        """Id of the newest run, if it is under way, and the fingerprint that it is for."""

    def ended(self, runs: Sequence[str]) -> Iterable[EndedRun]:
        """Those of these runs that ended, or were deleted."""

    def settled(self, demonstration: str, fingerprint: str) -> bool:
        """Whether the store has outputs or a quarantine record of this upload."""


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


def end(upload: Upload, ending: Ending, time: float, stable_seconds: float) -> Upload:
    """The row after its run ended; due when another has to follow."""
    cause = ending.status
    if cause not in _AGAIN:
        return replace(upload, run=None, cause="", reason="", attempts=0)
    attempts = 1 + (upload.attempts if upload.cause == cause else 0)
    ended = replace(upload, run=None, cause=cause, reason=ending.reason, attempts=attempts)
    if upload.state is not UploadState.ACCEPTED or upload.accepted != upload.fingerprint:
        return ended  # its files changed meanwhile
    if cause is Status.SUPERSEDED:  # as if its files had just changed
        return replace(ended, state=UploadState.PENDING, due=time + stable_seconds)
    pause = retry_pause(attempts) if cause is Status.WAITING else 0.0
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
    lost = upload.run is None and upload.cause == Status.LOST
    return lost and upload.accepted == upload.fingerprint and upload.attempts >= MAX_LOST_RUNS


def decide(upload: Upload, runs: _Runs, colliding: Collection[str], later: float) -> Upload | str:
    """The row of a complete upload that needs no run now, else the reason to request one.

    `later`: when to decide again about one that something else has to end for.
    """
    requested = upload.run_key is not None  # and not launched
    if upload.id in colliding or upload.id in runs.claimed:
        return replace(upload, due=later)
    reason = upload.cause if requested else upload.wish or reason_to_run(upload)
    if not reason:
        return accept(upload, upload.run)
    if requested or upload.wish:
        return reason
    return _served(upload, runs, later) or reason


def _served(upload: Upload, runs: _Runs, later: float) -> Upload | None:
    """The row of an upload that another run, or the store, makes a run unnecessary for."""
    live, fingerprint = runs.live(upload.id), upload.fingerprint or ""
    if live is not None and live[1] is None:  # which upload it reads is seen in the store
        return replace(upload, due=later)
    if live is not None and live[1] == fingerprint:
        return accept(upload, live[0])
    if live is None and runs.settled(upload.id, fingerprint):
        return replace(accept(upload), cause="", reason="", attempts=0)
    if is_given_up(upload):  # unless a person has it processed
        return replace(accept(upload), due=later + LONGEST_PAUSE_SECONDS)
    return None


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick: runs to launch, at most one per id, and how far it is.

    Ids that several folders have are in `collisions`, with the folders' names, and not requested.
    `pages`: how many it listed; `errors`: messages of storage errors, in order; later ticks try
    again. `cursor`: counts as JSON, under 1 KB, for people; nothing is read back from it.
    """

    requests: tuple[Request, ...]
    collisions: dict[str, tuple[str, ...]]
    pages: int
    errors: tuple[str, ...]
    cursor: str


def tick(  # noqa: PLR0917 - what a tick needs, in the order of its steps
    objects: Objects,
    table: DiscoveryTable,
    runs: _Runs,
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
        return _Tick(objects, table, runs, settings, now, clock).run()
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
        runs: _Runs,
        settings: DiscoverySettings,
        now: float,
        clock: Callable[[], float],
    ) -> None:
        self._objects, self._table, self._runs, self._settings = objects, table, runs, settings
        self._clock, self._begun = clock, clock()
        self._errors: list[str] = []
        self._requests: list[Request] = []
        before = table.position() or Position(now, now)
        passed = max(0.0, now - before.wall)  # a clock that was set back adds no time
        self._go_on_from(replace(before, time=before.time + passed, wall=now))

    def run(self) -> Tick:
        self._confirm_launched()
        self._end_runs()
        pages = self._list()
        collisions = self._table.collisions()
        limit = self._settings.decisions_per_tick
        for done, upload in enumerate(self._table.undecided(self._position, limit)):
            late = done > 0 and self._spent() >= self._settings.seconds_per_tick
            if late or len(self._requests) >= self._settings.requests_per_tick:
                break
            with self._own_trouble(upload):
                self._decide(upload, collisions)
        return Tick(
            requests=tuple(self._requests),
            collisions={key: tuple(map(printable_name, it)) for key, it in collisions.items()},
            pages=pages,
            errors=tuple(self._errors),
            cursor=json.dumps(
                {**self._table.counts(), "sweep": self._position.sweep}, sort_keys=True
            ),
        )

    def _spent(self) -> float:
        return max(0.0, self._clock() - self._begun)

    def _time(self) -> float:
        return self._position.time + self._spent()

    def _confirm_launched(self) -> None:
        """Accept those whose requested run was launched; the others stay requested."""
        for upload in self._table.requested():
            with self._own_trouble(upload):
                run = self._runs.launched(upload.id).get(upload.run_key or "")
                if run is not None:
                    self._table.save([accept(upload, run)])

    def _end_runs(self) -> None:
        """Take in how runs ended since the last tick."""
        now, stable = self._position.time, self._settings.stable_seconds
        running = self._table.running()
        for ended in self._runs.ended([*running]):
            with self._table.transaction():
                self._table.save(
                    replace(upload, run=ended.successor)
                    if ended.successor
                    else end(upload, ended.members.get(upload.id, ended.ending), now, stable)
                    for upload in running[ended.run]
                )

    def _list(self) -> int:
        """Read some pages of all objects; after an error, whose token may be old, from the start.

        Returns their number. What is complete has to be unchanged in a listing that begins when it
        has been stable.
        """
        settings, at = self._settings, self._position
        for used in range(1, settings.pages_per_tick + 1):
            if at.token is None:
                at = replace(at, began=self._time())
            try:
                page = self._objects.list_page("", at.token)
            except StorageError as error:
                self._errors.append(str(error))
                self._go_on_from(replace(at, token=None))
                return used
            with self._table.transaction():
                if at.token is None:
                    self._table.begin_listing()
                self._table.mark_seen(_recordings(page, settings.complete_marker))
                at = replace(at, token=page.token)
                if page.token is None:
                    stable = settings.stable_seconds
                    due = self._time() + stable if stable else at.began
                    self._table.take_in(settings.complete_marker, at.began, due)
                    at = replace(at, sweep=at.sweep + 1, complete=at.began)
                self._go_on_from(at)
            if page.token is None or self._spent() >= _LISTING * settings.seconds_per_tick:
                return used
        return settings.pages_per_tick

    def _go_on_from(self, position: Position) -> None:
        self._position = position
        self._table.set_position(position)

    @contextmanager
    def _own_trouble(self, upload: Upload) -> Iterator[None]:
        """Report trouble with one upload; decide later."""
        try:
            yield
        except sqlite3.Error:  # of the table, which all of them need
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this upload's alone
            self._errors.append(f"{upload.id}: {error_words(error)}")
            wait = max(self._settings.stable_seconds, _ERROR_WAIT_SECONDS)
            self._table.save([replace(upload, due=self._time() + wait)])

    def _decide(self, upload: Upload, colliding: Collection[str]) -> None:
        later = self._time() + self._settings.stable_seconds
        decision = decide(upload, self._runs, colliding, later)
        if isinstance(decision, Upload):
            self._table.save([decision])
        else:
            self._request(upload, decision)

    def _request(self, upload: Upload, reason: str) -> None:
        key, fingerprint = upload.run_key, upload.fingerprint or ""
        if key is None:  # the first that no run has
            launched, first = self._runs.launched(upload.id), f"{upload.id}@{fingerprint[:16]}"
            keys = (f"{first}#{number}" if number else first for number in count())
            key = next(key for key in keys if key not in launched)
        requested = replace(
            upload,
            state=UploadState.REQUESTED,
            cause=reason,
            attempts=upload.attempts if reason == upload.cause else 0,
            run_key=key,
            run=None,
            due=0.0,
        )
        self._table.save([requested])
        self._requests.append(Request(upload.id, key, fingerprint, reason))
        _LOG.info("%s: a run is requested: %s", upload.id, reason)


def _recordings(page: Page, marker: str) -> dict[str, list[ObservedFile]]:
    """Folder → the files of a recording, and the marker, that a page shows in it."""
    folders: dict[str, list[ObservedFile]] = defaultdict(list)
    for info in page.objects:
        name, slash, rest = info.key.partition("/")
        if slash and name and not name.startswith("."):
            wanted = rest in RECORDING_FILES or rest == marker
            file = ObservedFile(rest, info.etag, info.size, info.modified)
            folders[name] += [file] if wanted else []
    return folders


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Counts in which every id counts once. An id with a requested run is pending.

    Attributes:
        listed: ids in the uploads, and those that were there once.
        accepted: a run for the present files has built the outputs, or is queued or running.
        quarantined: with a quarantine record, or several folders have the id.
        pending: not seen yet, incomplete, not yet stable, returned after it was gone, or to be run
            again because a run was lost or had to wait.
        gone: no longer in the uploads.
        problems: what does not fit. Only an error makes the sum wrong.
    """

    listed: int
    accepted: int
    quarantined: int
    pending: int
    gone: int
    problems: tuple[Problem, ...]

    @property
    def balanced(self) -> bool:
        """Whether the sum is right."""
        return self.listed == self.accepted + self.quarantined + self.pending + self.gone


def reconcile(
    uploads: Mapping[str, Upload],
    colliding: Collection[str],
    quarantined: Collection[str],
    built: Collection[str],
    listed: Collection[str],
    *,
    recent_tick: bool = False,
) -> Reconciliation:
    """Count every demonstration once.

    Args:
        uploads: what discovery knows of each id.
        colliding: ids that several folders have.
        quarantined: ids with a quarantine record.
        built: ids with an output of the last stage.
        listed: ids in the uploads by a new listing.
        recent_tick: discovery ticked a short time ago, so what it does not know has just arrived.
    """
    present = {*listed, *colliding}
    unknown = present - uploads.keys()
    gone = uploads.keys() - present
    in_quarantine = {*quarantined, *colliding} & (present - unknown)
    rest = present - unknown - in_quarantine
    over = {key for key in rest if uploads[key].run or uploads[key].due is None}
    over |= {key for key in rest if is_given_up(uploads[key])}
    accepted = {key for key in over if uploads[key].state is UploadState.ACCEPTED}
    ended = {key for key in accepted if uploads[key].run is None}
    lost = {key for key in ended if key not in built or is_given_up(uploads[key])}
    pending = rest - accepted
    waiting = sorted(key for key in pending if uploads[key].cause == Status.WAITING)
    stray = {*quarantined} - present - gone
    vanished = sorted(key for key in gone if uploads[key].state is not UploadState.GONE)
    return Reconciliation(
        listed=len(present | gone),
        accepted=len(accepted - lost),
        quarantined=len(in_quarantine),
        pending=len(pending | unknown if recent_tick else pending),
        gone=len(gone),
        problems=(
            *(_problem("unknown_upload", key, recent=recent_tick) for key in sorted(unknown)),
            *(_problem("lost_upload", key) for key in sorted(lost)),
            *(_problem("waiting_upload", key, uploads[key].reason) for key in waiting),
            *(_problem("vanished_upload", key) for key in vanished),
            *(_problem("stray_quarantine", key) for key in sorted(stray)),
        ),
    )


def is_settled(workspace: Workspace, demonstration: str, fingerprint: str) -> bool:
    """Whether the store has every output, or a quarantine record, of the upload so listed.

    By whatever code: new code is not a reason to process every upload again.
    """
    record = read_quarantine(workspace.store, demonstration)
    built = _built_from(workspace, demonstration)
    if record is None and built is None:
        return False
    copies = workspace.uploads.copies
    identity = fingerprint if copies else workspace.uploads.identity(demonstration)
    if built is not None and built == identity:
        return True
    return record is not None and record.fingerprint == identity


def _built_from(workspace: Workspace, demonstration: str) -> str | None:
    """Identity of the upload that every output was built from; None without one."""
    contents: dict[str, str] = {}
    upload = None
    for stage in STAGES:
        current = workspace.store.current(stage.output(demonstration))
        if current is None:
            return None
        inputs = current.manifest.recipe.inputs
        if any(inputs.get(name) != contents[name] for name in stage.inputs):
            return None
        upload = inputs.get("upload", upload)
        contents[stage.name] = current.content
    return upload


_WORDS = {  # code → what is wrong, and what to do
    "unknown_upload": (
        "is in the uploads, and discovery is not running",
        "switch on the sensor new_uploads, and check its ticks",
    ),
    "lost_upload": (
        "has no trajectory from its last run, which was cancelled, died or was deleted",
        "check its runs in the UI, then process the demonstration again",
    ),
    "waiting_upload": (
        "is waiting: {}",
        "nothing, if that passes: it is tried again with growing pauses, up to half an hour",
    ),
    "vanished_upload": (
        "is no longer in the uploads; discovery records that after two sweeps",
        "nothing, if it was deleted on purpose; what was built from it stays",
    ),
    "stray_quarantine": (
        "has a quarantine record and was never seen in the uploads",
        "upload it, or delete its records, quarantine/<id>/ in the store",
    ),
}
_ARRIVED = "arrived after the last tick of discovery", "nothing, unless this stays so"


def _problem(code: str, demonstration: str, reason: str = "", *, recent: bool = False) -> Problem:
    message, remedy = _ARRIVED if recent else _WORDS[code]
    is_error = code in {"unknown_upload", "lost_upload"} and not recent
    severity = Severity.ERROR if is_error else Severity.WARNING
    message = message.format(reason)
    return Problem(
        code, ".", message, remedy=remedy, severity=severity, demonstration=demonstration
    )
