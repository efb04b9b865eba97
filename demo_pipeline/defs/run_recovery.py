"""Runs whose process is gone: closed, so that they block neither the queue nor a sensor.

Belongs here: the tag that tells which process executes a run, its heartbeat, and reporting dead
runs to Dagster, which watches only the runs of its own launcher. Which runs are dead is decided in
discovery/dead_runs.py.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

import dagster as dg

from demo_pipeline.defs.home_files import UNFINISHED
from demo_pipeline.defs.tags import (
    FORCE_TAG,
    INTERRUPTED_OUTCOME,
    KILLED_OUTCOME,
    MAX_RETRIES_TAG,
    OUR_REPOSITORY,
    OUTCOME_TAG,
    PROCESS_TAG,
    REPOSITORY_TAG,
)
from demo_pipeline.discovery.dead_runs import (
    BEAT_SECONDS,
    BeatSighting,
    UnfinishedRun,
    ended_with_machine,
    find_dead_runs,
)
from demo_pipeline.files.processes import ProcessIdentity, process_start, this_process
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.leftovers import clear_leftovers

_LOG = logging.getLogger(__package__)
_UNFINISHED_STATUSES = [dg.DagsterRunStatus(name) for name in UNFINISHED]
_claimed: list[str] = []  # the run that this process claimed last
_BEATS, _SIGHTINGS = "demo_pipeline/heartbeat", "demo_pipeline/heartbeats_seen"


def local_run_tags(run_id: str, *, force: bool = False) -> dict[str, str]:
    """Tags of a run that this process executes itself. Dagster cannot launch such a run again.

    With `force`, its stages build every output again.
    """
    forced = {FORCE_TAG: "true"} if force else {}
    tags = {MAX_RETRIES_TAG: "0", REPOSITORY_TAG: OUR_REPOSITORY}
    return _process_tag(run_id) | tags | forced


def claim_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Record that this process executes a run that another process launched."""
    if _owner(run) is None and _claimed[-1:] != [run.run_id]:
        _claimed[:] = [run.run_id]  # `run` is as old as the run's start, and has no later tags
        instance.add_run_tags(run.run_id, _process_tag(run.run_id))


@contextmanager
def heartbeat(instance: dg.DagsterInstance) -> Iterator[None]:
    """Show other machines that share the instance that this process is alive."""
    ended = threading.Event()

    def beat() -> None:
        number = 0
        while True:
            with best_effort(_LOG, "heartbeat"):  # the lease is longer than a short failure
                values = {_beat_key(this_process()): f"{this_process()} {number}"}
                instance.daemon_cursor_storage.set_cursor_values(values)
            number += 1
            if ended.wait(BEAT_SECONDS):
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def recover(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Clear away what dead processes left: open runs, and unfinished files in store and cache.

    Returns:
        One line for each thing that was cleared away.
    """
    return [*close_dead_runs(instance), *clear_leftovers(workspace)]


def close_dead_runs(instance: dg.DagsterInstance, *, interrupted: bool = False) -> list[str]:
    """Report the runs to Dagster whose process is gone.

    Args:
        instance: that holds the runs.
        interrupted: the processes of this machine were ended on purpose.

    Returns:
        One line for each run that was closed.
    """
    filters = dg.RunsFilter(statuses=_UNFINISHED_STATUSES)
    runs = {run.run_id: run for run in instance.get_runs(filters)}
    owners = {key: owner for key, run in runs.items() if (owner := _owner(run)) is not None}
    if not owners:
        return []
    here = this_process()
    beats = _heartbeats(instance, {key: o for key, o in owners.items() if o.host != here.host})
    unfinished = [UnfinishedRun(key, owner, beats.get(key)) for key, owner in owners.items()]
    before = _sightings(instance, here) if beats else {}
    dead = find_dead_runs(unfinished, here, process_start, before, time.monotonic())
    if beats:
        _save_sightings(instance, here, dead.sightings)
    lines = []
    for key, reason in dead.reasons.items():
        on_purpose = interrupted or ended_with_machine(owners[key], here)
        try:
            if _close(instance, key, reason, on_purpose=on_purpose):
                lines.append(f"run {key} ({runs[key].job_name}) was closed: {reason}")
        except Exception as error:  # noqa: BLE001 - one run must not keep the others open
            _LOG.warning("run %s cannot be closed: %s", key, type(error).__name__)
    return lines


def close_own_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Close a run of this process that an error or Ctrl-C ended outside of Dagster's care."""
    with best_effort(_LOG, "closing the run"):  # the next command does, when this one is gone
        _close(instance, run_id, "the command was interrupted", on_purpose=True)


def _close(instance: dg.DagsterInstance, run_id: str, reason: str, *, on_purpose: bool) -> bool:
    """Close a run unless it has ended: a process reports its result before it ends."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return False
    if run.remote_job_origin is None:  # of the command line; other runs are Dagster's to retry
        outcome = INTERRUPTED_OUTCOME if on_purpose else KILLED_OUTCOME
        instance.add_run_tags(run_id, {OUTCOME_TAG: outcome})
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, reason)
    else:
        instance.report_run_failed(run, reason)
    return True


def _process_tag(run_id: str) -> dict[str, str]:
    """The id tells this tag from one that Dagster copied from the run before."""
    return {PROCESS_TAG: f"{run_id} {this_process()}"}


def _owner(run: dg.DagsterRun) -> ProcessIdentity | None:
    run_id, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    return ProcessIdentity.parse(process) if run_id == run.run_id else None


def _beat_key(process: ProcessIdentity) -> str:
    return f"{_BEATS}/{process.host}/{process.pid}"


def _heartbeats(
    instance: dg.DagsterInstance, owners: Mapping[str, ProcessIdentity]
) -> dict[str, str]:
    """Run id → the newest heartbeat of its process; without those that never had one."""
    if not owners:
        return {}
    keys = {key: _beat_key(owner) for key, owner in owners.items()}
    values = instance.daemon_cursor_storage.get_cursor_values(set(keys.values()))
    beats = {key: values.get(place, "") for key, place in keys.items()}
    return {key: beat for key, beat in beats.items() if beat.startswith(f"{owners[key]} ")}


def _sightings(instance: dg.DagsterInstance, here: ProcessIdentity) -> dict[str, BeatSighting]:
    key = f"{_SIGHTINGS}/{here.host}"
    text = instance.daemon_cursor_storage.get_cursor_values({key}).get(key, "{}")
    try:
        return {run_id: BeatSighting(**values) for run_id, values in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _save_sightings(
    instance: dg.DagsterInstance, here: ProcessIdentity, sightings: Mapping[str, BeatSighting]
) -> None:
    text = json.dumps({run_id: asdict(sighting) for run_id, sighting in sightings.items()})
    instance.daemon_cursor_storage.set_cursor_values({f"{_SIGHTINGS}/{here.host}": text})
