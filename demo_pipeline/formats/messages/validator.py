"""Validating a messages export: its JSON Schema, and the rules that a schema cannot express.

These are: ids are unique over all files, roles alternate, every tool call parses, every image
opens, records show their step, tables have the records of the lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from demo_pipeline.common.digest_table import DigestTable, LineNumbers
from demo_pipeline.common.image_header import probe_image_file
from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.known_lines import KnownLines, line_digest, text_digest
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.common.table_rows import table_problems
from demo_pipeline.formats.base_model import check
from demo_pipeline.formats.cudag.tool_calls import (
    ACTION_LINE,
    MARKER,
    ToolCallError,
    parse_tool_calls,
)
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.formats.messages.models import (
    AssistantMessage,
    ImagePart,
    MessagesRecord,
    TextPart,
    UserMessage,
)
from demo_pipeline.formats.messages.record_sources import (
    RecordSources,
    differing_columns,
    record_faults,
)
from demo_pipeline.problems import Problem, Severity

REQUIRED = ("train.jsonl", "val.jsonl", "test.jsonl")
OPTIONAL = ("held_out.jsonl",)
_FILES = 16  # more than an export has


@dataclass(slots=True)
class _Position:
    """The current position, and the ids read so far, by digest, with their lines and files."""

    root: Path
    sources: RecordSources
    known: KnownLines
    file: str = ""
    line: int = 0
    files: list[str] = field(default_factory=list)
    ids: DigestTable = field(default_factory=DigestTable)
    fresh: LineNumbers = field(default_factory=LineNumbers)

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        return Problem(code, self.file, message, self.line, remedy=remedy)


def validate_messages(root: Path, known: KnownLines | None = None) -> list[Problem]:
    """The problems of a messages export, with line numbers: of its lines and of its tables.

    Args:
        root: the folder with `train.jsonl`, `val.jsonl`, `test.jsonl`, the same as Parquet if it
            has any, and the images.
        known: lines that were found valid before, with their rows and the files that they name.
    """
    problems: list[Problem] = []
    position = _Position(root, RecordSources(root), known or KnownLines())
    present = [name for name in (*REQUIRED, *OPTIONAL) if (root / name).is_file()]
    tables = {name: Path(name).with_suffix(".parquet").name for name in present}
    has_tables = any((root / table).is_file() for table in tables.values())
    for name in (*REQUIRED, *OPTIONAL):
        if name not in present:
            problems += [_missing(name)] if name in REQUIRED else []
            continue
        problems += _file_problems(root / name, position)
        if has_tables:
            table = root / tables[name]
            problems += [] if table.is_file() else [_missing(table.name)]
            problems += table_problems(root / name, table, differing_columns, position.fresh)
    return problems


def validate_messages_file(path: Path) -> list[Problem]:
    """The problems of one file of lines; images and trajectories are in its folder."""
    if not path.is_file():
        return [_missing(path.name)]
    position = _Position(path.parent, RecordSources(path.parent), KnownLines())
    problems = _file_problems(path, position)
    if position.line:
        return problems
    message = "the file has no record"
    return [Problem("no_records", path.name, message, severity=Severity.WARNING)]


def _missing(name: str) -> Problem:
    remedy = "build the export again"
    return Problem("missing_file", name, "the file is missing", remedy=remedy)


def _file_problems(path: Path, position: _Position) -> list[Problem]:
    problems: list[Problem] = []
    position.fresh = LineNumbers()
    position.files.append(path.name)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            position.file, position.line = path.name, number
            digest = line_digest(line)
            known_id = position.known.fact(digest)
            if known_id is not None:
                problems += _id_problems(known_id, position)
                continue
            position.fresh.add(number)
            record_id, found = _line_problems(line, position)
            problems += found
            if record_id is not None and not found:
                position.known.add_found(digest, text_digest(record_id))
    return problems


def _line_problems(line: bytes, position: _Position) -> tuple[str | None, list[Problem]]:
    """The record's id, if it is one, and its problems."""
    if not line.strip():
        return None, [position.problem("blank_line", "the line is blank", "remove it")]
    try:
        value = parse_json(line, position.file)
    except JsonFileError as error:
        return None, [replace(json_problem(error), line=position.line)]
    record, problems = check(MessagesRecord, value, position.file, line=position.line)
    if record is None:
        return None, problems
    problems += _id_problems(text_digest(record.id), position)
    problems += _role_problems(record, position)
    problems += _image_problems(record, position)
    problems += _call_problems(record, position)
    problems += (position.problem(*fault) for fault in record_faults(record, position.sources))
    return record.id, problems


def _id_problems(record_id: bytes, position: _Position) -> Iterator[Problem]:
    """A problem when an earlier line has the same id, given by its digest."""
    here = position.line * _FILES + len(position.files) - 1
    if (first := position.ids.setdefault(record_id, here)) != here:
        line, file = divmod(first, _FILES)
        message = f"id: is not unique, first at {position.files[file]}:{line}"
        yield position.problem("duplicate_id", message, "change one of the ids")


def _role_problems(record: MessagesRecord, position: _Position) -> Iterator[Problem]:
    roles = [message.role for message in record.messages]
    turns = roles[1:] if roles[0] == "system" else roles
    wanted = ["user", "assistant"] * (len(turns) // 2)
    if not turns or turns != wanted:
        message = "messages: roles must be an optional system, then user and assistant alternating"
        yield position.problem("roles", message, "put the messages in order")


def _image_problems(record: MessagesRecord, position: _Position) -> Iterator[Problem]:
    parts = [
        (f"messages[{turn}].content[{number}]", part)
        for turn, message in enumerate(record.messages)
        if isinstance(message, UserMessage)
        for number, part in enumerate(message.content)
    ]
    if not any(isinstance(part, ImagePart) for _, part in parts):
        yield position.problem("image_count", "messages: no image part", "add the screenshot")
    if any(isinstance(part, TextPart) and MARKER.search(part.text) for _, part in parts):
        message = "messages: the text of a user contains a control marker of a model"
        yield position.problem("marker", message, "escape the marker")
    for place, part in parts:
        if isinstance(part, ImagePart) and (fault := _image_fault(part.image, position.root)):
            yield position.problem("image", f"{place}.image: {fault}", "correct the path")


def _image_fault(text: str, root: Path) -> str:
    """Why an image cannot be used; empty if it opens."""
    parts = PurePosixPath(text)
    if not text or parts.is_absolute() or ".." in parts.parts or "\\" in text or "\0" in text:
        return "is not a path below the folder"
    try:
        probe_image_file(root / text)
    except OSError as error:
        raise_system_trouble(error)
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return str(error)
    return ""


def _call_problems(record: MessagesRecord, position: _Position) -> Iterator[Problem]:
    for number, message in enumerate(record.messages):
        if isinstance(message, AssistantMessage) and (fault := _answer_fault(message.content)):
            text = f"messages[{number}]: {fault}"
            yield position.problem("tool_call", text, "follow the schema of the tool")


def _answer_fault(text: str) -> str:
    """Why a turn is not an action; empty if it is one."""
    if text.startswith(ACTION_LINE):
        words, _, text = text.partition("\n")
        if MARKER.search(words):
            return "the line of words contains a control marker of a model"
    try:
        parse_tool_calls(text)
    except ToolCallError as error:
        return str(error)
    return ""
