"""Folders that one of the processes of xdist makes, and all of them read."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder to be read, which the first process that needs it makes for all of xdist's."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            half = folder.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            make(half)
            half.rename(folder)
    return folder
