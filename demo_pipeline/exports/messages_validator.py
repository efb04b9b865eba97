"""Validating a messages export: its records, their trajectories, its Parquet files.

Belongs here: the order of the roles, tool calls that parse, the step that a record shows, its
instruction, and its numbered history. The files of the trajectory are read when they are there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.exports.cudag.tool_calls import ACTION_LINE, ToolCallError, parse_tool_calls
from demo_pipeline.exports.messages import (
    PROMPT_COMPLETION,
    AssistantMessage,
    ImagePart,
    MessagesRecord,
    TextPart,
    UserMessage,
)
from demo_pipeline.exports.record_checks import Fault, NamedFiles, RecordFormat
from demo_pipeline.exports.record_files import (
    ExportReader,
    missing,
    no_records,
    split_files,
    table_problems,
)
from demo_pipeline.exports.sft_validator import encodable, step_of
from demo_pipeline.files.shown_text import MARKER, escape_markers
from demo_pipeline.problems import Problem

_HISTORY = "\n\nPrevious actions:\n"
_FINAL = re.compile(r"(?:.*/)?trajectories/([^/]+)/final_screenshot\.png")
_NUMBER = re.compile(r"([0-9]+)\. ", re.ASCII)
_PLAIN = ("id", "trajectory_id", "step_index", "application", "task_type")


def _pictures(record: MessagesRecord) -> Iterator[tuple[str, str]]:
    for turn, message in enumerate(record.messages):
        for number, part in enumerate(message.content if isinstance(message, UserMessage) else ()):
            if isinstance(part, ImagePart):
                yield f"messages[{turn}].content[{number}].image", part.image


def _faults(record: MessagesRecord, files: NamedFiles) -> Iterator[Fault]:
    roles = [message.role for message in record.messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2):
        message = "messages: roles must be an optional system, then user and assistant alternating"
        yield Fault("roles", message, "put the messages in order")
    if not any(_pictures(record)):
        yield Fault("image_count", "messages: no image part", "add the screenshot")
    users = [message for message in record.messages if isinstance(message, UserMessage)]
    said = [part.text for user in users for part in user.content if isinstance(part, TextPart)]
    if any(map(MARKER.search, said)):
        message = "messages: the text of a user contains a control marker of a model"
        yield Fault("marker", message, "escape the marker")
    for number, turn in enumerate(record.messages):
        if isinstance(turn, AssistantMessage) and (fault := _answer_fault(turn.content)):
            yield Fault(
                "tool_call", f"messages[{number}]: {fault}", "follow the schema of the tool"
            )
    yield from _step_faults(record, users[-1].content if users else (), files)


MESSAGES_FORMAT = RecordFormat(MessagesRecord, _pictures, _faults)


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


def _step_faults(
    record: MessagesRecord, asked: Sequence[ImagePart | TextPart], files: NamedFiles
) -> Iterator[Fault]:
    """Yield how a record differs from its trajectory, and a gap in its history.

    Args:
        record: the record.
        asked: the parts of its last question.
        files: of the trajectory.
    """
    images = [part.image for part in asked if isinstance(part, ImagePart)]
    if images and (fault := _image_fault(images[-1], record)):
        message = f"images: the last one is {fault}"
        yield Fault("wrong_step", message, "name the screenshot of the record's step")
    text = "".join(part.text for part in asked if isinstance(part, TextPart))
    said, _, history = text.partition(_HISTORY)
    if history:
        lines = history.removesuffix("\n").split("\n")  # typed text may hold other line ends
        numbers = [found and int(found[1]) for found in map(_NUMBER.match, lines)]
        if numbers != list(range(1, len(lines) + 1)) or len(lines) < record.step_index:
            step = f"step {record.step_index}"
            message = f"messages: the previous actions are not all of those before {step}"
            yield Fault("history_gap", message, "number every earlier action from 1, without a gap")
    wanted = _shown(files.document(f"trajectories/{record.trajectory_id}/task.json"), "instruction")
    if wanted is None or said == wanted or (not history and _names_target(said, record, files)):
        return
    message = "messages: the instruction differs from that of the trajectory"
    yield Fault("instruction_differs", message, "copy the instruction of task.json")


def _image_fault(path: str, record: MessagesRecord) -> str:
    """What the last image is, when it is not the screenshot of the record's step."""
    where, final = step_of(path), _FINAL.fullmatch(path)
    trajectory = where[0] if where else final[1] if final else record.trajectory_id
    if trajectory != record.trajectory_id:
        return "of another trajectory"
    if where is not None and where[1] != record.step_index:
        return f"of step {where[1]}, expected step {record.step_index}"
    if final and record.task_type != "terminate":
        return "the final screenshot, which no action follows"
    return ""


def _shown(document: Mapping[str, Any], key: str) -> str | None:
    """A text of a file as prompts show it; None when it is not there."""
    text = document.get(key)
    return escape_markers(encodable(text))[0] if isinstance(text, str) else None


def _names_target(said: str, record: MessagesRecord, files: NamedFiles) -> bool:
    """Whether a record asks for its target by name instead of giving the instruction."""
    step = f"trajectories/{record.trajectory_id}/steps/{record.step_index:03d}/action.json"
    target = files.document(step).get("target_element")
    name = target.get("name") if isinstance(target, dict) else None
    words = " ".join(name.split()) if isinstance(name, str) else ""
    return bool(words) and escape_markers(words)[0] in said


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


def validate_messages(root: Path) -> list[Problem]:
    """The problems of a messages export, with line numbers: of its lines and of its tables.

    Args:
        root: the folder with `train.jsonl`, `val.jsonl`, `test.jsonl`, the same as Parquet if it
            has any, and the images.
    """
    reader, problems = ExportReader(root), list[Problem]()
    present = list(split_files(root, "*.jsonl"))
    has_tables = any((root / f"{split}.parquet").is_file() for split, _ in present)
    folders = [name for name in ("", f"{PROMPT_COMPLETION}/") if (root / name).is_dir()]
    for split, file in present:
        if isinstance(file, Problem):
            problems.append(file)
            continue
        problems += [one for _, found in reader.records(MESSAGES_FORMAT, file) for one in found]
        for name in [f"{folder}{split}.parquet" for folder in folders] if has_tables else ():
            if (root / name).is_file():
                problems += table_problems(root / file, root / name, differing_columns)
            else:
                problems.append(missing(name))
    return problems


def validate_messages_file(path: Path) -> list[Problem]:
    """The problems of one file of lines; images and trajectories are in its folder."""
    if not path.is_file():
        return [missing(path.name)]
    read = list(ExportReader(path.parent).records(MESSAGES_FORMAT, path.name))
    return [one for _, found in read for one in found] if read else [no_records(path.name)]
