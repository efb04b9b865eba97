"""Checking the rows of any form, kept ones and those of a dataset.

Belongs here: what a form says of its values, the problems of one of them, and what is the same for
every form: missing files, values that cannot be read, pictures that are not there, ids that repeat,
trajectories in two splits, tables beside lines.
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
    """A part of a record; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class Fault(NamedTuple):
    """What is wrong with a record, without its place, which the caller knows."""

    code: str
    message: str
    remedy: str = REBUILD
    severity: Severity = Severity.ERROR
    column: int | None = None

    @classmethod
    def of(cls, problem: Problem, field: str) -> "Fault":
        """The fault of a record in a part of it, whose problem has a place of its own."""
        message = f"{field}: {problem.message}"
        return cls(problem.code, message, problem.remedy, problem.severity)

    def at(self, file: str, line: int | None) -> Problem:
        """The problem at a place."""
        code, message, remedy, severity, column = self
        return Problem(code, file, message, line, remedy=remedy, severity=severity, column=column)


class NamedFiles:
    """The files that records name: pictures, each read once, and documents of trajectories.

    Args:
        locate: gives the file of a name as records write it.
        documents: name → document that counts instead of its file.
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
        """The file of a name; None: it is not a path below the folder."""
        parts = PurePosixPath(name)
        is_below = name and not parts.is_absolute() and ".." not in parts.parts
        return self._locate(name) if is_below and not {"\\", "\0"} & set(name) else None

    def picture(self, name: str) -> ImageInfo | str:
        """What a picture declares, or why it cannot be used."""
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
        """A JSON object; empty when the file is absent or bad, which its own validation reports."""
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
    """What a form says of its records.

    Attributes:
        model: keys, types and ranges.
        pictures: the pictures that a record names, each with the field that names it.
        faults: what a model cannot say; asked when the model fits, also if a picture does not open.
        id_field: that no two records of an export share, with dots inside parts.
        picture_code: of the problem of a picture.
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
    """Yield what is wrong with a record that its model accepts."""
    for field, name in form.pictures(record):
        if isinstance(found := files.picture(name), str):
            yield Fault(form.picture_code, f"{field}: {found}")
    yield from form.faults(record, files)


def record_problems(
    form: RecordFormat[FormRecordT], value: Any, file: str, line: int | None, files: NamedFiles
) -> list[Problem]:
    """The problems of one record; see `read_record`."""
    return read_record(form, value, file, line, files)[1]


Checked = Callable[[Any, str, int | None, NamedFiles], Iterable[Problem]]
"""The problems of one record; gets its value, the file and line that problems name, its files."""
_OF_TRAJECTORY = re.compile(r"trajectories/[^/]+/")


def kept_problems(
    form: Form, rows: Iterable[tuple[int | None, KeptRow]], file: str, source: DatasetTrajectory
) -> list[Problem]:
    """What is wrong with kept rows of a trajectory, as far as the form describes their parts.

    Args:
        form: of the rows.
        rows: each with its line; gone through twice.
        file: that problems name.
        source: the trajectory.
    """
    checked = {one.part: one.checked for one in form.files if one.checked is not None}
    places = {
        known: path
        for _, row in rows
        for name, path in row.files.items()
        for known in (name, name.partition("/")[2])
    }

    def locate(name: str) -> Path:
        known = PurePosixPath(name)
        tails = ("/".join(known.parts[n:]) for n in range(len(known.parts)))
        found = filter(None, (places.get(one) for one in (*tails, known.stem)))
        return source.path / next(found, _OF_TRAJECTORY.sub("", name, count=1))

    files = NamedFiles(locate, corrected_documents(source))
    return [
        problem
        for line, row in rows
        for part, how in checked.items()
        if (value := row.parts.get(part)) is not None
        for problem in _value_problems(
            how, parse_json(value, file) if isinstance(value, str) else value, file, line, files
        )
    ]


def _value_problems(
    checked: Any, value: Any, file: str, line: int | None, files: NamedFiles
) -> Iterable[Problem]:
    if isinstance(checked, RecordFormat):
        return record_problems(checked, value, file, line, files)
    how: Checked = checked
    return how(value, file, line, files)


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
    kinds = {name: field.annotation for name, field in model.model_fields.items()}
    types = {
        name: _COLUMN_TYPES[kind if kind in _COLUMN_TYPES else get_origin(kind)]
        for name, kind in kinds.items()
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def schema_file(
    file: str, model: type[Document], head: Mapping[str, Any] = {}
) -> Callable[[FinishedRows], Mapping[str, Any]]:
    """The JSON Schema of a model, after a head, as the only side file; see `Form.side_files`."""

    def side_files(_finished: FinishedRows) -> Mapping[str, Any]:
        return {file: {**head, **model.model_json_schema()}}

    return side_files


def missing(file: str) -> Problem:
    """The problem of a file that is not there."""
    return Problem("missing_file", file, "the file is missing", remedy=REBUILD)


def no_records(file: str) -> Problem:
    """The warning about a file without a record."""
    return Problem("no_records", file, "the file has no record", severity=Severity.WARNING)


def line_value(line: bytes, file: str, number: int) -> Any:
    """The value of a line, or the problem of one that has none."""
    if not line.strip():
        return Problem("blank_line", file, "the line is blank", number, remedy="remove it")
    try:
        return parse_json(line, file)
    except JsonFileError as error:
        return replace(json_problem(error), line=number)


def values_of(path: Path, file: str, *, array: bool = True) -> Iterator[tuple[int | None, Any]]:
    """Yield number and value of every line or row, with a problem for one that cannot be read.

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
    """What is wrong with a dataset in a form, as far as the form describes its files.

    Files that must be there, what each value's model rejects, pictures that a value names and that
    do not open, ids that repeat, and trajectories in two splits.
    """
    settings = DatasetSettings(name_prefix="PREFIX")
    problems = list[Problem]()
    some = False
    for file in form.files:
        reader = _FileReader(file, root)
        read = set[Path]()
        for split in sorted(file.only):
            pattern = file.at(split, settings).replace("PREFIX", "*").replace("{id}", "*")
            found = sorted(root.glob(pattern))
            if not found and split in file.empty and "{id}" not in str(file.path):
                problems.append(missing(pattern))
            for path in found:
                if path not in read:
                    problems += limited(list(reader.problems(path, split.value)))
            read.update(found)
        some = some or bool(read)
    return problems if some else [*problems, missing(form.files[0].at(Split.TRAIN, settings))]


def validate_form_file(form: Form, path: Path) -> list[Problem]:
    """What is wrong with one file of a dataset in a form; names in it are below its folder."""
    if not path.is_file():
        return [missing(path.name)]
    same = [one for one in form.files if one.checked and _suffix(one) == path.suffix]
    if not same:
        return [Problem("unknown_file", path.name, f"is no file of {form.name} with records")]
    reader = _FileReader(replace(same[0], base=""), path.parent)
    found = list(reader.problems(path, ""))
    return found if found or reader.count else [no_records(path.name)]


def _suffix(file: File) -> str:
    return PurePosixPath(file.at(Split.TRAIN, DatasetSettings())).suffix


class _FileReader:
    """Checks the values of the files of a part, and remembers what must not repeat.

    Attributes:
        count: of the values that were read.
    """

    def __init__(self, file: File, root: Path) -> None:
        self._file = file
        self._root = root
        self.count = 0
        self._places, self._splits = dict[str, str](), dict[str, str]()
        self._files = NamedFiles.below(root / file.base)

    def problems(self, path: Path, split: str) -> Iterator[Problem]:
        """Yield the problems of a file; trajectories of a `split`, if given, are in no other."""
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
                record, found = read_record(checked, value, name, number, files)
                yield from found
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
        if key is not None and (first := self._places.setdefault(key, place)) != place:
            message = f"{form.id_field}: is not unique, first at {first}"
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
    """Yield where a table has not the records of a file of lines, one row a line in its order.

    Args:
        lines: a JSON Lines file, whose own problems are told elsewhere.
        table: a Parquet file.
        columns: the columns that a line gives, as they are written.
        plain: a row as it is compared.
    """
    file = table.name
    told = 0
    counts = [0, 0]
    values = values_of(lines, lines.name)
    written = ((n, v) for n, v in values if getattr(v, "code", "") != "blank_line")
    for line, row in zip_longest(written, values_of(table, file)):
        if row and isinstance(row[1], Problem):
            yield row[1]
            return
        counts = [counts[0] + (row is not None), counts[1] + (line is not None)]
        if line is None or row is None or isinstance(line[1], Problem) or told >= MAX_PROBLEMS:
            continue
        try:
            wanted = columns(line[1])
        except (LookupError, TypeError, AttributeError):  # not of the form, which is told elsewhere
            continue
        shown = plain(row[1])
        if names := ", ".join(name for name in wanted if shown.get(name) != wanted[name]):
            told += 1
            message = f"row {row[0]}: {names} differ from line {line[0]} of the JSON Lines"
            yield Problem("table_differs", file, message, remedy=REBUILD)
    if counts[0] != counts[1]:
        message = f"has {counts[0]} rows for {counts[1]} lines of {lines.name}"
        yield Problem("table_differs", file, message, remedy=REBUILD)
