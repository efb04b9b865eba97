"""What people see with Dagster's real daemon running: uploads become datasets by themselves.

Two daemons go through the same story side by side, one over a folder and one over a bucket on
SeaweedFS; every test reads what they left.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.aggregates import AGGREGATES
from demo_pipeline.defs.jobs import datasets_job, demonstration_job
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.settings import Settings
from demo_pipeline.storage.folder_objects import FolderObjects
from demo_pipeline.storage.quarantine import list_quarantine
from demo_pipeline.storage.s3_objects import S3Objects
from demo_pipeline.storage.uploads import FILES
from demo_pipeline.storage.urls import is_bucket
from demo_pipeline_tests.builders.form import SMALL, script
from demo_pipeline_tests.builders.recording import write_recording
from demo_pipeline_tests.builders.s3_server import S3Server
from demo_pipeline_tests.builders.script import click
from demo_pipeline_tests.defs.daemon import Run, dagster_home, dagster_process, runs_of, wait_for

DEMO = "20260301_080000"
KINDS = ("folder", "bucket")
PROCESS, DATASETS = demonstration_job.name, datasets_job.name
PATIENCE = 50.0  # seconds a step of the story; a machine with nothing else to do takes a third


@dataclass
class Story:
    """One daemon, its roots, and its runs at three moments."""

    settings: Settings
    instance: dg.DagsterInstance
    daemon: subprocess.Popen[bytes]
    built: tuple[Run, ...] = ()
    changed: tuple[Run, ...] = ()

    def runs(self, job: str) -> list[Run]:
        return [run for run in runs_of(self.instance) if run.job == job]

    def upload(self, recording: Path) -> None:
        """The three files, the smallest last."""
        url = self.settings.uploads
        for file in sorted(FILES, key=lambda name: -(recording / name).stat().st_size):
            if is_bucket(url):
                S3Objects(url).put(f"{DEMO}/{file}", recording / file)
            else:
                FolderObjects(Path(url)).put(f"{DEMO}/{file}", recording / file)

    def wait_for(self, job: str, count: int, *, ended: bool = True) -> tuple[Run, ...]:
        """All runs, once so many of a job are there."""
        wait_for(
            self.daemon,
            lambda: sum(run.ended or not ended for run in self.runs(job)) >= count,
            f"{self.settings.uploads}: {count} of {job}",
            PATIENCE,
        )
        return tuple(runs_of(self.instance))


@pytest.fixture(scope="module")
def stories(
    seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Story]]:
    """An upload arrives, its datasets are built, and it is uploaded again with other words."""
    root = tmp_path_factory.mktemp("daemon")
    recordings = root / "first", root / "second"
    for recording, title in zip(recordings, ("Tick the box", "Tick the box, please"), strict=True):
        write_recording(recording, replace(script(click("Agree")), title=title), SMALL)
    with ExitStack() as stack:
        stack.enter_context(seaweedfs.connected())
        bucket = seaweedfs.make_bucket()
        told = {kind: stack.enter_context(_story(root / kind)) for kind in KINDS}
        yield told
