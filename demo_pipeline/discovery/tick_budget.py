"""The time that one tick has spent, and the storage errors that it met.

Belongs here: what every step of a tick shares.
"""

from collections.abc import Callable


class TickBudget:
    """Time within one tick.

    Args:
        start: the ledger's time when the tick began, seconds.
        clock: a clock in seconds; only differences are used.

    Attributes:
        start: see above.
        errors: messages of the storage errors, in order.
    """

    def __init__(self, start: float, clock: Callable[[], float]) -> None:
        self.start = start
        self.errors: list[str] = []
        self._clock, self._begun = clock, clock()

    def spent(self) -> float:
        """Seconds since the tick began."""
        return max(0.0, self._clock() - self._begun)

    def time(self) -> float:
        """The ledger's time now, seconds."""
        return self.start + self.spent()
