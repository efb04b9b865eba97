"""The transitions export: one row per step, with the pictures before and after it.

Belongs here: the model of a row of `<split>.parquet`, from which its JSON Schema is made.
"""

from pydantic import Field

from demo_pipeline.formats.base_model import Document

TRANSITIONS_SCHEMA_FILE = "transitions.schema.json"


class TransitionRow(Document):
    """What an action did to the screen. Nothing that no screenshot shows happened in between."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based, of the action")
    application: str
    instruction: str = Field(description="of the whole demonstration")
    action_type: str = Field(description="OSWorld-Desktopd action type")
    action: str = Field(description="JSON: action_type and parameters; points are pixels")
    reasoning: str = Field(description="a sentence about the action, by a template")
    waited_seconds: float = Field(ge=0, description="waits after the action, before `after`")
    before: str = Field(description="screenshot before the action: a path below the folder")
    after: str = Field(description="screenshot before the next input, or the last one")
    after_is_final: bool = Field(description="no input follows")
