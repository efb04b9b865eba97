"""Counts leaks: screenshots that already show the pointer at the target of their step.

`observation.frames.video_pointer` detects leaks. This module counts them, warns if there are too
many, and decides which steps training exports leave out.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.actions.action_tables import DOUBTFUL_TEXT, POINTER_TYPES
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings, TrajectorySettings
from demo_pipeline.trajectories.provenance import ProvenanceRow, provenance_batches

UNPROVEN_CLOCK = "unproven_clock"
# Reasons why training exports leave out a step.
AVOIDABLE_LEAK = "avoidable_leak"
UNAVOIDABLE_LEAK = "unavoidable_leak"
LEAK_EXCLUSIONS = (AVOIDABLE_LEAK, UNAVOIDABLE_LEAK, DOUBTFUL_TEXT, UNPROVEN_CLOCK)
_COLUMNS = ("action_type", "leak", "unavoidable", "reason_code")


@dataclass(frozen=True, slots=True)
class LeakRates:
    """Counts of leaking screenshots. The rates are shares of the pointing actions, 0 to 1.

    Attributes:
        pointer_actions: clicks, drags and scrolls.
        leaks: number of pointing actions whose screenshot shows the pointer at the target.
        unavoidable_leaks: number of leaks that no earlier frame could avoid, because the pointer
            was at the target when the previous action ended.
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

    def share(self, count: int) -> float:
        """Returns a count as a share of the pointing actions; 0.0 without pointing actions."""
        return count / self.pointer_actions if self.pointer_actions else 0.0

    def as_dict(self) -> dict[str, int | float]:
        """Returns the counts, and both rates rounded to four places."""
        return {
            "pointer_actions": self.pointer_actions,
            "leaks": self.leaks,
            "unavoidable_leaks": self.unavoidable_leaks,
            "leak_rate": round(self.share(self.leaks), 4),
            "unavoidable_leak_rate": round(self.share(self.unavoidable_leaks), 4),
        }


def leak_rates(rows: Iterable[ProvenanceRow]) -> LeakRates:
    """Counts the leaks of the pointing actions in rows of the provenance table."""
    pointer_actions = 0
    leaks = 0
    unavoidable_leaks = 0
    for row in rows:
        if row["action_type"] in POINTER_TYPES:
            pointer_actions += 1
            if row["leak"]:
                leaks += 1
                unavoidable_leaks += bool(row["unavoidable"])
    return LeakRates(pointer_actions, leaks, unavoidable_leaks)


def leak_exclusion(row: ProvenanceRow, settings: DatasetSettings) -> str:
    """Returns why training exports leave out a step, as a value of `LEAK_EXCLUSIONS`.

    Returns an empty string if exports may use the step.

    Args:
        row: the step's provenance. The columns `doubtful_text` and `unproven_clock` may be missing.
    """
    if row.get(DOUBTFUL_TEXT):
        return DOUBTFUL_TEXT
    if row.get(UNPROVEN_CLOCK):
        return UNPROVEN_CLOCK
    if not row["leak"]:
        return ""
    if row["unavoidable"]:
        return "" if settings.include_unavoidable_leaks else UNAVOIDABLE_LEAK
    return "" if settings.include_avoidable_leaks else AVOIDABLE_LEAK


def check_leak_rates(path: Path, limits: TrajectorySettings) -> list[Problem]:
    """Reports the leak rates that are above their limits.

    Args:
        path: the provenance table of a demonstration or of a dataset.
    """
    rates = LeakRates()
    leak_reasons: Counter[str] = Counter()
    avoidable_reasons: Counter[str] = Counter()
    for rows in provenance_batches(path, _COLUMNS):
        rates += leak_rates(rows)
        for row in rows:
            if row["leak"] and row["action_type"] in POINTER_TYPES:
                leak_reasons[row["reason_code"]] += 1
                if not row["unavoidable"]:
                    avoidable_reasons[row["reason_code"]] += 1
    problems: list[Problem] = []
    for code, kind, reasons, limit in (
        (
            "avoidable_leak_rate",
            "an avoidable leak",
            avoidable_reasons,
            limits.max_avoidable_leak_rate,
        ),
        ("leak_rate", "a leak", leak_reasons, limits.max_leak_rate),
    ):
        if rates.share(reasons.total()) > limit:
            message = _message(kind, reasons, rates, limit)
            problems.append(Problem(code, path.name, message, remedy=_REMEDY))
    return problems


def _message(kind: str, reasons: Counter[str], rates: LeakRates, limit: float) -> str:
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return (
        f"{reasons.total()} of {rates.pointer_actions} pointing actions have {kind}: "
        f"rate {rates.share(reasons.total()):.4f}, limit {limit:g}; by reason code: {listed}"
    )


_REMEDY = (
    "look at these steps in the contact sheets, which mark them; datasets.include_avoidable_leaks "
    "and datasets.include_unavoidable_leaks decide which of them training exports use"
)
