"""Puts a dataset of any form together from the rows of its trajectories.

`each_row` decides which rows a dataset holds and in which split. `DatasetFiles` decides which file
each value of a row belongs to. `build_form` writes these files; `dataset_comparison` goes through
the same rows and compares the files with them.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from demo_pipeline.datasets.selection import Candidate, notes_of
from demo_pipeline.datasets.splits import ExportPlan, Split
from demo_pipeline.exports.export_summary import (
    SPLIT_LEAK,
    CardFacts,
    ExportSummary,
    FinishedRows,
    Tally,
)
from demo_pipeline.exports.form import File, Form, KeptRow, Table, kept_rows
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import TableWriter
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_DIGEST = 16  # bytes of the hash of a question that are compared
RowT = TypeVar("RowT")


def each_row(
    plan: ExportPlan,
    rows_of: Callable[[Candidate], tuple[Mapping[str, int], Iterator[RowT]]],
    question: Callable[[RowT], str],
    take: Callable[[Candidate, Split, RowT], str],
) -> Tally:
    """Hand the rows of all planned trajectories to `take`, by trajectory id and step.

    One trajectory is in memory at a time. A trajectory that cannot be read is counted, and the
    others are not affected. The same screenshot with the same prompt goes into one split only.

    Args:
        plan: the trajectories and their splits.
        rows_of: returns what a trajectory leaves out by reason, and its rows.
        question: of a row, in hex; equal for the same prompt about the same screenshot.
        take: takes a row of a split; returns the reason why it cannot, or nothing.
    """
    tally = Tally()
    split_of_question: dict[bytes, Split] = {}
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
            if split_of_question.setdefault(key, split) is split:
                reason = take(candidate, split, row)
            else:
                reason = SPLIT_LEAK
            if reason:
                tally.excluded[reason] += 1
            else:
                tally.written[split.value] += 1
                tally.by_trajectory[candidate.source.id] += 1
    return tally


class DatasetFiles(ABC):
    """The files of a dataset: knows which value belongs where, not what is done with it.

    Args:
        form: of the dataset.
        out: its folder, which exists.
        settings: of the datasets.
        plan: of the dataset.
    """

    def __init__(self, form: Form, out: Path, settings: DatasetSettings, plan: ExportPlan) -> None:
        self.form = form
        self.out = out
        self.settings = settings
        self._plan = plan
        self._annotated = _annotated_kinds(plan)
        self._counts = Counter[str]()
        self._streams: dict[str, Callable[[Any], object]] = {}

    def go_through(self) -> FinishedRows:
        """Go through the rows of the dataset, then through the files beside them."""
        form = self.form
        with ExitStack() as stack:
            for split in Split:
                for file in form.files:
                    name = file.at(split, self.settings)
                    if split in file.empty & file.only and "{id}" not in name:
                        self._stream(file, name, stack)
            tally = each_row(
                self._plan,
                self._rows_of,
                lambda row: row.question,
                lambda candidate, split, row: self._take(candidate, split, row, stack),
            )
        summary = tally.summary(self._plan, form.unit, form.exclusions)
        finished = FinishedRows(self._plan, summary, self._counts, self.settings)
        finished = replace(finished, summary=replace(summary, details=form.details(finished)))
        for name, value in form.side_files(finished).items():
            self.put_file(name, [value.encode() if name.endswith(".txt") else json_bytes(value)])
        for name, pieces in self.derived_files():
            self.put_file(name, pieces)
        return finished

    def _rows_of(self, candidate: Candidate) -> tuple[Mapping[str, int], Iterator[KeptRow]]:
        head, rows = kept_rows(self.form, candidate.source, self.settings)
        self._counts.update(head.counts)
        return head.excluded, rows

    def _take(self, candidate: Candidate, split: Split, row: KeptRow, stack: ExitStack) -> str:
        """Put a row into its files; returns why it is left out, or nothing."""
        form = self.form
        settings = self.settings
        folder = candidate.source.folder
        pictures = form.pictures(candidate, split, row, settings)
        for name, source in pictures.items():
            if not self.put_picture(name, source, row, candidate):
                return "missing_frame"
        parts = form.parts_of(candidate, row, settings)
        for file in form.files:
            if file.part not in parts or split not in file.only:
                continue
            value = parts[file.part]
            name = file.at(split, settings)
            if file.table:
                value = form.place(value, split, settings, folder)
            if "{id}" in name:
                self.put_file(name.replace("{id}", row.id), [value.encode()])
            else:
                self._stream(file, name, stack)(value)
        for name, text in row.documents.items():
            self.put_file(name.replace("{split}", split.value, 1), [text.encode()])
        self._counts.update(row.counts)
        self.count(candidate, split, row)
        return ""

    def _stream(self, file: File, name: str, stack: ExitStack) -> Callable[[Any], object]:
        """The function that takes the next value of a file. The first call opens the file."""
        if name in self._streams:
            return self._streams[name]
        if file.table:
            table = file.table(self.settings)
            if table.annotated is not None and self._annotated & table.notes:
                table = replace(table, schema=table.annotated)
            take = self.open_table(name, table, stack)
        else:
            put = self.open_text(name, stack)
            take = put_lines(put) if name.endswith(".jsonl") else put_array(put, stack)
        self._streams[name] = take
        return take

    def derived_files(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield name and content of the files that are made of other written files."""
        return self.form.derived_files(self.out)

    @abstractmethod
    def put_picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Take a picture that may have been taken before; returns whether it can be made."""

    @abstractmethod
    def put_file(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take a file as a whole."""

    @abstractmethod
    def open_text(self, name: str, stack: ExitStack) -> Callable[[bytes], object]:
        """Open a file of lines, or a JSON array: a function that takes its next bytes."""

    @abstractmethod
    def open_table(self, name: str, table: Table, stack: ExitStack) -> Callable[[Any], object]:
        """Open a table: a function that takes its next row."""

    @abstractmethod
    def count(self, candidate: Candidate, split: Split, row: KeptRow) -> None:
        """Count a row that was put into its files."""


def _annotated_kinds(plan: ExportPlan) -> set[str]:
    """Kinds of annotations that some trajectory of the dataset has."""
    kinds: set[str] = set()
    for candidate in plan.selection.chosen:
        for notes_of_step in notes_of(candidate.source).values():
            kinds.update(notes_of_step)
    return kinds


def put_lines(put: Callable[[bytes], object]) -> Callable[[str], object]:
    """Hand on texts as lines."""
    return lambda text: put(f"{text}\n".encode())


def put_array(put: Callable[[bytes], object], stack: ExitStack) -> Callable[[str], object]:
    """Hand on texts of JSON values as a JSON array, which ends when `stack` is closed."""
    put(b"[")
    is_empty = True

    def add(text: str) -> None:
        nonlocal is_empty
        put(f"{'' if is_empty else ','}\n{text}".encode())
        is_empty = False

    stack.callback(lambda: put(b"]\n" if is_empty else b"\n]\n"))
    return add


def build_form(
    form: Form,
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    facts: CardFacts | None = None,
) -> ExportSummary:
    """Write a dataset in a form; the same trajectories and settings give the same bytes.

    Args:
        form: of the dataset.
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, and what the form reads.
        facts: gets what the card says about the rows.
    """
    out.mkdir(parents=True, exist_ok=True)
    plan = form.plan(trajectories, settings)
    writer = _DatasetWriter(form, out, settings, plan, facts or CardFacts())
    for folder in form.folders:
        writer.make_folder(folder)
    return writer.go_through().summary


class _DatasetWriter(DatasetFiles):
    """Writes the files of a dataset, each opened when it is first needed."""

    def __init__(
        self,
        form: Form,
        out: Path,
        settings: DatasetSettings,
        plan: ExportPlan,
        facts: CardFacts,
    ) -> None:
        super().__init__(form, out, settings, plan)
        self._facts = facts
        self._top = str(out)
        self._folders = {""}

    def put_picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Link or make a picture, if it is not there; returns whether it could be made."""
        path = f"{self._top}/{name}"
        is_written = self.form.make_picture(source, path, row, self.settings)
        if is_written is not None:
            return is_written
        self._make_folder_of(name)
        try:
            os.link(source, path)
        except FileExistsError:
            return True
        except FileNotFoundError:
            raise_lost_picture(source, candidate)
        except OSError:
            shutil.copyfile(source, path)
        return True

    def put_file(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file."""
        self._make_folder_of(name)
        with (self.out / name).open("wb") as file:
            file.writelines(pieces)

    def open_text(self, name: str, stack: ExitStack) -> Callable[[bytes], object]:
        """Open a file to write bytes."""
        self._make_folder_of(name)
        return stack.enter_context((self.out / name).open("wb")).write

    def open_table(self, name: str, table: Table, stack: ExitStack) -> Callable[[Any], object]:
        """Open a Parquet file to write rows."""
        self._make_folder_of(name)
        writer = TableWriter(self.out / name, table.schema, table.rows, table.characters)
        return stack.enter_context(writer).append_row

    def count(self, candidate: Candidate, split: Split, row: KeptRow) -> None:
        """Remember what the card says about a row."""
        self._facts.longest_chat = max(self._facts.longest_chat, row.tokens)
        step, kind = self.form.kind_of(row)
        facts = (candidate.source.id, step, candidate.application, kind, split.value)
        self._facts.rows.append(facts)

    def _make_folder_of(self, name: str) -> None:
        self.make_folder(name.rpartition("/")[0])

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it. A folder is made once, for 100,000 pictures."""
        if folder not in self._folders:
            self.make_folder(folder.rpartition("/")[0])
            with suppress(FileExistsError):  # a picture that is made makes its folder
                os.mkdir(f"{self._top}/{folder}")  # noqa: PTH102
            self._folders.add(folder)


def raise_lost_picture(source: str, candidate: Candidate) -> None:
    """Raise the error of a picture that its trajectory lost.

    Raises:
        ChangedOutput: names the committed trajectory.
        FileNotFoundError: the trajectory is not a committed one.
    """
    if not candidate.source.content:
        raise FileNotFoundError(source)
    file = source.removeprefix(f"{candidate.source.folder}/")
    raise ChangedOutput(f"trajectories/{candidate.source.id}", file)
