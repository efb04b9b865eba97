"""Builds the dataset of an export from the rows of its trajectories.

`each_row` decides which rows a dataset has, and in which split. `DatasetFiles` finds the file for
each part of a row (`Row.parts`). `build_form` writes the files of a dataset. dataset_comparison.py
compares the same rows with the existing files.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
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

_DIGEST = 16  # number of bytes that are kept of a question's hash
RowT = TypeVar("RowT")


def each_row(
    plan: ExportPlan,
    rows_of: Callable[[Candidate], tuple[Mapping[str, int], Iterator[RowT]]],
    question: Callable[[RowT], str],
    take: Callable[[Candidate, Split, RowT], str],
) -> Tally:
    """Passes all rows of a dataset to `take`, sorted by trajectory id and step, and counts them.

    Only one trajectory is in memory at a time. Unreadable trajectories are counted and skipped. A
    row is left out for the reason `split_leak` if an earlier row of another split has the same
    question.

    Args:
        rows_of: returns, for a trajectory, the number of left-out rows by reason, and the rows.
        question: returns the hash of a row's question in hexadecimal; see `form.question`.
        take: takes a row and its split, and returns why the row is left out, or "".
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


@dataclass(eq=False)
class DatasetFiles(ABC):
    """Goes through the rows of a dataset and passes each part of a row (`Row.parts`) to its file.

    Subclasses write the files, or compare them.

    Attributes:
        form: the record format of the dataset.
        out: the existing folder of the dataset.
        settings: the settings of the datasets.
        plan: the trajectories of the dataset and their splits.
    """

    form: Form
    out: Path
    settings: DatasetSettings
    plan: ExportPlan
    _annotated: set[str] = field(init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    _streams: dict[str, Callable[[Any], object]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._annotated = _annotated_kinds(self.plan)

    def go_through(self) -> FinishedRows:
        """Passes all rows to their files, then adds the files about the whole dataset."""
        form = self.form
        with ExitStack() as stack:
            for split in Split:
                for file in form.files:
                    name = file.at(split, self.settings)
                    if split in file.empty & file.only and "{id}" not in name:
                        self._stream(file, name, stack)
            tally = each_row(
                self.plan,
                self._rows_of,
                attrgetter("question"),
                lambda candidate, split, row: self._take(candidate, split, row, stack),
            )
        summary = tally.summary(self.plan, form.unit, form.exclusions)
        finished = FinishedRows(self.plan, summary, self._counts, self.settings)
        finished = replace(finished, summary=replace(summary, details=form.details(finished)))
        for name, value in form.side_files(finished).items():
            self.put_file(name, [value.encode() if name.endswith(".txt") else json_bytes(value)])
        for name, pieces in self.derived_files():
            self.put_file(name, pieces)
        return finished

    def _rows_of(self, candidate: Candidate) -> tuple[Mapping[str, int], Iterator[KeptRow]]:
        """Returns the number of a trajectory's left-out rows by reason, and its other rows."""
        head, rows = kept_rows(self.form, candidate.source, self.settings)
        self._counts.update(head.counts)
        return head.excluded, rows

    def _take(self, candidate: Candidate, split: Split, row: KeptRow, stack: ExitStack) -> str:
        """Adds a row to its files and returns "", or returns the reason to leave the row out."""
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
        """Returns the function to which the values of a file are passed one by one.

        The first call for a file opens it.

        Args:
            name: path of the file in the dataset.
        """
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
        """Yields name and content of the files made from other files of the dataset."""
        return self.form.derived_files(self.out)

    @abstractmethod
    def put_picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Adds an image of a row to the dataset. Several rows may have the same image.

        Args:
            name: path of the image in the dataset.
            source: path of the file that is linked or converted.
            row: the row that contains the name of the image.

        Returns:
            False if the image cannot be made; then the row is left out.
        """

    @abstractmethod
    def put_file(self, name: str, pieces: Iterable[bytes]) -> None:
        """Adds a file to the dataset, given its whole content in pieces."""

    @abstractmethod
    def open_text(self, name: str, stack: ExitStack) -> Callable[[bytes], object]:
        """Opens a text file, and returns the function to which its bytes are passed in pieces."""

    @abstractmethod
    def open_table(self, name: str, table: Table, stack: ExitStack) -> Callable[[Any], object]:
        """Opens a Parquet file, and returns the function to which its rows are passed."""

    @abstractmethod
    def count(self, candidate: Candidate, split: Split, row: KeptRow) -> None:
        """Counts a row after it was added to its files."""


def _annotated_kinds(plan: ExportPlan) -> set[str]:
    """Returns the kinds of annotations that at least one trajectory of the dataset has."""
    kinds: set[str] = set()
    for candidate in plan.selection.chosen:
        for notes_of_step in notes_of(candidate.source).values():
            kinds.update(notes_of_step)
    return kinds


def put_lines(put: Callable[[bytes], object]) -> Callable[[str], object]:
    """Returns a function that passes each text to `put` as a line."""
    return lambda text: put(f"{text}\n".encode())


def put_array(put: Callable[[bytes], object], stack: ExitStack) -> Callable[[str], object]:
    """Returns a function that passes JSON values, given as text, to `put` as items of an array.

    `stack` closes the array.
    """
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
    """Writes a dataset; equal trajectories and settings always give equal bytes.

    Args:
        trajectories: committed and valid trajectories, in any order.
        out: directory to write into; it is created.
        settings: determine the included trajectories, the splits, and the content of rows.
        facts: collects the facts about rows for the card; None if no card is written.
    """
    out.mkdir(parents=True, exist_ok=True)
    plan = form.plan(trajectories, settings)
    writer = _DatasetWriter(form, out, settings, plan, facts or CardFacts())
    for folder in form.folders:
        writer.make_folder(folder)
    return writer.go_through().summary


@dataclass(eq=False)
class _DatasetWriter(DatasetFiles):
    """Writes the files of a dataset.

    Attributes:
        facts: facts about the written rows, for the card.
    """

    facts: CardFacts
    _folders: set[str] = field(default_factory=lambda: {""}, init=False)  # existing folders

    def put_picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Writes or links an image unless it exists; returns False if the image cannot be made."""
        path = f"{self.out}/{name}"
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
        """Writes a file."""
        self._make_folder_of(name)
        with (self.out / name).open("wb") as file:
            file.writelines(pieces)

    def open_text(self, name: str, stack: ExitStack) -> Callable[[bytes], object]:
        """Opens a file for encoded text, and returns the function that writes to it."""
        self._make_folder_of(name)
        return stack.enter_context((self.out / name).open("wb")).write

    def open_table(self, name: str, table: Table, stack: ExitStack) -> Callable[[Any], object]:
        """Opens a Parquet file, and returns the function that writes a row to it."""
        self._make_folder_of(name)
        writer = TableWriter(self.out / name, table.schema, table.rows, table.characters)
        return stack.enter_context(writer).append_row

    def count(self, candidate: Candidate, split: Split, row: KeptRow) -> None:
        """Collects facts about a row for the card."""
        self.facts.longest_chat = max(self.facts.longest_chat, row.tokens)
        step, kind = self.form.kind_of(row)
        row_facts = (candidate.source.id, step, candidate.application, kind, split.value)
        self.facts.rows.append(row_facts)

    def _make_folder_of(self, name: str) -> None:
        self.make_folder(name.rpartition("/")[0])

    def make_folder(self, folder: str) -> None:
        """Makes a folder and its parents, unless they exist."""
        if folder not in self._folders:
            self.make_folder(folder.rpartition("/")[0])
            with suppress(FileExistsError):  # `Form.make_picture` also makes folders
                os.mkdir(f"{self.out}/{folder}")  # noqa: PTH102 - called for each image
            self._folders.add(folder)


def raise_lost_picture(source: str, candidate: Candidate) -> None:
    """Raises the error for an image that is missing in its trajectory.

    Raises:
        ChangedOutput: the trajectory is in the store; the error names the trajectory and the file.
        FileNotFoundError: the trajectory is not in a store.
    """
    if not candidate.source.content:
        raise FileNotFoundError(source)
    file = source.removeprefix(f"{candidate.source.folder}/")
    raise ChangedOutput(f"trajectories/{candidate.source.id}", file)
