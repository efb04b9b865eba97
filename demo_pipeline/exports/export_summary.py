"""Counts of a training export: the rows that were written, and those left out, by reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.datasets.splits import ExportPlan, Split
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings

SPLIT_LEAK = "split_leak"
BY_TRAJECTORY = "records_by_trajectory"  # key of the summary in the manifest


@dataclass(slots=True)
class CardFacts:
    """Facts about the written rows that only the card of a dataset needs.

    Attributes:
        rows: trajectory, step, application, kind of action and split of each row.
        longest_chat: estimated tokens of the longest chat; 0 if the export has no chats.
    """

    rows: list[tuple[str, int, str, str, str]] = field(default_factory=list)
    longest_chat: int = 0


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export wrote and what it left out.

    Attributes:
        unit: what a row is called: `samples` or `records`.
        records: number of written rows, by split.
        by_trajectory: number of written rows, by trajectory.
        excluded_trajectories: by reason: failed, aborted, contaminated, incomplete, unreadable.
        excluded_records: by reason; rows left out although their trajectory takes part.
        hidden_actions: by reason; actions that no screenshot shows, of the trajectories that take
            part.
        problems: why unreadable trajectories could not be read.
        details: further keys of `as_dict`; they replace the general keys of the same name.
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
        """Number of rows of all splits together."""
        return sum(self.records.values())

    @property
    def trajectories(self) -> int:
        """Number of trajectories that gave at least one row."""
        return len(self.by_trajectory)

    @property
    def left_out(self) -> dict[str, Mapping[str, int]]:
        """The counts of everything left out, as a card lists them: by unit, then by reason."""
        return {
            "trajectories": self.excluded_trajectories,
            self.unit: self.excluded_records,
            "actions": self.hidden_actions,
        }

    def as_dict(self) -> dict[str, Any]:
        """The summary as manifests show it; counts of rows are named after the unit."""
        return {
            **({} if self.unit == "records" else {self.unit: self.total}),
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
    """Counts the rows of a dataset while they are written, and those left out."""

    written: Counter[str] = field(default_factory=Counter)
    by_trajectory: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0

    def summary(self, plan: ExportPlan, unit: str, exclusions: Sequence[str]) -> ExportSummary:
        """The summary of an export; each of the exclusions is counted from 0."""
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
    """All that the files beside the rows of a dataset are made of.

    Attributes:
        plan: the trajectories that take part, and their splits.
        summary: of the rows.
        counts: what the form adds up over the written rows and the trajectories.
        settings: of the datasets.
    """

    plan: ExportPlan
    summary: ExportSummary
    counts: Mapping[str, int]
    settings: DatasetSettings
