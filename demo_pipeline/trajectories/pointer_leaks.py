"""Leak rates: how often a screenshot already shows the pointer at the target of its step.

Belongs here: counting leaks in the provenance table, the warning above a limit, and which leaks an
export leaves out. Whether a frame leaks is decided when it is chosen
(`observation.frames.video_pointer`).
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
# Why a step is left out of training exports: its screenshot, or its text that nothing confirms.
LEAK_EXCLUSIONS = ("avoidable_leak", "unavoidable_leak", DOUBTFUL_TEXT, UNPROVEN_CLOCK)
_COLUMNS = ("action_type", "leak", "unavoidable", "reason_code")


@dataclass(frozen=True, slots=True)
class LeakRates:
    """How many pointing actions have a leaking screenshot; rates are shares of them, 0 to 1.

    Attributes:
        pointer_actions: clicks, drags and scrolls.
        leaks: how many of these have a screenshot with the pointer at its target.
        unavoidable_leaks: how many leaks no earlier frame could avoid, because the pointer was at
            the target when the previous action ended.
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
    """The rates of rows of the provenance table; only pointing actions count."""
    pointing = [row for row in rows if row["action_type"] in POINTER_TYPES]
    leaky = [row for row in pointing if row["leak"]]
    return LeakRates(len(pointing), len(leaky), sum(bool(row["unavoidable"]) for row in leaky))


def leak_exclusion(row: ProvenanceRow, settings: DatasetSettings) -> str:
    """Which of `LEAK_EXCLUSIONS` keeps a step out of training exports; empty when none does.

    Args:
        row: provenance of the step, with `leak` and `unavoidable`, and maybe `doubtful_text` and
            `unproven_clock`.
        settings: `include_avoidable_leaks` and `include_unavoidable_leaks`.
    """
    avoidable, unavoidable, *_ = LEAK_EXCLUSIONS
    if row.get(DOUBTFUL_TEXT):
        return DOUBTFUL_TEXT
    if row.get(UNPROVEN_CLOCK):
        return UNPROVEN_CLOCK
    if not row["leak"]:
        return ""
    if row["unavoidable"]:
        return "" if settings.include_unavoidable_leaks else unavoidable
    return "" if settings.include_avoidable_leaks else avoidable


def check_leak_rates(path: Path, limits: TrajectorySettings) -> list[Problem]:
    """A warning for every rate that is above its limit.

    Args:
        path: the provenance table of a demonstration or of a dataset.
        limits: `max_avoidable_leak_rate` and `max_leak_rate`.
    """
    rates = LeakRates()
    leaky = Counter[str]()
    avoidable = Counter[str]()
    for rows in provenance_batches(path, _COLUMNS):
        rates += leak_rates(rows)
        leaks = [row for row in rows if row["leak"] and row["action_type"] in POINTER_TYPES]
        leaky.update(row["reason_code"] for row in leaks)
        avoidable.update(row["reason_code"] for row in leaks if not row["unavoidable"])
    limited = {
        "avoidable_leak_rate": ("an avoidable leak", avoidable, limits.max_avoidable_leak_rate),
        "leak_rate": ("a leak", leaky, limits.max_leak_rate),
    }
    return [
        Problem(code, path.name, _message(what, reasons, rates, limit), remedy=_REMEDY)
        for code, (what, reasons, limit) in limited.items()
        if rates.share(reasons.total()) > limit
    ]


def _message(what: str, reasons: Counter[str], rates: LeakRates, limit: float) -> str:
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return (
        f"{reasons.total()} of {rates.pointer_actions} pointing actions have {what}: "
        f"rate {rates.share(reasons.total()):.4f}, limit {limit:g}; by reason code: {listed}"
    )


_REMEDY = (
    "look at the contact sheets, where these steps are marked; datasets.include_avoidable_leaks "
    "and datasets.include_unavoidable_leaks decide which of them training exports use"
)
