"""The log: every package has a logger with its name; this module shows the log to people.

Stages log at INFO what they built and how long it took, and at DEBUG decisions that a person may
question. No message contains typed text or the name of an element. Log lengths, numbers, positions,
line numbers and ids.
"""

import logging
from collections.abc import Callable

from demo_pipeline.files.shown_text import plain_line

LOG_ROOT = "demo_pipeline"
LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)  # by how often --verbose is given
# The process id distinguishes the lines of parallel workers.
_FORMAT = "%(asctime)s %(levelname)-5s %(process)d %(name)s: %(message)s"


class _PlainFormatter(logging.Formatter):
    """Writes each message on a line, whatever it quotes."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        record.message = plain_line(record.message)
        return super().formatMessage(record)


def show_log(level: int) -> None:
    """From now on, write the log at and above a level to standard error."""
    logger = logging.getLogger(LOG_ROOT)
    if level >= logging.WARNING:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter(_FORMAT, "%H:%M:%S"))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)


def shown_level() -> int:
    """The level given to `show_log`, for worker processes; WARNING if it was not called."""
    return logging.getLogger(LOG_ROOT).level or logging.WARNING


class PassedOnLog(logging.Handler):
    """Passes the level and message of each line at INFO or above to a function.

    Lines at DEBUG are too many for an event log.
    """

    def __init__(self, write: Callable[[int, str], None]) -> None:
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a line on."""
        self._write(record.levelno, plain_line(record.getMessage()))

    def begin(self) -> None:
        """Receive lines from now on."""
        logger = logging.getLogger(LOG_ROOT)
        logger.addHandler(self)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
