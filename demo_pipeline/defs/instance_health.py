"""Checks Dagster's home, runs that hang, the daemon and the sensors.

This is the check `dagster` of `demo-pipeline doctor`.
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs.dead_runs import dead_run_ids
from demo_pipeline.defs.local_instance import ask_instance, instance_fault
from demo_pipeline.runs.health import Finding, HealthLevel, combined, healthy
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings

# Time without an event after which a run counts as hanging. No stage takes two hours.
STALE_RUN_SECONDS = 7200.0
# Maximum age of the last heartbeat of a running daemon, which sends one every 30 seconds.
DAEMON_SECONDS = 300.0
LATE_TICKS = 10  # number of intervals without an evaluation after which a sensor is late
_SENSOR_DAEMON = "SENSOR"
_SENSORS = ("new_uploads", "rebuild_datasets", "tasks_changed")
_QUEUED = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
_UNFINISHED = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def examine_instance(workspace: Workspace, *, expect_daemon: bool) -> Finding:
    """Examines Dagster's instance in DAGSTER_HOME.

    Args:
        expect_daemon: whether a missing daemon is an error even if no run is queued.
    """
    home = Path(os.environ["DAGSTER_HOME"])  # the command has checked that it is a directory
    if not os.access(home, os.W_OK | os.X_OK):
        return Finding("dagster", HealthLevel.ERROR, f"{home} cannot be written")
    parts = [_home(home)]
    try:
        with dg.DagsterInstance.get() as instance:
            sensor_states = ask_instance(instance)
            parts += _instance(instance, sensor_states, workspace, expect_daemon=expect_daemon)
    except Exception as error:  # noqa: BLE001 - Dagster, YAML and databases raise their own errors
        parts.append(Finding("instance", HealthLevel.ERROR, instance_fault(home, error)))
    return combined("dagster", parts)


def _home(home: Path) -> Finding:
    values = {"path": str(home)}
    if (home / "dagster.yaml").is_file():
        return Finding("home", HealthLevel.OK, str(home), values)
    message = f"{home} has no dagster.yaml, so runs are not limited; copy the one of the checkout"
    return Finding("home", HealthLevel.WARNING, message, values)


def _instance(
    instance: dg.DagsterInstance,
    sensor_states: Sequence[Any],
    workspace: Workspace,
    *,
    expect_daemon: bool,
) -> list[Finding]:
    """Returns the findings about runs, the daemon and each sensor."""
    now = time.time()
    heartbeat = instance.get_daemon_heartbeats().get(_SENSOR_DAEMON)
    last_seen = heartbeat.timestamp if heartbeat else None
    is_alive = last_seen is not None and now - last_seen < DAEMON_SECONDS
    queued = instance.get_runs_count(dg.RunsFilter(statuses=list(_QUEUED)))
    findings = [
        _stale_runs(instance, now),
        _daemon(last_seen, is_alive=is_alive, queued=queued, is_expected=expect_daemon),
    ]
    state_by_name = {state.instigator_name: state for state in sensor_states}
    selector_ids = [state.selector_id for state in sensor_states]
    ticks = instance.get_batch_ticks(selector_ids, limit=1) if selector_ids else {}
    for name, interval in sensor_intervals(workspace.settings).items():
        state = state_by_name.get(name)
        last_ticks = ticks.get(state.selector_id, ()) if state else ()
        findings.append(_sensor(name, state, last_ticks, now, interval if is_alive else None))
    return findings


def sensor_intervals(settings: Settings) -> dict[str, int]:
    """Returns the seconds between two evaluations for each sensor name.

    The Dagster definitions contain the same numbers, but `doctor` does not load them, to be fast.
    """
    return dict.fromkeys(_SENSORS, settings.discovery.interval_seconds)


def _stale_runs(instance: dg.DagsterInstance, now: float) -> Finding:
    """Checks whether the unfinished runs still write events, and whether their processes run."""
    records = instance.get_run_records(dg.RunsFilter(statuses=list(_UNFINISHED)))
    dead_ids = dead_run_ids(instance)
    stale = []
    dead = []
    for record in records:
        run_id = record.dagster_run.run_id
        if run_id in dead_ids:
            dead.append(run_id)
            continue
        events = instance.get_records_for_run(run_id, limit=1, ascending=False).records
        last_event = events[0].timestamp if events else record.create_timestamp.timestamp()
        if now - last_event > STALE_RUN_SECONDS:
            stale.append(run_id)
    count = len(records)
    if stale:
        message = (
            f"{len(stale)} of {count} runs wrote no event for {STALE_RUN_SECONDS / 3600:.0f} "
            f"hours; terminate them in the UI: {', '.join(run[:8] for run in stale)}"
        )
        return Finding("runs", HealthLevel.ERROR, message, {"running": count, "stale": [*stale]})
    if dead:
        message = (
            f"the processes of {len(dead)} of {count} runs were killed; the daemon, or the next "
            f"`demo-pipeline run`, closes them: {', '.join(run[:8] for run in dead)}"
        )
        return Finding("runs", HealthLevel.WARNING, message, {"running": count, "dead": [*dead]})
    return healthy("runs", f"{count} runs in progress, none of them hangs", running=count)


def _daemon(last_seen: float | None, *, is_alive: bool, queued: int, is_expected: bool) -> Finding:
    values = {"last_seen": iso_time(last_seen), "queued_runs": queued}
    if is_alive:
        message = f"the daemon runs, {queued} runs queued"
        return Finding("daemon", HealthLevel.OK, message, values)
    seen = f"last seen {iso_time(last_seen)}" if last_seen else "never seen"
    if queued or is_expected:
        message = (
            f"no daemon runs ({seen}), {queued} runs queued; start `make ui` or dagster-daemon"
        )
        return Finding("daemon", HealthLevel.ERROR, message, values)
    message = f"no daemon runs ({seen}): uploads are processed by `demo-pipeline run` only"
    return Finding("daemon", HealthLevel.OK, message, values)


def _sensor(
    name: str, state: Any, ticks: Sequence[Any], now: float, interval: int | None
) -> Finding:
    """Judges the last evaluation of a sensor.

    Args:
        state: the stored state, or None if Dagster has not started the sensor yet.
        ticks: a list with the last evaluation, or an empty list if there was none.
        now: the current time in epoch seconds.
        interval: number of seconds between two evaluations, or None if no daemon runs.
    """
    last = ticks[0].timestamp if ticks else None
    status = ticks[0].status.value if ticks else None
    level = HealthLevel.OK
    message = f"sensor {name} last evaluated at {iso_time(last)}"
    if state is not None and not state.is_running:
        level = HealthLevel.WARNING
        message = f"sensor {name} is switched off; switch it on under Automation"
    elif status == "FAILURE":
        level = HealthLevel.ERROR
        message = f"sensor {name} failed at {iso_time(last)}; open it under Automation"
    elif last is None:
        level = HealthLevel.OK if interval is None else HealthLevel.WARNING
        message = f"sensor {name} was never evaluated"
    elif interval is not None and now - last > LATE_TICKS * interval:
        level = HealthLevel.WARNING
        message = f"sensor {name} was last evaluated at {iso_time(last)}, although the daemon runs"
    values = {"last_tick": iso_time(last), "status": status}
    return Finding(f"sensor {name}", level, message, values)


def iso_time(timestamp: float | None) -> str | None:
    """Returns epoch seconds as ISO 8601 in UTC, to the second."""
    if timestamp is None:
        return None
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds")
