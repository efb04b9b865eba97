"""Opens the Dagster instance of a command, and tests it before anything is built."""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs.partitions import PARTITIONS_NAME
from demo_pipeline.files.atomic_write import replace_synced, sync
from demo_pipeline.files.processes import spare_existing_objects
from demo_pipeline.runs.failures import InstanceError, error_words

# Folders of DAGSTER_HOME, created here because Dagster would make them readable for all users.
_FOLDERS = ("history", "schedules", "storage")
_DATABASES = ("history/runs/index.db", "history/runs.db", "schedules/schedules.db")
_DRAFT = ".new-databases"  # folder in which Dagster creates databases
_PROBE = b"\0" * 4096  # a disk block, written to test whether the disk has room


@contextmanager
def opened_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Opens the instance in `home`, which is DAGSTER_HOME, after testing that it works.

    A new home gets the dagster.yaml that this package contains, and Dagster's folders, which only
    the owner can read.

    Raises:
        InstanceError: the folder is read-only or full, or its dagster.yaml or databases are broken.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".probe-") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
        if not (home / "history").exists() and not (home / "dagster.yaml").exists():
            shipped = files("demo_pipeline") / "project" / "dagster.yaml"
            (home / "dagster.yaml").write_bytes(shipped.read_bytes())
        for name in _FOLDERS:
            with suppress(FileExistsError):
                (home / name).mkdir(0o700)
    except OSError as error:
        raise InstanceError(
            f"DAGSTER_HOME {home} cannot be written to: {error_words(error)}; make room in it or "
            "make it writable, or set DAGSTER_HOME to another folder"
        ) from None
    with ExitStack() as stack:
        try:
            make_databases(home)
            instance = stack.enter_context(dg.DagsterInstance.get())
            ask_instance(instance)
        except Exception as error:  # noqa: BLE001 - broken files can cause any error in Dagster
            raise InstanceError(instance_fault(home, error)) from None
        # From here on, the garbage collector skips the objects that loading Dagster created.
        spare_existing_objects()
        yield instance


def make_databases(home: Path) -> None:
    """Creates the databases that are missing in DAGSTER_HOME or were created only in part.

    Dagster cannot use a database whose creation was interrupted. Therefore databases are created
    in a draft folder and moved into place once they are complete. A database with any row is never
    replaced.
    """
    if not any(_is_unfinished(home / name) for name in _DATABASES):
        return
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    draft = home / _DRAFT
    try:
        # If another command is creating the databases, wait until they are complete.
        fcntl.flock(handle, fcntl.LOCK_EX)
        unfinished = [name for name in _DATABASES if _is_unfinished(home / name)]
        if not unfinished:
            return
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(0o700)
        (draft / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        with dg.DagsterInstance.local_temp(str(draft)) as instance:
            ask_instance(instance)
        for name in unfinished:
            place = home / name
            place.parent.mkdir(0o700, parents=True, exist_ok=True)
            for journal in ("-wal", "-shm", "-journal"):
                place.with_name(f"{place.name}{journal}").unlink(missing_ok=True)
            sync(draft / name)
            replace_synced(draft / name, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(handle)


def _is_unfinished(database: Path) -> bool:
    """Returns whether a database is missing, or was created only in part and holds no row."""
    if not database.exists():
        return True
    try:
        with closing(sqlite3.connect(database, timeout=10)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = [name for (name,) in connection.execute(query)]
            counts = [connection.execute(f'SELECT 1 FROM "{t}" LIMIT 1') for t in tables]  # noqa: S608 - the database's own table names
            return not any(rows.fetchone() for rows in counts)
    except sqlite3.Error:  # a damaged database; opening the instance reports it
        return False


def ask_instance(instance: dg.DagsterInstance) -> Sequence[Any]:
    """Tests every database that a run needs by reading from it; returns the sensors' states."""
    instance.get_run_ids(limit=1)
    instance.get_dynamic_partitions(PARTITIONS_NAME)
    return [
        state
        for state in instance.all_instigator_state()
        if state.instigator_type.value == "SENSOR"
    ]


def instance_fault(home: Path, error: Exception) -> str:
    """Returns why the instance in `home` cannot be used, and what to do.

    `error` is the error that the instance raised.
    """
    kind = type(error).__module__.partition(".")[0]
    if kind == "yaml":
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or "is not valid YAML"
        return f"{home}/dagster.yaml{place}: {reason}; correct the file"
    if isinstance(error, dg.DagsterInvalidConfigError):
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        first = (lines or ["is not a configuration of Dagster"])[0].partition(" Expected:")[0]
        return f"{home}/dagster.yaml: {first.partition(': ')[2] or first} Correct the file."
    return (
        f"DAGSTER_HOME {home} cannot be used: {error_words(error)}; check dagster.yaml and the "
        "databases in history/ and schedules/: Dagster makes anew what is moved away, and what is "
        "built stays in the store; or set DAGSTER_HOME to another folder"
    )
