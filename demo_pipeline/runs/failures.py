"""Classifies errors: transient errors, faults of a demonstration, and defects of this package.

Only faults of a demonstration and defects quarantine it. Transient errors, such as a full disk,
storage that does not answer or too little memory, are retried by the one table here. Messages that
may quote typed text do not reach logs and records.
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

# Seconds before the retries of a transient error within a run. After the last, the run fails.
RETRY_SECONDS = (5, 20, 80)
# Seconds before the daemon requests another run; doubled after each run, up to the longest.
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 1800.0
_DOUBLINGS = 10  # more change nothing

_PACKAGE = Path(demo_pipeline.__file__).parent
_SQLITE_TROUBLE = (  # the last two last until a person moves the file away
    *("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED"),
    *("SQLITE_NOMEM", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB"),
)


class TransientError(Exception):
    """Something outside a demonstration stopped its run; a later attempt may succeed.

    Attributes:
        reason: in plain words, e.g. `video.mp4: could not be written: No space left on device`.
        trouble: the reason without the name of a file, so that it is equal for all demonstrations.
    """

    def __init__(self, reason: str, trouble: str = "") -> None:
        self.reason = reason
        self.trouble = trouble or reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[type["TransientError"], tuple[Any, ...]]:
        return (type(self), (self.reason, self.trouble))


class InstanceError(Exception):
    """DAGSTER_HOME cannot be used; the message names the cause and the remedy."""


UPLOAD_CHANGED = "the upload changed while it was read: nothing is kept; run it again as it is now"


class UploadChangedError(TransientError):
    """The upload changed since its processing began, so that a retry is useless."""


class RefusedError(DemonstrationError):
    """The inputs of a build are at fault.

    Attributes:
        checks: the outcomes of the checks of the stage, if a check rejected the build.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem], checks: Sequence[CheckOutcome] = ()
    ) -> None:
        self.checks = tuple(checks)
        super().__init__(problems)


class UnusableInputError(RefusedError):
    """An input cannot be used, and the recording is not at fault.

    The input is missing or damaged, its demonstration is quarantined already, or the key is not an
    id.
    """


class DefectError(Exception):
    """A stage failed for a reason that no input should be able to cause."""


def retry_pause(attempts: int, first: float = FIRST_PAUSE_SECONDS) -> float:
    """Seconds to wait after so many failed attempts: `first`, doubled after each, up to a limit."""
    return min(first * 2.0 ** min(max(attempts - 1, 0), _DOUBLINGS), LONGEST_PAUSE_SECONDS)


def transient_reason(error: BaseException) -> str | None:
    """Why an error is transient, in plain words; None if it is not.

    Missing and damaged outputs do not count as transient errors: they must be rebuilt.
    """
    if isinstance(error, TransientError):
        return error.reason
    if isinstance(error, OutputError):
        return None
    if isinstance(error, StorageError):
        return str(error)
    reason = system_trouble(error) or _database_trouble(error)
    if reason is None and error.__cause__ is not None:  # libraries wrap what the system said
        return transient_reason(error.__cause__)
    return reason


def _transient_trouble(error: BaseException) -> str:
    """The cause of a transient error without the name of a file; empty if it is not known."""
    if isinstance(error, TransientError | StorageError):
        return error.trouble
    if system_trouble(error) is None and error.__cause__ is not None:
        return _transient_trouble(error.__cause__)
    return ""


def error_words(error: BaseException) -> str:
    """A description of an error without typed text: our own words, or the type of the error."""
    return transient_reason(error) or type(error).__name__


def _database_trouble(error: BaseException) -> str | None:
    """SQLite's own words for trouble of its disk or files, e.g. `database or disk is full`."""
    cause = getattr(error, "orig", error)  # SQLAlchemy wraps it
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", "")
        return str(cause) if name.startswith(_SQLITE_TROUBLE) else None
    kind = type(error)
    is_of_connection = kind.__name__ in {"OperationalError", "InterfaceError"}
    if is_of_connection and kind.__module__.startswith("sqlalchemy."):
        return "the database does not answer"
    return None


def is_defect(error: BaseException) -> bool:
    """Whether neither an input, nor the store, nor the machine explains an error."""
    is_explained = isinstance(error, StorageError | DemonstrationError)
    return not is_explained and transient_reason(error) is None


def warning_words(error: BaseException) -> str:
    """The reason that a warning gives for an error after which the work goes on.

    A defect is named by its type and its place, because its message may quote typed text.
    """
    if is_defect(error):
        kind = type(error).__name__
        return f"a defect of the pipeline ({kind}{place_of(error)}); please report it"
    return transient_reason(error) or str(error)


@contextmanager
def best_effort(log: logging.Logger, work: str) -> Iterator[None]:
    """Go on after an error in the block, with a warning that names the `work` and the reason."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - that is its purpose
        log.warning("%s failed: %s", work, warning_words(error))


@contextmanager
def redacted_errors(stage: str, demonstration: str = "") -> Iterator[None]:
    """Replace the message of a defect by its type, the stage and the line of our code.

    Errors with messages of our own keep them, and lose only their cause.

    Raises:
        DefectError: a subclass with the name of the exception, since Dagster keeps that name.
        TransientError: a transient error, such as a full disk, stopped the stage.
    """
    try:
        yield
    except (DemonstrationError, OutputError, TransientError) as error:
        raise error from None
    except Exception as error:  # noqa: BLE001 - it is raised again, without its message
        reason = transient_reason(error)
        if reason is not None:
            raise TransientError(reason, _transient_trouble(error)) from None
        named = type(type(error).__name__, (DefectError,), {"__module__": __name__})
        subject = f"{stage} of {demonstration}" if demonstration else stage
        message = f"a defect of the pipeline stopped {subject}{place_of(error)}; please report it"
        raise named(message) from None


def place_of(error: BaseException) -> str:
    """`, at <file>:<line>` of the innermost frame in this package; empty if there is none."""
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    return ""
