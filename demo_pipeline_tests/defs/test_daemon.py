"""What people see with Dagster's real daemon running: uploads become datasets by themselves.

The daemon looks at a bucket on SeaweedFS, where the upload is changed as well; the tests read what
it left. `doors/test_browser.py` has one over a folder.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.instance_health import examine_instance
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import Run, dagster_home, dagster_process, runs_of, wait_for
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.s3_server import SECRET_KEY, S3Server
from demo_pipeline_tests.simulator.script import click

DEMO = "20260301_080000"
PATIENCE = 240.0  # seconds for one step of the story; an idle machine needs twenty
COMMAND = ("dagster-daemon", "run", "-w", "workspace.yaml")


@dataclass
class Story:
    """The daemon with its roots, and all its runs when the datasets were first built."""

    home: Path
    settings: Settings
    instance: dg.DagsterInstance
    daemon: subprocess.Popen[bytes]
    built: tuple[Run, ...] = ()

    def runs(self) -> tuple[Run, ...]:
        return tuple(runs_of(self.instance))

    def upload(self, recording: Path) -> None:
        """The three files, or those that are there, one after the other."""
        objects = Workspace.open(self.settings).uploads.objects
        for file in filter(lambda name: (recording / name).is_file(), RECORDING_FILES):
            objects.put(f"{DEMO}/{file}", recording / file)

    def until(self, job: str, count: int, *, ended: bool) -> tuple[Run, ...]:
        """All runs, once there are so many of a job."""

        def done() -> bool:
            return sum(run.ended or not ended for run in of(job, self.runs())) >= count

        wait_for(self.daemon, done, f"{self.settings.uploads}: {count} of {job}", PATIENCE)
        return self.runs()


def of(job: str, runs: tuple[Run, ...]) -> list[Run]:
    return [run for run in runs if run.job == job]


@pytest.fixture(scope="module")
def story(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """An upload arrives and the datasets are built; then its meta.json is replaced."""
    root = tmp_path_factory.mktemp("daemon")
    for name, title in {"first": "Tick the box", "second": "Tick the box, please"}.items():
        write_recording(root / name, replace(script(click("Agree")), title=title), SMALL)
    for file in set(RECORDING_FILES) - {"meta.json"}:
        (root / "second" / file).unlink()
    with ExitStack() as stack:
        stack.enter_context(seaweedfs.connected())
        values = {
            "DEMO_PIPELINE_UPLOADS": seaweedfs.make_bucket(),
            "DEMO_PIPELINE_STORE": str(root / "store"),
            "DEMO_PIPELINE_CACHE": str(root / "cache"),
            "DEMO_PIPELINE_OSWORLD_TASKS": str(root / "tasks"),
            "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "0",
            "DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS": "1",
        }
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in values.items():
            patch.setenv(name, value)
        settings = Settings()
        instance = stack.enter_context(dagster_home(root / "home"))
        daemon = stack.enter_context(dagster_process(COMMAND, root / "home", values))
        told = Story(root / "home", settings, instance, daemon)
        told.until("report_quarantine", 1, ended=False)  # it follows from the first look
        told.upload(root / "first")
        told.built = told.until("build_datasets", 1, ended=True)
        told.upload(root / "second")
        told.until("process_demonstration", 2, ended=True)
        told.until("build_datasets", 2, ended=False)
        yield told


def test_an_upload_is_processed_and_then_the_datasets_are_built_once(story: Story) -> None:
    [processed] = of("process_demonstration", story.built)
    assert (processed.key, processed.reason, processed.status) == (DEMO, "new", "SUCCESS")
    [datasets] = of("build_datasets", story.built)
    assert datasets.status == "SUCCESS"


def test_only_requested_runs_are_launched(story: Story) -> None:
    once = ["read_osworld_tasks", "report_quarantine"]
    twice = ["process_demonstration", "build_datasets"]  # the upload was changed
    assert sorted(run.job for run in story.runs()) == sorted([*once, *twice, *twice])


def test_a_changed_upload_makes_exactly_one_more_run(story: Story) -> None:
    runs = of("process_demonstration", story.runs())
    assert [(run.key, run.reason) for run in runs] == [(DEMO, "new"), (DEMO, "changed")]
    assert {run.status for run in runs} == {"SUCCESS"}


def test_the_datasets_hold_the_demonstration(story: Story) -> None:
    store = Workspace.open(story.settings).store
    assert store.outputs("trajectories") == [f"trajectories/{DEMO}"]
    folder = store.open("dataset")[0]
    assert (folder / "trajectories" / DEMO / "task.json").is_file()


def test_the_doctor_finds_the_daemon_and_the_sensors_at_work(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(story.home))
    workspace = Workspace.open(story.settings)
    found = {f.check: f for f in examine_instance(workspace, expect_daemon=True)}
    assert found["daemon"].message.startswith("running")
    sensors = [finding for check, finding in found.items() if check.startswith("sensor ")]
    assert len(sensors) == 5
    assert all("last evaluated at" in finding.message for finding in sensors)


def test_no_secret_is_in_what_dagster_keeps(story: Story) -> None:
    kept: dict[Path, bytes] = {}
    for path in story.home.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # SQLite's own come and go
            kept[path] = path.read_bytes()
    assert any(path.suffix == ".db" for path in kept)
    assert [path for path, data in kept.items() if SECRET_KEY.encode() in data] == []
