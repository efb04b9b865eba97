"""A simulated world: people upload, sensor, daemon and runs die, the table is deleted, the clock
jumps back, tokens expire, pages change during a listing. Then it counts what was missed.

Beside the real `tick`, the usual sensor with a last-modified cursor polls the same bucket; it
is spared the kills.
"""

import heapq
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import cast

from demo_pipeline.runs.discovery import Request, Tick, tick
from demo_pipeline.runs.discovery_table import DiscoveryTable, UploadState, fingerprint_of
from demo_pipeline.runs.failures import MAX_LOST_RUNS
from demo_pipeline.runs.results import Status
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import Objects
from demo_pipeline_tests.discovery.bucket import Bucket
from demo_pipeline_tests.discovery.dagster_like import Run, Runs
from demo_pipeline_tests.discovery.dying_ticks import DyingTable, Killed
from demo_pipeline_tests.discovery.people import STABLE, Change, people
from demo_pipeline_tests.settings_constants import with_constants

SETTINGS = with_constants(DiscoverySettings, pages_per_tick=5, decisions_per_tick=60)(
    stable_seconds=STABLE, requests_per_tick=10
)
UPLOADING = 1800.0  # seconds in which uploads begin
EPOCH = 1_700_000_000.0
SETTLING = 40  # ticks without faults at the end


@dataclass(frozen=True)
class Figures:
    """What went wrong, in demonstrations (missed) and runs.

    Attributes:
        missed: complete at the end, uploaded once, and the last good run was not for it.
        missed_reuploads: the same, uploaded or changed more than once.
        premature: runs launched for what nobody had finished.
        duplicate_runs: launched again for what the last good run was for.
    """

    missed: int
    missed_reuploads: int
    premature: int
    duplicate_runs: int


@dataclass(frozen=True)
class Result:
    """One simulated world.

    Attributes:
        ours: of `tick`.
        cursor: of the last-modified cursor.
        misjudged: folders whose state in the table differs from the bucket at the end.
        demonstrations: complete at the end.
        runs: launched by us.
        superseded: of those.
        lost: of those; cancelled or dead.
        kills: of sensor or daemon.
        tables_lost: how often the table was deleted.
    """

    ours: Figures
    cursor: Figures
    misjudged: int
    demonstrations: int
    runs: int
    superseded: int
    lost: int
    kills: int
    tables_lost: int


class CursorSensor:
    """Runs the complete uploads that were modified after the newest object it saw."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = defaultdict(list)
        self._cursor = float("-inf")

    def tick(self, bucket: Bucket, time: float) -> None:
        infos = [info for files in bucket.folders.values() for info in files.values()]
        new = {info.key.partition("/")[0] for info in infos if info.modified > self._cursor}
        self._cursor = max([self._cursor, *(info.modified for info in infos)])
        for name in sorted(new):
            fingerprint = fingerprint_of(bucket.files(name))
            if fingerprint is not None:
                self.runs[name].append(Run(name, fingerprint, time))


class World:
    """See the module's sentence.

    Args:
        seed: everything follows from it.
        count: demonstrations.
        folder: for the table.
    """

    def __init__(self, seed: int, count: int, folder: Path) -> None:
        self.time, self.kills, self.tables_lost, self.ticks_lost = 0.0, 0, 0, 0
        self.random = Random(seed)
        self.bucket = Bucket(150, self._request, lambda: self.time, token_seconds=300)
        self.runs, self.cursor = Runs(self._step), CursorSensor()
        self.finished: dict[str, list[tuple[float, str | None]]] = defaultdict(list)
        self._path = folder / "table.sqlite"
        self._steps_left: int | None = None
        self._jump, self._peace = 0.0, False
        self._resumed: list[Request] = []
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for change in people(self.random, count, UPLOADING):
            self._at(change.time, partial(self._apply, change))
        self._end = max(time for time, _, _ in self._events)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._at(self.random.uniform(0, self._end), self._lose_table)
        self._at(self.random.uniform(0, self._end), self._set_clock_back)

    def run(self) -> None:
        """Until the last event is over, and for some more ticks."""
        while self._events or self.time < self._end:
            self._live(self.random.uniform(25, 35))
        self._peace, self._steps_left = True, None
        for _ in range(SETTLING):
            self._live(30)
        peaceful = 0
        while self._events or peaceful < 5:
            self._live(30)
            peaceful = 0 if self._events else peaceful + 1

    def states(self) -> dict[str, UploadState]:
        with DiscoveryTable.open(self._path) as table:
            return {key: upload.state for key, upload in table.by_id().items()}

    def _live(self, seconds: float) -> None:
        """Wait, then tick and launch; it may be killed on the way."""
        self._pass(seconds)
        self.cursor.tick(self.bucket, self.time)
        if not self._peace and self.random.random() < 0.2:
            self._steps_left = int(2 ** self.random.uniform(0, 9))
        try:
            for request in self._resumed:
                self._launch(request)
            self._resumed = []
            self._launch_all(self._tick())
        except StorageError:  # the table was deleted during this tick
            self.ticks_lost += 1
        except Killed:
            self.kills += 1
            self._pass(self.random.choice((0, 20, 100, 500)) * self.random.random())
        self._steps_left = None

    def _tick(self) -> Tick:
        now = EPOCH + self.time - self._jump
        with DyingTable.open(self._path) as table:
            table.before = self._step
            bucket = cast("Objects", self.bucket)
            return tick(bucket, table, self.runs, now, SETTINGS, lambda: self.time)

    def _launch_all(self, found: Tick) -> None:
        assert len(found.cursor) < 1024
        assert len(found.requests) <= SETTINGS.requests_per_tick
        waiting = list(found.requests)
        keeps = self.random.random() < 0.5  # a daemon that comes back may know what it was doing
        try:
            while waiting:
                self._launch(waiting[0])
                waiting.pop(0)
        except Killed:
            self._resumed = waiting if keeps else []
            raise

    def _launch(self, request: Request) -> None:
        self._step("launch")
        run = self.runs.launch(request, self.time)
        if run is not None:
            self._at(self.time + self.random.uniform(0, 600), lambda: self._read(run))
        self._step("launched")

    def _read(self, run: Run) -> None:
        """The run compares its upload with its fingerprint; its outcome is known later."""
        run.read = self.time
        same = fingerprint_of(self.bucket.files(run.id)) == run.fingerprint
        outcome = Status.BUILT if same else Status.SUPERSEDED
        if self.random.random() < 0.06:
            outcome = Status.LOST
        self._at(self.time + self.random.uniform(0, 60), partial(run.end, outcome))

    def _apply(self, change: Change) -> None:
        if change.etag is None:
            self.bucket.remove(change.name, change.file)
        else:
            self.bucket.place(change.name, change.file, change.etag, modified=change.modified)
        if change.last:
            fingerprint = fingerprint_of(self.bucket.files(change.name))
            self.finished[change.name].append((self.time, fingerprint))

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    def _pass(self, seconds: float) -> None:
        until = self.time + seconds
        while self._events and self._events[0][0] <= until:
            self.time, _, event = heapq.heappop(self._events)
            event()
        self.time = until

    def _request(self, _: str) -> None:
        """Every request takes time, in which people continue; one in 200 fails."""
        self._step("request")
        self._pass(self.random.uniform(0, 0.2))
        if not self._peace and self.random.random() < 0.005:
            raise StorageError("the bucket does not answer")

    def _step(self, _: str) -> None:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self._steps_left = None
                raise Killed

    def _lose_table(self) -> None:
        """The file is deleted, perhaps during a tick."""
        self.tables_lost += 1
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _set_clock_back(self) -> None:
        self._jump += self.random.uniform(1, 3600)


def simulate(seed: int, count: int) -> Result:
    """Simulate one world."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, count, Path(folder))
        world.run()
        final = {name: fingerprint_of(world.bucket.files(name)) for name in world.finished}
        states = world.states()
    runs = [run for each in world.runs.by_id.values() for run in each]
    return Result(
        ours=_figures(world, world.runs.by_id, final),
        cursor=_figures(world, world.cursor.runs, final),
        misjudged=sum(states.get(name) not in _truth(world, name) for name in final),
        demonstrations=sum(fingerprint is not None for fingerprint in final.values()),
        runs=len(runs),
        superseded=sum(run.superseded for run in runs),
        lost=sum(run.lost for run in runs),
        kills=world.kills,
        tables_lost=world.tables_lost,
    )


def _truth(world: World, name: str) -> tuple[UploadState | None, ...]:
    """States that are right at the end; a new table never knew uploads that are gone."""
    files = world.bucket.files(name)
    if not files:
        return (UploadState.GONE, None)
    return (UploadState.PENDING if fingerprint_of(files) is None else UploadState.ACCEPTED,)


def _figures(world: World, runs: Mapping[str, list[Run]], final: dict[str, str | None]) -> Figures:
    missed, missed_again, premature, duplicates = 0, 0, 0, 0
    for name, fingerprint in final.items():
        each = runs.get(name, [])
        premature += sum(not _was_finished(world, run) for run in each)
        duplicates += sum(_again(*pair) for pair in itertools.pairwise(each))
        if fingerprint is not None and not _has_run(each, fingerprint):
            missed += len(world.finished[name]) == 1
            missed_again += len(world.finished[name]) > 1
    return Figures(missed, missed_again, premature, duplicates)


def _has_run(runs: list[Run], fingerprint: str) -> bool:
    """Whether the last good run was for it, or as many were lost as are tried."""
    good = [run for run in runs if not (run.superseded or run.lost)]
    lost = sum(run.lost for run in runs if run.fingerprint == fingerprint)
    return lost >= MAX_LOST_RUNS or (bool(good) and good[-1].fingerprint == fingerprint)


def _again(earlier: Run, later: Run) -> bool:
    """Whether the later run is for what the earlier one was for and had, or might still have."""
    known = (earlier.superseded or earlier.lost) and earlier.read <= later.time
    return earlier.fingerprint == later.fingerprint and not known


def _was_finished(world: World, run: Run) -> bool:
    finished = world.finished[run.id]
    return any(time <= run.time and each == run.fingerprint for time, each in finished)
