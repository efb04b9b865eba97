"""How far many demonstrations are: counts, pace and the time that is left, as one line.

Belongs here: counting results. Who says the line, and when, is the caller's.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from demo_pipeline.pipeline.demonstration_run import DemonstrationResult, ResultStatus

_RARE: tuple[ResultStatus, ...] = ("failed", "superseded", "waiting", "crashed")


@dataclass
class BatchProgress:
    """The results so far.

    Attributes:
        total: number of demonstrations.
        clock: a clock in seconds; only differences are used.
        counts: by status.
        unchanged: how many of those done were up to date before.
        pauses: seconds between two lines.
    """

    total: int
    clock: Callable[[], float]
    pauses: float = 5.0
    counts: Counter[ResultStatus] = field(default_factory=Counter)
    unchanged: int = 0

    def __post_init__(self) -> None:
        self._begun = self._said = self.clock()

    def add(self, result: DemonstrationResult) -> None:
        """Count a result."""
        self.counts[result.status] += 1
        self.unchanged += result.unchanged

    @property
    def ended(self) -> int:
        """Number of results."""
        return self.counts.total()

    @property
    def not_done(self) -> int:
        """Number of demonstrations that need somebody or another run."""
        return self.ended - self.counts["done"] - self.counts["superseded"]

    def due_line(self) -> str | None:
        """`12 of 40, 61 per minute, 27 s left`, every few seconds; None before that."""
        now = self.clock()
        if now - self._said < self.pauses:
            return None
        self._said = now
        return f"{self.ended} of {self.total}{self._pace(now)}{self._others()}"

    def last_line(self) -> str:
        """`37 done (2 up to date), 3 failed` and how long it took."""
        done = f"{self.counts['done']} of {self.total} demonstrations done"
        unchanged = f" ({self.unchanged} up to date)" if self.unchanged else ""
        return f"{done}{unchanged}{self._others()}, {self.clock() - self._begun:.0f} s"

    def numbers(self) -> dict[str, int]:
        """The counts by their names, those that are 0 left out but `done`."""
        rare: dict[str, int] = {name: self.counts[name] for name in _RARE if self.counts[name]}
        return {"done": self.counts["done"], "up_to_date": self.unchanged, **rare}

    def _pace(self, now: float) -> str:
        passed = now - self._begun
        if not self.ended or passed <= 0:
            return ""
        left = passed / self.ended * (self.total - self.ended)
        return f", {60 * self.ended / passed:.0f} per minute, {_duration(left)} left"

    def _others(self) -> str:
        return "".join(f", {self.counts[name]} {name}" for name in _RARE if self.counts[name])


def _duration(seconds: float) -> str:
    """`42 s`, `7 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
