"""The messages export: CUDAG records as chats, in the form that qwen-vl-utils reads.

Belongs here: the models, from which the JSON Schema of a line is made (their docstrings are its
descriptions), what a line and the rows hold, and reading an answer. The system's and the
assistant's content is text; the user's is a list of parts, and an image part names its file. The
calls are those of the CUDAG records. Why the rows differ from the line is in
docs/guides/trainers.md.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, Tag

from demo_pipeline.datasets.splits import Split
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
from demo_pipeline.exports.hub_layout import PICTURE, HubTable, with_hub_features
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
    tokens: int = Field(0, ge=0, description="of the chat with its pictures, estimated")
    coordinate_size: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None, description="of the picture whose pixels the coordinates are; absent: 0 to 1000"
    )
    messages: list[Message] = Field(min_length=2)


def messages_decoder(wheel: WheelUnits, max_pixels: int | None = None) -> AnswerDecoder:
    """The decoder of a chat's answer: words, with or without `Action: `, then `<tool_call>`s.

    `max_pixels`: coordinates are pixels of the picture that it leaves; None: they are RU.
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
    ("tokens", pa.int32()),
)


def _rows(made_of: Source) -> Iterator[Row | Excluded]:
    """Yield the chat of every CUDAG record, with the screen's own pictures where there are any."""
    made_of = with_native_screenshots(made_of)
    settings = made_of.settings
    trajectory = made_of.trajectory
    absolute = settings.coordinates == "absolute"
    for draft in record_drafts(made_of, absolute=absolute):
        if isinstance(draft, Excluded):
            yield draft
            continue
        known = draft.metadata
        earlier = _earlier(made_of, draft)
        files = {made_of.name(shown): shown for shown in (*earlier, draft.screenshot)}
        thought = trajectory.notes.get(known.step_index, {}).get("thought")
        answer = replace_surrogates(_answer(draft, settings))
        if thought:
            answer = f"{THOUGHT_LINE}{' '.join(thought.value.split())}\n{answer}"
        seen = resized(known.image_size, settings.max_pixels) if absolute else None
        prompt = system_prompt(
            settings, action_line=settings.action_line, thought=bool(thought), seen=seen
        )
        asked = replace_surrogates(draft.prompt) + (_EARLIER if earlier else "")
        shown = [{"type": "image", "image": image} for image in files]
        parts = [*shown, {"type": "text", "text": asked}]
        said = {"system": prompt, "user": parts, "assistant": answer}
        sizes = [readable_size(path) or known.image_size for path in files.values()]
        line: dict[str, Any] = {
            "id": draft.id,
            "trajectory_id": replace_surrogates(known.trajectory_id),
            "step_index": known.step_index,
            "application": replace_surrogates(known.application),
            "task_type": known.task_type,
            # In every line: `datasets` refuses a field that the first 10 MB do not have.
            "first_step": trajectory.steps[0].index,
            SOURCE: thought.source if thought else NO_SOURCE,
            "tokens": chat_tokens((prompt, asked, answer), sizes, settings.max_pixels),
            **({"coordinate_size": seen} if seen else {}),
            "messages": [{"role": role, "content": content} for role, content in said.items()],
        }
        rows = {"line": line, "chat": _chat(line), "pair": _pair(line)}
        yield Row(draft.id, draft.prompt, draft.screenshot, rows, files, tokens=line["tokens"])


def _earlier(made_of: Source, draft: RecordDraft) -> list[Path]:
    """The screenshots before that of a record which its chat shows, the oldest first."""
    wanted = made_of.settings.history_images
    now = draft.metadata.step_index
    steps = [step for step in made_of.trajectory.steps if step.index < now]
    last = steps[len(steps) - wanted :] if wanted < len(steps) else steps
    return [step.screenshot for step in last if readable_size(step.screenshot)]


def _chat(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a row, whose content is text.

    The line names the picture in the chat, the row beside it: TRL and ms-swift refuse both at once,
    and Axolotl would show the picture twice.
    """
    identity = {name: line[name] for name, _ in _IDENTITY}
    turns = []
    images = []
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


def _table(*turns: str) -> Callable[[DatasetSettings], Table]:
    """Of a chat whose content is text, in one column or in that of the question and the answer."""

    def table(settings: DatasetSettings) -> Table:
        embeds = settings.embed_images
        pictures = ("images", pa.list_(PICTURE if embeds else pa.string()))
        columns = [*_IDENTITY, *((turn, _TURNS) for turn in turns), pictures]
        schemas = [pa.schema(some) for some in (columns, [*columns, (SOURCE, pa.string())])]
        schema, annotated = map(with_hub_features, schemas) if embeds else schemas
        rows = _PICTURES_IN_MEMORY if embeds else 512
        return Table(schema, rows, annotated=annotated, notes=frozenset({"thought"}))

    return table


def _placed(
    row: Mapping[str, Any], _split: Split, settings: DatasetSettings, folder: str
) -> Mapping[str, Any]:
    """A row with its pictures, if pictures are embedded."""
    if not settings.embed_images:
        return row
    data = {path: Path(folder, path.split("/", 2)[2]).read_bytes() for path in row["images"]}
    return {**row, "images": [{"bytes": data[path], "path": path} for path in row["images"]]}


def _answer(draft: RecordDraft, settings: DatasetSettings) -> str:
    calls = render_tool_calls(draft.calls)[0]
    known = draft.metadata
    if not settings.action_line:
        return calls
    places = (*draft.hovered, known.real_coords, known.end_coords)
    words = action_sentence(draft.calls, known.reasoning, places)
    return f"{ACTION_LINE}{words}\n{calls}" if words else calls


def _pictures(record: MessagesRecord) -> Iterator[tuple[str, str]]:
    for turn, message in enumerate(record.messages):
        for number, part in enumerate(message.content if isinstance(message, UserMessage) else ()):
            if isinstance(part, ImagePart):
                yield f"messages[{turn}].content[{number}].image", part.image


def _faults(record: MessagesRecord, _files: NamedFiles) -> Iterator[Fault]:
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
    size = record.coordinate_size
    screen = (size[0], size[1]) if size else RU_SCREEN
    for number, turn in enumerate(record.messages):
        if isinstance(turn, AssistantMessage) and (fault := _answer_fault(turn.content, screen)):
            yield Fault(
                "tool_call", f"messages[{number}]: {fault}", "follow the schema of the tool"
            )


MESSAGES_FORMAT: RecordFormat[MessagesRecord] = RecordFormat(MessagesRecord, _pictures, _faults)


def _answer_fault(text: str, screen: Pixel) -> str:
    """Why a turn is not an action; empty if it is one."""
    for begin in (THOUGHT_LINE, ACTION_LINE):
        words, _, rest = text.partition("\n")
        if text.startswith(begin) and MARKER.search(words):
            return "the line of words contains a control marker of a model"
        text = rest if text.startswith(begin) else text
    try:
        parse_tool_calls(text, screen)
    except ToolCallError as error:
        return str(error)
    return ""


# The same steps, prompts and splits as the CUDAG dataset. `prompt_completion/` has the same rows
# again as TRL's.
FORM = Form(
    name="messages",
    asset="messages_dataset",
    folder="messages",
    description="The same steps as chats: lines as qwen-vl-utils and ms-swift read them, tables as "
    "TRL, Axolotl and ms-swift do. The splits are those of the other exports.",
    code_version="23",
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
    place=_placed,
    marks=(SCHEMA_FILE,),
    line_key="messages",
    side_files=schema_file(SCHEMA_FILE, MessagesRecord, _SCHEMA_HEAD),
    hub=(
        HubTable(
            "messages",
            "a step as a chat: `messages` and `images`; the answer is calls of `computer_use`",
            pictures=("images",),
        ),
    ),
    views=(View("messages", "a chat record with its split", "messages/*.parquet", OF_MESSAGES),),
)
