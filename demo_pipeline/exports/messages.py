"""The messages export: CUDAG records as chats, in the form that qwen-vl-utils reads.

Belongs here: the models, from which the JSON Schema of a line is made (their docstrings are its
descriptions), what a line and the rows hold, the rules, and reading an answer. The system's and the
assistant's content is text; the user's is a list of parts, and an image part names its file. The
calls are those of the CUDAG records. Why the rows differ from the line is in docs/trainers.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, Tag

from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.datasets.record_forms import Excluded, Form, Record, RecordSource, Table
from demo_pipeline.datasets.splits import Split
from demo_pipeline.exports.answers import Answer, AnswerDecoder
from demo_pipeline.exports.cudag.records import (
    DRAFT_EXCLUSIONS,
    DRAFT_SETTINGS,
    RecordDraft,
    record_drafts,
)
from demo_pipeline.exports.cudag.tool_calls import (
    ACTION_LINE,
    THOUGHT_LINE,
    ToolCallError,
    WheelUnits,
    answer_blocks,
    decode_calls,
    parse_tool_calls,
    render_tool_calls,
)
from demo_pipeline.exports.hub_layout import PICTURE, with_hub_features
from demo_pipeline.exports.prompts import action_sentence, system_prompt
from demo_pipeline.exports.record_checks import (
    ExportReader,
    Fault,
    NamedFiles,
    RecordFormat,
    checked_records,
    missing,
    no_records,
    schema_writer,
    split_files,
    table_problems,
)
from demo_pipeline.exports.sft import step_of
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import MARKER, escape_markers, replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings

SCHEMA_FILE = "messages.schema.json"
PROMPT_COMPLETION = "prompt_completion"  # the folder of TRL's rows
_SCHEMA_HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "demo-pipeline:messages:2",
}


class TextPart(Document):
    """Words."""

    type: Literal["text"]
    text: str


class ImagePart(Document):
    """A picture."""

    type: Literal["image"]
    image: str = Field(description="path below the folder that the line's file lies in")


class SystemMessage(Document):
    """What the model is told before the task."""

    role: Literal["system"]
    content: str = Field(min_length=1)


class UserMessage(Document):
    """The screen, the task and what was done so far."""

    role: Literal["user"]
    content: list[Annotated[ImagePart | TextPart, Field(discriminator="type")]] = Field(
        min_length=1
    )


class AssistantMessage(Document):
    """The next action: `<tool_call>` blocks, after one `Action: …` line or without it."""

    role: Literal["assistant"]
    content: str = Field(min_length=1)


Message = Annotated[
    Annotated[SystemMessage, Tag("system")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")],
    Field(discriminator="role"),
]


class MessagesRecord(Document):
    """One line: system, then user and assistant in turns, the assistant last."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0)
    application: str
    task_type: str
    first_step: int = Field(0, ge=0, description="more than 0 after steps that were trimmed off")
    reasoning_source: Literal["none", "human", "model", "rule"] = Field(
        "none", description="of the line `Thought: …`; none: there is none"
    )
    messages: list[Message] = Field(min_length=2)


def messages_decoder(wheel: WheelUnits) -> AnswerDecoder:
    """The decoder of a chat's answer: words, with or without `Action: `, then `<tool_call>`s."""

    def decode(text: str, size: tuple[int, int]) -> Answer:
        words, blocks = answer_blocks(text)
        words = words.removeprefix(THOUGHT_LINE).removeprefix(ACTION_LINE)
        return decode_calls(blocks, words, size, wheel)

    return decode


_PICTURES_IN_MEMORY = 16  # rows; a PNG of the canvas is about 0.7 MB
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SOURCE = "reasoning_source"  # of the line `Thought: …`; null in a row: there is none
NO_SOURCE = "none"  # the same in a line
_IDENTITY = (
    ("id", pa.string()),
    ("trajectory_id", pa.string()),
    ("step_index", pa.int32()),
    ("application", pa.string()),
    ("task_type", pa.string()),
)


def _records(made_of: RecordSource) -> Iterator[Record | Excluded]:
    """Yield the chat of every CUDAG record."""
    settings, trajectory = made_of.settings, made_of.trajectory
    for draft in record_drafts(made_of):
        if isinstance(draft, Excluded):
            yield draft
            continue
        known, image = draft.metadata, made_of.name(draft.screenshot)
        thought = trajectory.notes.get(known.step_index, {}).get("thought")
        answer = replace_surrogates(_answer(draft, settings))
        if thought:
            answer = f"{THOUGHT_LINE}{' '.join(thought.value.split())}\n{answer}"
        prompt = system_prompt(settings, action_line=settings.action_line, thought=bool(thought))
        asked = replace_surrogates(draft.prompt)
        parts = [{"type": "image", "image": image}, {"type": "text", "text": asked}]
        said = {"system": prompt, "user": parts, "assistant": answer}
        line: dict[str, Any] = {
            "id": draft.id,
            "trajectory_id": replace_surrogates(known.trajectory_id),
            "step_index": known.step_index,
            "application": replace_surrogates(known.application),
            "task_type": known.task_type,
            # In every line: `datasets` refuses a field that the first 10 MB do not have.
            "first_step": trajectory.steps[0].index,
            SOURCE: thought.source if thought else NO_SOURCE,
            "messages": [{"role": role, "content": content} for role, content in said.items()],
        }
        rows = {"line": line, "chat": _chat(line), "pair": _pair(line)}
        yield Record(draft.id, draft.prompt, draft.screenshot, rows, {image: draft.screenshot})


def _chat(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a row, whose content is text.

    The line names the picture in the chat, the row beside it: TRL and ms-swift refuse both at once,
    and Axolotl would show the picture twice.
    """
    identity = {name: line[name] for name, _ in _IDENTITY}
    turns, images = [], []
    for turn in line["messages"]:
        content = turn["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        images += [part["image"] for part in parts if "image" in part]
        text = "".join(part["text"] for part in parts if "text" in part)
        turns.append({"role": turn["role"], "content": text})
    source = line.get(SOURCE, NO_SOURCE)
    worded = {} if source == NO_SOURCE else {SOURCE: source}
    return {**identity, "messages": turns, "images": images, **worded}


def _pair(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a row of a question and its answer."""
    row = _chat(line)
    turns = row.pop("messages")
    return {**row, "prompt": turns[:-1], "completion": turns[-1:]}


def _tables(settings: DatasetSettings) -> Mapping[str, Table]:
    """Of a chat whose content is text, and of the same without and with the answer."""
    embeds = settings.embed_images
    tables = {}
    for name, turns in {"chat": ("messages",), "pair": ("prompt", "completion")}.items():
        pictures = ("images", pa.list_(PICTURE if embeds else pa.string()))
        columns = [*_IDENTITY, *((turn, _TURNS) for turn in turns), pictures]
        schemas = [pa.schema(some) for some in (columns, [*columns, (SOURCE, pa.string())])]
        schema, annotated = map(with_hub_features, schemas) if embeds else schemas
        rows = _PICTURES_IN_MEMORY if embeds else 512
        tables[name] = Table(schema, rows, annotated=annotated, notes=frozenset({"thought"}))
    return tables


def _row(
    row: Mapping[str, Any], _split: Split, settings: DatasetSettings, folder: str
) -> Mapping[str, Any]:
    """A row with its picture, if pictures are embedded."""
    if not settings.embed_images:
        return row
    (path,) = row["images"]
    data = Path(folder, path.split("/", 2)[2]).read_bytes()
    return {**row, "images": [{"bytes": data, "path": path}]}


def _answer(draft: RecordDraft, settings: DatasetSettings) -> str:
    calls, known = render_tool_calls(draft.calls)[0], draft.metadata
    if not settings.action_line:
        return calls
    words = action_sentence(draft.calls, known.reasoning, (known.real_coords, known.end_coords))
    return f"{ACTION_LINE}{words}\n{calls}"


_HISTORY = "\n\nPrevious actions:\n"
_FINAL = re.compile(r"(?:.*/)?trajectories/([^/]+)/final_screenshot\.png")
_NUMBER = re.compile(r"([0-9]+)\. ", re.ASCII)


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


MESSAGES_FORMAT: RecordFormat[MessagesRecord] = RecordFormat(MessagesRecord, _pictures, _faults)


def _answer_fault(text: str) -> str:
    """Why a turn is not an action; empty if it is one."""
    for begin in (THOUGHT_LINE, ACTION_LINE):
        words, _, rest = text.partition("\n")
        if text.startswith(begin) and MARKER.search(words):
            return "the line of words contains a control marker of a model"
        text = rest if text.startswith(begin) else text
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
        earlier = record.step_index - record.first_step
        if numbers != list(range(1, len(lines) + 1)) or len(lines) < earlier:
            step = f"step {record.step_index}"
            message = f"messages: the previous actions are not all of those before {step}"
            yield Fault("history_gap", message, "number every earlier action from 1, without a gap")
    task = files.document(f"trajectories/{record.trajectory_id}/task.json")
    wanted = task.get("instruction")
    if not isinstance(wanted, str) or said == escape_markers(replace_surrogates(wanted))[0]:
        return
    if history or not _names_target(said, record, files):
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


def _names_target(said: str, record: MessagesRecord, files: NamedFiles) -> bool:
    """Whether a record asks for its target by name instead of giving the instruction."""
    step = f"trajectories/{record.trajectory_id}/steps/{record.step_index:03d}/action.json"
    target = files.document(step).get("target_element")
    name = target.get("name") if isinstance(target, dict) else None
    words = " ".join(name.split()) if isinstance(name, str) else ""
    return bool(words) and escape_markers(words)[0] in said


def _plain(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the paths of its pictures, which may be in it themselves."""
    images = [one["path"] if isinstance(one, dict) else one for one in row.get("images") or ()]
    return {**row, "images": images}


def validate_messages(root: Path) -> list[Problem]:
    """The problems of a messages export, with line numbers: of its lines and of its tables."""
    reader, problems = ExportReader(root), list[Problem]()
    present = list(split_files(root, "*.jsonl"))
    has_tables = any((root / f"{split}.parquet").is_file() for split, _ in present)
    folders = {"": _chat, f"{PROMPT_COMPLETION}/": _pair}
    folders = {name: columns for name, columns in folders.items() if (root / name).is_dir()}
    for split, file in present:
        if isinstance(file, Problem):
            problems.append(file)
            continue
        problems += [one for _, found in reader.records(MESSAGES_FORMAT, file) for one in found]
        for folder, columns in folders.items() if has_tables else ():
            name = f"{folder}{split}.parquet"
            if (root / name).is_file():
                problems += table_problems(root / file, root / name, columns, _plain)
            else:
                problems.append(missing(name))
    return problems


def validate_messages_file(path: Path) -> list[Problem]:
    """The problems of one file of lines; images and trajectories are in its folder."""
    if not path.is_file():
        return [missing(path.name)]
    read = list(ExportReader(path.parent).records(MESSAGES_FORMAT, path.name))
    return [one for _, found in read for one in found] if read else [no_records(path.name)]


# The same steps, prompts and splits as the CUDAG dataset. `prompt_completion/` has the same records
# again as TRL's rows.
MESSAGES_FORM = Form(
    name="messages",
    code_version="15",
    settings=(*DRAFT_SETTINGS, "action_line"),
    unit="samples",
    exclusions=DRAFT_EXCLUSIONS,
    records=_records,
    files=lambda split, _: {
        "line": (f"{split.value}.jsonl",),
        "chat": (f"{split.value}.parquet",),
        "pair": (f"{PROMPT_COMPLETION}/{split.value}.parquet",),
    },
    tables=_tables,
    row=_row,
    instruction_in_prompt=lambda settings: settings.prompt_style != "grounding",
    finish=schema_writer(SCHEMA_FILE, MessagesRecord, _SCHEMA_HEAD),
    problems=checked_records(line=MESSAGES_FORMAT),
)
build_messages = partial(build_form, MESSAGES_FORM)
