"""Shows the log of the package in a terminal, or forwards it to Dagster.

Stages log results and durations at INFO. At DEBUG, they log decisions that a person may question.
Messages must not contain typed text or names of UI elements.
"""

import logging
from collections.abc import Callable

from demo_pipeline.files.shown_text import plain_line

LOG_ROOT = "demo_pipeline"
# The log levels for zero, one and two `--verbose` options.
LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
# The process id distinguishes the lines of parallel workers.
_FORMAT = "%(asctime)s %(levelname)-5s %(process)d %(name)s: %(message)s"


class _PlainFormatter(logging.Formatter):
    """Writes each message on a single line, with escapes for control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - overrides a method
        record.message = plain_line(record.message)
        return super().formatMessage(record)


def show_log(level: int) -> None:
    """Writes messages of at least this level to standard error from now on.

    WARNING changes nothing: Python writes warnings to standard error by default.
    """
    logger = logging.getLogger(LOG_ROOT)
    if level >= logging.WARNING:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter(_FORMAT, "%H:%M:%S"))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)


def shown_level() -> int:
    """Returns the level given to `show_log`, for worker processes; WARNING before any call."""
    return logging.getLogger(LOG_ROOT).level or logging.WARNING


class PassedOnLog(logging.Handler):
    """Forwards the level and the message of each log line to a function, such as Dagster's log.

    Lines below INFO are dropped.
    """

    def __init__(self, write: Callable[[int, str], None]) -> None:
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Forwards a log line to the function."""
        self._write(record.levelno, plain_line(record.getMessage()))

    def begin(self) -> None:
        """Starts to forward log lines."""
        logger = logging.getLogger(LOG_ROOT)
        logger.addHandler(self)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
