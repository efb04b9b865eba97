"""What a command builds, and what it tells Dagster of it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from demo_pipeline.cli.tables import report_run
from demo_pipeline.defs import command_reports
from demo_pipeline.defs.claims import claim, living_claims, unreported
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.command_reports import Reporter, reported
from demo_pipeline.defs.dataset_assets import added_checks
from demo_pipeline.defs.demonstration_runs import (
    claims_folder,
    demonstrations_of,
    open_table,
)
from demo_pipeline.defs.sensors import discover, progress
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.runs import batch, dataset_builds
from demo_pipeline.runs.batch import DemonstrationTask
from demo_pipeline.runs.dataset_builds import BuiltDatasets
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import run_stage
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES, is_built, job_of
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DiscoverySettings, Settings
from demo_pipeline.stage import Stage
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.uploads import spoil_log, upload

IDS = ["one", "two", "three", "four"]
BUILT = [
    stage
    for stage in DATASET_STAGES
    if job_of(stage) != "report_quarantine" and is_built(stage, Settings())
]


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
    with dg.DagsterInstance.get() as instance:
        assert Reporter(instance, made).register_uploads() == (sorted(IDS), sorted(IDS))
    return made


@contextmanager
def command(workspace: Workspace) -> Iterator[Reporter]:
    """What a command tells Dagster."""
    with dg.DagsterInstance.get() as instance, reported(instance, workspace) as reporter:
        yield reporter


def built(reporter: Reporter, *keys: str) -> dict[str, DemonstrationResult]:
    tasks = [DemonstrationTask(key) for key in keys]
    running = reporter.process(tasks, 2, lambda *_: None)
    return {result.demonstration: result for result in running}


def processed(workspace: Workspace, *keys: str) -> dict[str, DemonstrationResult]:
    with command(workspace) as reporter:
        return built(reporter, *keys)


def left_unreported(workspace: Workspace) -> list[str]:
    with command(workspace) as reporter:
        return reporter.take_unreported(IDS)


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


def out_of_date(workspace: Workspace, instance: dg.DagsterInstance) -> set[tuple[str, str | None]]:
    """(asset, partition) that the UI calls Unsynced."""
    graph = build_defs(workspace.settings).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    places: list[tuple[str, str | None]] = [
        (stage.name, key) for stage in STAGES for key in ("one", "two")
    ]
    places += [(stage.name, None) for stage in BUILT]
    return {
        (name, key) for name, key in places if resolver.get_stale_causes(dg.AssetKey(name), key)
    }


def everything(workspace: Workspace, *keys: str) -> BuiltDatasets:
    """The catalog of tasks, these demonstrations, and the datasets, as `run` builds them."""
    with command(workspace) as reporter:
        reporter.build("read_osworld_tasks", None, force=False)
        built(reporter, *keys)
        return reporter.build("build_datasets", None, force=False)


def test_all_that_a_command_built_is_reported_by_one_run(workspace: Workspace) -> None:
    made_of = everything(workspace, "one", "two", "three")
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert out_of_date(workspace, instance) == set()
        state = progress(instance, workspace.settings)
        assert state.latest == state.built > 0
        known = instance.get_materialized_partitions(dg.AssetKey("records"))
        assert known == {"one", "two"}
        datasets = [dg.AssetKey(name) for name in made_of.results]
        assert {one.asset_entry.last_run_id for one in instance.get_asset_records(datasets)} <= {
            None,
            run.run_id,
        }
        said = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = {}
        for entry in said:
            assert entry.dagster_event is not None
            one = entry.dagster_event.asset_check_evaluation_data
            found[one.asset_key.path[-1], one.check_name] = one.passed
        stages: tuple[Stage[Any], ...] = (*STAGES, *BUILT)
        assert found.keys() == {
            (stage.name, name)
            for stage in stages
            for name in (*(check.name for check in stage.checks), *added_checks(stage))
        }
        bad = {name for name, passed in found.items() if not passed}
        assert {asset for asset, _ in bad} == {"events"}  # of the demonstration `three`
        # One more demonstration, and nothing but what it changes.
        everything(workspace, "four")
        assert out_of_date(workspace, instance) == set()
        state = progress(instance, workspace.settings)
        assert state.latest == state.built
        # A trajectory that another run reports meanwhile is not in these datasets.
        with command(workspace) as reporter:
            reporter.build("build_datasets", None, force=True)
            record = dg.AssetMaterialization("records", partition="one")
            instance.report_runless_asset_event(record)
            built(reporter, "two")
        state = progress(instance, workspace.settings)
        assert state.latest > state.built


def test_a_dataset_that_failed_is_red(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> dict[str, object]:
        raise ZeroDivisionError("a defect")

    changed = [replace(one, build=build) if one.name == "sft_samples" else one for one in BUILT]
    monkeypatch.setattr(dataset_builds, "DATASET_STAGES", changed)
    found = everything(workspace, "one")
    assert [line.partition(":")[0] for line in found.errors] == ["sft_samples"]
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.FAILURE
        planned = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
        [entry] = instance.all_logs(run.run_id, of_type=planned)
        assert entry.dagster_event is not None
        assert entry.dagster_event.asset_key == dg.AssetKey("sft_samples")
        [record] = instance.get_asset_records([dg.AssetKey("sft_samples")])
        assert record.asset_entry.last_run_id == run.run_id
        [failed] = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert failed.dagster_event is not None
        assert "ZeroDivisionError: a defect of the pipeline" in str(
            failed.dagster_event.step_failure_data
        )


def test_what_was_done_before_an_interruption_is_reported(workspace: Workspace) -> None:
    with command(workspace) as reporter:
        running = reporter.process([DemonstrationTask(key) for key in IDS], 1, lambda *_: None)
        first = next(running)
        running.close()
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert demonstrations_of(run) == [first.demonstration]
        assert run.is_finished
        # What it did not come to is requested once its process has ended.
        left = {*IDS} - {first.demonstration}
        assert living_claims(claims_folder(instance, workspace)) == left
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


def claim_in_a_process_of_its_own(folder: Path, work: str, *, fails: bool = False) -> None:
    code = (
        "import resource, sys; from pathlib import Path;"
        f"from demo_pipeline.defs.claims import claim; folder = Path(sys.argv[1]); {work}"
    )
    command = (sys.executable, "-c", code, str(folder))
    ended = subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    assert (ended.returncode != 0) is fails


@pytest.fixture
def killed(workspace: Workspace) -> Workspace:
    """A command was killed after it built the demonstration `one`, before it reported."""
    for stage in STAGES:
        run_stage(workspace, stage, "one")
    with dg.DagsterInstance.get() as instance:
        folder = claims_folder(instance, workspace)
    claim_in_a_process_of_its_own(folder, "claim(folder, ['one'])")
    return workspace


def test_the_next_command_reports_what_a_killed_one_built(killed: Workspace) -> None:
    [key] = left_unreported(killed)
    assert key == "one"
    assert processed(killed, key)["one"].status is Status.CACHED
    with dg.DagsterInstance.get() as instance:
        for stage in STAGES:
            assert instance.get_materialized_partitions(dg.AssetKey(stage.name)) == {"one"}
    assert left_unreported(killed) == []


def test_what_a_killed_command_built_is_claimed_until_it_is_reported(killed: Workspace) -> None:
    with dg.DagsterInstance.get() as instance:
        folder = claims_folder(instance, killed)
        assert Reporter(instance, killed).take_unreported(["two"]) == []
        assert living_claims(folder) == set()
    claim_in_a_process_of_its_own(folder, "claim(folder, ['one', 'gone'])")
    with dg.DagsterInstance.get() as instance:
        assert Reporter(instance, killed).take_unreported(IDS) == ["one"]
        assert living_claims(folder) == {"one"}
        assert unreported(folder) == {}


def test_a_full_disk_leaves_the_claims_that_were_written(tmp_path: Path) -> None:
    claim_in_a_process_of_its_own(
        tmp_path,
        "claim(folder, ['one']); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "claim(folder, map(str, range(10_000)))",
        fails=True,
    )
    assert list(unreported(tmp_path).values()) == [["one"]]


def test_the_next_tick_requests_a_run_that_reports_it(killed: Workspace) -> None:
    with dg.DagsterInstance.get() as instance:
        requests = [one for _ in range(3) for one in discover(instance, killed).requests]
        assert {one.reason for one in requests if one.id == "one"} == {"unreported"}
        with open_table(instance, killed) as table:
            assert "one" in table.by_id()
    assert left_unreported(killed) == []


def test_results_are_kept_when_dagster_cannot_be_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(command_reports, "build_batch_job", fail)
        assert processed(workspace, "one")["one"].status is Status.BUILT
    assert list_quarantine(workspace.store) == []
    with dg.DagsterInstance.get() as instance:
        assert list(living_claims(claims_folder(instance, workspace))) == ["one"]
