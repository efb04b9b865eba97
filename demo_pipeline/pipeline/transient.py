"""Trouble that passes by itself: full disks, storage that does not answer, too little memory.

Belongs here: telling it from what is wrong with a demonstration, and the pauses between attempts.
Such trouble never quarantines anything.
"""

import sqlite3
from typing import Any

from demo_pipeline.files.system_errors import system_trouble
from demo_pipeline.storage.errors import OutputError, StorageError

_SQLITE_TROUBLE = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOMEM",
    "SQLITE_READONLY",
)


class TransientError(Exception):
    """Something outside a demonstration stopped its run; a later attempt may succeed.

    Attributes:
        reason: in plain words, e.g. `No space left on device`.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[type["TransientError"], tuple[Any, ...]]:
        return (type(self), (self.reason,))


def transient_reason(error: BaseException) -> str | None:
    """Why an error passes by itself, in plain words; None when it does not.

    An output that is missing or was changed is none: it has to be built again.
    """
    if isinstance(error, TransientError):
        return error.reason
    if isinstance(error, StorageError):
        return None if isinstance(error, OutputError) else str(error)
    reason = system_trouble(error) or _database_trouble(error)
    if reason is None and error.__cause__ is not None:  # libraries wrap what the system said
        return transient_reason(error.__cause__)
    return reason


def _database_trouble(error: BaseException) -> str | None:
    """SQLite's own words for trouble of its disk, e.g. `database or disk is full`."""
    original = getattr(error, "orig", None)  # of an error of SQLAlchemy
    cause = error if isinstance(error, sqlite3.Error) else original
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        return str(cause) if name.startswith(_SQLITE_TROUBLE) else None
    wrapped = type(error).__module__.startswith("sqlalchemy.")
    return "the database does not answer" if wrapped and _is_operational(error) else None


def _is_operational(error: BaseException) -> bool:
    return type(error).__name__ in {"OperationalError", "InterfaceError"}
