"""Checks the records of any form: those that the stage `records` keeps, and those of a dataset.

A form describes its records by a `RecordFormat`. The rest is the same for every form: missing
files, values that cannot be read, missing pictures, ids that repeat, trajectories in two splits,
and tables that differ from lines.
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

REBUILD = "build the export again"
REQUIRED_SPLITS = ("train", "val", "test")
OPTIONAL_SPLITS = ("held_out",)
_RECENT = 4096  # small files in memory; records of a trajectory lie together
_ROWS_IN_MEMORY = 64

FormRecordT = TypeVar("FormRecordT", bound=Document)


class StrictDocument(Document):
    """A part of a record; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid")


class Fault(NamedTuple):
    """A problem of a record without its file and line, which the caller adds."""

    code: str
    message: str
    remedy: str = REBUILD
    severity: Severity = Severity.ERROR
    column: int | None = None

    @classmethod
    def of(cls, problem: Problem, field: str) -> "Fault":
        """The fault of a record because of a problem in one of its fields."""
        message = f"{field}: {problem.message}"
        return cls(problem.code, message, problem.remedy, problem.severity)

    def at(self, file: str, line: int | None) -> Problem:
        """The problem in a line of a file."""
        code, message, remedy, severity, column = self
        return Problem(code, file, message, line, remedy=remedy, severity=severity, column=column)


class NamedFiles:
    """The files that records name: pictures, each read once, and documents of trajectories.

    Args:
        locate: returns the file of a name as records write it.
        documents: name → document that replaces the content of its file.
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
        """The files that records name relative to a folder."""
        return cls(lambda name: root / name)

    def path(self, name: str) -> Path | None:
        """The file of a name; None: the name is not a path below the folder."""
        parts = PurePosixPath(name)
        is_below = name and not parts.is_absolute() and ".." not in parts.parts
        return self._locate(name) if is_below and not {"\\", "\0"} & set(name) else None

    def picture(self, name: str) -> ImageInfo | str:
        """Size and format of a picture, or a sentence that says why it cannot be used."""
        if name not in self.pictures:
            self.pictures[name] = self._probed(name)
        return self.pictures[name]

    def _probed(self, name: str) -> ImageInfo | str:
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
        """The SHA-256 of a picture that opens."""
        path = self.path(name)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""

    def _document(self, name: str) -> Mapping[str, Any]:
        """A JSON object; empty if the file is missing or bad, which its own validation reports."""
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
    """How the records of a form must look.

    Attributes:
        model: keys, types and ranges.
        pictures: the pictures that a record names, each with the field that names it.
        faults: yields the faults that a model cannot describe; called if the model accepts the
            record, even if a picture does not open.
        id_field: the field that is unique in an export.
        picture_code: code of the problem of a picture.
    """

    model: type[FormRecordT]
    pictures: Callable[[FormRecordT], Iterable[tuple[str, str]]] = lambda _: ()
    faults: Callable[[FormRecordT, NamedFiles], Iterator[Fault]] = lambda *_: iter(())
    id_field: str = "id"
    picture_code: str = "image"


def read_record(
    form: RecordFormat[FormRecordT], value: Any, file: str, line: int | None, files: NamedFiles
) -> tuple[FormRecordT | None, list[Problem]]:
    """A JSON value or row as a record of a form, and its problems; None: the model rejects it.

    `file` and `line` are what problems name, `files` what the record may name.
    """
    record, problems = check(form.model, value, file, line=line)
    if record is None:
        return None, problems
    faults = record_faults(form, record, files)
    return record, [*problems, *(fault.at(file, line) for fault in faults)]


def record_faults(
    form: RecordFormat[FormRecordT], record: FormRecordT, files: NamedFiles
) -> Iterator[Fault]:
    """Yield the faults of a record that its model accepts."""
    for field, name in form.pictures(record):
        picture = files.picture(name)
        if isinstance(picture, str):
            yield Fault(form.picture_code, f"{field}: {picture}")
    yield from form.faults(record, files)


def record_problems(
    form: RecordFormat[FormRecordT], value: Any, file: str, line: int | None, files: NamedFiles
) -> list[Problem]:
    """The problems of one record; see `read_record`."""
    return read_record(form, value, file, line, files)[1]


Checked = Callable[[Any, str, int | None, NamedFiles], Iterable[Problem]]
"""Returns the problems of a record, from its value, its file and line, and the files it names."""
_OF_TRAJECTORY = re.compile(r"trajectories/[^/]+/")


def kept_problems(
    form: Form, rows: Iterable[tuple[int | None, KeptRow]], file: str, source: DatasetTrajectory
) -> list[Problem]:
    """The problems of kept rows of a trajectory, as far as the form describes their parts.

    Args:
        form: of the rows.
        rows: each with its line; gone through twice.
        file: the file that problems name.
        source: the trajectory.
    """
    checked = {file.part: file.checked for file in form.files if file.checked is not None}
    paths: dict[str, str] = {}  # name in a dataset, with or without its folder → file
    for _, row in rows:
        for name, path in row.files.items():
            paths[name] = path
            paths[name.partition("/")[2]] = path

    def locate(name: str) -> Path:
        parts = PurePosixPath(name).parts
        tails = ["/".join(parts[start:]) for start in range(len(parts))]
        for candidate in (*tails, PurePosixPath(name).stem):
            if paths.get(candidate):
                return source.path / paths[candidate]
        return source.path / _OF_TRAJECTORY.sub("", name, count=1)

    files = NamedFiles(locate, corrected_documents(source))
    problems: list[Problem] = []
    for line, row in rows:
        for part, description in checked.items():
            value = row.parts.get(part)
            if value is None:
                continue
            if isinstance(value, str):
                value = parse_json(value, file)
            problems += _value_problems(description, value, file, line, files)
    return problems


def _value_problems(
    checked: Any, value: Any, file: str, line: int | None, files: NamedFiles
) -> Iterable[Problem]:
    if isinstance(checked, RecordFormat):
        return record_problems(checked, value, file, line, files)
    problems_of: Checked = checked
    return problems_of(value, file, line, files)


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
    """The columns of a table whose rows a model describes: texts, numbers and lists of these."""
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
    """The JSON Schema of a model, after a head, as the only side file; see `Form.side_files`."""

    def side_files(_finished: FinishedRows) -> Mapping[str, Any]:
        return {file: {**head, **model.model_json_schema()}}

    return side_files


def missing(file: str) -> Problem:
    """The problem of a missing file."""
    return Problem("missing_file", file, "the file is missing", remedy=REBUILD)


def no_records(file: str) -> Problem:
    """The warning about a file without a record."""
    return Problem("no_records", file, "the file has no record", severity=Severity.WARNING)


def line_value(line: bytes, file: str, number: int) -> Any:
    """The value of a line, or the problem of a line without a value."""
    if not line.strip():
        return Problem("blank_line", file, "the line is blank", number, remedy="remove it")
    try:
        return parse_json(line, file)
    except JsonFileError as error:
        return replace(json_problem(error), line=number)


def values_of(path: Path, file: str, *, array: bool = True) -> Iterator[tuple[int | None, Any]]:
    """Yield number and value of every line or row; a problem stands for an unreadable value.

    `array`: a JSON document is an array whose members are the values.
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
    """The problems of a dataset in a form, as far as the form describes its files.

    These are missing files, values that the model rejects, pictures that do not open, ids that
    repeat, and trajectories in two splits.
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
    """The problems of one file of a dataset in a form; names in it are below its folder."""
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
    return PurePosixPath(file.at(Split.TRAIN, DatasetSettings())).suffix


class _FileReader:
    """Checks the values of the files of a part, and remembers ids and splits, which must agree.

    Attributes:
        count: number of values that were read.
    """

    def __init__(self, file: File, root: Path) -> None:
        self._file = file
        self._root = root
        self.count = 0
        self._places: dict[str, str] = {}
        self._splits: dict[str, str] = {}
        self._files = NamedFiles.below(root / file.base)

    def problems(self, path: Path, split: str) -> Iterator[Problem]:
        """Yield the problems of a file. The trajectories of a `split` may be in no other split."""
        name = path.relative_to(self._root).as_posix()
        files = self._files
        checked = self._file.checked
        if "{id}" in str(self._file.path):
            files = NamedFiles.below(path.parent)
        for number, value in values_of(path, name, array="{id}" not in str(self._file.path)):
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
        at: tuple[str, int | None],
        split: str,
    ) -> Iterator[Problem]:
        place = ":".join(str(part) for part in at if part)
        key = getattr(record, form.id_field)
        if key is not None and self._places.setdefault(key, place) != place:
            message = f"{form.id_field}: is not unique, first at {self._places[key]}"
            yield Fault("duplicate_id", message, "change one of the ids").at(*at)
        trajectory = getattr(record, "trajectory_id", None)
        if split and trajectory and self._splits.setdefault(trajectory, split) != split:
            other = self._splits[trajectory]
            message = f"trajectory_id: the trajectory is in the split {other} too"
            yield Fault("split_leak", message).at(*at)


def table_problems(
    lines: Path,
    table: Path,
    columns: Callable[[Any], Mapping[str, Any]],
    plain: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda row: row,
) -> Iterator[Problem]:
    """Yield the differences between a table and a file of lines: one row per line, in order.

    Args:
        lines: a JSON Lines file, whose own problems are reported elsewhere.
        table: a Parquet file.
        columns: returns the columns that a line gives, as they are written.
        plain: returns the columns of a row that are compared.
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
        except (LookupError, TypeError, AttributeError):  # a line of another form
            continue
        values = plain(row[1])
        differing = [name for name in expected if values.get(name) != expected[name]]
        if differing:
            reported += 1
            names = ", ".join(differing)
            message = f"row {row[0]}: {names} differ from line {line[0]} of the JSON Lines"
            yield Problem("table_differs", file, message, remedy=REBUILD)
    if row_count != line_count:
        message = f"has {row_count} rows for {line_count} lines of {lines.name}"
        yield Problem("table_differs", file, message, remedy=REBUILD)
