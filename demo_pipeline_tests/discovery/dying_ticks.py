"""A process that dies at a chosen step: before, within or after what it writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from demo_pipeline.runs.discovery_table import DiscoveryTable


class Killed(BaseException):
    """The process was killed."""


class DyingTable(DiscoveryTable):
    """Calls `before` before, within and after each transaction; it may raise."""

    before: Callable[[str], None] = staticmethod(lambda _: None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.before("begin")
        with super().transaction():
            yield
            self.before("commit")
        self.before("committed")


class Fuse:
    """Raises `Killed` at the step with this number, once; counts from 0."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, _: str) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed
