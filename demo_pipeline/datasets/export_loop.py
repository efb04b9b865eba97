"""The loop of all training exports: select, split, load, guard, write and count.

Belongs here: what all exports have in common, and their summary. How a trajectory becomes records,
and where these are written, is up to the exporter.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory, Selection, load, select
from demo_pipeline.datasets.split_guard import CrossSplitGuard
from demo_pipeline.datasets.splits import Split, SplitPlan, assign_splits, connected_groups
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

SPLIT_LEAK = "split_leak"
_LOG = logging.getLogger(__package__)


class ExportRecord(Protocol):
    """A record of an export, made of a step or of a whole trajectory.

    The same screenshot with the same prompt is never written to two splits. The record of a whole
    trajectory gives the screenshot and prompt of its first step.
    """

    @property
    def prompt(self) -> str:
        """What is asked about the screenshot."""

    @property
    def screenshot(self) -> Path:
        """A file of the trajectory."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """Stands for a record that is not written.

    Attributes:
        reason: one of the exporter's `exclusions`.
    """

    reason: str


RecordT = TypeVar("RecordT", bound=ExportRecord)


class Exporter(Protocol[RecordT]):
    """How trajectories become the records of one format, and where they are written."""

    @property
    def unit(self) -> str:
        """What the summary calls a record: `samples` or `records`."""

    @property
    def exclusions(self) -> Sequence[str]:
        """Why a record may be left out; each reason is counted from 0."""

    @property
    def provenance_columns(self) -> Sequence[str]:
        """Columns of the provenance that `records` reads."""

    @property
    def instruction_in_prompt(self) -> bool:
        """Whether every prompt holds the instruction."""

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[RecordT | Excluded]:
        """Yield the records of a trajectory, and an `Excluded` for each that is left out.

        Args:
            candidate: the trajectory's id, folder and instruction.
            trajectory: the trajectory, under its committed id.
            rows: its provenance by step index.
        """

    def write(self, split: Split, record: RecordT) -> Excluded | None:
        """Add a record to a split; `Excluded` when it turns out that it cannot be written."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export is made of: the trajectories that take part, and the split of each."""

    selection: Selection
    splits: SplitPlan


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export wrote and what it left out.

    Attributes:
        unit: what a record is called: `samples` or `records`.
        records: how many were written, by split.
        trajectories: how many gave at least one record.
        excluded_trajectories: by reason: failed, aborted, contaminated, unreadable.
        excluded_records: by reason; records left out although their trajectory takes part.
        problems: why unreadable trajectories could not be read.
        details: further keys of `as_dict`; they replace the general ones of the same name.
    """

    unit: str
    records: dict[str, int]
    trajectories: int
    excluded_trajectories: dict[str, int]
    excluded_records: dict[str, int]
    problems: tuple[Problem, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Records of all splits together."""
        return sum(self.records.values())

    @property
    def left_out(self) -> dict[str, Mapping[str, int]]:
        """The counts of what was left out, as a card lists them: by unit, then by reason."""
        return {"trajectories": self.excluded_trajectories, self.unit: self.excluded_records}

    def as_dict(self) -> dict[str, Any]:
        """The summary as manifests show it; counts of records are named after the unit."""
        return {
            **({} if self.unit == "records" else {self.unit: self.total}),
            "trajectories": self.trajectories,
            "records": self.records,
            "excluded_trajectories": self.excluded_trajectories,
            f"excluded_{self.unit}": self.excluded_records,
            "problems": self.problems,
            **self.details,
        }


def plan_export(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> ExportPlan:
    """Select trajectories and split them; the same for every export, so that their splits agree."""
    selection = select(trajectories, settings)
    chosen = {candidate.source.id: candidate for candidate in selection.chosen}
    groups = connected_groups({key: chosen[key].split_groups for key in chosen})
    applications = {key: chosen[key].application for key in chosen}
    plan = ExportPlan(selection, assign_splits(groups, settings, applications))
    for key, split in plan.splits.splits.items():
        _LOG.debug("%s: split %s", key, split.value)
    return plan


def export_records(plan: ExportPlan, exporter: Exporter[RecordT]) -> ExportSummary:
    """Write the records of all planned trajectories, by trajectory id and step.

    One trajectory is in memory at a time. One that cannot be read is counted and costs the others
    nothing.
    """
    return _Export(plan, exporter).run()


class _Export(Generic[RecordT]):
    """One run of the loop and its counts."""

    def __init__(self, plan: ExportPlan, exporter: Exporter[RecordT]) -> None:
        self._plan, self._exporter = plan, exporter
        self._guard = CrossSplitGuard.of(
            plan.selection.chosen,
            plan.splits.splits,
            instruction_in_prompt=exporter.instruction_in_prompt,
        )
        self._written: Counter[Split] = Counter()
        self._trajectories: set[str] = set()
        self._excluded = dict.fromkeys((*exporter.exclusions, SPLIT_LEAK), 0)
        self._unreadable = 0
        self._problems = list(plan.selection.problems)

    def run(self) -> ExportSummary:
        for candidate in self._plan.selection.chosen:
            self._export_trajectory(candidate)
        excluded = dict(self._plan.selection.excluded)
        excluded["unreadable"] += self._unreadable
        return ExportSummary(
            unit=self._exporter.unit,
            records={split.value: self._written[split] for split in Split},
            trajectories=len(self._trajectories),
            excluded_trajectories=excluded,
            excluded_records=self._excluded,
            problems=tuple(self._problems),
        )

    def _export_trajectory(self, candidate: Candidate) -> None:
        split = self._plan.splits.splits[candidate.source.id]
        try:
            trajectory, rows = load(candidate.source, self._exporter.provenance_columns)
        except DemonstrationError as error:
            self._problems.extend(error.problems)
            self._unreadable += 1
            return
        for record in self._exporter.records(candidate, trajectory, rows):
            excluded = self._write(record, candidate, split)
            if excluded:
                self._excluded[excluded.reason] += 1
                _LOG.debug("%s: a record is left out: %s", candidate.source.id, excluded.reason)
            else:
                self._written[split] += 1
                self._trajectories.add(candidate.source.id)

    def _write(
        self, record: RecordT | Excluded, candidate: Candidate, split: Split
    ) -> Excluded | None:
        if isinstance(record, Excluded):
            return record
        instruction = candidate.instruction
        if self._guard.leaks(instruction, record.prompt, record.screenshot, split):
            return Excluded(SPLIT_LEAK)
        return self._exporter.write(split, record)
