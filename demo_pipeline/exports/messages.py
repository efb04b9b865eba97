"""Exports the records of the CUDAG export as chats, in the format that qwen-vl-utils reads.

In a JSON line, the content of a system or assistant message is text. The content of a user message
is a list of parts; an image part contains the path of its file. The JSON Schema of a line is
generated from the models below, and contains their docstrings. docs/guides/trainers.md explains why
the rows of the tables differ from the lines.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, Tag

from demo_pipeline.datasets.sql_views import OF_MESSAGES, View
from demo_pipeline.desktopd.models import Pixel
from demo_pipeline.exports.answers import Answer, AnswerDecoder
from demo_pipeline.exports.cudag.records import (
    DRAFT_EXCLUSIONS,
    DRAFT_SETTINGS,
    RecordDraft,
    record_drafts,
)
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source, Table, of_row
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.native_pictures import with_native_screenshots
from demo_pipeline.exports.prompts import action_sentence, system_prompt
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    schema_file,
)
from demo_pipeline.exports.step_facts import readable_size
from demo_pipeline.exports.token_estimates import chat_tokens, resized
from demo_pipeline.exports.tool_calls import (
    ACTION_LINE,
    RU_SCREEN,
    THOUGHT_LINE,
    ToolCallError,
    WheelUnits,
    answer_blocks,
    decode_calls,
    parse_tool_calls,
    render_tool_calls,
)
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import MARKER, replace_surrogates
from demo_pipeline.settings import DatasetSettings

SCHEMA_FILE = "messages.schema.json"
PROMPT_COMPLETION = "prompt_completion"  # the folder of tables in TRL's prompt-completion format
_SCHEMA_HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "demo-pipeline:messages:2",
}


class TextPart(Document):
    """A text in a user message."""

    type: Literal["text"]
    text: str


class ImagePart(Document):
    """An image in a user message."""

    type: Literal["image"]
    image: str = Field(
        description="path of the image, relative to the folder of the JSON Lines file"
    )


class SystemMessage(Document):
    """The system prompt: the tool, the unit of coordinates, and how to answer."""

    role: Literal["system"]
    content: str = Field(min_length=1)


class UserMessage(Document):
    """The screenshot, the task and the earlier actions; may contain earlier screenshots."""

    role: Literal["user"]
    content: list[Annotated[ImagePart | TextPart, Field(discriminator="type")]] = Field(
        min_length=1
    )


class AssistantMessage(Document):
    """The answer: `<tool_call>` blocks with the next action.

    A line `Thought: …` and a line `Action: …` may come before the blocks.
    """

    role: Literal["assistant"]
    content: str = Field(min_length=1)


Message = Annotated[
    Annotated[SystemMessage, Tag("system")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")],
    Field(discriminator="role"),
]


class MessagesRecord(Document):
    """A step of a trajectory as a chat.

    After an optional system message, user and assistant messages alternate. The last message is
    from the assistant.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0)
    application: str
    task_type: str
    first_step: int = Field(
        0,
        ge=0,
        description="index of the trajectory's first step; above 0 if steps were trimmed off",
    )
    reasoning_source: Literal["none", "human", "model", "rule"] = Field(
        "none", description="who wrote the line `Thought: …`; none if there is no such line"
    )
    tokens: int = Field(0, ge=0, description="estimated tokens of the chat, including images")
    coordinate_size: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="[width, height] of the image whose pixels are the unit of coordinates; if the "
        "field is missing, coordinates are from 0 to 1000",
    )
    messages: list[Message] = Field(min_length=2)


def messages_decoder(wheel: WheelUnits, max_pixels: int | None = None) -> AnswerDecoder:
    """Returns a decoder for a model's answers: optional words, then `<tool_call>` blocks.

    Args:
        wheel: the unit of the argument `pixels` of scroll calls.
        max_pixels: maximum number of pixels of an image after the model's image processor resized
            it; coordinates are pixels of this image. If it is None, coordinates are thousandths of
            the image's width and height (RU).
    """

    def decode(text: str, size: tuple[int, int]) -> Answer:
        words, blocks = answer_blocks(text)
        words = words.removeprefix(THOUGHT_LINE).removeprefix(ACTION_LINE)
        screen = resized(size, max_pixels) if max_pixels else RU_SCREEN
        return decode_calls(blocks, words, size, wheel, screen)

    return decode


_EARLIER = (
    "\n\nThe last picture is the screen now; those before it show the screen before each of the "
    "last steps, the oldest first."
)
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SOURCE = "reasoning_source"  # the key that says who wrote the line `Thought: …`
NO_SOURCE = "none"  # value of `SOURCE` in JSON lines without a thought; table rows have null
_IDENTITY = (  # columns of all tables
    ("id", pa.string()),
    ("trajectory_id", pa.string()),
    ("step_index", pa.int32()),
    ("application", pa.string()),
    ("task_type", pa.string()),
    ("tokens", pa.int32()),
)


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields a chat for each CUDAG record, with the native screenshot if it exists."""
    source = with_native_screenshots(source)
    settings = source.settings
    trajectory = source.trajectory
    absolute = settings.coordinates == "absolute"
    for draft in record_drafts(source, absolute=absolute):
        if isinstance(draft, Excluded):
            yield draft
            continue
        metadata = draft.metadata
        earlier = _earlier_screenshots(source, draft)
        files = {source.name(path): path for path in (*earlier, draft.screenshot)}
        thought = trajectory.notes.get(metadata.step_index, {}).get("thought")
        answer = replace_surrogates(_answer(draft, settings))
        if thought:
            answer = f"{THOUGHT_LINE}{' '.join(thought.value.split())}\n{answer}"
        seen = None
        if absolute:
            seen = resized(metadata.image_size, settings.max_pixels)
        prompt = system_prompt(
            settings, action_line=settings.action_line, thought=bool(thought), seen=seen
        )
        question = replace_surrogates(draft.prompt)
        if earlier:
            question += _EARLIER
        images = [{"type": "image", "image": image} for image in files]
        sizes = [readable_size(path) or metadata.image_size for path in files.values()]
        line: dict[str, Any] = {
            "id": draft.id,
            "trajectory_id": replace_surrogates(metadata.trajectory_id),
            "step_index": metadata.step_index,
            "application": replace_surrogates(metadata.application),
            "task_type": metadata.task_type,
            # The index is written even if it is 0, because `datasets` rejects fields that first
            # occur after 10 MB.
            "first_step": trajectory.steps[0].index,
            SOURCE: thought.source if thought else NO_SOURCE,
            "tokens": chat_tokens((prompt, question, answer), sizes, settings.max_pixels),
            **({"coordinate_size": seen} if seen else {}),
            "messages": [
                {"role": "system", "content": prompt},
                {"role": "user", "content": [*images, {"type": "text", "text": question}]},
                {"role": "assistant", "content": answer},
            ],
        }
        rows = {"line": line, "chat": _chat(line), "pair": _pair(line)}
        yield Row(draft.id, draft.prompt, draft.screenshot, rows, files, tokens=line["tokens"])


def _earlier_screenshots(source: Source, draft: RecordDraft) -> list[Path]:
    """Returns the earlier screenshots that the chat of a record shows, oldest first.

    The last `history_images` screenshots before the record are used, except unreadable ones.
    """
    wanted = source.settings.history_images
    if not wanted:
        return []
    current = draft.metadata.step_index
    steps = [step for step in source.trajectory.steps if step.index < current]
    return [step.screenshot for step in steps[-wanted:] if readable_size(step.screenshot)]


def _chat(line: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a JSON line to a table row, whose turns are text and whose images are in a column.

    TRL and ms-swift reject rows with images both in turns and in a column; Axolotl would use these
    images twice.
    """
    row: dict[str, Any] = {name: line[name] for name, _ in _IDENTITY}
    turns = []
    images = []
    for turn in line["messages"]:
        content = turn["content"]
        if not isinstance(content, str):
            images += [part["image"] for part in content if "image" in part]
            content = "".join(part["text"] for part in content if "text" in part)
        turns.append({"role": turn["role"], "content": content})
    row["messages"] = turns
    row["images"] = images
    thought_source = line.get(SOURCE, NO_SOURCE)
    if thought_source != NO_SOURCE:
        row[SOURCE] = thought_source
    return row


def _pair(line: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a JSON line to TRL's prompt-completion format, with the answer in its own column."""
    row = _chat(line)
    turns = row.pop("messages")
    return {**row, "prompt": turns[:-1], "completion": turns[-1:]}


def _table(*turn_columns: str) -> Callable[[DatasetSettings], Table]:
    """Returns a function for `File.table`; `turn_columns` are the columns with the chat's turns."""
    turns = [(column, _TURNS) for column in turn_columns]
    schema = pa.schema([*_IDENTITY, *turns, ("images", pa.list_(pa.string()))])
    annotated = schema.append(pa.field(SOURCE, pa.string()))
    return lambda _settings: Table(schema, annotated=annotated, notes=frozenset({"thought"}))


def _answer(draft: RecordDraft, settings: DatasetSettings) -> str:
    """Returns the answer of a record: the tool calls, after an `Action: …` line if configured."""
    calls = render_tool_calls(draft.calls)[0]
    if not settings.action_line:
        return calls
    metadata = draft.metadata
    places = (*draft.hovered, metadata.real_coords, metadata.end_coords)
    words = action_sentence(draft.calls, metadata.reasoning, places)
    if not words:
        return calls
    return f"{ACTION_LINE}{words}\n{calls}"


def _pictures(record: MessagesRecord) -> Iterator[tuple[str, str]]:
    for turn, message in enumerate(record.messages):
        if not isinstance(message, UserMessage):
            continue
        for number, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                yield f"messages[{turn}].content[{number}].image", part.image


def _faults(record: MessagesRecord, _files: NamedFiles) -> Iterator[Fault]:
    """Yields faults of roles, images, markers and answers that `MessagesRecord` cannot detect."""
    roles = [message.role for message in record.messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2):
        message = "messages: roles must be an optional system, then user and assistant alternating"
        yield Fault("roles", message, "put the messages in order")
    if not any(_pictures(record)):
        yield Fault("image_count", "messages: no image part", "add the screenshot")
    if any(map(MARKER.search, _user_texts(record))):
        message = "messages: the text of a user contains a control marker of a model"
        yield Fault("marker", message, "escape the marker")
    screen = RU_SCREEN
    if record.coordinate_size:
        screen = (record.coordinate_size[0], record.coordinate_size[1])
    for number, turn in enumerate(record.messages):
        if isinstance(turn, AssistantMessage) and (fault := _answer_fault(turn.content, screen)):
            message = f"messages[{number}]: {fault}"
            yield Fault("tool_call", message, "follow the schema of the tool")


def _user_texts(record: MessagesRecord) -> Iterator[str]:
    for message in record.messages:
        if isinstance(message, UserMessage):
            yield from (part.text for part in message.content if isinstance(part, TextPart))


MESSAGES_FORMAT: RecordFormat[MessagesRecord] = RecordFormat(MessagesRecord, _pictures, _faults)


def _answer_fault(text: str, screen: Pixel) -> str:
    """Returns why the text of an assistant message is not a valid answer; empty for valid answers.

    Args:
        screen: largest allowed x and y of coordinates.
    """
    for prefix in (THOUGHT_LINE, ACTION_LINE):
        if not text.startswith(prefix):
            continue
        words, _, text = text.partition("\n")
        if MARKER.search(words):
            return "the line of words contains a control marker of a model"
    try:
        parse_tool_calls(text, screen)
    except ToolCallError as error:
        return str(error)
    return ""


# This dataset has the same steps, prompts and splits as the CUDAG dataset. Its folder
# `prompt_completion/` contains the chats in TRL's prompt-completion format.
FORM = Form(
    name="messages",
    asset="messages_dataset",
    folder="messages",
    description="Each step as a chat: JSON Lines that qwen-vl-utils and ms-swift read, and "
    "Parquet tables that TRL, Axolotl and ms-swift read. The splits are the same "
    "as in the other exports.",
    code_version="25",
    kinds=frozenset({"json", "parquet"}),
    settings=(*DRAFT_SETTINGS, "action_line", "history_images", "coordinates"),
    exclusions=DRAFT_EXCLUSIONS,
    rows=_rows,
    files=(
        File("line", "{split}.jsonl", checked=MESSAGES_FORMAT),
        File("chat", "{split}.parquet", _table("messages"), config="default"),
        File(
            "pair",
            f"{PROMPT_COMPLETION}/{{split}}.parquet",
            _table("prompt", "completion"),
            config=PROMPT_COMPLETION,
        ),
    ),
    check="messages_schema",
    kind_of=of_row("chat", "task_type"),
    marks=(SCHEMA_FILE,),
    line_key="messages",
    side_files=schema_file(SCHEMA_FILE, MessagesRecord, _SCHEMA_HEAD),
    hub=(
        HubTable(
            "messages",
            "a step as a chat (`messages` and `images`), answered with calls of `computer_use`",
            pictures=("images",),
        ),
    ),
    views=(
        View("messages", "a row for each chat, with its split", "messages/*.parquet", OF_MESSAGES),
    ),
)
