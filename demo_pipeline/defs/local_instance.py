"""The Dagster instance of a command: opened once, and tried before anything is built.

Belongs here: saying in plain words what is wrong with DAGSTER_HOME.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs.partitions import PARTITIONS_NAME
from demo_pipeline.files.processes import spare_existing_objects
from demo_pipeline.runs.failures import InstanceError, error_words

_FOLDERS = ("history", "schedules", "storage")  # of Dagster, whose own are open to everybody
_PROBE = b"\0" * 4096  # a disk without room for a block cannot record a run


@contextmanager
def opened_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance in `home`, which is DAGSTER_HOME; a small file is written beside it.

    What a new home lacks is made here: its dagster.yaml, as in a project, and Dagster's folders,
    closed to other people.

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
            instance = stack.enter_context(dg.DagsterInstance.get())
            ask_instance(instance)
        except Exception as error:  # noqa: BLE001 - anything that a file in the folder may cause
            raise InstanceError(instance_fault(home, error)) from None
        spare_existing_objects()  # here, and in the workers
        yield instance


def ask_instance(instance: dg.DagsterInstance) -> Sequence[Any]:
    """Read a little from every database that a run needs; returns the states of the sensors."""
    instance.get_run_ids(limit=1)
    instance.get_dynamic_partitions(PARTITIONS_NAME)
    return [
        state
        for state in instance.all_instigator_state()
        if state.instigator_type.value == "SENSOR"
    ]


def instance_fault(home: Path, error: Exception) -> str:
    """Why the instance in `home` cannot be used, after an error of it, and what to do."""
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
