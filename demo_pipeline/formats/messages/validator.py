"""Validating a messages export: what its JSON Schema says, and what no schema can say.

Belongs here: each line judged alone, as `file:line`: roles alternate, image parts match `images`,
every call parses, every picture opens; and ids over all files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, parse_json, read_bytes
from demo_pipeline.formats.base_model import check
from demo_pipeline.formats.cudag.tool_calls import (
    MARKER,
    TOOL_NAME,
    ToolCallError,
    call_faults,
    parse_tool_calls,
)
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.formats.messages.models import (
    AssistantMessage,
    Call,
    ImagePart,
    MessagesRecord,
    UserMessage,
)
from demo_pipeline.problems import Problem

REQUIRED = ("train.jsonl", "val.jsonl", "test.jsonl")
OPTIONAL = ("held_out.jsonl",)


@dataclass(slots=True)
class _Lines:
    """Where the reading stands, and the ids seen so far with their places."""

    root: Path
    file: str = ""
    line: int = 0
    ids: dict[str, str] = field(default_factory=dict)

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        return Problem(code, self.file, message, self.line, remedy=remedy)


def validate_messages(root: Path) -> list[Problem]:
    """What is wrong with a folder of messages: `train.jsonl`, `val.jsonl`, `test.jsonl`, pictures.

    Returns:
        Problems filed under the file's name, with line numbers.
    """
    problems: list[Problem] = []
    lines = _Lines(root)
    for name in (*REQUIRED, *OPTIONAL):
        path = root / name
        if not path.is_file():
            if name in REQUIRED:
                remedy = "build the export again"
                problems.append(Problem("missing_file", name, "the file is missing", remedy=remedy))
            continue
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                lines.file, lines.line = name, number
                problems += _line_problems(line, lines)
    return problems


def _line_problems(line: bytes, lines: _Lines) -> list[Problem]:
    if not line.strip():
        return [lines.problem("blank_line", "a blank line", "remove it")]
    try:
        value = parse_json(line, lines.file)
    except JsonFileError as error:
        return [replace(json_problem(error), line=lines.line)]
    record, problems = check(MessagesRecord, value, lines.file, line=lines.line)
    if record is None:
        return problems
    problems += _identity(record, lines)
    problems += _roles(record, lines)
    problems += _pictures(record, lines)
    problems += _calls(record, lines)
    problems += _tools(record, lines)
    return problems


def _identity(record: MessagesRecord, lines: _Lines) -> Iterator[Problem]:
    here = f"{lines.file}:{lines.line}"
    if (first := lines.ids.setdefault(record.id, here)) != here:
        yield lines.problem("duplicate_id", f"id: the same as in {first}", "give it another id")


def _roles(record: MessagesRecord, lines: _Lines) -> Iterator[Problem]:
    roles = [message.role for message in record.messages]
    turns = roles[1:] if roles[0] == "system" else roles
    wanted = ["user", "assistant"] * (len(turns) // 2)
    if not turns or turns != wanted:
        message = "messages: roles must be system (at most once), then user and assistant in turns"
        yield lines.problem("roles", message, "put the messages in order")


def _pictures(record: MessagesRecord, lines: _Lines) -> Iterator[Problem]:
    parts = [
        part
        for message in record.messages
        if isinstance(message, UserMessage)
        for part in message.content
    ]
    places = sum(isinstance(part, ImagePart) for part in parts)
    if places != len(record.images):
        message = f"images: {len(record.images)} for {places} image parts"
        yield lines.problem("image_count", message, "give each image part its image")
    if any(not isinstance(part, ImagePart) and MARKER.search(part.text) for part in parts):
        message = "messages: a user's text holds a model's control marker"
        yield lines.problem("marker", message, "neutralise the marker")
    for number, path in enumerate(record.images):
        if fault := _fault(path, lines.root):
            yield lines.problem("image", f"images[{number}]: {fault}", "correct the path")


def _fault(text: str, root: Path) -> str:
    """Why a picture cannot be used; empty when it opens."""
    parts = PurePosixPath(text)
    if not text or parts.is_absolute() or ".." in parts.parts or "\\" in text or "\0" in text:
        return "not a path below the folder"
    try:
        probe_image(read_bytes(root / text, parts.name))
    except JsonFileError as error:
        return error.message
    except ValueError as error:
        return str(error)
    return ""


def _calls(record: MessagesRecord, lines: _Lines) -> Iterator[Problem]:
    for number, message in enumerate(record.messages):
        if isinstance(message, AssistantMessage) and (fault := _turn_fault(message)):
            text = f"messages[{number}]: {fault}"
            yield lines.problem("tool_call", text, "write calls that the tool has")


def _turn_fault(message: AssistantMessage) -> str:
    """Why a turn is no action; empty when it is one."""
    if message.tool_calls is None:
        if len(message.content) != 1:
            return "one text part of tool calls, or tool_calls"
        try:
            parse_tool_calls(message.content[0].text)
        except ToolCallError as error:
            return str(error)
        return ""
    if message.content:
        return "either text or tool_calls, not both"
    return "; ".join(fault for call in message.tool_calls for fault in _call_faults(call))


def _call_faults(call: Call) -> Iterator[str]:
    try:
        arguments = parse_json(call.function.arguments, "arguments")
    except JsonFileError as error:
        yield f"arguments: {error.message}"
        return
    yield from call_faults({"name": call.function.name, "arguments": arguments})


def _tools(record: MessagesRecord, lines: _Lines) -> Iterator[Problem]:
    """Yield a problem unless `tools`, where there, lists the one tool."""
    if record.tools is None:
        return
    try:
        tools = parse_json(record.tools, lines.file)
        names = [tool["function"]["name"] for tool in tools]
    except (JsonFileError, TypeError, KeyError):
        names = []
    if names != [TOOL_NAME]:
        message = f"tools: must be JSON text of a list with the function {TOOL_NAME}"
        yield lines.problem("tools", message, "write the tool's schema")
