"""The types of the export loop: exporters, their records, and the summary of an export.

Belongs here: what an exporter is, and what an export wrote. The loop is in `export_loop`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from demo_pipeline.datasets.export_parts import PartSink
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, Selection
from demo_pipeline.datasets.splits import Split, SplitPlan
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.problems import Problem

SPLIT_LEAK = "split_leak"


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
            candidate: the trajectory's id, folder, instruction and hidden actions. When a hidden
                action follows the last step, the final screenshot is not that step's doing.
            trajectory: the trajectory, under its committed id.
            rows: its provenance by step index.
        """

    def write(self, split: Split, record: RecordT) -> Excluded | None:
        """Add a record to a split; `Excluded` when it turns out that it cannot be written."""


@runtime_checkable
class PartedExporter(Protocol):
    """An exporter whose records are kept in parts, so that the next build makes only new ones.

    What it writes of a trajectory depends on nothing but that trajectory, its split and the
    settings, and `write` changes nothing but the sinks.
    """

    @property
    def sinks(self) -> Sequence[PartSink[Any]]:
        """Where it writes."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export is made of: the trajectories that take part, and the split of each.

    Attributes:
        selection: the trajectories.
        splits: of each.
        whole_trajectories: the export is of whole trajectories, not of steps.
        include_stale_trees: whether targets from trees that differ from their screenshots stay.
    """

    selection: Selection
    splits: SplitPlan
    whole_trajectories: bool = False
    include_stale_trees: bool = False


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export wrote and what it left out.

    Attributes:
        unit: what a record is called: `samples` or `records`.
        records: how many were written, by split.
        trajectories: how many gave at least one record.
        excluded_trajectories: by reason: failed, aborted, contaminated, incomplete, unreadable.
        excluded_records: by reason; records left out although their trajectory takes part.
        hidden_actions: by reason; actions, of the trajectories that take part, that no screenshot
            shows.
        problems: why unreadable trajectories could not be read.
        details: further keys of `as_dict`; they replace the general ones of the same name.
    """

    unit: str
    records: dict[str, int]
    trajectories: int
    excluded_trajectories: dict[str, int]
    excluded_records: dict[str, int]
    hidden_actions: dict[str, int]
    problems: tuple[Problem, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Records of all splits together."""
        return sum(self.records.values())

    @property
    def left_out(self) -> dict[str, Mapping[str, int]]:
        """The counts of what was left out, as a card lists them: by unit, then by reason."""
        return {
            "trajectories": self.excluded_trajectories,
            self.unit: self.excluded_records,
            "actions": self.hidden_actions,
        }

    def as_dict(self) -> dict[str, Any]:
        """The summary as manifests show it; counts of records are named after the unit."""
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
