"""Functions that pool workers run in tests. Workers import no other module of the tests."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from demo_pipeline.runs.failures import redacted_errors


def begin(folder: str) -> Callable[[str], int]:
    """Returns a function that does a task, and returns the number of attempts so far.

    Each attempt makes a file. The task `bad` kills the worker at each attempt, and the task `once`
    only at the first.
    """

    def work(task: str) -> int:
        Path(folder, f"{task}.{time.time_ns()}").touch()
        tries = len(list(Path(folder).glob(f"{task}.*")))
        if task == "bad" or (task == "once" and tries == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return tries

    return work


def begin_long(folder: str) -> Callable[[str], None]:
    """Returns a function that makes a file named after its process id, and then sleeps."""

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
