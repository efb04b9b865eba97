"""Runs whose process is gone: closed, so that they block neither the queue nor a sensor.

Belongs here: the tag that tells which process executes a run, and reporting dead runs to Dagster,
which only watches runs that its launcher can ask about. A process of another machine is left to its
launcher, and to the next command there.
"""

import json
import logging
import socket
import time

import dagster as dg

# Only these tags say where the code server that launched a run answers, and list it under its job.
from dagster._core.storage.tags import GRPC_INFO_TAG, REPOSITORY_LABEL_TAG

from demo_pipeline.defs.tags import MAX_RETRIES_TAG, OUR_REPOSITORY, PROCESS_TAG
from demo_pipeline.files.processes import ProcessIdentity, has_ended, this_process
from demo_pipeline.runs.health import clear_leftovers
from demo_pipeline.runs.workspace import Workspace

_LOG = logging.getLogger(__package__)
_UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_STARTING_SECONDS = 15.0  # in which a launched process says who it is; it takes 2 to 5
_LAUNCHING_SECONDS = 30.0  # in which the launcher notes its address; it takes less than one
_CONNECTING_SECONDS = 2.0
_BEGINNING = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)
_claimed: list[str] = []  # the run that this process claimed last


def local_run_tags(run_id: str) -> dict[str, str]:
    """Tags of a run that this process executes itself. Dagster cannot launch such a run again."""
    return _process_tag(run_id) | {MAX_RETRIES_TAG: "0", REPOSITORY_LABEL_TAG: OUR_REPOSITORY}


def claim_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Record that this process executes a run that another process launched."""
    if _owner(run) is None and _claimed[-1:] != [run.run_id]:
        _claimed[:] = [run.run_id]  # `run` is as old as the run's start, and has no later tags
        instance.add_run_tags(run.run_id, _process_tag(run.run_id))


def recover(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Clear away open runs and unfinished files of dead processes; a line for each."""
    return [*close_dead_runs(instance), *clear_leftovers(workspace)]


def close_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report the runs to Dagster whose process is gone; returns a line for each."""
    lines = []
    for record in instance.get_run_records(dg.RunsFilter(statuses=_UNFINISHED)):
        run, reason = record.dagster_run, _dead(instance, record)
        try:
            if reason and _close(instance, run.run_id, reason):
                lines.append(f"run {run.run_id} ({run.job_name}) was closed: {reason}")
        except Exception as error:  # noqa: BLE001 - one run must not keep the others open
            _LOG.warning("run %s cannot be closed: %s", run.run_id, type(error).__name__)
    return lines


def _dead(instance: dg.DagsterInstance, record: dg.RunRecord) -> str:
    """Why the process of a run is certainly gone; empty when it may live.

    A run that was launched and whose process did not say yet who it is belongs to the code server
    that launched it, whose address Dagster notes.
    """
    owner, here = _owner(record.dagster_run), this_process()
    if owner is None:
        silent = time.time() - record.update_timestamp.timestamp()
        # Code servers of this machine launch the runs, and its files serve no other.
        files = type(instance.run_storage).__name__ == "SqliteRunStorage"
        here_only = files and isinstance(instance.run_launcher, dg.DefaultRunLauncher)
        gone = here_only and _launcher_is_gone(record.dagster_run, silent)
        return "the process that launched it ended before it began" if gone else ""
    if not has_ended(owner.mark):
        return ""
    name = f"process {owner.pid} on {owner.host.partition('/')[0]}"
    if owner.boot != here.boot and "-" not in {owner.boot, here.boot}:
        return f"{name} ended when the machine was restarted"
    return f"{name} ended without a result: it was killed, or ran out of memory"


def _launcher_is_gone(run: dg.DagsterRun, silent: float) -> bool:
    """Whether the code server that launched a run, `silent` seconds ago, is not there any more."""
    if run.status not in _BEGINNING or silent <= _STARTING_SECONDS:
        return False
    text = run.tags.get(GRPC_INFO_TAG)
    if text is None:  # whoever launched it ended even before that
        return run.status is dg.DagsterRunStatus.STARTING and silent > _LAUNCHING_SECONDS
    return not _answers(text)


def _answers(address: str) -> bool:
    """Whether a server is where Dagster's note of its address says; also when that is not known."""
    try:
        found = json.loads(address)
        path, port = found.get("socket"), found.get("port")
        family = socket.AF_UNIX if path else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.settimeout(_CONNECTING_SECONDS)
            server.connect(path or ("localhost", int(port)))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except (OSError, ValueError, TypeError, AttributeError):  # it may be busy
        return True
    return True


def _close(instance: dg.DagsterInstance, run_id: str, reason: str) -> bool:
    """Close a run unless it has ended: a process reports its result before it ends."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return False
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
