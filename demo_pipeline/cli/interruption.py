"""Ctrl-C: the commands end with one plain sentence instead of a traceback.

Belongs here: the exception that Ctrl-C raises, and when it is raised.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class CommandInterrupt(BaseException):
    """A person pressed Ctrl-C. Unlike `KeyboardInterrupt`, no library answers it itself."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `CommandInterrupt` on Ctrl-C while the context is open."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """Let the command end in peace: from now on, Ctrl-C does nothing."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise(*_: Any) -> None:
    raise CommandInterrupt
