"""Makes Dagster's SQLite storage faster in tests, without changing its results.

Dagster makes an engine for every query, so SQLAlchemy compiles each statement again. Dagster also
reads all its database migrations for every run. SQLite waits for the disk after every event.

Tests that open an instance reuse engines and migrations, and do not wait for the disk. Data is lost
only if the machine loses power, not if a process is killed. Processes that tests start are not
changed.
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

_KEPT = 32  # maximum number of kept engines; a test uses one instance and a few runs at a time
_MODULES = (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage)


class _Engines:
    """A replacement of `create_engine` that makes one engine per database."""

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
            self._made[key] = engine  # moved to the end, so the first is the least recently used
            if len(self._made) > _KEPT:
                self._made.pop(next(iter(self._made)))
            return engine


def _do_not_wait(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


@contextmanager
def quick_storage() -> Iterator[None]:
    """Makes Dagster instances faster that this process opens within the context."""
    scripts = vars(sql)["ScriptDirectory"]  # the class of Alembic that reads the migrations
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
