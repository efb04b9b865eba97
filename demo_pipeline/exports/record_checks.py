"""Validating one record of any form: its model, the pictures that it names, and its rules.

Belongs here: what a form says of its records, and the problems of one of them. Which files a form
has, and what holds between records, is in record_files.py.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar, get_origin

import pyarrow as pa
from pydantic import ConfigDict

from demo_pipeline.datasets.record_forms import KeptRecord
from demo_pipeline.datasets.selection import corrected_documents
from demo_pipeline.files.base_model import Document, check
from demo_pipeline.files.image_header import ImageInfo, probe_image_file
from demo_pipeline.files.json_files import JsonFileError, dump_json, load_json
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

REBUILD = "build the export again"
_RECENT = 64  # files in memory; records of a trajectory lie together

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
        self._locate, self._documents = locate, documents
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


def checked_records(
    part: str, form: RecordFormat[Any] | Callable[[], Checked]
) -> Callable[[Sequence[tuple[int | None, KeptRecord]], str, DatasetTrajectory], list[Problem]]:
    """The check of the kept records of a trajectory by their form; see `Form.problems`.

    Args:
        part: of a record, which the form describes; those without it are not checked.
        form: of the part, or what gives the check of a record, once for a trajectory, which it may
            remember.
    """

    def problems(
        records: Sequence[tuple[int | None, KeptRecord]], file: str, source: DatasetTrajectory
    ) -> list[Problem]:
        places = {name: path for _, record in records for name, path in record.files.items()}

        def locate(name: str) -> Path:
            known = PurePosixPath(name)
            tails = ("/".join(known.parts[n:]) for n in range(len(known.parts)))
            found = (places.get(one) for one in (*tails, known.stem))
            return source.path / (
                next(filter(None, found), None) or _OF_TRAJECTORY.sub("", name, 1)
            )

        files = NamedFiles(locate, corrected_documents(source))
        check_record = by_format(form) if isinstance(form, RecordFormat) else form()
        return [
            problem
            for line, record in records
            if (value := record.parts.get(part)) is not None
            for problem in check_record(
                json.loads(value) if isinstance(value, str) else value, file, line, files
            )
        ]

    return problems


def by_format(form: RecordFormat[Any]) -> Checked:
    """The check of a record by its form."""
    return partial(record_problems, form)


_COLUMN_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int32(),
    float: pa.float64(),
    bool: pa.bool_(),
    list: pa.list_(pa.int32()),
}


def row_schema(model: type[Document]) -> pa.Schema:
    """The columns of a table whose rows a model describes: texts, numbers, lists of integers."""
    kinds = {name: field.annotation for name, field in model.model_fields.items()}
    types = {name: _COLUMN_TYPES[get_origin(kind) or kind] for name, kind in kinds.items()}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def schema_writer(file: str, model: type[Document]) -> Callable[..., Mapping[str, Any]]:
    """What writes the JSON Schema of a model into a dataset; see `Form.finish`."""

    def finish(out: Path, *_: object) -> Mapping[str, Any]:
        dump_json(out / file, model.model_json_schema())
        return {}

    return finish
