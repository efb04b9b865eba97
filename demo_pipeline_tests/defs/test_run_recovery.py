"""Runs whose process is gone are closed, and nothing else is."""

import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG

from demo_pipeline.defs import run_recovery
from demo_pipeline.defs.run_recovery import (
    claim_run,
    close_dead_runs,
    local_run_tags,
    recover,
)
from demo_pipeline.defs.tags import (
    MAX_RETRIES_TAG,
    PROCESS_TAG,
)
from demo_pipeline.files.processes import ProcessIdentity, this_process
from demo_pipeline_tests.defs.bench import Bench, bench, ticked
from demo_pipeline_tests.uploads import upload

GONE = replace(this_process(), start="1")
RESTARTED = replace(this_process(), boot="before")
ELSEWHERE = replace(this_process(), host="elsewhere/1", pid=7)
_STARTED = dg.DagsterRunStatus.STARTED


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        upload(recording, one.uploads, "one")
        one.catalogue()
        yield one


def started(
    made: Bench,
    process: ProcessIdentity | None,
    job: str = "process_demonstration",
    status: Any = _STARTED,
    **tags: str,
) -> str:
    """A run that a process executes, as the command line leaves it when it is killed."""
    run_id = str(uuid.uuid4())
    owner = {} if process is None else {PROCESS_TAG: f"{run_id} {process}", MAX_RETRIES_TAG: "0"}
    definition = made.definitions.resolve_job_def(job)
    made.instance.create_run_for_job(
        definition, run_id=run_id, status=status, tags={**owner, **tags}
    )
    return run_id


def status(made: Bench, run_id: str) -> dg.DagsterRunStatus:
    run = made.instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def tag(made: Bench, run_id: str, name: str) -> str | None:
    run = made.instance.get_run_by_id(run_id)
    assert run is not None
    return run.tags.get(name)


@pytest.mark.parametrize(("process", "said"), [(GONE, "killed"), (RESTARTED, "was restarted")])
def test_the_run_of_a_dead_process_is_closed_and_says_so(
    made: Bench, process: ProcessIdentity, said: str
) -> None:
    run_id = started(made, process)
    [line] = close_dead_runs(made.instance)
    assert f"run {run_id}" in line
    assert said in line
    assert status(made, run_id) is dg.DagsterRunStatus.FAILURE
    assert close_dead_runs(made.instance) == []


@pytest.mark.parametrize("process", [this_process(), ELSEWHERE, None])
def test_a_run_whose_process_may_live_stays_open(
    made: Bench, process: ProcessIdentity | None
) -> None:
    run_id = started(made, process)
    assert close_dead_runs(made.instance) == []
    assert status(made, run_id) is _STARTED


def test_a_tag_that_dagster_copied_from_the_run_before_says_nothing(made: Bench) -> None:
    first = started(made, GONE)
    copied = tag(made, first, PROCESS_TAG)
    assert copied is not None
    retried = started(made, None, **{PROCESS_TAG: copied})
    assert len(close_dead_runs(made.instance)) == 1
    assert status(made, retried) is _STARTED


@pytest.mark.parametrize(
    ("before", "after"),
    [("NOT_STARTED", "FAILURE"), ("STARTING", "FAILURE"), ("CANCELING", "CANCELED")],
)
def test_it_is_closed_wherever_it_was_killed(made: Bench, before: str, after: str) -> None:
    run_id = started(made, GONE, status=dg.DagsterRunStatus(before))
    assert len(close_dead_runs(made.instance)) == 1
    assert status(made, run_id).value == after


def test_a_result_that_was_reported_meanwhile_stays(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = started(made, GONE)

    def finish(_mark: str) -> bool:
        run = made.instance.get_run_by_id(run_id)
        assert run is not None
        made.instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, run.job_name), run_id
        )
        return True

    monkeypatch.setattr(run_recovery, "has_ended", finish)
    assert close_dead_runs(made.instance) == []
    assert status(made, run_id) is dg.DagsterRunStatus.SUCCESS


def test_one_run_that_cannot_be_closed_keeps_no_other_open(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [started(made, GONE) for _ in range(3)]
    close = run_recovery._close

    def fail(instance: dg.DagsterInstance, run_id: str, reason: str) -> bool:
        if run_id == runs[1]:
            raise OSError
        return close(instance, run_id, reason)

    monkeypatch.setattr(run_recovery, "_close", fail)
    assert len(close_dead_runs(made.instance)) == 2


class TestAfterwards:
    """Nothing waits for what is dead."""

    def test_the_sensors_close_it_at_the_beginning_of_a_tick(self, made: Bench) -> None:
        for sensor in ("new_uploads", "rebuild_datasets"):
            run_id = started(made, GONE)
            ticked(made, sensor)
            assert status(made, run_id) is dg.DagsterRunStatus.FAILURE

    def test_a_dead_build_of_the_datasets_does_not_block_the_next(self, made: Bench) -> None:
        made.process("one")
        started(made, GONE, "build_datasets")
        assert len(ticked(made, "rebuild_datasets").requests) == 1


class TestStarting:
    """Launched, and killed before its process could say who it is."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Iterator[Bench]:
        (tmp_path / "kept").mkdir()
        with bench(tmp_path / "kept", kept=True) as one:
            yield one

    def launched(self, made: Bench, path: Path, state: str = "STARTING") -> str:
        address = json.dumps({"host": "localhost", "socket": str(path)})
        now = dg.DagsterRunStatus(state)
        return started(made, None, status=now, **{GRPC_INFO_TAG: address})

    def later(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + seconds)

    @pytest.mark.parametrize(("state", "left"), [("STARTING", True), ("STARTED", False)])
    def test_it_is_closed_when_its_code_server_does_not_answer(
        self,
        kept: Bench,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        state: str,
        *,
        left: bool,
    ) -> None:
        path = tmp_path / "left"
        if left:  # a killed server leaves the file
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        run_id = self.launched(kept, path, state)
        assert close_dead_runs(kept.instance) == []  # its process may be about to begin
        self.later(monkeypatch, 20)
        [line] = close_dead_runs(kept.instance)
        assert "ended before it began" in line
        assert status(kept, run_id) is dg.DagsterRunStatus.FAILURE

    def test_it_stays_open_while_its_code_server_answers(
        self, kept: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "here"))
            server.listen()
            self.launched(kept, tmp_path / "here")
            self.later(monkeypatch, 3600)
            assert close_dead_runs(kept.instance) == []

    def test_it_is_closed_when_its_launcher_ended_before_it_left_an_address(
        self, kept: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_id = started(kept, None, status=dg.DagsterRunStatus.STARTING)
        self.later(monkeypatch, 20)
        assert close_dead_runs(kept.instance) == []
        self.later(monkeypatch, 40)
        assert len(close_dead_runs(kept.instance)) == 1
        assert status(kept, run_id) is dg.DagsterRunStatus.FAILURE

    def test_what_was_launched_in_another_way_is_left_to_its_launcher(
        self, kept: Bench, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started(kept, None, status=dg.DagsterRunStatus.STARTING, **{GRPC_INFO_TAG: "no json"})
        started(made, None, status=dg.DagsterRunStatus.STARTING)  # its runs are in no files
        self.later(monkeypatch, 3600)
        assert close_dead_runs(kept.instance) == []
        assert close_dead_runs(made.instance) == []


def test_a_run_of_the_daemon_is_claimed_by_the_process_that_executes_it(made: Bench) -> None:
    result = made.process("one")
    assert tag(made, result.run_id, PROCESS_TAG) == f"{result.run_id} {this_process()}"


def test_claiming_a_run_twice_writes_one_tag(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made.instance.get_run_by_id(started(made, None))
    assert run is not None
    written: list[str] = []
    monkeypatch.setattr(
        type(made.instance), "add_run_tags", lambda _, run_id, _tags: written.append(run_id)
    )
    claim_run(made.instance, run)
    claim_run(made.instance, run)
    assert written == [run.run_id]


def test_dagster_never_retries_a_run_that_it_cannot_launch() -> None:
    assert local_run_tags("id")[MAX_RETRIES_TAG] == "0"


def test_what_a_dead_process_left_in_the_store_is_removed_at_the_next_run(made: Bench) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from demo_pipeline.store.store import Store\n"
        "with Store(Path(sys.argv[1])).stage('events/one') as staging:\n"
        "    (staging.path / 'half').write_bytes(b'x')\n"
        "    os._exit(9)\n"
    )
    store = Path(made.settings.store)
    subprocess.run([sys.executable, "-c", code, str(store)], check=False)
    with made.workspace.store.stage("events/two") as staging:
        assert len(list((store / ".staging").rglob("half"))) == 1
        [line] = recover(made.instance, made.workspace)
        assert "of a dead process was removed" in line
        assert list((store / ".staging").rglob("half")) == []
        assert staging.path.is_dir()
