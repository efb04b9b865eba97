"""Checks the records of any export form, such as `sft`, in stage outputs and in datasets.

A form describes its records by a `RecordFormat`. For all forms, the checks find missing files,
unreadable values, missing images, repeated ids, trajectories in two splits, and tables that differ
from the JSON lines.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_origin

import pyarrow as pa
from pydantic import ConfigDict

from demo_pipeline.datasets.selection import corrected_documents
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.trajectory_reader import json_problem
from demo_pipeline.exports.export_summary import FinishedRows
from demo_pipeline.exports.form import File, Form, KeptRow
from demo_pipeline.files.base_model import MAX_PROBLEMS, Document, check, limited
from demo_pipeline.files.image_files import ImageInfo, probe_image_file
from demo_pipeline.files.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.files.parquet import open_rows
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

REBUILD = "build the export again"  # the remedy of most problems
REQUIRED_SPLITS = ("train", "val", "test")
OPTIONAL_SPLITS = ("held_out",)
# Maximum number of cached documents, and of cached hashes. Consecutive records often use the same
# files.
_RECENT = 4096
_ROWS_IN_MEMORY = 64  # rows of a table that are read at once

FormRecordT = TypeVar("FormRecordT", bound=Document)


class StrictDocument(Document):
    """The base class of models that reject unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Fault(NamedTuple):
    """A problem of a record, without the file and the line; `at` adds both."""

    code: str
    message: str
    remedy: str = REBUILD
    severity: Severity = Severity.ERROR
    column: int | None = None

    @classmethod
    def of(cls, problem: Problem, field: str) -> "Fault":
        """Converts a problem found in a field of a record to a fault that names this field."""
        message = f"{field}: {problem.message}"
        return cls(problem.code, message, problem.remedy, problem.severity)

    def at(self, file: str, line: int | None) -> Problem:
        """Returns the fault as a `Problem` at a line of a file."""
        code, message, remedy, severity, column = self
        return Problem(code, file, message, line, remedy=remedy, severity=severity, column=column)


class NamedFiles:
    """Reads the files to which records refer: images, and JSON documents of trajectories.

    Args:
        locate: returns the path of a file for its name in a record.
        documents: corrected documents by file name; each replaces the content of the file.
    """

    def __init__(
        self, locate: Callable[[str], Path], documents: Mapping[str, Mapping[str, Any]] = {}
    ) -> None:
        self._locate = locate
        self._documents = documents
        self.pictures: dict[str, ImageInfo | str] = {}
        self.document = lru_cache(_RECENT)(self._document)
        self.digest = lru_cache(_RECENT)(self._digest)

    @classmethod
    def below(cls, root: Path) -> "NamedFiles":
        """Creates a reader of files whose names are paths relative to a folder."""
        return cls(lambda name: root / name)

    def path(self, name: str) -> Path | None:
        """Returns the path of a file; None if `name` is not a relative path inside the folder."""
        parts = PurePosixPath(name)
        is_below = name and not parts.is_absolute() and ".." not in parts.parts
        return self._locate(name) if is_below and not {"\\", "\0"} & set(name) else None

    def picture(self, name: str) -> ImageInfo | str:
        """Returns size and format of an image, or a phrase that says why the image is unusable."""
        if name not in self.pictures:
            self.pictures[name] = self._probed(name)
        return self.pictures[name]

    def _probed(self, name: str) -> ImageInfo | str:
        """Examines an image; `picture` caches the result."""
        path = self.path(name)
        if path is None:
            return "is not a path inside the folder"
        try:
            return probe_image_file(path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return "is missing"
        except OSError as error:
            raise_system_trouble(error)
            return f"cannot be read: {error.strerror}"
        except ValueError as error:
            return str(error)

    def _digest(self, name: str) -> str:
        """Returns the SHA-256 of an existing file; empty if `path` rejects the name."""
        path = self.path(name)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""

    def _document(self, name: str) -> Mapping[str, Any]:
        """Returns the JSON object in a file; empty if the file is missing or invalid.

        The validator of trajectories reports such files.
        """
        path = self.path(name)
        if name in self._documents:
            return self._documents[name]
        try:
            value = load_json(path) if path else {}
        except (JsonFileError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[FormRecordT]):
    """Describes the valid records of an export form, such as `sft`.

    Attributes:
        model: Pydantic model with the keys, types and ranges.
        pictures: returns (field, file name) for each image of a record.
        faults: yields the faults that the model cannot detect. The function is also called if an
            image cannot be opened.
        id_field: name of the field that must be unique in an export.
        picture_code: problem code for images that cannot be opened.
    """

    model: type[FormRecordT]
    pictures: Callable[[FormRecordT], Iterable[tuple[str, str]]] = lambda _: ()
    faults: Callable[[FormRecordT, NamedFiles], Iterator[Fault]] = lambda *_: iter(())
    id_field: str = "id"
    picture_code: str = "image"


def read_record(
    form: RecordFormat[FormRecordT], value: Any, file: str, line: int | None, files: NamedFiles
) -> tuple[FormRecordT | None, list[Problem]]:
    """Parses and checks a record.

    Args:
        value: a JSON value, or the row of a table.
        file, line: the location of the record, for the problems.
        files: reads the files to which the record refers.

    Returns:
        The record and its problems. The record is None if the model rejects it.
    """
    record, problems = check(form.model, value, file, line=line)
    if record is None:
        return None, problems
    faults = record_faults(form, record, files)
    return record, [*problems, *(fault.at(file, line) for fault in faults)]


def record_faults(
    form: RecordFormat[FormRecordT], record: FormRecordT, files: NamedFiles
) -> Iterator[Fault]:
    """Yields the faults of a valid model instance: unusable images, and faults from `form`."""
    for field, name in form.pictures(record):
        picture = files.picture(name)
        if isinstance(picture, str):
            yield Fault(form.picture_code, f"{field}: {picture}")
    yield from form.faults(record, files)


def record_problems(
    form: RecordFormat[FormRecordT], value: Any, file: str, line: int | None, files: NamedFiles
) -> list[Problem]:
    """Returns the problems of a record; for the arguments see `read_record`."""
    return read_record(form, value, file, line, files)[1]


Checked = Callable[[Any, str, int | None, NamedFiles], Iterable[Problem]]
"""Function that returns the problems of a record.

The arguments are the record's JSON value, its file and line, and a reader of the files that the
record names.
"""
_OF_TRAJECTORY = re.compile(r"trajectories/[^/]+/")


def kept_problems(
    form: Form, rows: Iterable[tuple[int | None, KeptRow]], file: str, source: DatasetTrajectory
) -> list[Problem]:
    """Returns the problems of the export rows that are stored for a trajectory.

    Args:
        rows: pairs of line number and row. The iterable is read twice.
        file: the file that contains the rows, for the problems.
    """
    descriptions = {file.part: file.checked for file in form.files if file.checked is not None}
    # Maps the names of files in the dataset to paths in the trajectory. Each name is a key twice:
    # with and without its first folder.
    paths: dict[str, str] = {}
    for _, row in rows:
        for name, path in row.files.items():
            paths[name] = path
            paths[name.partition("/")[2]] = path

    def locate(name: str) -> Path:
        """Returns the path of a file for its name in a record.

        Names in records begin with folders that only the finished dataset has. These folders are
        removed one by one until the name is known. If no shortened name is known, the stem of the
        file name is tried. If the stem is not known either, the name without `trajectories/<id>/`
        is used as a path in the trajectory.
        """
        parts = PurePosixPath(name).parts
        for start in range(len(parts)):
            end = "/".join(parts[start:])
            if paths.get(end):
                return source.path / paths[end]
        stem = PurePosixPath(name).stem
        if paths.get(stem):
            return source.path / paths[stem]
        return source.path / _OF_TRAJECTORY.sub("", name, count=1)

    files = NamedFiles(locate, corrected_documents(source))
    problems: list[Problem] = []
    for line, row in rows:
        for part, description in descriptions.items():
            value = row.parts.get(part)
            if value is None:
                continue
            if isinstance(value, str):
                value = parse_json(value, file)
            problems += _value_problems(description, value, file, line, files)
    return problems


def _value_problems(
    description: Any, value: Any, file: str, line: int | None, files: NamedFiles
) -> Iterable[Problem]:
    """Returns the problems of a value; for `description` see `File.checked`."""
    if isinstance(description, RecordFormat):
        return record_problems(description, value, file, line, files)
    problems_of: Checked = description
    return problems_of(value, file, line, files)


# Maps the type of a Pydantic field, or the type's origin such as `list`, to the column type.
_COLUMN_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int32(),
    float: pa.float64(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.string()),
    list[bool]: pa.list_(pa.bool_()),
    list: pa.list_(pa.int32()),
    Literal: pa.string(),
}


def row_schema(model: type[Document]) -> pa.Schema:
    """Returns the schema of a table whose rows are described by a Pydantic model.

    The fields must be texts, numbers, booleans, or lists of these.
    """
    columns = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if kind not in _COLUMN_TYPES:
            kind = get_origin(kind)
        columns.append(pa.field(name, _COLUMN_TYPES[kind], nullable=False))
    return pa.schema(columns)


def schema_file(
    file: str, model: type[Document], head: Mapping[str, Any] = {}
) -> Callable[[FinishedRows], Mapping[str, Any]]:
    """Returns a function for `Form.side_files` that adds the JSON Schema of a model as a file.

    Args:
        file: name of the file.
        head: entries of the file that come before the entries of the schema.
    """

    def side_files(_finished: FinishedRows) -> Mapping[str, Any]:
        return {file: {**head, **model.model_json_schema()}}

    return side_files


def missing(file: str) -> Problem:
    """Returns the problem of a missing file."""
    return Problem("missing_file", file, "the file is missing", remedy=REBUILD)


def no_records(file: str) -> Problem:
    """Returns the warning about a file without records."""
    return Problem("no_records", file, "the file has no record", severity=Severity.WARNING)


def line_value(line: bytes, file: str, number: int) -> Any:
    """Returns the JSON value of a line, or a `Problem` if the line is blank or not JSON."""
    if not line.strip():
        return Problem("blank_line", file, "the line is blank", number, remedy="remove it")
    try:
        return parse_json(line, file)
    except JsonFileError as error:
        return replace(json_problem(error), line=number)


def values_of(path: Path, file: str, *, array: bool = True) -> Iterator[tuple[int | None, Any]]:
    """Yields the number and the value of each line, table row or array item of a file.

    A `Problem` replaces each value that cannot be read.

    Args:
        path: path of a `.json`, `.parquet` or JSON Lines file.
        file: name of the file, for the problems.
        array: whether a `.json` file is an array of values instead of a single value.
    """
    if path.suffix == ".json":
        yield from _members(path, file, array=array)
    elif path.suffix != ".parquet":
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line_value(line, file, number)
    else:
        try:
            with open_rows(path, _ROWS_IN_MEMORY) as (_, rows):
                yield from enumerate(rows, start=1)
        except (OSError, pa.ArrowException) as error:
            raise_system_trouble(error)
            message = f"cannot be read as Parquet: {type(error).__name__}"
            yield None, Problem("unreadable_table", file, message, remedy=REBUILD)


def _members(path: Path, file: str, *, array: bool) -> Iterator[tuple[int | None, Any]]:
    """Yields the number and the value of each item of a `.json` file; see `values_of`."""
    try:
        value = load_json(path, file)
    except JsonFileError as error:
        yield None, json_problem(error)
        return
    if not array:
        yield None, value
    elif isinstance(value, list):
        yield from enumerate(value, start=1)
    else:
        yield None, Problem("not_an_array", file, "is not a JSON array", remedy=REBUILD)


def validate_form(form: Form, root: Path) -> list[Problem]:
    """Returns the problems of a dataset; the default implementation of `Form.validate`.

    Problems are missing files, records that the format rejects, images that cannot be opened,
    repeated ids, and trajectories in two splits.
    """
    settings = DatasetSettings(name_prefix="PREFIX")
    problems: list[Problem] = []
    has_files = False
    for file in form.files:
        reader = _FileReader(file, root)
        read_paths: set[Path] = set()
        for split in sorted(file.only):
            pattern = file.at(split, settings).replace("PREFIX", "*").replace("{id}", "*")
            paths = sorted(root.glob(pattern))
            if not paths and split in file.empty and "{id}" not in str(file.path):
                problems.append(missing(pattern))
            for path in paths:
                if path not in read_paths:
                    problems += limited(list(reader.problems(path, split.value)))
            read_paths.update(paths)
        has_files = has_files or bool(read_paths)
    if not has_files:
        problems.append(missing(form.files[0].at(Split.TRAIN, settings)))
    return problems


def validate_form_file(form: Form, path: Path) -> list[Problem]:
    """Returns the problems of one dataset file; the default implementation of `Form.validate_file`.

    Paths in the records are resolved relative to the folder of this file.
    """
    if not path.is_file():
        return [missing(path.name)]
    similar = [file for file in form.files if file.checked and _suffix(file) == path.suffix]
    if not similar:
        return [Problem("unknown_file", path.name, f"is no file of {form.name} with records")]
    reader = _FileReader(replace(similar[0], base=""), path.parent)
    problems = list(reader.problems(path, ""))
    if not problems and not reader.count:
        problems.append(no_records(path.name))
    return problems


def _suffix(file: File) -> str:
    """Returns the extension of a file's name, such as `.jsonl`."""
    return PurePosixPath(file.at(Split.TRAIN, DatasetSettings())).suffix


class _FileReader:
    """Checks all dataset files that one `File` describes, and compares their ids and splits.

    Attributes:
        count: number of values read so far.
    """

    def __init__(self, file: File, root: Path) -> None:
        self._file = file
        self._root = root
        self.count = 0
        self._places: dict[str, str] = {}  # maps each id to its first file and line
        self._splits: dict[str, str] = {}  # maps each trajectory id to its split
        self._files = NamedFiles.below(root / file.base)

    def problems(self, path: Path, split: str) -> Iterator[Problem]:
        """Yields the problems of a file.

        Args:
            split: the split to which the file's trajectories must belong; empty if unknown.
        """
        name = path.relative_to(self._root).as_posix()
        files = self._files
        checked = self._file.checked
        has_single_value = "{id}" in str(self._file.path)
        if has_single_value:
            files = NamedFiles.below(path.parent)
        for number, value in values_of(path, name, array=not has_single_value):
            self.count += 1
            if isinstance(value, Problem):
                yield value
            elif isinstance(checked, RecordFormat):
                record, problems = read_record(checked, value, name, number, files)
                yield from problems
                if record is not None:
                    yield from self._repeated(checked, record, (name, number), split)
            elif checked is not None:
                yield from checked(value, name, number, files)

    def _repeated(
        self,
        form: RecordFormat[FormRecordT],
        record: FormRecordT,
        file_and_line: tuple[str, int | None],
        split: str,
    ) -> Iterator[Problem]:
        """Yields a problem for a repeated id, and one for a trajectory that is in two splits."""
        place = ":".join(str(part) for part in file_and_line if part)
        key = getattr(record, form.id_field)
        if key is not None and self._places.setdefault(key, place) != place:
            message = f"{form.id_field}: is not unique, first at {self._places[key]}"
            yield Fault("duplicate_id", message, "change one of the ids").at(*file_and_line)
        trajectory = getattr(record, "trajectory_id", None)
        if split and trajectory and self._splits.setdefault(trajectory, split) != split:
            other = self._splits[trajectory]
            message = f"trajectory_id: the trajectory is in the split {other} too"
            yield Fault("split_leak", message).at(*file_and_line)


def table_problems(
    lines: Path, table: Path, columns: Callable[[Any], Mapping[str, Any]]
) -> Iterator[Problem]:
    """Yields the differences between a table and a JSON Lines file.

    Both must have the same records in the same order.

    Args:
        lines: a JSON Lines file; its own problems are not reported here.
        table: a Parquet file.
        columns: returns the values that the table row for a line must have, by column name.
    """
    file = table.name
    reported = 0
    row_count = 0
    line_count = 0
    numbered_lines = (
        (number, value)
        for number, value in values_of(lines, lines.name)
        if getattr(value, "code", "") != "blank_line"
    )
    for line, row in zip_longest(numbered_lines, values_of(table, file)):
        if row and isinstance(row[1], Problem):
            yield row[1]
            return
        row_count += row is not None
        line_count += line is not None
        if line is None or row is None or isinstance(line[1], Problem) or reported >= MAX_PROBLEMS:
            continue
        try:
            expected = columns(line[1])
        except (LookupError, TypeError, AttributeError):  # an invalid line, reported elsewhere
            continue
        values = row[1]
        differing = [name for name in expected if values.get(name) != expected[name]]
        if differing:
            reported += 1
            names = ", ".join(differing)
            message = f"row {row[0]}: {names} differ from line {line[0]} of the JSON Lines"
            yield Problem("table_differs", file, message, remedy=REBUILD)
    if row_count != line_count:
        message = f"has {row_count} rows for {line_count} lines of {lines.name}"
        yield Problem("table_differs", file, message, remedy=REBUILD)
