"""Dagster's storage in SQLite files, without what costs the most and decides nothing.

Dagster makes an engine for every query, so that SQLAlchemy compiles each statement again; it reads
all of its migrations for every run; and SQLite waits for the disk after every event. Tests that
open an instance keep engines and migrations, and do not wait: a process that is killed loses
nothing by that, only a machine without power does. Processes that tests start are not changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import pytest
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import Engine, create_engine, event

_KEPT = 32  # engines; a test opens an instance and a few runs at a time
_MODULES = (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage)


class _Engines:
    """`create_engine` that returns the engine of a database that it made before."""

    def __init__(self) -> None:
        self._made: dict[str, Engine] = {}
        self._lock = Lock()

    def __call__(self, url: str, **options: Any) -> Engine:
        key = f"{url} {sorted(options)}"
        with self._lock:
            engine = self._made.pop(key, None)
            if engine is None:
                engine = create_engine(url, **options)
                event.listen(engine, "connect", _do_not_wait)
            self._made[key] = engine  # the newest is the last
            if len(self._made) > _KEPT:
                self._made.pop(next(iter(self._made)))
            return engine


def _do_not_wait(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


@contextmanager
def quick_storage() -> Iterator[None]:
    """Instances that this process opens in the context."""
    scripts = vars(sql)["ScriptDirectory"]  # alembic's, which reads the migrations
    read = scripts.from_config
    kept = cache(lambda _place, config: read(config))
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            patch.setattr(module, "create_engine", _Engines())
        patch.setattr(
            scripts,
            "from_config",
            lambda config: kept(config.get_main_option("script_location"), config),
        )
        yield
