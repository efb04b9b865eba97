"""Whether Dagster can work: its home, runs that hang, the daemon, the sensors.

Belongs here: reading the instance. How findings are shown is up to the command line.
"""

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs.dead_runs import dead_run_ids
from demo_pipeline.defs.local_instance import ask_instance, instance_fault
from demo_pipeline.runs.health import Finding, HealthLevel, healthy
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings

STALE_RUN_SECONDS = 7200.0  # without an event; no stage of any recording takes as long
DAEMON_SECONDS = 300.0  # heartbeats come every 30 seconds
LATE_TICKS = 10  # intervals of a sensor without an evaluation
_SENSOR_DAEMON = "SENSOR"
_QUEUED = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
_UNFINISHED = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def examine_instance(workspace: Workspace, *, expect_daemon: bool) -> Iterator[Finding]:
    """Yield what is found in DAGSTER_HOME; `expect_daemon`: a missing daemon is an error."""
    home = Path(os.environ["DAGSTER_HOME"])  # set by the command, which found it to be a directory
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding("dagster_home", HealthLevel.ERROR, f"{home} cannot be written")
        return
    if (home / "dagster.yaml").is_file():
        yield healthy("dagster_home", str(home), path=str(home))
    else:
        message = f"{home} has no dagster.yaml: runs are not limited; copy the one of the checkout"
        yield Finding("dagster_home", HealthLevel.WARNING, message, {"path": str(home)})
    try:
        with dg.DagsterInstance.get() as instance:
            states = ask_instance(instance)
            findings = list(_findings(instance, states, workspace, expect_daemon=expect_daemon))
    except Exception as error:  # noqa: BLE001 - whatever a broken instance raises
        findings = [Finding("instance", HealthLevel.ERROR, instance_fault(home, error))]
    yield from findings


def _findings(
    instance: dg.DagsterInstance,
    states: Sequence[Any],
    workspace: Workspace,
    *,
    expect_daemon: bool,
) -> Iterator[Finding]:
    now = time.time()
    yield _stale_runs(instance, now)
    heartbeat = instance.get_daemon_heartbeats().get(_SENSOR_DAEMON)
    seen = heartbeat.timestamp if heartbeat else None
    alive = seen is not None and now - seen < DAEMON_SECONDS
    queued = instance.get_runs_count(dg.RunsFilter(statuses=list(_QUEUED)))
    yield _daemon(seen, alive=alive, queued=queued, expected=expect_daemon)
    by_name = {state.instigator_name: state for state in states}
    ids = [state.selector_id for state in states]
    ticks = instance.get_batch_ticks(ids, limit=1) if ids else {}
    for name, interval in sensor_intervals(workspace.settings).items():
        state = by_name.get(name)
        last = ticks.get(state.selector_id, ()) if state else ()
        yield _sensor(name, state, last, now, interval if alive else None)


def sensor_intervals(settings: Settings) -> dict[str, int]:
    """Sensor → seconds between two evaluations, as in the definitions, which take long to build."""
    watching = ("tasks_changed", "new_uploads", "rebuild_datasets", "new_evaluations")
    intervals = dict.fromkeys(watching, settings.discovery.interval_seconds)
    return {**intervals, "quarantine_changed": 60}


def _stale_runs(instance: dg.DagsterInstance, now: float) -> Finding:
    """Runs that count as running although their processes died, or that say nothing."""
    found = instance.get_run_records(dg.RunsFilter(statuses=list(_UNFINISHED)))
    dead_ids = dead_run_ids(instance)
    stale, dead = [], []
    for record in found:
        run_id = record.dagster_run.run_id
        if run_id in dead_ids:
            dead.append(run_id)
            continue
        events = instance.get_records_for_run(run_id, limit=1, ascending=False).records
        last = events[0].timestamp if events else record.create_timestamp.timestamp()
        if now - last > STALE_RUN_SECONDS:
            stale.append(run_id)
    count = len(found)
    if dead and not stale:
        message = (
            f"{len(dead)} of {count} runs are of processes that were killed; the daemon, or the "
            f"next `demo-pipeline run`, closes them: {', '.join(run[:8] for run in dead)}"
        )
        return Finding("runs", HealthLevel.WARNING, message, {"running": count, "dead": [*dead]})
    if not stale:
        return healthy("runs", f"{count} running, none of them hangs", running=count)
    message = (
        f"{len(stale)} of {count} runs said nothing for {STALE_RUN_SECONDS / 3600:.0f} hours; "
        f"terminate them in the UI: {', '.join(run[:8] for run in stale)}"
    )
    return Finding("runs", HealthLevel.ERROR, message, {"running": count, "stale": [*stale]})


def _daemon(seen: float | None, *, alive: bool, queued: int, expected: bool) -> Finding:
    values = {"last_seen": iso_time(seen), "queued_runs": queued}
    if alive:
        return Finding("daemon", HealthLevel.OK, f"running, {queued} runs queued", values)
    last = f"no daemon runs ({f'last seen {iso_time(seen)}' if seen else 'never seen'})"
    if queued or expected:
        message = f"{last}, {queued} runs queued; start `make ui` or dagster-daemon"
        return Finding("daemon", HealthLevel.ERROR, message, values)
    message = f"{last}: uploads are processed by `demo-pipeline run` only"
    return Finding("daemon", HealthLevel.OK, message, values)


def _sensor(
    name: str, state: Any, ticks: Sequence[Any], now: float, interval: int | None
) -> Finding:
    """The last evaluation of a sensor; `interval` is None when no daemon evaluates it."""
    last = ticks[0].timestamp if ticks else None
    status = ticks[0].status.value if ticks else None
    level, message = HealthLevel.OK, f"last evaluated at {iso_time(last)}"
    if state is not None and not state.is_running:
        level, message = HealthLevel.WARNING, "is switched off; switch it on under Automation"
    elif status == "FAILURE":
        level, message = HealthLevel.ERROR, f"failed at {iso_time(last)}; open it under Automation"
    elif last is None:
        level = HealthLevel.OK if interval is None else HealthLevel.WARNING
        message = "was never evaluated"
    elif interval is not None and now - last > LATE_TICKS * interval:
        level = HealthLevel.WARNING
        message = f"was last evaluated at {iso_time(last)}, though the daemon runs"
    values = {"last_tick": iso_time(last), "status": status}
    return Finding(f"sensor {name}", level, message, values)


def iso_time(timestamp: float | None) -> str | None:
    """Epoch seconds as ISO 8601 in UTC, to the second."""
    if timestamp is None:
        return None
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds")
