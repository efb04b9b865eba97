"""What a command builds, and what it tells Dagster of it."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.cli.console import report_run
from demo_pipeline.defs import local_runs
from demo_pipeline.defs.claims import claim, living_claims
from demo_pipeline.defs.local_runs import process_and_report, register_uploads, take_unreported
from demo_pipeline.defs.run_history import (
    claims_folder,
    demonstrations_of,
    open_table,
)
from demo_pipeline.defs.sensors import discover
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.runs import batch
from demo_pipeline.runs.batch import DemonstrationTask
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import run_stage
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DiscoverySettings, Settings
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.uploads import spoil_log, upload

IDS = ["one", "two", "three", "four"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Path) -> Workspace:
    """The uploads `one` to `four`, of which `three` has a log without a valid line."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    for name in IDS:
        upload(recording, tmp_path / "uploads", name)
    spoil_log(tmp_path / "uploads" / "three")
    places: Any = {"uploads": str(tmp_path / "uploads"), "store": str(tmp_path / "store")}
    discovery = DiscoverySettings(stable_seconds=0)
    made = Workspace.open(
        Settings(**places, osworld_tasks=str(tmp_path / "tasks"), discovery=discovery)
    )
    assert register_uploads(made) == (sorted(IDS), sorted(IDS))
    return made


def processed(workspace: Workspace, *keys: str) -> dict[str, DemonstrationResult]:
    tasks = [DemonstrationTask(key) for key in keys]
    running = process_and_report(workspace, tasks, 2, lambda *_: None)
    return {result.demonstration: result for result in running}


def test_a_defect_is_a_crash_even_with_an_old_quarantine_record(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(error: Exception) -> None:
        def build(*_: object) -> dict[str, object]:
            raise error

        changed = [replace(one, build=build) if one.name == "events" else one for one in STAGES]
        monkeypatch.setattr(batch, "STAGES", changed)

    failing(DemonstrationError(Problem("seen", "meta.json", "is odd", line=2, remedy="mend it")))
    held = processed(workspace, "one")["one"]
    failing(ZeroDivisionError("a defect\nof two lines"))
    crashed = processed(workspace, "one")["one"]
    assert (held.status, crashed.status) == (Status.REJECTED, Status.FAILED)
    report_run([held, crashed], 0, [], 0.0)
    shown = capsys.readouterr()
    assert "one events: meta.json:2: is odd (mend it)" in shown.err
    place = r"at demo_pipeline/runs/stage_runs\.py:[0-9]+"
    words = (
        rf"one events: ZeroDivisionError: a defect of the pipeline stopped events of one, {place}"
    )
    assert re.search(words, shown.err)
    assert "two lines" not in shown.err
    assert "1 quarantined, 1 crashed" in shown.out


def test_many_are_reported_by_one_run_and_the_bad_one_is_red(workspace: Workspace) -> None:
    found = processed(workspace, *IDS)
    assert {key: result.status for key, result in found.items()} == {
        "one": Status.BUILT,
        "two": Status.BUILT,
        "three": Status.REJECTED,
        "four": Status.BUILT,
    }
    assert found["one"].summary["steps"] == 3
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert run.job_name == "process_batch"
        assert not run.is_success
        assert sorted(demonstrations_of(run)) == sorted(IDS)
        assert [one for _ in range(2) for one in discover(instance, workspace).requests] == []
        made = instance.get_materialized_partitions(dg.AssetKey("trajectories"))
    assert made == {"one", "two", "four"}


def test_what_was_done_before_an_interruption_is_reported(workspace: Workspace) -> None:
    running = process_and_report(
        workspace, [DemonstrationTask(key) for key in IDS], 1, lambda *_: None
    )
    first = next(running)
    running.close()
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert demonstrations_of(run) == [first.demonstration]
        assert run.is_finished
        # What it did not come to is requested once its process has ended.
        assert set(living_claims(claims_folder(instance, workspace))) == set(IDS)
    assert workspace.store.remove_leftovers() == []
    again = {key: result.status for key, result in processed(workspace, *IDS).items()}
    assert again.pop("three") is Status.REJECTED
    assert all(status.is_done for status in again.values())


def test_no_run_is_requested_for_what_a_living_command_works_on(workspace: Workspace) -> None:
    with dg.DagsterInstance.get() as instance:
        claims = claim(claims_folder(instance, workspace), ["one", "two"])
        requested = [
            request.id for _ in range(3) for request in discover(instance, workspace).requests
        ]
        assert set(requested) == {"three", "four"}
        assert claims.is_file()


@pytest.fixture
def killed(workspace: Workspace) -> Workspace:
    """A command was killed after it built the demonstration `one`, before it reported."""
    for stage in STAGES:
        run_stage(workspace, stage, "one")
    with dg.DagsterInstance.get() as instance:
        folder = claims_folder(instance, workspace)
    code = (
        "import sys; from pathlib import Path; from demo_pipeline.defs.claims import claim;"
        "claim(Path(sys.argv[1]), ['one'])"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    return workspace


def test_the_next_command_reports_what_a_killed_one_built(killed: Workspace) -> None:
    [key] = take_unreported(killed)
    assert key == "one"
    assert processed(killed, key)["one"].status is Status.CACHED
    with dg.DagsterInstance.get() as instance:
        for stage in STAGES:
            assert instance.get_materialized_partitions(dg.AssetKey(stage.name)) == {"one"}
    assert take_unreported(killed) == []


def test_the_next_tick_requests_a_run_that_reports_it(killed: Workspace) -> None:
    with dg.DagsterInstance.get() as instance:
        requests = [one for _ in range(3) for one in discover(instance, killed).requests]
        assert {one.reason for one in requests if one.id == "one"} == {"unreported"}
        with open_table(instance, killed) as table:
            assert "one" in table.by_id()
    assert take_unreported(killed) == []


def test_results_are_kept_when_dagster_cannot_be_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(local_runs, "build_defs", fail)
        assert processed(workspace, "one")["one"].status is Status.BUILT
    assert list_quarantine(workspace.store) == []
    with dg.DagsterInstance.get() as instance:
        assert list(living_claims(claims_folder(instance, workspace))) == ["one"]
