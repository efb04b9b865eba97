"""Worker processes of the command line, which end with the process that started them.

Belongs here: starting them, what they do about signals and about the death of their parent, and
what every run of the command line has in common.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from demo_pipeline.files.logs import show_log, shown_level

RetryPause = Callable[[str, float], None]
"""Gets what is waited for and the seconds to wait, and returns after them."""
RETRY_PAUSES = (5.0, 15.0, 45.0)  # seconds; together they outlast a minute of trouble
QUIET_RUN = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_ORPHANED = 70  # the exit code of a worker whose parent is gone; nobody reads it


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes; when the context ends by an error or Ctrl-C, they are killed.

    Killing is safe: what a stage has not committed yet is invisible, and built again.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(shown_level(),)
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()
        raise
    pool.shutdown()


@contextmanager
def helpers_without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from the processes that are started while the context is open.

    It reaches this process through another thread, which has to be running already.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start_worker(log_level: int) -> None:
    """Show the log as the parent does, and leave Ctrl-C to the parent.

    A terminal sends Ctrl-C to the processes of its own group only. Ignoring it would not do, since
    Dagster answers it, and its helpers print a traceback.
    """
    show_log(log_level)
    os.setpgrp()
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """End at once when the parent was killed: a pool's worker would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(_ORPHANED)
