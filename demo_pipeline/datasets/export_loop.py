"""The loop of all training exports: select, split, load, guard, write and count.

Belongs here: what an exporter is, what all exports have in common, and what an export wrote. How a
trajectory becomes records, and where these are written, is up to the exporter.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from demo_pipeline.datasets.export_parts import (
    LARGEST_PART,
    KeptParts,
    Part,
    PartSink,
    join_parts,
    kept_parts,
    split_part,
)
from demo_pipeline.datasets.selection import Candidate, Selection, select
from demo_pipeline.datasets.splits import (
    CrossSplitGuard,
    Split,
    SplitPlan,
    assign_splits,
    connected_groups,
)
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.files.atomic_write import cut_into_parts
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load

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
        """What the summary counts: `samples`, `records`, or `steps` of whole trajectories."""

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
    """

    selection: Selection
    splits: SplitPlan
    whole_trajectories: bool = False


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


_LOG = logging.getLogger(__package__)


@dataclass(slots=True)
class _Counts:
    """What a few trajectories, or all, gave."""

    written: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    by_trajectory: Counter[str] = field(default_factory=Counter)

    def add(self, other: "_Counts") -> None:
        self.written.update(other.written)
        self.excluded.update(other.excluded)
        self.hidden.update(other.hidden)
        self.by_trajectory.update(other.by_trajectory)


class ExportRun(Generic[RecordT]):
    """One run of the loop and its counts."""

    def __init__(self, plan: ExportPlan, exporter: Exporter[RecordT]) -> None:
        self._plan, self._exporter = plan, exporter
        self._sinks = exporter.sinks if isinstance(exporter, PartedExporter) else ()
        self._guard = CrossSplitGuard.of(
            plan.selection.chosen,
            plan.splits.splits,
            instruction_in_prompt=exporter.instruction_in_prompt,
        )
        self._counts = _Counts()
        self._unreadable = 0
        self._problems = list(plan.selection.problems)

    def run(self) -> ExportSummary:
        """Export all trajectories."""
        parts = kept_parts()
        if parts:
            parts.used.clear()
            parts.written.clear()
            parts.linked.clear()
        chosen = self._plan.selection.chosen
        for candidates in cut_into_parts(chosen, [candidate.source.id for candidate in chosen]):
            self._add_part(candidates)
        if parts:
            parts.written.update(self._counts.by_trajectory)
        excluded = dict(self._plan.selection.excluded)
        excluded["unreadable"] += self._unreadable
        reasons = (*self._exporter.exclusions, SPLIT_LEAK)
        return ExportSummary(
            unit=self._exporter.unit,
            records={split.value: self._counts.written[split.value] for split in Split},
            trajectories=len(self._counts.by_trajectory),
            excluded_trajectories=excluded,
            excluded_records=dict.fromkeys(reasons, 0) | self._counts.excluded,
            hidden_actions=dict(sorted(self._counts.hidden.items())),
            problems=tuple(self._problems),
        )

    def _add_part(self, candidates: Sequence[Candidate]) -> None:
        """Export a few trajectories, from the kept part if there is one."""
        parts = kept_parts()
        key = self._key(candidates, parts) if parts and self._sinks else None
        if parts is None or key is None:
            for candidate in candidates:
                self._export_trajectory(candidate, self._counts)
            return
        linked = self._from_kept(parts.get(key), candidates)
        if linked is None:
            made = self._made_part(candidates)
            if made is None:
                return
            part, linked = made
            parts.put(key, part)
        parts.used.append(key)
        parts.linked[key] = tuple(dict.fromkeys(linked))

    def _from_kept(self, part: Part | None, candidates: Sequence[Candidate]) -> list[str] | None:
        """Export a few trajectories from their part; returns the folders of their links.

        None: there is no part, or not all that it needs; nothing was written.
        """
        packed = split_part(part) if part else []
        segments = [sink.unpack(one) for sink, one in zip(self._sinks, packed, strict=False)]
        if part is None or any(segment is None for segment in segments):
            return None
        folders = {candidate.source.id: candidate.source.folder for candidate in candidates}
        for sink, segment in zip(self._sinks, segments, strict=True):
            sink.add(segment, folders)
        self._counts.add(_Counts(*map(Counter, part.header["counts"])))
        return self._linked([[segment] for segment in segments])

    def _linked(self, segments: Sequence[Sequence[Any]]) -> list[str]:
        """The folders that hold nothing but hard links of these segments of each sink."""
        return [
            folder
            for sink, some in zip(self._sinks, segments, strict=True)
            for segment in some
            for folder in sink.linked(segment)
        ]

    def _key(self, candidates: Sequence[Candidate], parts: KeptParts) -> str | None:
        """The key of the part; None when it depends on more than these trajectories."""
        shared = self._guard.shared_instructions
        if any(one.instruction in shared or not one.source.content for one in candidates):
            return None
        splits = self._plan.splits.splits
        facts = [(one.source.id, one.source.content, splits[one.source.id]) for one in candidates]
        return parts.key("records 5", [self._plan.whole_trajectories, facts])

    def _made_part(self, candidates: Sequence[Candidate]) -> tuple[Part, list[str]] | None:
        """Export a few trajectories; returns their part, if it can be kept, and such folders."""
        counts, unreadable, size = _Counts(), self._unreadable, 0
        made: list[list[Any]] = [[] for _ in self._sinks]
        for candidate in candidates:
            segments = self._export_trajectory(candidate, counts)
            size += sum(segment.size for segment in segments)
            for segment, known in zip(segments, made, strict=False):
                known.append(segment)
            if size > LARGEST_PART:
                made = []
        self._counts.add(counts)
        if not made or self._unreadable > unreadable:
            return None
        packed = [sink.pack(known) for sink, known in zip(self._sinks, made, strict=True)]
        values = (counts.written, counts.excluded, counts.hidden, counts.by_trajectory)
        return join_parts({"counts": values}, packed), self._linked(made)

    def _export_trajectory(self, candidate: Candidate, counts: _Counts) -> list[Any]:
        """Export a trajectory; returns what it added to each sink."""
        for sink in self._sinks:
            sink.hold()
        self._export_records(candidate, counts)
        source = candidate.source
        segments = [sink.take(source.id, source.folder) for sink in self._sinks]
        for sink, segment in zip(self._sinks, segments, strict=True):
            sink.add(segment, {source.id: source.folder})
        return segments

    def _export_records(self, candidate: Candidate, counts: _Counts) -> None:
        split = self._plan.splits.splits[candidate.source.id]
        try:
            columns = tuple(dict.fromkeys(self._exporter.provenance_columns))
            trajectory, rows = load(candidate.source, columns)
        except DemonstrationError as error:
            self._problems.extend(error.problems)
            self._unreadable += 1
            return
        counts.hidden.update(candidate.hidden.by_reason())
        if self._plan.whole_trajectories:
            stretch = candidate.stretch or range(0)
            steps = tuple(step for step in trajectory.steps if step.index in stretch)
            trajectory = replace(trajectory, steps=steps)
        written = 0
        for record in self._exporter.records(candidate, trajectory, rows):
            excluded = self._write(record, candidate, split)
            if excluded:
                counts.excluded[excluded.reason] += 1
                _LOG.debug("%s: a record is left out: %s", candidate.source.id, excluded.reason)
            else:
                written += 1
        if written:
            counts.written[split.value] += written
            counts.by_trajectory[candidate.source.id] = written

    def _write(
        self, record: RecordT | Excluded, candidate: Candidate, split: Split
    ) -> Excluded | None:
        if isinstance(record, Excluded):
            return record
        instruction = candidate.instruction
        if self._guard.leaks(instruction, record.prompt, record.screenshot, split):
            return Excluded(SPLIT_LEAK)
        return self._exporter.write(split, record)


def plan_splits(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[Selection, SplitPlan]:
    """The selected trajectories and their splits, which are the same for every export.

    Those with too many hidden actions for some kind of export are among them.
    """
    selection = select(trajectories, settings)
    candidates = {candidate.source.id: candidate for candidate in selection.chosen}
    groups = connected_groups({key: candidates[key].split_groups for key in candidates})
    applications = {key: candidates[key].application for key in candidates}
    sparse = {key for key, candidate in candidates.items() if not candidate.gives_steps}
    return selection, assign_splits(groups, settings, applications, besides=sparse)


def plan_export(
    trajectories: Sequence[DatasetTrajectory],
    settings: DatasetSettings,
    *,
    whole_trajectories: bool = False,
) -> ExportPlan:
    """Select trajectories and split them; the splits of all exports agree.

    Trajectories with hidden actions are left out as `incomplete`: of exports of steps when every
    step has more than `max_hidden_share` before it, of exports of whole trajectories when no
    `min_steps` steps in a row are without a gap.

    Args:
        trajectories: committed and valid ones, in any order.
        settings: what takes part, and the splits.
        whole_trajectories: the export is of whole trajectories, not of steps.
    """
    selection, splits = plan_splits(trajectories, settings)
    chosen = tuple(
        candidate
        for candidate in selection.chosen
        if (candidate.stretch is not None if whole_trajectories else candidate.gives_steps)
    )
    for candidate in chosen:
        split = splits.splits[candidate.source.id]
        _LOG.debug("%s: split %s", candidate.source.id, split.value)
    incomplete = Counter(incomplete=len(selection.chosen) - len(chosen))
    excluded = Counter({**selection.excluded, **incomplete})
    return ExportPlan(
        replace(selection, chosen=chosen, excluded=excluded),
        splits.only({candidate.source.id for candidate in chosen}),
        whole_trajectories,
    )


def export_records(plan: ExportPlan, exporter: Exporter[RecordT]) -> ExportSummary:
    """Write the records of all planned trajectories, by trajectory id and step.

    When the plan is of whole trajectories, the exporter gets the longest stretch of steps without a
    hidden action between them, as `candidate.stretch` says.

    One trajectory is in memory at a time. One that cannot be read is counted and costs the others
    nothing.
    """
    return ExportRun(plan, exporter).run()
