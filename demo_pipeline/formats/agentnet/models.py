"""The lines of AgentNet: a task with its steps, in the full form and with only the code.

Belongs here: the models. The code of a step is read in pyautogui_code.py; rules between the parts
of a line and the files are in validator.py.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from demo_pipeline.formats.base_model import Document
from demo_pipeline.formats.desktopd.vocabulary import Text

AGENTNET_META = "meta_data_merged.jsonl"  # which computer each task was done on
CODE_ONLY = "code_only"  # the folder of the lines that the thought generator reads
IMAGES = "images"
_FILE_NAME = r"^[^/\\\x00]+\.(png|jpg|jpeg)$"
_Score = Annotated[int, Field(ge=0, le=10)]


class AgentNetDocument(Document):
    """A part of a line; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class CodeValue(AgentNetDocument):
    """What was done, as code."""

    code: Text


class CodeStep(AgentNetDocument):
    """A step with only its code; `image` is the name of a file in the folder of images."""

    image: str = Field(pattern=_FILE_NAME)
    value: CodeValue


class CodeTask(AgentNetDocument):
    """A line that the thought generator reads."""

    task_id: Text
    instruction: Text
    traj: list[CodeStep] = Field(min_length=1)


class StepValue(AgentNetDocument):
    """What was done, with what was seen and thought where that is known."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {"observation", "thought", "reflection", "last_step_correct", "last_step_redundant"}
    )
    code: Text
    action: str
    observation: str | None = None
    thought: str | None = None
    reflection: str | None = None
    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None


class TaskStep(AgentNetDocument):
    """A step; `index` counts from 0."""

    index: int
    image: str = Field(pattern=_FILE_NAME)
    value: StepValue


class AgentNetTask(AgentNetDocument):
    """A line of the full form."""

    task_id: Text
    instruction: Text
    domain: Text | None = None
    traj: list[TaskStep] = Field(min_length=1)
    task_completed: bool | None = None
    alignment_score: _Score | None = None
    efficiency_score: _Score | None = None
    task_difficulty: _Score | None = None
    reason: str | None = None
    actual_task: str | None = None
    natural_language_task: str | None = None


class AgentNetSystem(AgentNetDocument):
    """A line of `meta_data_merged.jsonl`."""

    task_id: Text
    system: Literal["Windows", "Darwin", "Ubuntu"]
