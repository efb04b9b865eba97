"""Work whose failure costs nothing: what comes later does it again or reports why it cannot."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def best_effort(log: logging.Logger, work: str) -> Iterator[None]:
    """Go on after an error of the block, which is said in the log.

    Only the error's type is said: its message may quote what somebody typed.

    Args:
        log: the logger of the package.
        work: what the block does, for the log; no secret.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - that is its purpose
        log.debug("%s: not now (%s)", work, type(error).__name__)
