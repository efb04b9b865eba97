"""A trajectory in the Agent Trajectory Interchange Format, version 1.8.

Belongs here: the models, with the rules of the format that concern one file. The tools are the
actions of OSWorld-Desktopd: `function_name` is an action type, `arguments` are its parameters, and
points are pixels of the screenshot.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from demo_pipeline.formats.base_model import Document
from demo_pipeline.formats.desktopd.vocabulary import Text

ATIF_VERSION = "ATIF-v1.8"
ATIF_FILE = "trajectory.json"
ATIF_LIST = "atif_trajectories.jsonl"  # a line per trajectory: its id, split and file
_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class AtifDocument(Document):
    """A part of a trajectory; unknown keys are refused, absent values are not written."""

    model_config = ConfigDict(extra="forbid")
    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {*_AGENT_ONLY, "timestamp", "observation", "extra", "llm_call_count", "is_copied_context"}
        | {"text", "source", "source_call_id", "content", "session_id", "trajectory_id", "notes"}
        | {"tool_definitions", "final_metrics", "continued_trajectory_ref"}
        | {"subagent_trajectories", "subagent_trajectory_ref"}
    )


class AtifImage(AtifDocument):
    """A picture: a path relative to the trajectory's file."""

    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    path: Text


class AtifPart(AtifDocument):
    """A part of a message or of a result: words or a picture."""

    type: Literal["text", "image"]
    text: str | None = None
    source: AtifImage | None = None

    @model_validator(mode="after")
    def _has_its_own(self) -> Self:
        wanted = (True, False) if self.type == "text" else (False, True)
        if (self.text is not None, self.source is not None) != wanted:
            raise ValueError("a part has a text or the source of an image, as its type says")
        return self


class AtifCall(AtifDocument):
    """A call of a tool."""

    tool_call_id: Text
    function_name: Text
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class AtifResult(AtifDocument):
    """What was seen after a call, or after something else when no call is named."""

    source_call_id: str | None = None
    content: str | list[AtifPart] | None = None
    subagent_trajectory_ref: list[Any] | None = None
    extra: dict[str, Any] | None = None


class AtifObservation(AtifDocument):
    """What was seen after a step."""

    results: list[AtifResult]


class AtifStep(AtifDocument):
    """One turn: of the person who asks, of the agent, or of neither (`system`)."""

    step_id: Annotated[int, Field(ge=1)]
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: str | list[AtifPart]
    reasoning_content: str | None = None
    tool_calls: list[AtifCall] | None = None
    observation: AtifObservation | None = None
    metrics: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    llm_call_count: Annotated[int, Field(ge=0)] | None = None
    is_copied_context: bool | None = None

    @field_validator("timestamp")
    @classmethod
    def _iso(cls, value: str | None) -> str | None:
        try:
            datetime.fromisoformat(value or "1970-01-01")
        except ValueError:
            raise ValueError("Input should be an ISO 8601 time stamp") from None
        return value

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        given = [name for name in _AGENT_ONLY if getattr(self, name) is not None]
        if self.source != "agent" and given:
            raise ValueError(f"only a step of the agent has {given[0]}")
        model_only = {"metrics", "reasoning_content"}.intersection(given)
        if self.llm_call_count == 0 and model_only:
            raise ValueError("a step without a model has neither metrics nor reasoning_content")
        known = {call.tool_call_id for call in self.tool_calls or ()}
        results = self.observation.results if self.observation else ()
        if any(result.source_call_id not in {None, *known} for result in results):
            raise ValueError("a result names a call that the step does not have")
        return self


class AtifAgent(AtifDocument):
    """Who acted: `human`, or the name of a model."""

    name: Text
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class AtifTrajectory(AtifDocument):
    """trajectory.json; the steps are numbered from 1."""

    schema_version: Literal["ATIF-v1.8"]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: list[AtifStep] = Field(min_length=1)
    notes: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[Any] | None = None

    @field_validator("steps")
    @classmethod
    def _in_order(cls, steps: list[AtifStep]) -> list[AtifStep]:
        if [step.step_id for step in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("the steps must be numbered from 1, in order")
        return steps


class AtifEntry(AtifDocument):
    """A line of `atif_trajectories.jsonl`."""

    trajectory_id: Text
    split: Literal["train", "val", "test", "held_out"]
    file: Text
