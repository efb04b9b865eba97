"""Counts the written rows of a training export, and the left-out rows by reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.datasets.splits import ExportPlan, Split
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings

# Reason for leaving out a row: an earlier row of another split asks the same question.
SPLIT_LEAK = "split_leak"
BY_TRAJECTORY = "records_by_trajectory"  # a key of an export's manifest


@dataclass(slots=True)
class CardFacts:
    """Facts about the written rows, for the card of a dataset.

    Attributes:
        rows: for each row, trajectory id, step index (-1 for a whole trajectory), application, kind
            of action, and split.
        longest_chat: estimated tokens of the longest chat; 0 if the export has no chats.
    """

    rows: list[tuple[str, int, str, str, str]] = field(default_factory=list)
    longest_chat: int = 0


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The numbers of written and left-out rows of an export.

    Attributes:
        unit: the word for a row: `samples`, `records` or `steps`.
        records: number of written rows by split.
        by_trajectory: number of written rows by trajectory id.
        excluded_trajectories: number of trajectories by reason; see `Selection.excluded`.
        excluded_records: number of left-out rows of included trajectories, by reason.
        hidden_actions: number of actions of included trajectories that no screenshot shows, by
            reason.
        problems: problems of the unreadable trajectories.
        details: further keys of `as_dict`; they replace keys of the same name.
    """

    unit: str
    records: dict[str, int]
    by_trajectory: dict[str, int]
    excluded_trajectories: dict[str, int]
    excluded_records: dict[str, int]
    hidden_actions: dict[str, int]
    problems: tuple[Problem, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of written rows in all splits."""
        return sum(self.records.values())

    @property
    def trajectories(self) -> int:
        """The number of trajectories with at least one written row."""
        return len(self.by_trajectory)

    @property
    def left_out(self) -> dict[str, Mapping[str, int]]:
        """Numbers of left-out trajectories, rows and actions by reason, for the card."""
        return {
            "trajectories": self.excluded_trajectories,
            self.unit: self.excluded_records,
            "actions": self.hidden_actions,
        }

    def as_dict(self) -> dict[str, Any]:
        """Returns the summary for an export's manifest, with keys such as `excluded_samples`."""
        totals = {}
        if self.unit != "records":  # the key `records` already has the numbers by split
            totals[self.unit] = self.total
        return {
            **totals,
            "trajectories": self.trajectories,
            "records": self.records,
            "excluded_trajectories": self.excluded_trajectories,
            f"excluded_{self.unit}": self.excluded_records,
            "hidden_actions": self.hidden_actions,
            "problems": self.problems,
            **self.details,
        }


@dataclass(slots=True)
class Tally:
    """Counts written and left-out rows while a dataset is built.

    Attributes:
        written: number of written rows by split.
        by_trajectory: number of written rows by trajectory id.
        excluded: number of left-out rows by reason.
        hidden: number of hidden actions by reason.
        problems: problems of unreadable trajectories.
        unreadable: number of unreadable trajectories.
    """

    written: Counter[str] = field(default_factory=Counter)
    by_trajectory: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0

    def summary(self, plan: ExportPlan, unit: str, exclusions: Sequence[str]) -> ExportSummary:
        """Returns the summary of an export; it lists all `exclusions`, even those with count 0."""
        excluded_trajectories = {**plan.selection.excluded}
        excluded_trajectories["unreadable"] += self.unreadable
        return ExportSummary(
            unit=unit,
            records={split.value: self.written[split.value] for split in Split},
            by_trajectory=dict(self.by_trajectory),
            excluded_trajectories=excluded_trajectories,
            excluded_records=dict.fromkeys((*exclusions, SPLIT_LEAK), 0) | self.excluded,
            hidden_actions=dict(sorted(self.hidden.items())),
            problems=(*plan.selection.problems, *self.problems),
        )


@dataclass(frozen=True, slots=True)
class FinishedRows:
    """Facts about the written rows, from which side files such as `metadata.json` are made.

    Attributes:
        plan: the included trajectories, and their splits.
        summary: the numbers of rows.
        counts: the sums of `Row.counts` and `RowsHead.counts`.
        settings: the settings of the datasets.
    """

    plan: ExportPlan
    summary: ExportSummary
    counts: Mapping[str, int]
    settings: DatasetSettings
