"""The messages export: CUDAG records as chats, in the form that qwen-vl-utils reads.

Belongs here: the models, from which the JSON Schema beside this module is made (their docstrings
are its descriptions), what a line and the rows hold, and reading an answer. The system's and the
assistant's content is text; the user's is a list of parts, and an image part names its file. The
calls are those of the CUDAG records. Why the rows differ from the line is in docs/trainers.md;
further rules are in messages_validator.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, Tag

from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.datasets.forms import Excluded, Form, Record, Table, trajectory_name
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.exports.answers import Answer, AnswerDecoder
from demo_pipeline.exports.cudag.decoder import WheelUnits, answer_blocks, decode_calls
from demo_pipeline.exports.cudag.records import (
    DRAFT_EXCLUSIONS,
    DRAFT_SETTINGS,
    RecordDraft,
    record_drafts,
)
from demo_pipeline.exports.cudag.tool_calls import ACTION_LINE, render_tool_calls
from demo_pipeline.exports.hub_layout import PICTURE, with_hub_features
from demo_pipeline.exports.prompts import action_sentence, system_prompt
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

SCHEMA_FILE = "messages.schema.json"
PROMPT_COMPLETION = "prompt_completion"  # the folder of TRL's rows
_SCHEMA_ID = "demo-pipeline:messages:2"


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
    messages: list[Message] = Field(min_length=2)


def messages_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a line."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID}
    return head | MessagesRecord.model_json_schema(mode="validation")


def committed_schema() -> Any:
    """The schema that is part of the package."""
    return load_json(Path(__file__).with_name(SCHEMA_FILE))


def messages_decoder(wheel: WheelUnits) -> AnswerDecoder:
    """The decoder of a chat's answer: words, with or without `Action: `, then `<tool_call>`s."""
    return partial(_decode_messages, wheel=wheel)


def _decode_messages(text: str, size: tuple[int, int], *, wheel: WheelUnits) -> Answer:
    words, blocks = answer_blocks(text)
    return decode_calls(blocks, words.removeprefix(ACTION_LINE), size, wheel)


_PICTURES_IN_MEMORY = 16  # rows; a PNG of the canvas is about 0.7 MB
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_IDENTITY = (
    ("id", pa.string()),
    ("trajectory_id", pa.string()),
    ("step_index", pa.int32()),
    ("application", pa.string()),
    ("task_type", pa.string()),
)


def messages_table_schema(settings: DatasetSettings) -> pa.Schema:
    """The schema of `<split>.parquet`: a chat whose content is text, and its pictures."""
    return _table_schema([("messages", _TURNS)], settings)


def prompt_completion_schema(settings: DatasetSettings) -> pa.Schema:
    """The schema of `prompt_completion/<split>.parquet`: the chat without and with the answer."""
    return _table_schema([("prompt", _TURNS), ("completion", _TURNS)], settings)


def _table_schema(chat: Sequence[tuple[str, pa.DataType]], settings: DatasetSettings) -> pa.Schema:
    picture = PICTURE if settings.embed_images else pa.string()
    schema = pa.schema([*_IDENTITY, *chat, ("images", pa.list_(picture))])
    return with_hub_features(schema) if settings.embed_images else schema


def _records(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield the chat of every CUDAG record."""
    for draft in record_drafts(trajectory, rows, candidate.hidden, settings):
        if isinstance(draft, Excluded):
            yield draft
        else:
            line, row = chat_of(draft, candidate, settings)
            asked, answered = row["messages"][:-1], row["messages"][-1:]
            pair = {**row, "prompt": asked, "completion": answered}
            del pair["messages"]
            parts = {"line": line, "chat": row, "pair": pair}
            files = {row["images"][0]: draft.screenshot}
            yield Record(draft.id, draft.prompt, draft.screenshot, parts, files)


def _tables(settings: DatasetSettings) -> Mapping[str, Table]:
    rows = _PICTURES_IN_MEMORY if settings.embed_images else 512
    schemas = {"chat": messages_table_schema(settings), "pair": prompt_completion_schema(settings)}
    return {name: Table(schema, rows) for name, schema in schemas.items()}


def _row(
    row: Mapping[str, Any], _split: Split, settings: DatasetSettings, folder: str
) -> Mapping[str, Any]:
    """A row with its picture, if pictures are embedded."""
    if not settings.embed_images:
        return row
    (path,) = row["images"]
    data = Path(folder, path.split("/", 2)[2]).read_bytes()
    return {**row, "images": [{"bytes": data, "path": path}]}


def _finish(out: Path, *_: object) -> Mapping[str, Any]:
    dump_json(out / SCHEMA_FILE, committed_schema())
    return {}


# The same steps, prompts and splits as the CUDAG dataset. `prompt_completion/` has the same records
# again as TRL's rows.
MESSAGES_FORM = Form(
    name="messages",
    code_version="12",
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
    finish=_finish,
)
build_messages = partial(build_form, MESSAGES_FORM)


def chat_of(
    draft: RecordDraft, candidate: Candidate, settings: DatasetSettings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record as a line (`MessagesRecord`) and as a row of the table.

    The line names the picture in the chat, the row beside it: TRL and ms-swift refuse both at once,
    and Axolotl would show the picture twice.
    """
    image = trajectory_name(candidate, draft.screenshot)
    identity = {
        "id": draft.id,
        "trajectory_id": replace_surrogates(draft.metadata.trajectory_id),
        "step_index": draft.metadata.step_index,
        "application": replace_surrogates(draft.metadata.application),
        "task_type": draft.metadata.task_type,
    }
    asked, answer = replace_surrogates(draft.prompt), replace_surrogates(_answer(draft, settings))
    parts = [{"type": "image", "image": image}, {"type": "text", "text": asked}]
    row = {**identity, "messages": _turns(asked, answer, settings), "images": [image]}
    return {**identity, "messages": _turns(parts, answer, settings)}, row


def _turns(asked: object, answer: str, settings: DatasetSettings) -> list[dict[str, Any]]:
    prompt = system_prompt(settings, action_line=settings.action_line)
    return [
        {"role": "system", "content": prompt},
        {"role": "user", "content": asked},
        {"role": "assistant", "content": answer},
    ]


def _answer(draft: RecordDraft, settings: DatasetSettings) -> str:
    calls = render_tool_calls(draft.calls)[0]
    if not settings.action_line:
        return calls
    metadata = draft.metadata
    places = (metadata.real_coords, metadata.end_coords)
    return f"{ACTION_LINE}{action_sentence(draft.calls, metadata.reasoning, places)}\n{calls}"
