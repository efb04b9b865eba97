"""The work of pool workers in tests. A worker imports this module, but no module of tests."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from demo_pipeline.runs.failures import redacted_errors


def begin(folder: str) -> Callable[[str], int]:
    """Returns the work of a worker whose tasks count their attempts by making files.

    The task `bad` kills the worker at each attempt, and the task `once` at the first.
    """

    def work(task: str) -> int:
        Path(folder, f"{task}.{time.time_ns()}").touch()
        tries = len(list(Path(folder).glob(f"{task}.*")))
        if task == "bad" or (task == "once" and tries == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return tries

    return work


def begin_long(folder: str) -> Callable[[str], None]:
    """Returns the work of a worker whose tasks make a file named by the process id and sleep."""

    def work(_task: str) -> None:
        Path(folder, str(os.getpid())).touch()
        time.sleep(3600)

    return work


def begin_without_database(folder: str) -> Callable[[str], None]:
    """Fails as if Dagster's database could not be opened in the worker."""
    from sqlalchemy import create_engine

    with redacted_errors("begin"):
        create_engine(f"sqlite:///{folder}").connect()
    raise AssertionError
