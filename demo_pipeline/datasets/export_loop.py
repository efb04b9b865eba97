"""Puts a dataset together from the records of its trajectories: select, split, guard, write.

Belongs here: which trajectories take part, the files of every form, and how a written dataset is
compared with the records. What a record holds is decided in its form.
"""

import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from demo_pipeline.datasets.record_forms import Form, KeptRecord, Table, kept_records
from demo_pipeline.datasets.selection import Candidate, Selection, notes_of, select
from demo_pipeline.datasets.splits import (
    Split,
    SplitPlan,
    assign_splits,
    connected_groups,
    shared_instructions,
)
from demo_pipeline.files.atomic_write import FileDigest, read_digest
from demo_pipeline.files.comparison import differing_files, files_below, silence
from demo_pipeline.files.parquet import TableWriter
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

SPLIT_LEAK = "split_leak"
_REMEDY = "build the dataset again"
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export is made of.

    Attributes:
        selection: the trajectories that take part.
        splits: of each.
    """

    selection: Selection
    splits: SplitPlan


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


def plan_splits(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[Selection, SplitPlan]:
    """The selected trajectories and their splits, which are the same for every export.

    Those with too many hidden actions for some kind of export are among them.
    """
    selection = select(trajectories, settings)
    candidates = {candidate.source.id: candidate for candidate in selection.chosen}
    oldest = sorted(selection.chosen, key=_age)
    known = [one.source for one in oldest if one.source.group]
    names = {source.id: source.group for source in known}
    groups = connected_groups({one.source.id: one.split_groups for one in oldest}, names)
    placed = {one.group: Split(one.split) for one in reversed(known) if one.split}
    applications = {key: candidates[key].application for key in candidates}
    sparse = {key for key, candidate in candidates.items() if not candidate.gives_steps}
    return selection, assign_splits(groups, settings, applications, besides=sparse, placed=placed)


def _age(one: Candidate) -> tuple[bool, datetime, str]:
    """Sorts by age: what was in a split before is older than what was not."""
    return not one.source.group, one.recorded, one.source.id


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
    )


RecordT = TypeVar("RecordT")


class _Exporter(Protocol[RecordT]):
    """Where the records of trajectories come from, and where they go."""

    @property
    def unit(self) -> str:
        """What the summary counts."""

    @property
    def exclusions(self) -> Sequence[str]:
        """Why a record may be left out; each reason is counted from 0."""

    @property
    def instruction_in_prompt(self) -> bool:
        """Whether every prompt holds the instruction."""

    def records(self, candidate: Candidate) -> tuple[Mapping[str, int], Iterator[RecordT]]:
        """The records of a trajectory, and what it leaves out by reason.

        Raises:
            DemonstrationError: it cannot be read.
        """

    def question(self, record: RecordT) -> str:
        """Equal for the same prompt about the same screenshot."""

    def write(self, candidate: Candidate, split: Split, record: RecordT) -> str:
        """Write a record of a split; returns why it cannot be written, or nothing."""


def export_records(plan: ExportPlan, exporter: _Exporter[Any]) -> ExportSummary:
    """Write the records of all planned trajectories, by trajectory id and step.

    One trajectory is in memory at a time. One that cannot be read is counted and costs the others
    nothing. The same screenshot with the same prompt is written to one split only.
    """
    chosen, splits = plan.selection.chosen, plan.splits.splits
    shared = shared_instructions(
        chosen, splits, instruction_in_prompt=exporter.instruction_in_prompt
    )
    asked: dict[str, Split] = {}
    problems, unreadable, trajectories = list(plan.selection.problems), 0, 0
    written, excluded, hidden = Counter[str](), Counter[str](), Counter[str]()
    for candidate in chosen:
        split = splits[candidate.source.id]
        try:
            left_out, records = exporter.records(candidate)
        except DemonstrationError as error:
            problems.extend(error.problems)
            unreadable += 1
            continue
        excluded.update(left_out)
        hidden.update(candidate.hidden.by_reason())
        before = written[split.value]
        for record in records:
            guarded = candidate.instruction in shared
            if guarded and asked.setdefault(exporter.question(record), split) is not split:
                excluded[SPLIT_LEAK] += 1
            elif reason := exporter.write(candidate, split, record):
                excluded[reason] += 1
            else:
                written[split.value] += 1
        trajectories += written[split.value] > before
    reasons = (*exporter.exclusions, SPLIT_LEAK)
    gone = {**plan.selection.excluded}
    gone["unreadable"] += unreadable
    return ExportSummary(
        unit=exporter.unit,
        records={split.value: written[split.value] for split in Split},
        trajectories=trajectories,
        excluded_trajectories=gone,
        excluded_records=dict.fromkeys(reasons, 0) | excluded,
        hidden_actions=dict(sorted(hidden.items())),
        problems=tuple(problems),
    )


@dataclass(slots=True)
class WrittenDataset:
    """What a build has written, for the checks of it.

    Attributes:
        files: path below the dataset → its digest, or the picture that it is a link to; an empty
            text until all files are written.
        folders: below the dataset, whose files are all among these, and the dataset itself.
        ids: of the records, each with how often it was written.
        splits: of the trajectories that took part.
        problems: of records that no stage of a demonstration has checked.
    """

    files: dict[str, FileDigest | str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})
    ids: Counter[str] = field(default_factory=Counter)
    splits: Mapping[str, Split] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def note_files(self, out: Path) -> None:
        """Note every file that is not a link to a picture; called when all are written."""
        others = (name for name, _ in files_below(out, self.folders))
        unread = {*others, *(name for name, known in self.files.items() if not known)}
        self.files |= {name: read_digest(out / name) for name in unread}


@dataclass(slots=True)
class _ArrayFile:
    """A JSON array with a member a line."""

    file: BinaryIO
    members: int = 0

    def add(self, text: str) -> None:
        self.file.write(f"{',' if self.members else '['}\n{text}".encode())
        self.members += 1

    def end(self) -> None:
        self.file.write(b"\n]\n" if self.members else b"[]\n")


class _FormExporter:
    """Writes the kept records of a form.

    Args:
        form: of the records.
        tables: of the dataset, by part.
        out: folder of the dataset, which exists.
        settings: of the datasets.
        written: gets what is written.
        stack: closes the open files.

    Attributes:
        counts: over the records that were written.
    """

    def __init__(
        self,
        form: Form,
        tables: Mapping[str, Table],
        out: Path,
        settings: DatasetSettings,
        written: WrittenDataset,
        *,
        stack: ExitStack,
    ) -> None:
        self._form, self._out, self._settings, self._stack = form, str(out), settings, stack
        self._written = written
        self.unit, self.exclusions = form.unit, form.exclusions
        self.instruction_in_prompt = form.instruction_in_prompt(settings)
        self._tables = tables
        self._targets = {split: form.files(split, settings) for split in Split}
        self.counts = Counter[str]()
        self._writers: dict[str, Callable[[Any], object]] = {}
        for split, files in self._targets.items():
            for part, names in files.items():
                for name in names if form.written(split, part) else ():
                    self._writer(part, name)

    def records(self, candidate: Candidate) -> tuple[Mapping[str, int], Iterator[KeptRecord]]:
        """See `_Exporter`."""
        head, records = kept_records(self._form, candidate.source, self._settings)
        self.counts.update(head.counts)
        return head.excluded, records

    def question(self, record: KeptRecord) -> str:
        """See `_Exporter`."""
        return record.question

    def write(self, candidate: Candidate, split: Split, record: KeptRecord) -> str:
        """See `_Exporter`."""
        form = self._form
        pictures = form.pictures(candidate, split, record, self._settings)
        if not all(self._picture(*one, record, candidate) for one in pictures.items()):
            return "missing_frame"
        parts = form.parts(candidate, record, self._settings)
        for part, names in self._targets[split].items():
            value = parts.get(part)
            if value is not None and part in self._tables:
                value = form.row(value, split, self._settings, candidate.source.folder)
            for name in names if value is not None else ():
                self._writer(part, name)(value)
        for name, text in form.documents(split, record).items():
            Path(self._place(name)).write_text(text, encoding="utf-8")
        self.counts.update(record.counts)
        self._written.ids[record.id] += 1
        if form.file not in candidate.source.digests:
            self._written.problems += form.problems([(None, record)], form.file, candidate.source)
        return ""

    def _picture(self, name: str, source: str, record: KeptRecord, candidate: Candidate) -> bool:
        """Write a picture, if it is not there; returns whether it could be."""
        made = self._form.make(source, f"{self._out}/{name}", record, self._settings)
        if made:
            self._written.files[name] = ""
        if made is not None:
            return made
        path = self._place(name, source)
        try:
            os.link(source, path)
        except FileExistsError:
            return True
        except FileNotFoundError:
            if not candidate.source.content:
                raise
            output = f"trajectories/{candidate.source.id}"
            raise ChangedOutput(
                output, source.removeprefix(f"{candidate.source.folder}/")
            ) from None
        except OSError:
            shutil.copyfile(source, path)
        return True

    def _writer(self, part: str, name: str) -> Callable[[Any], object]:
        """What adds a value to a file, which is opened by the first call."""
        if name not in self._writers:
            self._writers[name] = self._opened(part, Path(self._place(name)))
        return self._writers[name]

    def _opened(self, part: str, path: Path) -> Callable[[Any], object]:
        if path.suffix == ".parquet":
            table = self._tables[part]
            writer = TableWriter(path, table.schema, table.rows, table.characters)
            return self._stack.enter_context(writer).append_row
        file = self._stack.enter_context(path.open("wb"))
        if path.suffix == ".jsonl":
            return lambda text: file.write(f"{text}\n".encode())
        array = _ArrayFile(file)
        self._stack.callback(array.end)
        return array.add

    def _place(self, name: str, source: str = "") -> str:
        """The path of a file, in a folder that exists; `source`: the picture that it links to."""
        self._make_folder(name.rpartition("/")[0])
        self._written.files[name] = source
        return f"{self._out}/{name}"

    def _make_folder(self, folder: str) -> None:
        """Make a folder and those above it; each is asked for once, of a hundred thousand."""
        if folder not in self._written.folders:
            self._make_folder(folder.rpartition("/")[0])
            with suppress(FileExistsError):  # a form makes some
                os.mkdir(f"{self._out}/{folder}")  # noqa: PTH102
            self._written.folders.add(folder)


def build_form(
    form: Form,
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    written: WrittenDataset | None = None,
) -> ExportSummary:
    """Write a dataset in a form; the same trajectories and settings give the same bytes.

    Args:
        form: of the dataset.
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, and what the form reads.
        written: gets what `form_problems` compares.
    """
    plan, written = _plan(form)(trajectories, settings), written or WrittenDataset()
    out.mkdir(parents=True, exist_ok=True)
    written.splits = plan.splits.splits
    said = {
        name for one in plan.selection.chosen for of in notes_of(one.source).values() for name in of
    }
    tables = {
        part: replace(table, schema=table.annotated) if said & table.notes else table
        for part, table in form.tables(settings).items()
    }
    with ExitStack() as stack:
        exporter = _FormExporter(form, tables, out, settings, written, stack=stack)
        summary = export_records(plan, exporter)
    details = form.finish(out, plan, summary, exporter.counts, settings)
    return replace(summary, details=details)


def _plan(form: Form) -> Callable[..., ExportPlan]:
    return form.plan or partial(plan_export, whole_trajectories=form.whole_trajectories)


def form_problems(
    form: Form,
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    written: WrittenDataset,
) -> list[Problem]:
    """How a dataset differs from what `build_form` has written, and its records from each other.

    The arguments are those of `build_form`.
    """
    found = [*differing_files(out, written.files), *written.problems]
    for name, times in written.ids.items():
        if times > 1:
            message = f"{times} records have the id {name!r}"
            found.append(Problem("duplicate_id", form.file, message, remedy=_REMEDY))
    with silence():
        chosen = _plan(form)(trajectories, settings).selection.chosen
    return [*found, *_torn_tasks(form, chosen, written.splits)]


def _torn_tasks(
    form: Form, chosen: Sequence[Candidate], written: Mapping[str, Split]
) -> Iterator[Problem]:
    """Yield a problem for every task group in two splits."""
    places: dict[str, set[str]] = {}
    for candidate in chosen:
        for group in candidate.split_groups if candidate.source.id in written else ():
            places.setdefault(group, set()).add(written[candidate.source.id].value)
    for group, splits in sorted(places.items()):
        if len(splits) > 1:
            message = f"task {group!r} is in more than one split: {', '.join(sorted(splits))}"
            yield Problem("torn_task", form.file, message, remedy=_REMEDY)
