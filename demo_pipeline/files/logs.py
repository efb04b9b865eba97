"""The package's log: one logger per package, named after it, and showing it to people.

Belongs here: handlers and levels. Stages say at INFO what they built, in which time; decisions that
a person may question are said at DEBUG. No message holds what somebody typed, or the name of an
element: say lengths, numbers, positions, line numbers and ids.
"""

import logging
from collections.abc import Callable

from demo_pipeline.files.shown_text import plain_line

LOG_ROOT = "demo_pipeline"
LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)  # by how often --verbose is given
# The process tells the lines of parallel workers apart.
_FORMAT = "%(asctime)s %(levelname)-5s %(process)d %(name)s: %(message)s"


class _PlainFormatter(logging.Formatter):
    """A line for each message, whatever it quotes."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        record.message = plain_line(record.message)
        return super().formatMessage(record)


def show_log(level: int) -> None:
    """Write the log at and above a level to standard error, from now on and once."""
    logger = logging.getLogger(LOG_ROOT)
    if level >= logging.WARNING:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter(_FORMAT, "%H:%M:%S"))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)


def shown_level() -> int:
    """The level that `show_log` was given, for worker processes; WARNING when it was not called."""
    return logging.getLogger(LOG_ROOT).level or logging.WARNING


class PassedOnLog(logging.Handler):
    """Passes level and message of each line on; at DEBUG they are too many for an event log."""

    def __init__(self, tell: Callable[[int, str], None]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line on."""
        self._tell(record.levelno, plain_line(record.getMessage()))

    def begin(self) -> None:
        """Get the lines from now on."""
        logger = logging.getLogger(LOG_ROOT)
        logger.addHandler(self)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
