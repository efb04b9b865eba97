"""Classifies errors as transient errors, faults of a demonstration, or defects of this package.

Faults of a demonstration and defects quarantine the demonstration. Transient errors, such as a full
disk, an unreachable store or too little memory, are retried instead. Messages that may quote typed
text are kept out of logs and records.
"""

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

import demo_pipeline
from demo_pipeline.files.system_errors import system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.store.errors import OutputError, StorageError
from demo_pipeline.store.versions import CheckOutcome

# Seconds before each retry after a transient error. If the last retry fails, the run fails.
RETRY_SECONDS = (5, 20, 80)
# First and longest pause before the daemon requests another run for a demonstration whose run
# failed. The pause is doubled after each further failed run.
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 1800.0
_DOUBLINGS = 10  # maximum, to prevent an overflow; five doublings already exceed the longest pause

_PACKAGE = Path(demo_pipeline.__file__).parent
# SQLite errors that count as transient. The last two mean that the database file is damaged. They
# recur until a person moves the file away.
_SQLITE_TROUBLE = (
    *("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED"),
    *("SQLITE_NOMEM", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB"),
)


class TransientError(Exception):
    """Raised if a cause outside the demonstration stopped its run, so that a later run may succeed.

    Attributes:
        reason: the cause as shown to people, such as `video.mp4: could not be written: No space
            left on device`.
        trouble: the reason without a file name.
    """

    def __init__(self, reason: str, trouble: str = "") -> None:
        self.reason = reason
        self.trouble = trouble or reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[type["TransientError"], tuple[Any, ...]]:
        return (type(self), (self.reason, self.trouble))


class InstanceError(Exception):
    """Raised if DAGSTER_HOME cannot be used. The message names the cause and the remedy."""


UPLOAD_CHANGED = "the upload changed while it was read: nothing is kept; run it again as it is now"


class UploadChangedError(TransientError):
    """Raised if an upload changed while it was processed. The run ends without retries."""


class RefusedError(DemonstrationError):
    """Raised if a build fails because of its inputs.

    Attributes:
        checks: the outcomes of the stage's checks. Empty if no check rejected the build.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem], checks: Sequence[CheckOutcome] = ()
    ) -> None:
        self.checks = tuple(checks)
        super().__init__(problems)


class UnusableInputError(RefusedError):
    """Raised if an input is missing, damaged or quarantined, or if a partition key is invalid."""


class DefectError(Exception):
    """Raised if a stage failed because of a defect of this package."""


def retry_pause(attempts: int, first: float = FIRST_PAUSE_SECONDS) -> float:
    """Returns the number of seconds to wait before the next attempt.

    Args:
        attempts: the number of failed attempts so far.
        first: the pause after the first failed attempt. The pause is doubled after each further
            failure, up to `LONGEST_PAUSE_SECONDS`.
    """
    return min(first * 2.0 ** min(max(attempts - 1, 0), _DOUBLINGS), LONGEST_PAUSE_SECONDS)


def transient_reason(error: BaseException) -> str | None:
    """Returns the cause of a transient error as shown to people, or None for any other error.

    Missing and damaged outputs do not count as transient errors, because they must be rebuilt.
    """
    if isinstance(error, TransientError):
        return error.reason
    if isinstance(error, OutputError):
        return None
    if isinstance(error, StorageError):
        return str(error)
    reason = system_trouble(error) or _database_trouble(error)
    if reason is None and error.__cause__ is not None:  # a library may have wrapped a system error
        return transient_reason(error.__cause__)
    return reason


def _transient_trouble(error: BaseException) -> str:
    """Returns the cause of a transient error without file names; empty if it is unknown."""
    if isinstance(error, TransientError | StorageError):
        return error.trouble
    if system_trouble(error) is None and error.__cause__ is not None:
        return _transient_trouble(error.__cause__)
    return ""


def error_words(error: BaseException) -> str:
    """Describes an error without its message, which may quote typed text.

    A transient error is described by its cause, and any other error by its type.
    """
    return transient_reason(error) or type(error).__name__


def _database_trouble(error: BaseException) -> str | None:
    """Returns the cause of a database error, such as `database or disk is full`.

    Returns None for other errors and for database errors that are not transient.
    """
    cause = getattr(error, "orig", error)  # SQLAlchemy wraps the error of the database driver
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        return str(cause) if name.startswith(_SQLITE_TROUBLE) else None
    kind = type(error)
    is_of_connection = kind.__name__ in {"OperationalError", "InterfaceError"}
    if is_of_connection and kind.__module__.startswith("sqlalchemy."):
        return "the database does not answer"
    return None


def is_defect(error: BaseException) -> bool:
    """Returns whether an error is a defect: not caused by an input, storage or the machine."""
    is_explained = isinstance(error, StorageError | DemonstrationError)
    return not is_explained and transient_reason(error) is None


def warning_words(error: BaseException) -> str:
    """Returns the text of a warning about an error.

    A defect is described by its type and line of code, without its message.
    """
    if is_defect(error):
        kind = type(error).__name__
        return f"a defect of the pipeline ({kind}{place_of(error)}); please report it"
    return transient_reason(error) or str(error)


@contextmanager
def best_effort(log: logging.Logger, work: str) -> Iterator[None]:
    """Catches errors from the block, and logs a warning instead.

    Args:
        work: a name for the work in the block; the warning is `<work> failed: …`.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the work in the block may fail in any way
        log.warning("%s failed: %s", work, warning_words(error))


@contextmanager
def redacted_errors(stage: str, demonstration: str = "") -> Iterator[None]:
    """Replaces errors from the block by errors whose messages cannot quote typed text.

    Errors of this package's own types keep their messages, but lose their causes. Any other error
    is either transient or a defect of this package.

    Args:
        demonstration: the id of the demonstration; empty for a dataset.

    Raises:
        DefectError: the block failed because of a defect. The message names the stage and the line
            in this package. The error's class has the name of the original exception, because
            Dagster shows the name.
        TransientError: a cause such as a full disk stopped the stage.
    """
    try:
        yield
    except (DemonstrationError, OutputError, TransientError) as error:
        raise error from None
    except Exception as error:  # noqa: BLE001 - every error is raised again, without its message
        reason = transient_reason(error)
        if reason is not None:
            raise TransientError(reason, _transient_trouble(error)) from None
        named = type(type(error).__name__, (DefectError,), {"__module__": __name__})
        subject = f"{stage} of {demonstration}" if demonstration else stage
        message = f"a defect of the pipeline stopped {subject}{place_of(error)}; please report it"
        raise named(message) from None


def place_of(error: BaseException) -> str:
    """Returns `, at <file>:<line>` for the innermost call in this package.

    Returns an empty string if the traceback has no call in this package.
    """
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    return ""
