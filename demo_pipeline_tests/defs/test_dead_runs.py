"""Tests that exactly the runs whose processes were killed are found, whoever launched them."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.defs import dead_runs as dead_runs_module
from demo_pipeline.defs.dead_runs import close_dead_runs, dead_run_ids
from demo_pipeline.defs.maintenance import is_being_processed
from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline.defs.resources import Roots, roots_resource
from demo_pipeline.runs.run_locks import dead_runs, held, lock_folder
from demo_pipeline.settings import Settings

WAIT = """
import sys, time
from pathlib import Path
import dagster as dg
from demo_pipeline.defs.resources import Roots, roots_resource
from demo_pipeline.settings import Settings

@dg.op
def wait(roots: Roots) -> None:
    print("at work", flush=True)
    time.sleep(600)

@dg.job(resource_defs={"roots": roots_resource(Settings())})
def waiting():
    wait()

with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    waiting.execute_in_process(instance=instance, tags={"dagster/partition": "first"})
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


@dg.op
def work(roots: Roots) -> str:
    return roots.workspace.settings.store


def job_of(settings: Settings) -> dg.JobDefinition:
    @dg.job(resource_defs={"roots": roots_resource(settings)})
    def job() -> None:
        work()

    return job


def begun(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, **tags: str) -> str:
    """Records a run with this status that was launched a day ago, and returns its id."""
    return launched(instance, status, 86400.0, **tags)


def launched(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus, seconds_ago: float, **tags: str
) -> str:
    """Records a run with this status that was launched some seconds ago, and returns its id."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    job = job_of(Settings())
    run = instance.create_run_for_job(job, tags={PARTITION_TAG: "first", **tags}, status=status)
    instance.report_engine_event("launched", run)
    database = Path(instance.root_directory, "history", "runs.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        connection.execute("UPDATE runs SET update_timestamp = ?", (text,))
    return run.run_id


def server_tag(path: Path) -> dict[str, str]:
    return {".dagster/grpc_info": f'{{"host": "localhost", "socket": "{path}"}}'}


def test_a_killed_process_leaves_a_run_that_is_closed(instance):
    """The resource `roots` locks the file of the run, so it does not matter who starts the run."""
    home = Path(instance.root_directory)
    command = [sys.executable, "-c", WAIT, str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        assert not dead_run_ids(instance)
        assert close_dead_runs(instance) == []
        assert is_being_processed(instance, "first")
        process.send_signal(signal.SIGKILL)
    [run_id] = dead_run_ids(instance)
    assert not is_being_processed(instance, "first")
    assert close_dead_runs(instance) == ["first"]
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert not list(lock_folder(home).iterdir())


def test_a_run_that_ends_leaves_no_lock(instance):
    assert job_of(Settings()).execute_in_process(instance=instance).success
    assert not list(lock_folder(Path(instance.root_directory)).iterdir())


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_a_run_whose_server_ended_before_its_process_locked_it_is_closed(
    instance, tmp_path, status
):
    path = tmp_path / "server"
    run_id = begun(instance, status, **server_tag(path))
    assert dead_run_ids(instance) == {run_id}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        assert not dead_run_ids(instance)  # the server may be about to start the process
    # The socket file still exists, but no server listens.
    assert dead_run_ids(instance) == {run_id}
    with held(lock_folder(Path(instance.root_directory)), run_id, "first"):
        assert not dead_run_ids(instance)  # the process has locked the file after all
    assert close_dead_runs(instance) == ["first"]


def test_a_fresh_launch_and_runs_of_other_machines_are_left_alone(instance, tmp_path, monkeypatch):
    run_id = begun(instance, dg.DagsterRunStatus.STARTED, **server_tag(tmp_path / "server"))
    monkeypatch.setattr(dead_runs_module, "_ORPHAN_SECONDS", time.time())
    assert not dead_run_ids(instance)
    monkeypatch.undo()
    (Path(instance.root_directory) / "history" / "runs" / f"{run_id}.db").unlink()
    assert not dead_run_ids(instance)


def test_a_run_whose_server_is_gone_is_closed_soon_after_its_launch(instance, tmp_path):
    """Two such runs fill the queue, and block every new upload until they are closed."""
    status = dg.DagsterRunStatus.STARTING
    run_id = launched(instance, status, 15.0, **server_tag(tmp_path / "server"))
    assert dead_run_ids(instance) == {run_id}


@pytest.mark.parametrize(("seconds_ago", "is_dead"), [(15.0, False), (90.0, True)])
def test_a_launch_that_has_no_server_yet_gets_a_minute(instance, seconds_ago, is_dead):
    launched(instance, dg.DagsterRunStatus.STARTING, seconds_ago)
    assert bool(dead_run_ids(instance)) is is_dead


def test_a_run_of_somebody_s_own_process_without_a_server_is_left_alone(instance):
    begun(instance, dg.DagsterRunStatus.STARTED)
    assert not dead_run_ids(instance)


def test_a_run_that_was_being_cancelled_is_cancelled(instance, tmp_path):
    tags = server_tag(tmp_path / "server")
    run_id = begun(instance, dg.DagsterRunStatus.CANCELING, **tags)
    close_dead_runs(instance)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED


def test_drafts_of_locks_are_removed_some_time_after_a_kill(tmp_path):
    folder = tmp_path / "locks"
    folder.mkdir()
    old = folder / "old.new"
    new = folder / "new.new"
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, 0))
    assert dead_runs(folder) == {}
    assert [path.name for path in folder.iterdir()] == ["new.new"]


@pytest.mark.parametrize("config", [{"store": "/elsewhere"}, {"uploads": "/elsewhere"}])
def test_no_run_can_be_given_other_roots(instance, config: dict[str, Any], tmp_path):
    job = job_of(Settings(store=str(tmp_path / "store")))
    with pytest.raises(dg.DagsterInvalidConfigError):
        job.execute_in_process(
            instance=instance, run_config={"resources": {"roots": {"config": config}}}
        )
    result = job.execute_in_process(instance=instance)
    assert result.output_for_node("work") == str(tmp_path / "store")
