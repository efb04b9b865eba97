"""Validating the files of an export: reading lines and rows, and what holds between records.

Belongs here: what is the same for every form: missing splits, values that cannot be read, ids that
repeat, trajectories in two splits, files that no record names, tables beside lines. A form's
records are checked by record_checks.py.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.desktopd.reader import json_problem
from demo_pipeline.exports.record_checks import (
    REBUILD,
    Fault,
    FormRecordT,
    NamedFiles,
    RecordFormat,
    read_record,
    record_faults,
)
from demo_pipeline.files.base_model import MAX_PROBLEMS, limited
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.parquet import open_rows
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, Severity

REQUIRED_SPLITS, OPTIONAL_SPLITS = ("train", "val", "test"), ("held_out",)
_ROWS_IN_MEMORY = 64


def missing(file: str) -> Problem:
    """The problem of a file that is not there."""
    return Problem("missing_file", file, "the file is missing", remedy=REBUILD)


def no_records(file: str) -> Problem:
    """The warning about a file without a record."""
    return Problem("no_records", file, "the file has no record", severity=Severity.WARNING)


def split_files(root: Path, pattern: str) -> Iterator[tuple[str, str | Problem]]:
    """Yield split and file of each split that is there; a problem for one that must be."""
    for split in (*REQUIRED_SPLITS, *OPTIONAL_SPLITS):
        file = pattern.replace("*", split)
        if (root / file).is_file():
            yield split, file
        elif split in REQUIRED_SPLITS:
            yield split, missing(file)


def line_value(line: bytes, file: str, number: int) -> Any:
    """The value of a line, or the problem of one that has none."""
    if not line.strip():
        return Problem("blank_line", file, "the line is blank", number, remedy="remove it")
    try:
        return parse_json(line, file)
    except JsonFileError as error:
        return replace(json_problem(error), line=number)


def values_of(path: Path, file: str) -> Iterator[tuple[int | None, Any]]:
    """Yield number and value of every line or row, with a problem for one that cannot be read."""
    if path.suffix != ".parquet":
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line_value(line, file, number)
        return
    try:
        with open_rows(path, _ROWS_IN_MEMORY) as (_, rows):
            yield from enumerate(rows, start=1)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        message = f"cannot be read as Parquet: {type(error).__name__}"
        yield None, Problem("unreadable_table", file, message, remedy=REBUILD)


class ExportReader:
    """Reads the records of an export, and remembers what must not repeat.

    Args:
        root: the folder of the export.

    Attributes:
        files: that its records name.
        places: id → the place of the first record that has it.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, NamedFiles.below(root)
        self.places: dict[str, str] = {}
        self._splits: dict[str, str] = {}

    def records(
        self, form: RecordFormat[FormRecordT], file: str, split: str = ""
    ) -> Iterator[tuple[FormRecordT | None, list[Problem]]]:
        """Yield every record of a file with its problems; None: the model rejects it.

        The file is JSON Lines or Parquet. Trajectories of a `split`, if given, are in no other.
        """
        for number, value in values_of(self.root / file, file):
            if isinstance(value, Problem):
                yield None, [value]
                continue
            record, problems = read_record(form, value, file, number, self.files)
            if record is not None:
                problems += self._repeated(form, record, (file, number), split)
            yield record, problems

    def document_problems(
        self, form: RecordFormat[FormRecordT], record: FormRecordT, file: str
    ) -> Iterator[Problem]:
        """Yield the problems of a record that is a file of its own and fits its model."""
        yield from self._repeated(form, record, (file, None), "")
        yield from (f.at(file, None) for f in record_faults(form, record, self.files))

    def _repeated(
        self,
        form: RecordFormat[FormRecordT],
        record: FormRecordT,
        at: tuple[str, int | None],
        split: str,
    ) -> Iterator[Problem]:
        place, key = ":".join(str(part) for part in at if part), getattr(record, form.id_field)
        if key is not None and (first := self.places.setdefault(key, place)) != place:
            message = f"{form.id_field}: is not unique, first at {first}"
            yield Fault("duplicate_id", message, "change one of the ids").at(*at)
        trajectory = getattr(record, "trajectory_id", None)
        if split and trajectory and self._splits.setdefault(trajectory, split) != split:
            other = self._splits[trajectory]
            message = f"trajectory_id: the trajectory is in the split {other} too"
            yield Fault("split_leak", message).at(*at)

    def split_problems(self, form: RecordFormat[FormRecordT], pattern: str) -> Iterator[Problem]:
        """Yield the problems of the files of all splits; ids are unique among these."""
        self.places.clear()
        for split, file in split_files(self.root, pattern):
            if isinstance(file, Problem):
                yield file
            else:
                read = self.records(form, file, split)
                yield from limited([problem for _, found in read for problem in found])

    def unnamed(self, folder: str) -> list[str]:
        """The files below a folder that no record names, sorted."""
        below = (path for path in (self.root / folder).rglob("*") if path.is_file())
        names = {path.relative_to(self.root).as_posix() for path in below}
        return sorted(names - self.files.pictures.keys())


def validate_split_tables(
    root: Path, forms: Mapping[str, RecordFormat[Any]], pictures: str = "trajectories"
) -> list[Problem]:
    """The problems of an export that is tables by split and the pictures that their rows name.

    Args:
        root: the folder of the export.
        forms: pattern of the tables' paths, as of `split_files` → the form of their rows.
        pictures: the folder of pictures, in which each file must be named.
    """
    reader = ExportReader(root)
    problems = [p for pattern, form in forms.items() for p in reader.split_problems(form, pattern)]
    unnamed = [
        Problem("unnamed_file", name, "no row names the file", remedy="remove it")
        for name in reader.unnamed(pictures)
    ]
    return [*problems, *limited(unnamed)]


def unused_images(count: int, file: str, naming: str) -> Iterator[Problem]:
    """Yield a problem when there are images that nothing names: nothing else may be handed on."""
    if count:
        message = f"no {naming} names {count} of the images"
        yield Problem("unused_image", file, message, remedy=REBUILD)


def table_problems(
    lines: Path, table: Path, differing: Callable[[Any, Mapping[str, Any]], Iterator[str]]
) -> Iterator[Problem]:
    """Yield where a table has not the records of a file of lines, one row a line in its order.

    Args:
        lines: a JSON Lines file, whose own problems are told elsewhere.
        table: a Parquet file.
        differing: yields the names of the columns in which a line and its row differ.
    """
    file, told = table.name, 0
    values = values_of(lines, lines.name)
    written = ((n, v) for n, v in values if getattr(v, "code", "") != "blank_line")
    counts = [0, 0]
    for line, row in zip_longest(written, values_of(table, file)):
        if row and isinstance(row[1], Problem):
            yield row[1]
            return
        counts = [counts[0] + (row is not None), counts[1] + (line is not None)]
        if line is None or row is None or isinstance(line[1], Problem) or told >= MAX_PROBLEMS:
            continue
        if names := ", ".join(differing(line[1], row[1])):
            told += 1
            message = f"row {row[0]}: {names} differ from line {line[0]} of the JSON Lines"
            yield Problem("table_differs", file, message, remedy=REBUILD)
    if counts[0] != counts[1]:
        message = f"has {counts[0]} rows for {counts[1]} lines of {lines.name}"
        yield Problem("table_differs", file, message, remedy=REBUILD)
