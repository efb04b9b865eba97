"""An OSWorld-Desktopd dataset: every object of its files, as a frozen model.

Belongs here: seed 001 to the last field; actions and vocabulary come from their own modules and can
be had from here. Reading folders is `desktopd_reader`'s, checking content `desktopd_validator`'s.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, field_validator

from demo_pipeline.formats.base_model import Document
from demo_pipeline.formats.desktopd.step_actions import (
    StepAction,
)
from demo_pipeline.formats.desktopd.vocabulary import (
    Count,
    Difficulty,
    NodeId,
    RoleName,
    StateName,
    Text,
)


class Bounds(Document):
    """A rectangle in canvas pixels; parts of a screen may lie outside the canvas."""

    x: int
    y: int
    width: int = Field(ge=0)
    height: int = Field(ge=0)


class Screen(Document):
    """The size of the space all coordinates are in."""

    width: int = Field(gt=0)
    height: int = Field(gt=0)


class UINode(Document):
    """One node. Its `children` stay plain values: trees are deep and are walked, not nested."""

    id: NodeId
    role: RoleName
    name: str
    bounds: Bounds
    states: list[StateName] = Field(default_factory=list)
    children: list[Any] = Field(default_factory=list)


class UITree(Document):
    """ui_tree.json: `timestamp` in ISO 8601, `root` a node as a plain value."""

    timestamp: str
    screen: Screen
    root: Any

    @field_validator("timestamp")
    @classmethod
    def _iso(cls, value: str) -> str:
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("Input should be an ISO 8601 time stamp") from None
        return value


class Task(Document):
    """task.json. `osworld_task_id` is None without a matching OSWorld task."""

    task_id: Text
    instruction: Text
    osworld_task_id: str | None = None
    application: Text
    difficulty: Annotated[Difficulty, Field(strict=False)]
    expected_steps: Count


class ModelInfo(Document):
    """Who acted: a model, or `human`."""

    name: Text
    version: str


class Result(Document):
    """result.json. `error_message` says why `success` is false."""

    trajectory_id: Text
    success: bool
    total_steps: Count
    completion_time_ms: Count
    error_message: str | None = None
    model_info: ModelInfo


class IndexEntry(Document):
    """One trajectory in index.json; `steps` is how many it has."""

    id: Text
    task_id: Text
    success: bool
    steps: Count
    application: Text


class Index(Document):
    """index.json: `total_trajectories` = `successful` + `failed` = number of entries."""

    version: Text = "1.0"
    total_trajectories: Count
    successful: Count
    failed: Count
    trajectories: list[IndexEntry]


class Creator(Document):
    """The program that made a dataset."""

    name: str = ""
    version: str = ""


class Metadata(Document):
    """metadata.json, which the seed leaves open: what made the dataset, and from what settings.

    Attributes:
        version: of the format.
        configuration: the settings that shaped the data.
        counts: how many of what went in or were left out.
    """

    name: str = ""
    version: str = "1.0"
    description: str = ""
    created_by: Creator = Creator()
    configuration: dict[str, Any] = Field(default_factory=dict)
    counts: dict[str, Any] = Field(default_factory=dict)


class SftInput(Document):
    """What a model sees (seed 001, section 6).

    Attributes:
        screenshot: a path relative to the dataset, or the PNG inline as base64 or a data URI.
        ui_tree: a path relative to the dataset, or the tree inline.
        history: the actions before this one, as in action.json.
    """

    instruction: Text
    screenshot: Text
    ui_tree: Any
    history: list[dict[str, Any]]


class SftOutput(Document):
    """What a model should answer; `reasoning` is the action's own."""

    action: StepAction
    reasoning: str


class SftSample(Document):
    """One line of an SFT file."""

    input: SftInput
    output: SftOutput
