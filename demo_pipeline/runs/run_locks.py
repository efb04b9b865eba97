"""The runs that processes of this machine execute, as files with locks that end with the process.

Each such run has a small file, which is locked while the run is executed. A file without a lock
belongs to a run whose process was killed: the run is closed in Dagster, and its demonstration is
processed again.
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
_DRAFT_SECONDS = 60.0  # a draft is locked, and gets its final name, a moment after its creation
_held_here: set[str] = set()  # runs that this process holds


def lock_folder(home: Path) -> Path:
    """Returns the folder of the files, inside the folder in which Dagster records runs."""
    return home / "storage" / "demo_pipeline_runs"


@contextmanager
def held(folder: Path, run_id: str, demonstration: str) -> Iterator[None]:
    """Locks the file of a run, and remove it at the end; a nested `held` does nothing."""
    if run_id in _held_here:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{run_id}{_SUFFIX}"
    draft = folder / f"{run_id}{_DRAFT_SUFFIX}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
    _held_here.add(run_id)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # the steps of a run may be in several processes
        os.write(descriptor, demonstration.encode())
        draft.rename(file)  # so that no process sees it before it is locked
        yield
        file.unlink(missing_ok=True)
    finally:
        _held_here.discard(run_id)
        os.close(descriptor)


def has_lock(folder: Path, run_id: str) -> bool:
    """Returns whether the file of a run exists, locked or not."""
    return any((folder / f"{run_id}{suffix}").exists() for suffix in (_SUFFIX, _DRAFT_SUFFIX))


def dead_runs(folder: Path) -> dict[str, str]:
    """Runs → demonstration, for each file that no process locks.

    Files that a process did not finish writing before it was killed are removed.
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
    """An open handle of a file that no process locks; None if it is locked or does not exist."""
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
    """Seconds since a file was written."""
    return time.time() - os.fstat(descriptor).st_mtime


def forget_run(folder: Path, run_id: str) -> None:
    """Removes the file of a run that was closed."""
    (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
