"""What the doctor finds in an instance: hanging runs, the daemon, sensors."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import TickStatus
from dagster._daemon.types import DaemonHeartbeat

from demo_pipeline.defs import build_defs, instance_health
from demo_pipeline.runs.health import Finding, HealthLevel
from demo_pipeline.runs.run_locks import lock_folder
from demo_pipeline_tests.defs.bench import Bench, bench

NOW = 1_800_000_000.0


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(tmp_path, kept=True) as opened:
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
        (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        yield opened


def found(made: Bench, **options: bool) -> dict[str, Finding]:
    workspace = made.workspace
    options = {"expect_daemon": False, **options}
    return {f.check: f for f in instance_health.examine_instance(workspace, **options)}


def start_run(made: Bench) -> str:
    """A run that began and whose process is gone."""
    job = made.definitions.resolve_job_def("read_osworld_tasks")
    run = made.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    made.instance.report_engine_event("began", run)
    return run.run_id


def beat(instance: dg.DagsterInstance, seconds_ago: float) -> None:
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - seconds_ago, "SENSOR", "1", []))


def test_a_run_without_a_word_for_hours_is_named(made, monkeypatch):
    run_id = start_run(made)
    assert found(made)["runs"].level is HealthLevel.OK
    monkeypatch.setattr(instance_health, "STALE_RUN_SECONDS", -1.0)
    stale = found(made)["runs"]
    assert stale.level is HealthLevel.ERROR
    assert stale.values == {"running": 1, "stale": [run_id]}
    assert run_id[:8] in stale.message


def test_a_run_whose_process_was_killed_is_named_with_what_closes_it(made):
    run_id = start_run(made)
    locks = lock_folder(Path(made.instance.root_directory))
    locks.mkdir(parents=True)
    (locks / f"{run_id}.run").write_text("first")  # as a killed process leaves it
    dead = found(made)["runs"]
    assert (dead.level, dead.values) == (HealthLevel.WARNING, {"running": 1, "dead": [run_id]})
    assert "the daemon, or the next `demo-pipeline run`, closes them" in dead.message


def test_a_daemon_that_died_is_an_error_as_soon_as_runs_wait_for_it(made):
    beat(made.instance, seconds_ago=3600)
    assert found(made)["daemon"].level is HealthLevel.OK
    job = made.definitions.resolve_job_def("read_osworld_tasks")
    made.instance.create_run_for_job(job, status=dg.DagsterRunStatus.NOT_STARTED)
    assert found(made)["daemon"].level is HealthLevel.ERROR
    beat(made.instance, seconds_ago=10)
    assert found(made)["daemon"].level is HealthLevel.OK
    assert "1 runs queued" in found(made, expect_daemon=True)["daemon"].message


def test_the_sensors_are_those_of_the_definitions(made):
    sensors = build_defs(made.workspace.settings).sensors or ()
    intervals = {s.name: getattr(s, "minimum_interval_seconds", None) or 30 for s in sensors}
    assert instance_health.sensor_intervals(made.workspace.settings) == intervals


def sensor(
    status: TickStatus | None, age: float = 5, *, running: bool = True, interval: int | None = 30
) -> Finding:
    """What is found about a sensor whose last tick was so and so many seconds ago."""
    ticks = [] if status is None else [SimpleNamespace(timestamp=NOW - age, status=status)]
    state: Any = SimpleNamespace(is_running=running)
    return instance_health._sensor("new_uploads", state, ticks, NOW, interval)


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (sensor(TickStatus.SKIPPED), HealthLevel.OK),
        (sensor(TickStatus.FAILURE), HealthLevel.ERROR),
        (sensor(TickStatus.SUCCESS, age=301), HealthLevel.WARNING),
        (sensor(TickStatus.SUCCESS, age=86_400, interval=None), HealthLevel.OK),
        (sensor(TickStatus.SUCCESS, running=False), HealthLevel.WARNING),
        (sensor(None), HealthLevel.WARNING),
        (sensor(None, interval=None), HealthLevel.OK),
    ],
    ids=["evaluated", "failed", "late", "no daemon", "off", "never", "never, no daemon"],
)
def test_the_last_evaluation_of_a_sensor_is_judged(finding, level):
    assert finding.level is level
    assert finding.check == "sensor new_uploads"
