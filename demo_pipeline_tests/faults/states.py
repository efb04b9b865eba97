"""Reads the state of a store as readers see it, and checks whether it is allowed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace

TRACEBACK = "Traceback (most recent call last)"
State = Mapping[str, str]
"""Maps each output to a hash over the names and bytes of its files."""
_FOLDERS = {stage.folder for stage in STAGES}
_ENDED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


def public_state(workspace: Workspace) -> State:
    """Returns the state of all outputs that readers see."""
    digests = {}
    for output in workspace.store.outputs():
        digest = hashlib.sha256()
        folder = workspace.store.open(output)[0]
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        digests[output] = digest.hexdigest()
    return digests


def torn_outputs(workspace: Workspace, before: State, after: State) -> list[str]:
    """Returns the problems of the state after a disturbance, when the work is not finished.

    An output of a demonstration must be the old or the new one. A dataset may also consist of the
    demonstrations that are done.
    """
    wrong = []
    for output, content in public_state(workspace).items():
        if workspace.store.verify(output):
            wrong.append(f"{output} does not fit its manifest")
        of_demonstration = output.partition("/")[0] in _FOLDERS
        if of_demonstration and content not in {before.get(output), after.get(output)}:
            wrong.append(f"{output} is neither the old nor the new one")
    wrong += [f"{output} is gone" for output in before if workspace.store.current(output) is None]
    return wrong + blamed(workspace)


def blamed(workspace: Workspace) -> list[str]:
    """Returns a problem for each quarantine record. Faults of the machine must not cause any."""
    return [
        f"{record.demonstration} is quarantined: {record.problems}"
        for record in list_quarantine(workspace.store)
    ]


def differing(workspace: Workspace, wanted: State) -> list[str]:
    """Returns the outputs that differ from those of an undisturbed run."""
    state = public_state(workspace)
    keys = sorted(state.keys() | wanted.keys())
    return [f"{key} differs" for key in keys if state.get(key) != wanted.get(key)]


def shown_tracebacks(output: str) -> list[str]:
    """Returns a problem if the output of a command contains a traceback."""
    _, mark, rest = output.partition(TRACEBACK)
    return [f"a traceback: {rest[:1500]}"] if mark else []


def stuck_runs(home: Path) -> list[str]:
    """Returns the runs of an instance that have not ended, although no process works on them."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs()
    return [f"run {run.run_id} is {run.status.value}" for run in runs if run.status not in _ENDED]


def count_files(store: Path) -> int:
    """Returns the number of files and links in a store."""
    return sum(1 for path in store.rglob("*") if path.is_symlink() or path.is_file())
