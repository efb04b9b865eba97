"""Finds and closes runs that Dagster counts as active although their processes were killed.

A process locks a file while it executes a run (runs/run_locks.py). If the file of an active run is
not locked, the process of the run is dead. If no process has created the file yet, the run counts
as dead once the server that launched the run has ended.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline.runs.run_locks import KILLED, dead_runs, forget_run, has_lock, lock_folder

_GOING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_LAUNCHED_BY = ".dagster/grpc_info"  # tag in which the launcher stores the address of its server
# Maximum time from the launch of a run until its process locks its lock file. After this time, a
# run without the address of a server counts as dead. Measured: 4 s, and 20 s on a busy machine.
_BEGIN_SECONDS = 60.0
# A run that changed in the last 10 s does not count as dead, because its process can outlive the
# server that launched it. Closing a run too early does no harm, because Dagster does not
# execute an ended run.
_ORPHAN_SECONDS = 10.0
_GONE = {"FAILED", "NOT_FOUND"}  # results of a launcher's health check that show a dead run


def close_dead_runs(instance: dg.DagsterInstance, *, died: bool = True) -> list[str]:
    """Closes the runs whose processes on this machine have died.

    Returns the ids of the demonstrations that these runs processed.

    Args:
        died: True if the processes were killed; False if the user interrupted the command.
    """
    locks = lock_folder(Path(instance.root_directory))
    demonstrations = dict[str, None]()
    for run_id, key in dead_runs(locks).items():
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            _close(instance, run, died=died)
        forget_run(locks, run_id)
        demonstrations[key] = None
    if died:
        for run in _never_begun(instance):
            _close(instance, run, died=True)
            demonstrations[run.tags.get(PARTITION_TAG, "")] = None
    return [key for key in demonstrations if key]


def dead_run_ids(instance: dg.DagsterInstance) -> set[str]:
    """Returns the ids of the active runs whose processes have died."""
    if isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        locked = dead_runs(lock_folder(Path(instance.root_directory)))
        return {*locked, *(run.run_id for run in _never_begun(instance))}
    if not instance.run_launcher.supports_check_run_worker_health:
        return set()
    dead = set[str]()
    for run in instance.get_runs(dg.RunsFilter(statuses=_GOING)):
        health = instance.run_launcher.check_run_worker_health(run)
        if health.status.value in _GONE:
            dead.add(run.run_id)
    return dead


def _close(instance: dg.DagsterInstance, run: dg.DagsterRun, *, died: bool) -> None:
    """Marks a run as failed or cancelled, with methods outside Dagster's public API."""
    if not died:
        instance.report_run_canceled(run, "the command was ended; the next one goes on")
    elif run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, KILLED)
    else:
        instance.report_run_failed(run, f"{KILLED}; it is processed again")


def _never_begun(instance: dg.DagsterInstance) -> Iterator[dg.DagsterRun]:
    """Yields the runs whose process died on this machine before it created its lock file.

    Runs whose event log is not on this machine are left out, because the server that launched them
    may run on another machine.
    """
    if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        return
    home = Path(instance.root_directory)
    locks = lock_folder(home)
    for record in instance.get_run_records(dg.RunsFilter(statuses=_GOING)):
        run = record.dagster_run
        is_local = (home / "history" / "runs" / f"{run.run_id}.db").exists()
        age = time.time() - record.update_timestamp.timestamp()
        if not is_local or age < _ORPHAN_SECONDS or has_lock(locks, run.run_id):
            continue
        server = run.tags.get(_LAUNCHED_BY)
        if server is None:  # the launcher was killed during the launch
            has_ended = run.status is dg.DagsterRunStatus.STARTING and age > _BEGIN_SECONDS
        else:
            has_ended = not _answers(json.loads(server))
        if has_ended:
            yield run


def _answers(server: dict[str, object]) -> bool:
    """Returns whether a server still runs.

    A server with a port counts as running, because it may be on another machine.
    """
    path = server.get("socket")
    if not path:
        return True
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
