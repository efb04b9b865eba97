"""The messages export: one chat per line, in the form that qwen-vl-utils reads.

Belongs here: the models, from which the JSON Schema beside this module is made; their docstrings
are its descriptions. The system's and the assistant's content is text; the user's is a list of
parts, and an image part names its file. Not here: further rules (validator.py), the Parquet files.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from demo_pipeline.common.json_files import load_json
from demo_pipeline.formats.base_model import Document

SCHEMA_FILE = "messages.schema.json"
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
