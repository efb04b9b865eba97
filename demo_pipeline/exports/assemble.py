"""Puts a dataset together from the rows of its trajectories: select, split, guard, write, link.

Belongs here: the one loop, which training exports and scoring share, the files of a dataset, and
how a written one is compared with its rows. What a row holds is decided in its form.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from demo_pipeline.datasets.dataset_inputs import WrittenDataset
from demo_pipeline.datasets.selection import Candidate, notes_of
from demo_pipeline.datasets.splits import ExportPlan, Split, plan_export
from demo_pipeline.exports.form import File, Form, KeptRow, kept_rows
from demo_pipeline.exports.record_checks import kept_problems
from demo_pipeline.files.comparison import differing_files, silence
from demo_pipeline.files.parquet import TableWriter
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

SPLIT_LEAK = "split_leak"
BY_TRAJECTORY = "records_by_trajectory"  # of the summary
_DIGEST = 16  # bytes of a question that are compared
_REMEDY = "build the dataset again"
RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export wrote and what it left out.

    Attributes:
        unit: what a row is called: `samples` or `records`.
        records: how many were written, by split.
        by_trajectory: how many, by trajectory.
        excluded_trajectories: by reason: failed, aborted, contaminated, incomplete, unreadable.
        excluded_records: by reason; rows left out although their trajectory takes part.
        hidden_actions: by reason; actions, of the trajectories that take part, that no screenshot
            shows.
        problems: why unreadable trajectories could not be read.
        details: further keys of `as_dict`; they replace the general ones of the same name.
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
        """Rows of all splits together."""
        return sum(self.records.values())

    @property
    def trajectories(self) -> int:
        """How many gave at least one row."""
        return len(self.by_trajectory)

    @property
    def left_out(self) -> dict[str, Mapping[str, int]]:
        """The counts of what was left out, as a card lists them: by unit, then by reason."""
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
    """What the loop wrote and left out; `counts` are what a form adds up."""

    written: Counter[str] = field(default_factory=Counter)
    by_trajectory: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0

    def summary(self, plan: ExportPlan, unit: str, exclusions: Sequence[str]) -> ExportSummary:
        """What was written of a plan; each of the exclusions is counted from 0."""
        gone = {**plan.selection.excluded}
        gone["unreadable"] += self.unreadable
        return ExportSummary(
            unit=unit,
            records={split.value: self.written[split.value] for split in Split},
            by_trajectory=dict(self.by_trajectory),
            excluded_trajectories=gone,
            excluded_records=dict.fromkeys((*exclusions, SPLIT_LEAK), 0) | self.excluded,
            hidden_actions=dict(sorted(self.hidden.items())),
            problems=(*plan.selection.problems, *self.problems),
        )


def each_row(
    plan: ExportPlan,
    rows_of: Callable[[Candidate], tuple[Mapping[str, int], Iterator[RowT]]],
    question: Callable[[RowT], str],
    take: Callable[[Candidate, Split, RowT], str],
) -> Tally:
    """Hand the rows of all planned trajectories to `take`, by trajectory id and step.

    One trajectory is in memory at a time. One that cannot be read is counted and costs the others
    nothing. The same screenshot with the same prompt is in one split only.

    Args:
        plan: the trajectories and their splits.
        rows_of: the rows of a trajectory, and what it leaves out by reason.
        question: of a row, in hex; equal for the same prompt about the same screenshot.
        take: takes a row of a split; returns why it cannot, or nothing.
    """
    tally = Tally()
    asked = dict[bytes, Split]()
    for candidate in plan.selection.chosen:
        split = plan.splits.splits[candidate.source.id]
        try:
            excluded, rows = rows_of(candidate)
        except DemonstrationError as error:
            tally.problems.extend(error.problems)
            tally.unreadable += 1
            continue
        tally.excluded.update(excluded)
        tally.hidden.update(candidate.hidden.by_reason())
        for row in rows:
            key = bytes.fromhex(question(row))[:_DIGEST]
            leaks = asked.setdefault(key, split) is not split
            if reason := SPLIT_LEAK if leaks else take(candidate, split, row):
                tally.excluded[reason] += 1
            else:
                tally.written[split.value] += 1
                tally.by_trajectory[candidate.source.id] += 1
    return tally


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
        written: gets what `form_problems` compares, and the numbers of the card.
    """
    plan = _plan(form)(trajectories, settings)
    written = written or WrittenDataset()
    out.mkdir(parents=True, exist_ok=True)
    written.splits = plan.splits.splits
    said = {n for one in plan.selection.chosen for of in notes_of(one.source).values() for n in of}
    counts = Counter[str]()

    def rows_of(candidate: Candidate) -> tuple[Mapping[str, int], Iterator[KeptRow]]:
        head, rows = kept_rows(form, candidate.source, settings)
        counts.update(head.counts)
        return head.excluded, rows

    with ExitStack() as stack:
        files = _Files(form, out, settings, written, said=said, stack=stack)
        tally = each_row(plan, rows_of, lambda row: row.question, files.take)
    counts.update(files.counts)
    summary = tally.summary(plan, form.unit, form.exclusions)
    return replace(summary, details=form.finish(out, plan, summary, counts, settings))


def _plan(form: Form) -> Callable[..., ExportPlan]:
    return form.plan or partial(plan_export, whole_trajectories=form.whole)


class _Files:
    """The files of a dataset, opened when they are first needed.

    Args:
        form: of the dataset.
        out: its folder, which exists.
        settings: of the datasets.
        written: gets what is written.
        said: kinds of annotations that some trajectory has.
        stack: closes the open files.

    Attributes:
        counts: over the rows that were written.
    """

    def __init__(
        self,
        form: Form,
        out: Path,
        settings: DatasetSettings,
        written: WrittenDataset,
        *,
        said: set[str],
        stack: ExitStack,
    ) -> None:
        self._form, self._out, self._settings = form, str(out), settings
        self._written = written
        self._said = said
        self._stack = stack
        self._open = dict[str, Callable[[Any], object]]()
        self.counts = Counter[str]()
        for split in Split:
            for file in form.files:
                if split in file.empty & file.only and "{id}" not in file.at(split, settings):
                    self._writer(file, file.at(split, settings))

    def take(self, candidate: Candidate, split: Split, row: KeptRow) -> str:
        """Write a row with its pictures; returns why it cannot be written, or nothing."""
        form = self._form
        settings = self._settings
        folder = candidate.source.folder
        pictures = form.pictures(candidate, split, row, settings)
        if not all(self._picture(*one, row, candidate) for one in pictures.items()):
            return "missing_frame"
        parts = form.parts(candidate, row, settings)
        for file in form.files:
            if file.part not in parts or split not in file.only:
                continue
            value = parts[file.part]
            name = file.at(split, settings)
            if file.table:
                value = form.place(value, split, settings, folder)
            if "{id}" in name:
                self._write(name.replace("{id}", row.id), value)
            else:
                self._writer(file, name)(value)
        for name, text in row.documents.items():
            self._write(name.replace("{split}", split.value, 1), text)
        self.counts.update(row.counts)
        self._written.ids[row.id] += 1
        self._written.longest = max(self._written.longest, row.tokens)
        step, kind = form.kind_of(row)
        known = (candidate.source.id, step, candidate.application, kind, split.value)
        self._written.rows.append(known)
        if form.file not in candidate.source.digests:
            found = kept_problems(form, [(None, row)], form.file, candidate.source)
            self._written.problems += found
        return ""

    def _picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Write a picture, if it is not there; returns whether it could be."""
        made = self._form.make(source, f"{self._out}/{name}", row, self._settings)
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

    def _write(self, name: str, text: str) -> None:
        Path(self._place(name)).write_text(text, encoding="utf-8")

    def _writer(self, file: File, name: str) -> Callable[[Any], object]:
        """What adds a value to a file, which is opened by the first call."""
        if name not in self._open:
            self._open[name] = self._opened(file, Path(self._place(name)))
        return self._open[name]

    def _opened(self, file: File, path: Path) -> Callable[[Any], object]:
        if file.table:
            table = file.table(self._settings)
            schema = table.annotated if self._said & table.notes else None
            writer = TableWriter(path, schema or table.schema, table.rows, table.characters)
            return self._stack.enter_context(writer).append_row
        stream = self._stack.enter_context(path.open("wb"))
        if path.suffix == ".jsonl":
            return lambda text: stream.write(f"{text}\n".encode())
        members = [b"["]  # what comes before the next one
        self._stack.callback(lambda: stream.write(b"[]\n" if members[0] == b"[" else b"\n]\n"))

        def add(text: str) -> None:
            stream.write(members[0] + f"\n{text}".encode())
            members[0] = b","

        return add

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


def form_problems(
    form: Form,
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    written: WrittenDataset,
) -> list[Problem]:
    """How a dataset differs from what `build_form` has written, and its rows from each other.

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
