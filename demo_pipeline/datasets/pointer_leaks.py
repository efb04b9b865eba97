"""Leak rates: how often a picture shows the pointer at the target that the step is to find.

Belongs here: counting leaks over rows of the provenance table, and when a rate deserves a warning.
What a leak is was decided as the picture was chosen (observation/pointer.py).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.actions.action_tables import POINTER_TYPES
from demo_pipeline.datasets.provenance import ProvenanceRow, read_provenance
from demo_pipeline.problems import Problem
from demo_pipeline.settings import TrajectorySettings

_COLUMNS = ("action_type", "leak", "unavoidable", "reason_code")


@dataclass(frozen=True, slots=True)
class LeakRates:
    """How many pointing actions have a leaky picture; rates are shares of them, 0 to 1.

    Attributes:
        pointer_actions: clicks, drags and scrolls.
        leaks: of these, with the pointer at its target in the picture.
        unavoidable_leaks: of these, where it lay there as the action before ended.
    """

    pointer_actions: int = 0
    leaks: int = 0
    unavoidable_leaks: int = 0

    def __add__(self, other: "LeakRates") -> "LeakRates":
        return LeakRates(
            self.pointer_actions + other.pointer_actions,
            self.leaks + other.leaks,
            self.unavoidable_leaks + other.unavoidable_leaks,
        )

    @property
    def avoidable_leaks(self) -> int:
        """Leaks where an earlier picture was to be had."""
        return self.leaks - self.unavoidable_leaks

    def share(self, count: int) -> float:
        """`count` over the pointing actions; 0.0 when there are none."""
        return count / self.pointer_actions if self.pointer_actions else 0.0

    def as_dict(self) -> dict[str, int | float]:
        """The three counts, `leak_rate` and `unavoidable_leak_rate`, rounded to four places."""
        return {
            "pointer_actions": self.pointer_actions,
            "leaks": self.leaks,
            "unavoidable_leaks": self.unavoidable_leaks,
            "leak_rate": round(self.share(self.leaks), 4),
            "unavoidable_leak_rate": round(self.share(self.unavoidable_leaks), 4),
        }


def leak_rates(rows: Iterable[ProvenanceRow]) -> LeakRates:
    """The rates of some rows of the provenance table; steps that point at nothing do not count."""
    pointing = [row for row in rows if row["action_type"] in POINTER_TYPES]
    leaky = [row for row in pointing if row["leak"]]
    return LeakRates(len(pointing), len(leaky), sum(bool(row["unavoidable"]) for row in leaky))


def check_leak_rates(path: Path, limits: TrajectorySettings) -> list[Problem]:
    """Warn of each rate that is above its limit.

    Args:
        path: a provenance table, of one demonstration or of a dataset.
        limits: `max_avoidable_leak_rate` and `max_leak_rate`.
    """
    rows = read_provenance(path, _COLUMNS)
    rates = leak_rates(rows)
    leaky = [row for row in rows if row["leak"] and row["action_type"] in POINTER_TYPES]
    avoidable = [row for row in leaky if not row["unavoidable"]]
    watched = (
        ("avoidable_leak_rate", "leak avoidably", avoidable, limits.max_avoidable_leak_rate),
        ("leak_rate", "leak", leaky, limits.max_leak_rate),
    )
    return [
        Problem(code, path.name, _above(words, found, rates, limit), remedy=_remedy(code))
        for code, words, found, limit in watched
        if rates.share(len(found)) > limit
    ]


def _above(words: str, found: Sequence[ProvenanceRow], rates: LeakRates, limit: float) -> str:
    reasons = sorted(Counter(row["reason_code"] for row in found).items())
    listed = ", ".join(f"{reason} {count}" for reason, count in reasons)
    return (
        f"{len(found)} of {rates.pointer_actions} pointing actions {words}: "
        f"rate {rates.share(len(found)):.4f}, limit {limit:g}; by reason code: {listed}"
    )


def _remedy(code: str) -> str:
    return (
        "look at the contact sheets, where these steps are marked; training exports leave them out "
        f"unless datasets.include_leaky is set; the limit is trajectories.max_{code}"
    )
