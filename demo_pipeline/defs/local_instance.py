"""The Dagster instance of a command: opened once, and tried before anything is launched.

Belongs here: sharing it, since opening one costs 0.1 CPU s, and saying in plain words what is
wrong with DAGSTER_HOME.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.damaged_databases import damaged_database, is_damage
from demo_pipeline.defs.tags import PARTITIONS_NAME
from demo_pipeline.files.atomic_write import private_mode
from demo_pipeline.runs.failures import transient_reason

_open: list[tuple[int, str | None, dg.DagsterInstance]] = []  # process, home, instance


@contextmanager
def local_instance() -> Iterator[dg.DagsterInstance]:
    """The instance in DAGSTER_HOME; contexts inside of another share its instance."""
    owner = (os.getpid(), os.environ.get("DAGSTER_HOME"))
    if _open and _open[-1][:2] == owner:
        yield _open[-1][2]
        return
    with dg.DagsterInstance.get() as instance:
        _open.append((*owner, instance))
        try:
            yield instance
        finally:
            _open.pop()


_FOLDERS = ("history", "schedules", "storage")  # of Dagster, whose own are open to everybody
_PROBE = b"\0" * 4096  # a disk without room for a block cannot record a run


class InstanceError(Exception):
    """DAGSTER_HOME cannot be used; the message names the cause and the remedy."""


def require_instance(home: Path) -> None:
    """Open the instance in `home` once, and write a small file beside it.

    Dagster's folders are made here if they are missing, closed to other people.

    Raises:
        InstanceError: the folder is read-only or full, or its dagster.yaml or databases are broken.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".probe-") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
        for name in _FOLDERS:
            with suppress(FileExistsError):
                (home / name).mkdir(private_mode(home))
    except OSError as error:
        reason = transient_reason(error) or type(error).__name__
        raise InstanceError(
            f"DAGSTER_HOME {home} cannot be written to: {reason}; make room in it or make it "
            "writable, or set DAGSTER_HOME to another folder"
        ) from None
    try:
        with local_instance() as instance:
            ask_instance(instance)
    except Exception as error:  # noqa: BLE001 - anything that a file in the folder may cause
        raise InstanceError(instance_fault(home, error)) from None


def ask_instance(instance: dg.DagsterInstance) -> None:
    """Read a little from every database that a run needs: runs, events, sensors."""
    instance.get_run_ids(limit=1)
    instance.get_dynamic_partitions(PARTITIONS_NAME)
    instance.all_instigator_state()


def instance_fault(home: Path, error: Exception) -> str:
    """Why the instance in `home` cannot be used, after an error of it, and what to do."""
    if is_damage(error) and (damage := damaged_database(home)):
        return damage
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
    reason = transient_reason(error) or type(error).__name__
    return (
        f"DAGSTER_HOME {home} cannot be used: {reason}; check dagster.yaml and the databases in "
        "history/ and schedules/, or set DAGSTER_HOME to another folder"
    )
