"""The objects of an OSWorld-Desktopd dataset's files, as frozen models.

Not here: actions (step_actions.py), closed vocabularies (vocabulary.py), reading folders
(reader.py), and rules between files (validator.py).
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar

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
    """A rectangle in canvas pixels; it may be outside the canvas."""

    x: int
    y: int
    width: int = Field(ge=0)
    height: int = Field(ge=0)


class Screen(Document):
    """Width and height of the coordinate space, in pixels."""

    width: int = Field(gt=0)
    height: int = Field(gt=0)


class UINode(Document):
    """One node of a UI tree. `children` stay plain values, because trees can be very deep."""

    id: NodeId
    role: RoleName
    name: str
    bounds: Bounds
    states: list[StateName] = Field(default_factory=list)
    children: list[Any] = Field(default_factory=list)


class UITree(Document):
    """ui_tree.json. `timestamp` is ISO 8601; `root` is a node, as a plain value."""

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
    """The agent: the name of a model, or `human`."""

    name: Text
    version: str


class Result(Document):
    """result.json. `error_message` is the reason why `success` is false."""

    trajectory_id: Text
    success: bool
    total_steps: Count
    completion_time_ms: Count
    error_message: str | None = None
    model_info: ModelInfo


class IndexEntry(Document):
    """One trajectory in index.json; `steps` is the number of its steps."""

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
    """metadata.json: the program that made the dataset, and its settings.

    The format does not define its keys; these are the ones of this pipeline.

    Attributes:
        version: of the format.
        configuration: the settings that the data depends on.
        counts: numbers of trajectories, steps and actions, and of those left out.
    """

    name: str = ""
    version: str = "1.0"
    description: str = ""
    created_by: Creator = Creator()
    configuration: dict[str, Any] = Field(default_factory=dict)
    counts: dict[str, Any] = Field(default_factory=dict)


class SftInput(Document):
    """The input of a model in an SFT sample.

    Attributes:
        screenshot: a path relative to the dataset, or the PNG inline as base64 or a data URI.
        ui_tree: a path relative to the dataset, or the tree inline; null when `tree_agreement` of
            the sample is `differs`.
        history: the earlier actions, in the form of action.json or of `HistoryGap`.
    """

    instruction: Text
    screenshot: Text
    ui_tree: Any
    history: list[dict[str, Any]]


class SftOutput(Document):
    """The expected output of a model; `reasoning` repeats that of the action."""

    action: StepAction
    reasoning: str


class SftSample(Document):
    """One line of an SFT file.

    `freshness` and `tree_agreement` tell how far the tree can be trusted; others leave them out.
    """

    left_out_when_none: ClassVar[frozenset[str]] = frozenset({"freshness", "tree_agreement"})

    input: SftInput
    output: SftOutput
    freshness: str | None = None
    tree_agreement: str | None = None
