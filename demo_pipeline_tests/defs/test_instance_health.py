"""The check `dagster` of `demo-pipeline doctor`: hanging runs, the daemon and the sensors."""

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
from demo_pipeline_tests.defs.bench import Bench, open_bench

NOW = 1_800_000_000.0


@pytest.fixture
def instance_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with open_bench(tmp_path, kept=True) as opened:
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
        (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        yield opened


def examined(instance_bench: Bench, *, expect_daemon: bool = False) -> Finding:
    finding = instance_health.examine_instance(
        instance_bench.workspace, expect_daemon=expect_daemon
    )
    assert finding.check == "dagster"
    return finding


def start_run(instance_bench: Bench) -> str:
    """Records a started run that no process executes, and returns its id."""
    job = instance_bench.definitions.resolve_job_def("read_osworld_tasks")
    run = instance_bench.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    instance_bench.instance.report_engine_event("began", run)
    return run.run_id


def beat(instance: dg.DagsterInstance, seconds_ago: float) -> None:
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - seconds_ago, "SENSOR", "1", []))


def test_a_healthy_instance_is_ok_and_the_message_tells_each_part(instance_bench):
    finding = examined(instance_bench)
    assert finding.level is HealthLevel.OK
    home, runs, daemon, *sensors = finding.message.split("; ")
    assert home == str(instance_bench.instance.root_directory)
    assert runs == "0 runs in progress, none of them hangs"
    assert daemon.startswith("no daemon runs (never seen)")
    assert len(sensors) == 3
    assert sensors[0] == "sensor new_uploads was never evaluated"


def test_a_run_without_an_event_for_hours_is_named(instance_bench, monkeypatch):
    run_id = start_run(instance_bench)
    assert examined(instance_bench).level is HealthLevel.OK
    monkeypatch.setattr(instance_health, "STALE_RUN_SECONDS", -1.0)
    finding = examined(instance_bench)
    assert finding.level is HealthLevel.ERROR
    assert finding.values["runs"] == {"level": "error", "running": 1, "stale": [run_id]}
    assert run_id[:8] in finding.message


def test_a_run_whose_process_was_killed_is_named_with_what_closes_it(instance_bench):
    run_id = start_run(instance_bench)
    locks = lock_folder(Path(instance_bench.instance.root_directory))
    locks.mkdir(parents=True)
    (locks / f"{run_id}.run").write_text("first")  # a killed process leaves such a file
    finding = examined(instance_bench)
    assert finding.level is HealthLevel.WARNING
    assert finding.values["runs"] == {"level": "warning", "running": 1, "dead": [run_id]}
    assert "the daemon, or the next `demo-pipeline run`, closes them" in finding.message


def test_a_dead_daemon_is_an_error_once_runs_wait_for_it(instance_bench):
    def daemon_level() -> object:
        values = examined(instance_bench).values["daemon"]
        assert isinstance(values, dict)
        return values["level"]

    instance = instance_bench.instance
    beat(instance, seconds_ago=3600)
    assert daemon_level() == "ok"
    job = instance_bench.definitions.resolve_job_def("read_osworld_tasks")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.NOT_STARTED)
    assert daemon_level() == "error"
    finding = examined(instance_bench)
    assert finding.level is HealthLevel.ERROR
    assert "no daemon runs (last seen 2" in finding.message
    beat(instance, seconds_ago=10)
    assert daemon_level() == "ok"
    daemon = examined(instance_bench, expect_daemon=True).values["daemon"]
    assert isinstance(daemon, dict)
    assert daemon["queued_runs"] == 1
    assert daemon["level"] == "ok"


def test_the_sensors_are_those_of_the_definitions(instance_bench):
    sensors = build_defs(instance_bench.workspace.settings).sensors or ()
    intervals = {s.name: getattr(s, "minimum_interval_seconds", None) or 30 for s in sensors}
    assert instance_health.sensor_intervals(instance_bench.workspace.settings) == intervals


def sensor(
    status: TickStatus | None, age: float = 5, *, running: bool = True, interval: int | None = 30
) -> Finding:
    """Returns the finding about a sensor that was last evaluated `age` seconds ago."""
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
    assert finding.message.startswith("sensor new_uploads ")
