"""Runs that Dagster counts as running although their processes were killed.

Belongs here: finding and closing them. A process holds a lock while it executes a run
(runs/run_locks.py), so a lock that nobody holds is of a dead run. A run that died before its
process came so far has no lock: then the server that launched it is gone.
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
_LAUNCHED_BY = ".dagster/grpc_info"  # the tag in which the launcher notes its server
_BEGIN_SECONDS = 60.0  # from a launch to the lock; 4 s, and 20 on a busy machine (measured)
# A process whose server was killed may live on before it holds its lock. Closing its run early does
# no harm, because Dagster does not execute a run that has ended.
_ORPHAN_SECONDS = 10.0
_GONE = {"FAILED", "NOT_FOUND"}  # of a launcher's own health check


def close_dead_runs(instance: dg.DagsterInstance, *, died: bool = True) -> list[str]:
    """Closes the dead runs of this machine's processes; returns their demonstrations.

    Args:
        instance: where the runs are recorded.
        died: the processes were killed; else their command was ended.
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
    """Returns the runs that count as running and have no process any more."""
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
    """Lets a run be ended. This works, though Dagster does not list it as public."""
    if not died:
        instance.report_run_canceled(run, "the command was ended; the next one goes on")
    elif run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, KILLED)
    else:
        instance.report_run_failed(run, f"{KILLED}; it is processed again")


def _never_begun(instance: dg.DagsterInstance) -> Iterator[dg.DagsterRun]:
    """Yields the runs that a server of this machine launched and whose process never held a lock.

    Only runs whose events are in files of this machine: of others, the server may be elsewhere.
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
        if server is None:  # killed amid the launch
            has_ended = run.status is dg.DagsterRunStatus.STARTING and age > _BEGIN_SECONDS
        else:
            has_ended = not _answers(json.loads(server))
        if has_ended:
            yield run


def _answers(server: dict[str, object]) -> bool:
    """Returns whether somebody listens at a server's socket; one with a port may be elsewhere."""
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
