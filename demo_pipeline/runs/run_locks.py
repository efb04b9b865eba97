"""Finds runs whose processes were killed, with the help of lock files.

A process that executes a run locks a file, and removes the file at the end of the run. A file that
is no longer locked shows that its process was killed.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KILLED = "its process ended without an error: killed, or out of memory"
_SUFFIX = ".run"
_DRAFT_SUFFIX = ".new"
# Age in seconds above which an unlocked draft of a lock file counts as abandoned. A living process
# locks its draft immediately.
_DRAFT_SECONDS = 60.0
_held_here: set[str] = set()  # ids of the runs that this process has locked


def lock_folder(home: Path) -> Path:
    """Returns the folder of the lock files in DAGSTER_HOME."""
    return home / "storage" / "demo_pipeline_runs"


@contextmanager
def held(folder: Path, run_id: str, demonstration: str) -> Iterator[None]:
    """Locks the file of a run during the block, and then removes it.

    A nested call for the same run does nothing. If the block raises an error or the process is
    killed, the file remains.
    """
    if run_id in _held_here:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{run_id}{_SUFFIX}"
    draft = folder / f"{run_id}{_DRAFT_SUFFIX}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
    _held_here.add(run_id)
    try:
        # The lock is shared, because several processes may execute steps of the run.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.write(descriptor, demonstration.encode())
        draft.rename(file)  # only now, so that no process finds the file unlocked
        yield
        file.unlink(missing_ok=True)
    finally:
        _held_here.discard(run_id)
        os.close(descriptor)


def has_lock(folder: Path, run_id: str) -> bool:
    """Returns whether the file of a run exists, locked or unlocked."""
    return any((folder / f"{run_id}{suffix}").exists() for suffix in (_SUFFIX, _DRAFT_SUFFIX))


def dead_runs(folder: Path) -> dict[str, str]:
    """Returns the runs whose processes were killed, as a dictionary from run ids to demonstrations.

    Also removes abandoned drafts.
    """
    demonstrations: dict[str, str] = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        with _free(file) as descriptor:
            if descriptor is not None:
                demonstrations[file.stem] = os.read(descriptor, 4096).decode()
    for draft in folder.glob(f"*{_DRAFT_SUFFIX}"):
        with _free(draft) as descriptor:
            if descriptor is not None and _age(descriptor) > _DRAFT_SECONDS:
                draft.unlink(missing_ok=True)
    return demonstrations


@contextmanager
def _free(file: Path) -> Iterator[int | None]:
    """Locks a file during the block and yields its file descriptor.

    Yields None if the file is missing or another process has locked it.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        is_free = False
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = file.exists()
        yield descriptor if is_free else None
    finally:
        os.close(descriptor)


def _age(descriptor: int) -> float:
    """Returns the seconds since a file was written."""
    return time.time() - os.fstat(descriptor).st_mtime


def forget_run(folder: Path, run_id: str) -> None:
    """Removes the file of a run that was closed."""
    (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
