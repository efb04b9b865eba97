"""The package's log in the log of a Dagster run; `demo-pipeline -vv` shows more of it."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog


@contextmanager
def package_log(log: dg.DagsterLogManager) -> Iterator[None]:
    """Repeat what this thread logs at INFO and above in a run's log.

    Runs of other threads have logs of their own.
    """
    logger, thread = logging.getLogger(LOG_ROOT), threading.get_ident()
    handler, before = PassedOnLog(log.log), logger.level
    handler.addFilter(lambda record: record.thread == thread)
    handler.begin()
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
