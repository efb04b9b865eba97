"""The package's log in the log of a Dagster run.

Belongs here: repeating the lines at INFO. Those at DEBUG are too many for the event log, which is
never purged by itself; `demo-pipeline -vv` shows them.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from demo_pipeline.common.logs import LOG_ROOT


class _RunLogHandler(logging.Handler):
    """Repeats what one thread logs; runs of other threads have logs of their own."""

    def __init__(self, log: dg.DagsterLogManager) -> None:
        super().__init__(logging.INFO)
        self._log = log
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._log.log(record.levelno, record.getMessage())


@contextmanager
def package_log(log: dg.DagsterLogManager) -> Iterator[None]:
    """Repeat the package's log at INFO and above in a run's log."""
    logger = logging.getLogger(LOG_ROOT)
    handler, before = _RunLogHandler(log), logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
