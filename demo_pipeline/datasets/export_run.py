"""One run of the export loop: trajectory by trajectory, or from the parts that were kept.

Belongs here: reading, guarding, writing and counting. Which trajectories take part is planned in
`export_loop`.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from demo_pipeline.common.id_parts import cut_into_parts
from demo_pipeline.datasets.export_parts import (
    LARGEST_PART,
    KeptParts,
    Part,
    join_parts,
    kept_parts,
    split_part,
)
from demo_pipeline.datasets.export_types import (
    SPLIT_LEAK,
    Excluded,
    Exporter,
    ExportPlan,
    ExportSummary,
    PartedExporter,
    RecordT,
)
from demo_pipeline.datasets.selection import Candidate, load
from demo_pipeline.datasets.split_guard import CrossSplitGuard
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.stale_trees import AGREEMENT_COLUMN, without_stale_targets
from demo_pipeline.problems import DemonstrationError

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
        return parts.key("records 4", [self._plan.whole_trajectories, facts])

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
            columns = (*self._exporter.provenance_columns, AGREEMENT_COLUMN)
            trajectory, rows = load(candidate.source, tuple(dict.fromkeys(columns)))
        except DemonstrationError as error:
            self._problems.extend(error.problems)
            self._unreadable += 1
            return
        if not self._plan.include_stale_trees:
            trajectory, rows = without_stale_targets(trajectory, rows)
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
