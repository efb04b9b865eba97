"""Compares a written dataset with the rows of its trajectories.

The rows are read again from the output of the stage `records`. Files that do not belong to the
dataset are reported. At the end, the validator of the record format checks the dataset, as in
`demo-pipeline validate`.
"""

import filecmp
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.card_files import card_files, missing_card_files
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import ExportPlan, Split
from demo_pipeline.exports.assemble import DatasetFiles, raise_lost_picture
from demo_pipeline.exports.form import Form, KeptRow, Table
from demo_pipeline.exports.record_checks import validate_form
from demo_pipeline.files.comparison import files_below, silence
from demo_pipeline.files.parquet import RowBatches, RowGroups
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_REMEDY = "build it again; if that does not help, this is a defect of the pipeline: report it"
_MISSING = "is missing"


def form_problems(
    form: Form,
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
) -> list[Problem]:
    """Returns the problems of a dataset that `build_form` wrote with the same arguments."""
    with silence(), tempfile.TemporaryDirectory() as scratch:
        plan = form.plan(trajectories, settings)
        comparison = _DatasetComparison(form, out, settings, plan, Path(scratch))
        summary = comparison.go_through().summary
        problems = [*comparison.finish(), *_torn_tasks(form, plan)]
    if problems or not summary.total:  # a dataset without rows need not have the required files
        return problems
    validate = form.validate or partial(validate_form, form)
    return errors(validate(out))


@dataclass(eq=False)
class _DatasetComparison(DatasetFiles):
    """Compares the files of a dataset with its rows.

    Attributes:
        scratch: a folder for images that must be rendered again to compare them.
    """

    scratch: Path
    _sources: dict[str, str] = field(default_factory=dict, init=False)  # source of each image
    _names: set[str] = field(default_factory=set, init=False)  # expected files except images
    _ids: Counter[str] = field(default_factory=Counter, init=False)
    _problems: list[Problem] = field(default_factory=list, init=False)

    def finish(self) -> list[Problem]:
        """Returns all problems, including repeated ids and files that should not exist."""
        for row_id, times in self._ids.items():
            if times > 1:
                message = f"{times} records have the id {row_id!r}"
                self._problems.append(_problem("duplicate_id", self.form.file, message))
        for name in missing_card_files(self.out):
            self._report(name, "is missing or empty")
        expected = {*self._names, *self._sources, *card_files(self.out)}
        for name, _ in files_below(self.out):
            if name not in expected:
                self._report(name, "does not belong here")
        return self._problems

    def derived_files(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yields the derived files, or nothing if other files differ.

        Derived files repeat the content of other files, and would have the same differences.
        """
        return iter(()) if self._problems else super().derived_files()

    def put_picture(self, name: str, source: str, row: KeptRow, candidate: Candidate) -> bool:
        """Compares an image with its source, or with a fresh rendering of the source.

        An image named by its hash can have several sources with the same content.
        """
        if self._sources.get(name) == source:
            return True
        rendered = f"{self.scratch}/{name.rpartition('/')[2]}"
        is_rendered = self.form.make_picture(source, rendered, row, self.settings)
        if is_rendered is False:
            return False
        self._sources[name] = source
        try:
            is_same = _is_same_file(f"{self.out}/{name}", rendered if is_rendered else source)
        except FileNotFoundError:
            if not os.path.exists(source):  # noqa: PTH110 - faster; called for each image
                raise_lost_picture(source, candidate)
            self._report(name, _MISSING)
        else:
            if not is_same:
                self._report(name, "differs from the screenshot of its trajectory")
        if is_rendered:
            os.unlink(rendered)  # noqa: PTH108 - faster; called for each image
        return True

    def put_file(self, name: str, pieces: Iterable[bytes]) -> None:
        """Compares the whole content of a file."""
        with ExitStack() as stack:
            put = self.open_text(name, stack)
            for piece in pieces:
                put(piece)

    def open_text(self, name: str, stack: ExitStack) -> Callable[[bytes], object]:
        """Opens a text file to compare its bytes; only its first difference is reported."""
        path = self._existing(name)
        if path is None:
            return _ignore
        file = stack.enter_context(path.open("rb"))
        is_same = True
        lines = 0

        def compare(expected: bytes) -> None:
            nonlocal is_same, lines
            if is_same and file.read(len(expected)) != expected:
                is_same = False
                self._report(name, "differs from the records of the trajectories", lines + 1)
            lines += expected.count(b"\n")

        def compare_end() -> None:
            if is_same and file.read(1):
                self._report(name, "has more than the records of the trajectories", lines + 1)

        stack.callback(compare_end)
        return compare

    def open_table(self, name: str, table: Table, stack: ExitStack) -> Callable[[Any], object]:
        """Opens a Parquet file to compare its rows; only its first difference is reported."""
        path = self._existing(name)
        if path is None:
            return _ignore
        try:
            groups = RowGroups(path)
        except (OSError, pa.ArrowException) as error:
            raise_system_trouble(error)
            self._report(name, f"cannot be read as Parquet: {type(error).__name__}")
            return _ignore
        stack.callback(groups.close)
        is_same = groups.has_columns(table.schema)
        if not is_same:
            self._report(name, "has other columns than its form declares")
        rows = 0

        def compare(expected: pa.Table) -> None:
            nonlocal is_same, rows
            if is_same and not _is_same_group(groups, expected):
                is_same = False
                message = "differs from the records of the trajectories in or after row"
                self._report(name, f"{message} {rows + 1}")
            rows += expected.num_rows

        batches = RowBatches(table.schema, table.rows, table.characters, compare)

        def compare_end() -> None:
            batches.flush()
            if is_same and groups.read_next() is not None:
                self._report(name, f"has more rows than the {rows} records of the trajectories")

        stack.callback(compare_end)
        return batches.append_row

    def count(self, _candidate: Candidate, _split: Split, row: KeptRow) -> None:
        """Counts the row's id, because ids must be unique."""
        self._ids[row.id] += 1

    def _existing(self, name: str) -> Path | None:
        """Returns the path of an expected file, or reports the file as missing and returns None."""
        self._names.add(name)
        path = self.out / name
        if path.is_file():
            return path
        self._report(name, _MISSING)
        return None

    def _report(self, file: str, message: str, line: int | None = None) -> None:
        self._problems.append(_problem("differs", file, message, line))


def _ignore(_value: object) -> None:
    """Does nothing; replaces the comparison if a file is missing or unreadable."""


def _is_same_file(path: str, other: str) -> bool:
    """Returns whether two files have the same content; hard links to the same file are not read."""
    status = os.stat(path)  # noqa: PTH116 - faster; called for each image
    other_status = os.stat(other)  # noqa: PTH116
    if (status.st_ino, status.st_dev) == (other_status.st_ino, other_status.st_dev):
        return True
    filecmp.clear_cache()  # its cache overlooks changes within the resolution of file times
    return filecmp.cmp(path, other, shallow=False)


def _is_same_group(groups: RowGroups, expected: pa.Table) -> bool:
    """Reads the next row group, and returns whether it equals the expected rows."""
    try:
        written = groups.read_next()
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        return False
    return written is not None and bool(written.equals(expected))


def _torn_tasks(form: Form, plan: ExportPlan) -> Iterator[Problem]:
    """Yields a problem for each task group that is in two splits."""
    splits_of_group: dict[str, set[str]] = {}
    for candidate in plan.selection.chosen:
        split = plan.splits.splits[candidate.source.id]
        for group in candidate.split_groups:
            splits_of_group.setdefault(group, set()).add(split.value)
    for group, splits in sorted(splits_of_group.items()):
        if len(splits) > 1:
            message = f"task {group!r} is in more than one split: {', '.join(sorted(splits))}"
            yield _problem("torn_task", form.file, message)


def _problem(code: str, file: str, message: str, line: int | None = None) -> Problem:
    return Problem(code, file, message, line, remedy=_REMEDY)
