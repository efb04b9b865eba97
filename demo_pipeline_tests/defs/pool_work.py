"""What the workers of a pool do in tests; a worker imports this module and not the tests'."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from demo_pipeline.runs.failures import redacted_errors


def begin(folder: str) -> Callable[[str], int]:
    """In a worker: each task leaves a file a time; `bad` dies always, `once` once."""

    def work(task: str) -> int:
        Path(folder, f"{task}.{time.time_ns()}").touch()
        tries = len(list(Path(folder).glob(f"{task}.*")))
        if task == "bad" or (task == "once" and tries == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return tries

    return work


def begin_long(folder: str) -> Callable[[str], None]:
    """In a worker: each task leaves the number of its process, and goes on for ever."""

    def work(_task: str) -> None:
        Path(folder, str(os.getpid())).touch()
        time.sleep(3600)

    return work


def begin_without_database(folder: str) -> Callable[[str], None]:
    """In a worker: Dagster's database cannot be opened."""
    from sqlalchemy import create_engine

    with redacted_errors("begin"):
        create_engine(f"sqlite:///{folder}").connect()
    raise AssertionError
