"""The Dagster instance of a command: opened once, whatever part of the command asks for it.

Belongs here: sharing it. Opening one costs 0.1 CPU s, and more when its databases are new.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

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
