"""Validating a messages export: its JSON Schema, its rules, its trajectories, its Parquet files.

Belongs here: the step that a record shows, its instruction, and its numbered history. The files of
the trajectory are read when they are there.

These are: ids are unique over all files, roles alternate, every tool call parses, every image
opens, records show their step, tables have the records of the lines.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from demo_pipeline.desktopd.reader import json_problem
from demo_pipeline.exports.cudag.tool_calls import ACTION_LINE, ToolCallError, parse_tool_calls
from demo_pipeline.exports.messages import (
    PROMPT_COMPLETION,
    AssistantMessage,
    ImagePart,
    MessagesRecord,
    TextPart,
    UserMessage,
)
from demo_pipeline.exports.sft_validator import SampleFault, encodable, step_of
from demo_pipeline.files.base_model import check
from demo_pipeline.files.image_header import probe_image_file
from demo_pipeline.files.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.files.line_digests import (
    FACT,
    DigestColumn,
    KnownLines,
    LineIndex,
    LineNumbers,
    index_lines,
    text_digest,
)
from demo_pipeline.files.shown_text import MARKER, escape_markers
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.files.table_rows import table_problems
from demo_pipeline.problems import Problem, Severity

_HISTORY = "\n\nPrevious actions:\n"
_FINAL = re.compile(r"(?:.*/)?trajectories/([^/]+)/final_screenshot\.png")
_NUMBER = re.compile(r"([0-9]+)\. ", re.ASCII)
_PLAIN = ("id", "trajectory_id", "step_index", "application", "task_type")


class RecordSources:
    """The instructions of the trajectories below a folder; only the last one is kept.

    Args:
        root: the folder that the records' paths are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: tuple[str, str | None] = ("", None)

    def instruction(self, trajectory: str) -> str | None:
        """The instruction as prompts show it; None when task.json is not there."""
        if self._last[0] != trajectory:
            task = self._document(trajectory, "task.json")
            text = task.get("instruction")
            shown = escape_markers(encodable(text))[0] if isinstance(text, str) else None
            self._last = (trajectory, shown)
        return self._last[1]

    def target(self, trajectory: str, step: int) -> str | None:
        """The name of the element that a step acts on, in one line; None when it is not known."""
        action = self._document(trajectory, f"steps/{step:03d}/action.json")
        target = action.get("target_element")
        name = target.get("name") if isinstance(target, dict) else None
        return escape_markers(" ".join(name.split()))[0] if isinstance(name, str) else None

    def _document(self, trajectory: str, name: str) -> Mapping[str, Any]:
        if "/" in trajectory or trajectory in ("", ".", ".."):
            return {}
        try:
            value = load_json(self._root / "trajectories" / trajectory / name)
        except (JsonFileError, ValueError):  # absent, or reported by its own validation
            return {}
        return value if isinstance(value, dict) else {}


def record_faults(record: MessagesRecord, sources: RecordSources) -> Iterator[SampleFault]:
    """Yield how a record differs from its trajectory, and a gap in its history."""
    yield from _image_faults(record)
    text = "".join(part.text for part in _asked(record) if isinstance(part, TextPart))
    asked, _, history = text.partition(_HISTORY)
    if history:
        lines = history.removesuffix("\n").split("\n")  # typed text may hold other line ends
        yield from _history_faults(lines, record.step_index)
    wanted = sources.instruction(record.trajectory_id)
    if wanted is None or asked == wanted or _names_target(asked, bool(history), record, sources):
        return
    message = "messages: the instruction differs from that of the trajectory"
    yield "instruction_differs", message, "copy the instruction of task.json"


def _asked(record: MessagesRecord) -> Sequence[ImagePart | TextPart]:
    """The parts of the last question."""
    users = [message for message in record.messages if isinstance(message, UserMessage)]
    return users[-1].content if users else ()


def _image_faults(record: MessagesRecord) -> Iterator[SampleFault]:
    """Yield a fault when the last image is not the screenshot of the record's step."""
    images = [part.image for part in _asked(record) if isinstance(part, ImagePart)]
    if not images:
        return
    path = images[-1]
    where, final = step_of(path), _FINAL.fullmatch(path)
    trajectory = where[0] if where else final[1] if final else record.trajectory_id
    if trajectory != record.trajectory_id:
        message = "images: the last one is of another trajectory"
        yield "wrong_step", message, "name the screenshot of the record's step"
    elif where is not None and where[1] != record.step_index:
        message = f"images: the last one is of step {where[1]}, expected step {record.step_index}"
        yield "wrong_step", message, "name the screenshot of the record's step"
    elif final and record.task_type != "terminate":
        message = "images: the last one is the final screenshot, which no action follows"
        yield "wrong_step", message, "name the screenshot of the record's step"


def _history_faults(lines: list[str], step: int) -> Iterator[SampleFault]:
    """Previous actions are numbered from 1; each earlier step and each hidden action is one."""
    numbers = [found and int(found[1]) for found in map(_NUMBER.match, lines)]
    if numbers != list(range(1, len(lines) + 1)) or len(lines) < step:
        message = f"messages: the previous actions are not all of those before step {step}"
        yield "history_gap", message, "number every earlier action from 1, without a gap"


def _names_target(
    asked: str, has_history: bool, record: MessagesRecord, sources: RecordSources
) -> bool:
    """Whether a record asks for its target by name instead of giving the instruction."""
    name = sources.target(record.trajectory_id, record.step_index)
    return not has_history and bool(name) and str(name) in asked


def differing_columns(line: Any, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a Parquet row, of a chat or of prompt and answer, that differ.

    Of the messages their texts are compared: a table may hold them in another form.
    """
    if not isinstance(line, dict):
        return
    yield from (name for name in _PLAIN if row.get(name) != line.get(name))
    chat = row["messages"] if "messages" in row else [*row["prompt"], *row["completion"]]
    if list(_texts(line.get("messages"))) != list(_texts(chat)):
        yield "messages"
    if list(_images(line.get("messages"))) != list(map(_path, row.get("images") or ())):
        yield "images"


def _images(value: Any) -> Iterator[Any]:
    """The paths that the parts of messages name, in order."""
    messages = value if isinstance(value, list) else []
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    for content in contents:
        parts = content if isinstance(content, list) else []
        yield from (part["image"] for part in parts if isinstance(part, dict) and "image" in part)


def _path(image: Any) -> Any:
    """The path of a table's picture, which may be there itself."""
    return image.get("path") if isinstance(image, dict) else image


def _texts(value: Any) -> Iterator[str]:
    """The roles and texts of messages, in order; kinds of parts and absent keys do not count."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in {"type", "image"}:
                yield from _texts(value[key])
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
    elif isinstance(value, str):
        yield value


REQUIRED = ("train.jsonl", "val.jsonl", "test.jsonl")
OPTIONAL = ("held_out.jsonl",)


@dataclass(slots=True)
class _Position:
    """The current position, and the ids read so far, by digest, with their lines and files."""

    root: Path
    sources: RecordSources
    known: KnownLines
    file: str = ""
    line: int = 0
    fresh: LineNumbers = field(default_factory=LineNumbers)
    files: list[str] = field(default_factory=list)
    ids: DigestColumn = field(default_factory=DigestColumn)
    lines: "array[int]" = field(default_factory=lambda: array("I"))  # of the ids
    starts: list[int] = field(default_factory=list)  # the first id of each file

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        return Problem(code, self.file, message, self.line, remedy=remedy)

    def begin(self, file: str) -> None:
        """Begin with a file."""
        self.file, self.line, self.fresh = file, 0, LineNumbers()
        self.files.append(file)
        self.starts.append(len(self.ids))

    def add_ids(self, ids: bytearray, without_id: list[int]) -> None:
        """Add the ids of all lines of the file, given by digests, but of some places."""
        lines = array("I", range(1, len(ids) // FACT + 1))
        for place in reversed(without_id):
            del lines[place]
            del ids[FACT * place : FACT * place + FACT]
        self.ids.extend(ids)
        self.lines.extend(lines)

    def id_problems(self) -> Iterator[Problem]:
        """Yield a problem for each id of the file that an earlier line has, too."""
        if not self.ids.has_equals():
            return
        start = self.starts[-1]
        for place, first in enumerate(self.ids.first_places()[start:].tolist(), start=start):
            if first < place:
                where = f"{self.files[bisect_right(self.starts, first) - 1]}:{self.lines[first]}"
                message, remedy = f"id: is not unique, first at {where}", "change one of the ids"
                yield Problem("duplicate_id", self.file, message, self.lines[place], remedy=remedy)


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
        lines, found = _file_problems(root / name, position)
        problems += found
        if has_tables:
            table = root / tables[name]
            problems += [] if table.is_file() else [_missing(table.name)]
            problems += table_problems(lines, table, differing_columns, position.fresh)
        if has_tables and (root / PROMPT_COMPLETION).is_dir():
            table = root / PROMPT_COMPLETION / tables[name]
            problems += [] if table.is_file() else [_missing(f"{PROMPT_COMPLETION}/{table.name}")]
            problems += table_problems(lines, table, differing_columns, position.fresh)
    return problems


def validate_messages_file(path: Path) -> list[Problem]:
    """The problems of one file of lines; images and trajectories are in its folder."""
    if not path.is_file():
        return [_missing(path.name)]
    position = _Position(path.parent, RecordSources(path.parent), KnownLines())
    _, problems = _file_problems(path, position)
    if position.line:
        return problems
    message = "the file has no record"
    return [Problem("no_records", path.name, message, severity=Severity.WARNING)]


def _missing(name: str) -> Problem:
    remedy = "build the export again"
    return Problem("missing_file", name, "the file is missing", remedy=remedy)


def _file_problems(path: Path, position: _Position) -> tuple[LineIndex, list[Problem]]:
    problems: list[Problem] = []
    position.begin(path.name)
    lines, digests = index_lines(path)
    ids, unknown = position.known.sort_out(digests)
    without_id: list[int] = []
    for place, line in lines.lines_at(unknown):
        position.line = place + 1
        position.fresh.add(position.line)
        record_id, found = _line_problems(line, position)
        problems += found
        if record_id is None:
            without_id.append(place)
            continue
        here = slice(FACT * place, FACT * place + FACT)
        ids[here] = text_digest(record_id)
        if not found:
            position.known.add_found(bytes(digests.data[here]), bytes(ids[here]))
    position.line = len(digests)
    position.add_ids(ids, without_id)
    problems = [*position.id_problems(), *problems]
    return lines, sorted(problems, key=lambda problem: problem.line or 0)


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
    problems += _role_problems(record, position)
    problems += _image_problems(record, position)
    problems += _call_problems(record, position)
    problems += (position.problem(*fault) for fault in record_faults(record, position.sources))
    return record.id, problems


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
