"""A bucket, a table, runs and a clock, for tests of one incident each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery import Request, Tick, tick
from demo_pipeline.runs.discovery_table import DiscoveryTable, Upload, UploadState
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.folder import Objects
from demo_pipeline_tests.discovery.bucket import Bucket
from demo_pipeline_tests.discovery.dagster_like import Runs
from demo_pipeline_tests.discovery.dying_ticks import DyingTable

STABLE = 60


@dataclass
class Scene:
    """One place and what is known of it.

    Attributes:
        path: of the table.
        objects: used instead of the bucket.
        seconds_a_request: that pass within a tick.
        before: called before every step of a tick, in the table too; may raise.
    """

    path: Path
    settings: DiscoverySettings = field(default_factory=DiscoverySettings)
    bucket: Bucket = field(default_factory=Bucket)
    runs: Runs = field(default_factory=Runs)
    objects: Any = None
    now: float = 1_700_000_000.0
    seconds_a_request: float = 0.0
    before: Callable[[str], None] = lambda _: None
    _spent: float = 0.0

    def __post_init__(self) -> None:
        self.bucket._before = self._request
        self.runs.before = self._ask

    def upload(
        self, name: str, version: str = "1", files: tuple[str, ...] = RECORDING_FILES
    ) -> None:
        for file in files:
            self.bucket.place(name, file, f"{name}-{file}-{version}", modified=self.now)

    def delete(self, name: str, files: tuple[str, ...] = RECORDING_FILES) -> None:
        for file in files:
            self.bucket.remove(name, file)

    def tick(self, after: float = 30) -> Tick:
        """A tick some seconds later; nothing of it is launched."""
        self.now += after
        objects: Objects = self.objects or cast("Objects", self.bucket)
        with DyingTable.open(self.path) as table:
            table.before = self.before
            return tick(objects, table, self.runs, self.now, self.settings, lambda: self._spent)

    def launch(self, found: Tick) -> list[str]:
        """Keys of the runs that are launched."""
        return [each.run_key for each in found.requests if self.runs.launch(each, self.now)]

    def go_on(self, seconds: float = 4 * STABLE) -> list[Request]:
        """Tick and launch for some seconds; returns what was launched."""
        launched = []
        for _ in range(int(seconds / 30)):
            found = self.tick()
            launched += [each for each in found.requests if self.runs.launch(each, self.now)]
        return launched

    def row(self, name: str) -> Upload | None:
        with DiscoveryTable.open(self.path) as table:
            return table.by_id().get(name)

    def state(self, name: str) -> UploadState | None:
        row = self.row(name)
        return row.state if row else None

    def request_rerun(self, name: str, reason: str) -> None:
        with DiscoveryTable.open(self.path) as table:
            table.request_rerun(name, reason)

    def _ask(self, name: str) -> None:
        self.before(name)

    def _request(self, name: str) -> None:
        self._spent += self.seconds_a_request
        self.before(name)

    def lose_table(self) -> None:
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
