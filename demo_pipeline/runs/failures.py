"""Classifies errors: transient errors, faults of a demonstration, and defects of this package.

Faults of a demonstration and defects quarantine the demonstration. Transient errors do not: a full
disk, storage that does not answer, or too little memory. They are retried after the pauses that are
defined here. Messages that may quote typed text are removed before they reach logs and records.
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

# Pauses before the retries of a transient error within a run. After the last retry, the run fails.
RETRY_SECONDS = (5, 20, 80)
# Pauses before the daemon requests another run for the demonstration. The pause is doubled after
# each run, from the first to the longest.
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 1800.0
_DOUBLINGS = 10  # limits the exponent; fewer doublings reach the longest pause

_PACKAGE = Path(demo_pipeline.__file__).parent
# SQLite errors that count as transient. The last two mean a damaged file; they persist until a
# person moves the file away.
_SQLITE_TROUBLE = (
    *("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED"),
    *("SQLITE_NOMEM", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB"),
)


class TransientError(Exception):
    """Raised if a cause outside the demonstration stopped its run, so that a later run may succeed.

    Attributes:
        reason: for people, such as `video.mp4: could not be written: No space left on device`.
        trouble: the reason without the name of a file, so that it is equal for all demonstrations.
    """

    def __init__(self, reason: str, trouble: str = "") -> None:
        self.reason = reason
        self.trouble = trouble or reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[type["TransientError"], tuple[Any, ...]]:
        return (type(self), (self.reason, self.trouble))


class InstanceError(Exception):
    """Raised if DAGSTER_HOME cannot be used; the message names the cause and the remedy."""


UPLOAD_CHANGED = "the upload changed while it was read: nothing is kept; run it again as it is now"


class UploadChangedError(TransientError):
    """Raised if an upload changed after its processing began; the run is not retried."""


class RefusedError(DemonstrationError):
    """Raised if the inputs of a build are at fault.

    Attributes:
        checks: the outcomes of the checks of the stage, if one of them rejected the build.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem], checks: Sequence[CheckOutcome] = ()
    ) -> None:
        self.checks = tuple(checks)
        super().__init__(problems)


class UnusableInputError(RefusedError):
    """Raised if an input cannot be used although the recording is not at fault.

    The input is missing or damaged, its demonstration is quarantined already, or the partition key
    is not an id.
    """


class DefectError(Exception):
    """Raised if a stage failed because of a defect of this package."""


def retry_pause(attempts: int, first: float = FIRST_PAUSE_SECONDS) -> float:
    """Returns the seconds to wait after failed attempts.

    Args:
        attempts: the number of failed attempts.
        first: the pause after the first attempt; it is doubled after each further attempt, up to
            `LONGEST_PAUSE_SECONDS`.
    """
    return min(first * 2.0 ** min(max(attempts - 1, 0), _DOUBLINGS), LONGEST_PAUSE_SECONDS)


def transient_reason(error: BaseException) -> str | None:
    """Returns the reason of a transient error, for people; None if the error is not transient.

    Missing and damaged outputs do not count as transient errors: they must be rebuilt.
    """
    if isinstance(error, TransientError):
        return error.reason
    if isinstance(error, OutputError):
        return None
    if isinstance(error, StorageError):
        return str(error)
    reason = system_trouble(error) or _database_trouble(error)
    if reason is None and error.__cause__ is not None:  # a library wrapped an error of the system
        return transient_reason(error.__cause__)
    return reason


def _transient_trouble(error: BaseException) -> str:
    """Returns the cause of a transient error without the name of a file; empty if unknown."""
    if isinstance(error, TransientError | StorageError):
        return error.trouble
    if system_trouble(error) is None and error.__cause__ is not None:
        return _transient_trouble(error.__cause__)
    return ""


def error_words(error: BaseException) -> str:
    """Returns a description of an error that cannot contain typed text.

    For a transient error, the description is the reason; for any other error, it is the type.
    """
    return transient_reason(error) or type(error).__name__


def _database_trouble(error: BaseException) -> str | None:
    """Returns why a database failed, such as `database or disk is full`; None for other errors."""
    cause = getattr(error, "orig", error)  # SQLAlchemy wraps the error of the database
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        return str(cause) if name.startswith(_SQLITE_TROUBLE) else None
    kind = type(error)
    is_of_connection = kind.__name__ in {"OperationalError", "InterfaceError"}
    if is_of_connection and kind.__module__.startswith("sqlalchemy."):
        return "the database does not answer"
    return None


def is_defect(error: BaseException) -> bool:
    """Returns whether an error is a defect, which no input, storage or machine has caused."""
    is_explained = isinstance(error, StorageError | DemonstrationError)
    return not is_explained and transient_reason(error) is None


def warning_words(error: BaseException) -> str:
    """Returns the reason of an error, for a warning.

    A defect is described by its type and its line, because its message may quote typed text.
    """
    if is_defect(error):
        kind = type(error).__name__
        return f"a defect of the pipeline ({kind}{place_of(error)}); please report it"
    return transient_reason(error) or str(error)


@contextmanager
def best_effort(log: logging.Logger, work: str) -> Iterator[None]:
    """Logs a warning instead of raising an error from the block.

    Args:
        log: the logger that gets the warning.
        work: the name of the work in the block, for the warning.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the work in the block may fail in any way
        log.warning("%s failed: %s", work, warning_words(error))


@contextmanager
def redacted_errors(stage: str, demonstration: str = "") -> Iterator[None]:
    """Replaces errors from the block by errors whose messages cannot quote typed text.

    Errors that this package raises keep their message and lose their cause. Any other error is a
    defect: the new message has its type, the stage, and the line in this package.

    Raises:
        DefectError: a subclass with the name of the original exception, because Dagster shows that
            name.
        TransientError: a transient error, such as a full disk, stopped the stage.
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
    """Returns `, at <file>:<line>` for the innermost call in this package; empty without one."""
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    return ""
