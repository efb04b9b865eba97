"""The messages export: one conversation per line, in the form that TRL and Axolotl read.

Belongs here: the models, from which the JSON Schema beside this module is made; their docstrings
are its descriptions. The `content` of a turn is a list of parts, and `images` has one path per
image part, in order (TRL, "Vision datasets"; Axolotl, "MultiModal", Dataset Format). Not here:
further rules (validator.py).
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Tag

from demo_pipeline.common.json_files import load_json
from demo_pipeline.formats.base_model import Document

SCHEMA_FILE = "messages.schema.json"
_SCHEMA_ID = "demo-pipeline:messages:1"


class TextPart(Document):
    """Words."""

    type: Literal["text"]
    text: str


class ImagePart(Document):
    """The place of the next entry of `images`."""

    type: Literal["image"]


class Function(Document):
    """Which function, with its arguments as JSON text, so that every row has one type."""

    name: Literal["computer_use"]
    arguments: str = Field(description="a JSON object: action and the action's own arguments")


class Call(Document):
    """One call of a tool, as chat templates take it."""

    type: Literal["function"]
    function: Function


class SystemMessage(Document):
    """What the model is told before the task."""

    role: Literal["system"]
    content: list[TextPart] = Field(min_length=1)


class UserMessage(Document):
    """The screen, the task and what was done so far."""

    role: Literal["user"]
    content: list[Annotated[ImagePart | TextPart, Field(discriminator="type")]] = Field(
        min_length=1
    )


class AssistantMessage(Document):
    """The next action: `<tool_call>` blocks as the only text, or `tool_calls` and no text."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset({"tool_calls"})

    role: Literal["assistant"]
    content: list[TextPart]
    tool_calls: list[Call] | None = Field(None, min_length=1)


Message = Annotated[
    Annotated[SystemMessage, Tag("system")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")],
    Field(discriminator="role"),
]


class MessagesRecord(Document):
    """One line: system, then user and assistant in turns, the assistant last."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset({"tools"})

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0)
    application: str
    task_type: str
    messages: list[Message] = Field(min_length=2)
    images: list[str] = Field(description="paths below the folder that the line's file lies in")
    tools: str | None = Field(None, description="JSON text: a list of function schemas")


def messages_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a line."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID}
    return head | MessagesRecord.model_json_schema(mode="validation")


def committed_schema() -> Any:
    """The schema that is part of the package."""
    return load_json(Path(__file__).with_name(SCHEMA_FILE))
