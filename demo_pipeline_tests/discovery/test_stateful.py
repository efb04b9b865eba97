"""Invariants of discovery under any order of uploads, clock jumps, kills and lost tables."""

import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery_table import ObservedFile, UploadState, fingerprint_of
from demo_pipeline.runs.results import Status
from demo_pipeline.store.names import safe_id
from demo_pipeline_tests.discovery.bucket import Bucket
from demo_pipeline_tests.discovery.dying_ticks import Fuse, Killed
from demo_pipeline_tests.discovery.scene import Scene

NAMES = ("a", "b", "c d")


class Uploads(RuleBasedStateMachine):
    """Runs are for stable uploads, twice only when lost, in the end for the present files."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "table.sqlite"
        self.scene = Scene(path, bucket=Bucket(page=2))
        self.changed = dict.fromkeys(NAMES, 0.0)
        self.early: list[str] = []

    @rule(
        name=st.sampled_from(NAMES),
        file=st.sampled_from(RECORDING_FILES),
        version=st.integers(1, 2),
    )
    def put(self, name: str, file: str, version: int) -> None:
        before = self.scene.bucket.files(name)
        self.scene.upload(name, str(version), (file,))
        self._note(name, before)

    @rule(name=st.sampled_from(NAMES), version=st.integers(1, 2))
    def upload(self, name: str, version: int) -> None:
        before = self.scene.bucket.files(name)
        self.scene.upload(name, str(version))
        self._note(name, before)

    @rule(name=st.sampled_from(NAMES), files=st.sets(st.sampled_from(RECORDING_FILES), min_size=1))
    def delete(self, name: str, files: set[str]) -> None:
        before = self.scene.bucket.files(name)
        self.scene.delete(name, tuple(files))
        self._note(name, before)

    @rule(seconds=st.sampled_from((1, 30, 61, -1000)), step=st.none() | st.integers(0, 60))
    def tick(self, seconds: float, step: int | None) -> None:
        fuse = Fuse(-1 if step is None else step)
        self.scene.before = fuse
        try:
            for request in self.scene.tick(seconds).requests:
                fuse("launch")
                self._launch(request)
        except Killed:
            pass
        self.scene.before = lambda _: None

    @rule(name=st.sampled_from(NAMES))
    def lose_run(self, name: str) -> None:
        """At most one of each upload's: three are the limit."""
        runs = self.scene.runs.by_id.get(self._id(name), [])
        if runs and not any(run.lost for run in runs):
            runs[-1].end(Status.LOST)

    @rule()
    def lose_table(self) -> None:
        self.scene.lose_table()

    @invariant()
    def no_run_is_early_or_double(self) -> None:
        assert self.early == []
        for runs in self.scene.runs.by_id.values():
            assert all(a.fingerprint != b.fingerprint or a.lost for a, b in pairwise(runs))

    def teardown(self) -> None:
        for _ in range(9):
            self.tick(61, None)
        for name in NAMES:
            files = self.scene.bucket.files(name)
            runs = self.scene.runs.by_id.get(self._id(name), [])
            if fingerprint_of(files):
                assert runs[-1].fingerprint == fingerprint_of(files)
                assert not runs[-1].lost
                assert self.scene.state(self._id(name)) is UploadState.ACCEPTED
            else:
                there = {UploadState.PENDING} if files else {UploadState.GONE, None}
                assert self.scene.state(self._id(name)) in there
        self.no_run_is_early_or_double()
        self._folder.cleanup()

    def _note(self, name: str, before: tuple[ObservedFile, ...]) -> None:
        if self.scene.bucket.files(name) != before:
            self.changed[name] = self.scene.now

    def _launch(self, request) -> None:
        [name] = [name for name in NAMES if self._id(name) == request.id]
        if self.scene.runs.launch(request, self.scene.now) is None:
            return
        if request.fingerprint != fingerprint_of(self.scene.bucket.files(name)):
            self.early.append(name)
        if 0 <= self.scene.now - self.changed[name] < self.scene.settings.stable_seconds:
            self.early.append(name)

    @staticmethod
    def _id(name: str) -> str:
        return safe_id(name)


Uploads.TestCase.settings = settings(
    max_examples=8, stateful_step_count=20, deadline=None, derandomize=True
)
TestUploads = Uploads.TestCase
