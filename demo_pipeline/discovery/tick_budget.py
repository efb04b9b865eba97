"""How long a look has lasted, and what went wrong in it.

Belongs here: what every part of one look shares.
"""

from collections.abc import Callable


class TickBudget:
    """Time within one look.

    Args:
        start: the ledger's time when the look began, seconds.
        clock: seconds that pass; only differences are used.

    Attributes:
        start: see above.
        errors: what storage refused, in order.
    """

    def __init__(self, start: float, clock: Callable[[], float]) -> None:
        self.start = start
        self.errors: list[str] = []
        self._clock, self._begun = clock, clock()

    def spent(self) -> float:
        """Seconds since the look began."""
        return max(0.0, self._clock() - self._begun)

    def time(self) -> float:
        """The ledger's time now."""
        return self.start + self.spent()
