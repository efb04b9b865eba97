"""Which runs a process of this machine executes, told by locks that end with the process.

Belongs here: one small file for each such run, held while it is executed. One that nobody holds is
of a run whose process was killed: it is closed in Dagster and its demonstration processed again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".run"


def lock_folder(home: Path) -> Path:
    """Where the files are, in the folder in which Dagster records runs."""
    return home / "storage" / "demo_pipeline_runs"


@contextmanager
def held(folder: Path, run_id: str, demonstration: str) -> Iterator[None]:
    """Hold the file of a run, and remove it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    file, draft = folder / f"{run_id}{_SUFFIX}", folder / f"{run_id}.new"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, demonstration.encode())
        draft.rename(file)  # so nobody finds it before it is held
        yield
        file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def dead_runs(folder: Path) -> dict[str, str]:
    """Run → demonstration, for each file that nobody holds."""
    found = {}
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(OSError):  # it has just ended, or is held
            descriptor = os.open(file, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if file.exists():
                    found[file.stem] = os.read(descriptor, 4096).decode()
            finally:
                os.close(descriptor)
    return found


def forget_run(folder: Path, run_id: str) -> None:
    """Remove the file of a run that was closed."""
    (folder / f"{run_id}{_SUFFIX}").unlink(missing_ok=True)
