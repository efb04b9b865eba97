"""Exports trajectories as ATIF: every action that can be shown is a call, the others are words.

Belongs here: the models with the rules of the format that concern one file, the rules that they
cannot express, and the steps of a file. The tools are the actions of
OSWorld-Desktopd: `function_name` is an action type, `arguments` are its parameters, and points are
pixels of the screenshot. The form has words for what no screenshot shows, so that no trajectory is
cut.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from demo_pipeline.datasets.selection import BAD_STEP
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Pixel, Text
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import (
    AnsweredAction,
)
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source
from demo_pipeline.exports.native_pictures import with_native_screenshots
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    StrictDocument,
)
from demo_pipeline.exports.step_facts import (
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    is_last_end_filmed,
    readable_size,
)
from demo_pipeline.exports.whole_trajectories import (
    NO_STEPS,
    SaidStep,
    counted_details,
    counted_steps,
    losses_file,
    said_step,
    sentence,
)
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import INCOMPLETE, HiddenAction, HiddenReason

ATIF_VERSION = "ATIF-v1.8"
ATIF_FILE = "trajectory.json"
ATIF_LIST = "atif_trajectories.jsonl"  # a line per trajectory: its id, split and file
_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class _Image(StrictDocument):
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    path: Text  # relative to the trajectory's file


class _Part(StrictDocument):
    type: Literal["text", "image"]
    text: str | None = None
    source: _Image | None = None

    @model_validator(mode="after")
    def _has_its_own(self) -> Self:
        wanted = (True, False) if self.type == "text" else (False, True)
        if (self.text is not None, self.source is not None) != wanted:
            raise ValueError("a part has a text or the source of an image, as its type says")
        return self


_Content = str | list[_Part]


class _Call(StrictDocument):
    tool_call_id: Text
    function_name: Text
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class _Result(StrictDocument):
    source_call_id: str | None = None  # none: seen after something else than a call
    content: _Content | None = None
    subagent_trajectory_ref: list[Any] | None = None
    extra: dict[str, Any] | None = None


class _Observation(StrictDocument):
    results: list[_Result]


class _AtifStep(StrictDocument):
    """One turn: of the person who asks, of the agent, or of neither (`system`)."""

    step_id: Annotated[int, Field(ge=1)]
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: _Content
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
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


class _Agent(StrictDocument):
    name: Text
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class _AtifTrajectory(StrictDocument):
    """trajectory.json; the steps are numbered from 1."""

    schema_version: Literal["ATIF-v1.8"]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent
    steps: list[_AtifStep] = Field(min_length=1)
    notes: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[Any] | None = None

    @field_validator("steps")
    @classmethod
    def _in_order(cls, steps: list[_AtifStep]) -> list[_AtifStep]:
        if [step.step_id for step in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("the steps must be numbered from 1, in order")
        return steps


class _Entry(StrictDocument):
    trajectory_id: Text
    split: Literal["train", "val", "test", "held_out"]
    file: Text


def _faults(document: _AtifTrajectory, _files: NamedFiles) -> Iterator[Fault]:
    if document.steps[0].source != "user":
        yield Fault("first_step", "steps[0]: must be the user's")
    calls = [call.tool_call_id for step in document.steps for call in step.tool_calls or ()]
    if len(set(calls)) < len(calls):
        yield Fault("call_id", "steps: two calls have the same id")


def _paths(step: _AtifStep) -> Iterator[str]:
    """Yield the paths of a step's images, the last one being the screen after it."""
    results = step.observation.results if step.observation else ()
    for content in (step.message, *(result.content for result in results)):
        parts = content if isinstance(content, list) else ()
        yield from (part.source.path for part in parts if part.source)


ATIF_FORMAT = RecordFormat(
    _AtifTrajectory,
    lambda document: (
        (f"steps[{n}]", path) for n, step in enumerate(document.steps) for path in _paths(step)
    ),
    _faults,
    id_field="trajectory_id",
)
_ENTRY_FORMAT = RecordFormat(_Entry, id_field="trajectory_id")


def _file_of(split: str, name: str) -> str:
    return f"{split}/{name}/{ATIF_FILE}"


_NOTES = (
    "A person acted; no model was called. Tools are action types of OSWorld-Desktopd, points are "
    "pixels of the screenshot before the call. A step of the source `system` says in words what "
    "no call can say, because no right screenshot shows it."
)
_REASONS = {"off_screen": HiddenReason.OFF_SCREEN, "missing_frame": HiddenReason.UNDECODABLE}


def atif_call(action: AnsweredAction, _size: Pixel) -> dict[str, Any]:
    """An action as name and arguments of a call; every action can be said."""
    arguments = {
        name: replace_surrogates(value) if isinstance(value, str) else value
        for name, value in action.parameters.model_dump(mode="json").items()
    }
    return {"function_name": action.action_type.value, "arguments": arguments}


def _rows(recorded: Source) -> Iterator[Row | Excluded]:
    """Yield the file of a trajectory, and an `Excluded` for each step that is words."""
    source = with_native_screenshots(recorded)
    candidate = source.candidate
    trajectory = source.trajectory
    rows = source.rows
    shown = [
        BAD_STEP
        if step.index in candidate.bad_steps
        else INCOMPLETE
        if step.index in candidate.incomplete
        else said_step(source, step, atif_call)
        for step in trajectory.steps
    ]
    yield from (Excluded(said) for said in shown if isinstance(said, str))
    calls = [said for said in shown if isinstance(said, SaidStep)]
    if not calls:
        yield Excluded(NO_STEPS)
        return
    turns = _Turns(escape_markers(source.instruction)[0])
    for step, said in zip(trajectory.steps, shown, strict=True):
        turns.add_hidden(candidate.hidden.before(step.index))
        press_ms = rows[step.index]["press_ms"]
        if isinstance(said, SaidStep):
            turns.add_call(said, press_ms)
        else:
            turns.add_words(_words(step, said), press_ms)
    later = candidate.hidden.before(trajectory.steps[-1].index + 1)
    filmed = list(takewhile(lambda one: one.reason != HiddenReason.AFTER_VIDEO, later))
    turns.add_hidden(filmed)
    final = trajectory.final_screenshot
    has_final = is_last_end_filmed(trajectory.steps, rows) and bool(readable_size(final))
    if has_final:
        turns.show(final, "final")
    turns.add_hidden(later[len(filmed) :])
    parts: dict[str, Any] = {
        split: {"trajectory_id": source.id, "split": split, "file": _file_of(split, source.id)}
        for split in (one.value for one in Split)
    }
    shows_end = has_final and len(filmed) == len(later)
    document = _document(source, turns.steps, shows_end=shows_end)
    parts["document"] = json_bytes(document).decode()
    screenshot = calls[0].files.screenshot
    counts = counted_steps(calls, source)
    yield Row(source.id, turns.instruction, screenshot, parts, turns.images, counts)


def _document(
    source: Source, steps: Sequence[Mapping[str, Any]], *, shows_end: bool
) -> dict[str, Any]:
    trajectory = source.trajectory
    model = trajectory.result.model_info
    extra: dict[str, Any] = {
        "task_id": replace_surrogates(trajectory.task.task_id),
        "application": source.application,
        "platform": source.rows[trajectory.steps[0].index]["platform"],
        "actions_not_shown": sum(step["source"] == "system" for step in steps),
    }
    if shows_end:  # otherwise nothing in the file shows whether the task was done
        extra["success"] = trajectory.result.success
    return {
        "schema_version": ATIF_VERSION,
        "session_id": source.id,
        "trajectory_id": source.id,
        "agent": {
            "name": replace_surrogates(model.name),
            "version": replace_surrogates(model.version),
        },
        "steps": steps,
        "notes": _NOTES,
        "extra": extra,
    }


def _words(step: StepFiles, reason: str) -> str:
    """What a step did that no right screenshot shows: never where, never what text."""
    known = HiddenAction(step.index, 0, step.action.action_type, 0, _REASONS.get(reason, reason))
    return hidden_words(known).removesuffix(" out of sight")


class _Turns:
    """The steps of a file as they come, and the images that they name.

    A screen is shown by the step before it: the person's question, a call, or words.
    """

    def __init__(self, instruction: str) -> None:
        self.instruction = instruction
        asked = [{"type": "text", "text": instruction}]
        self.steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": asked}]
        self.images: dict[str, Path] = {}

    def add_call(self, step: SaidStep, press_ms: int) -> None:
        """Show the step's screen, and add its call."""
        index = step.files.index
        self.show(step.files.screenshot, f"{index:03d}")
        call = {"tool_call_id": f"call_{index:04d}", **step.said}
        self._add(sentence(step.files.action), press_ms)
        self.steps[-1] |= {"source": "agent", "tool_calls": [call], "llm_call_count": 0}
        self.steps[-1]["extra"] = {"step_index": index}

    def add_words(self, words: str, press_ms: int) -> None:
        """Add what was done, in words."""
        self._add(f"Not shown: {words}.", press_ms)

    def add_hidden(self, actions: Iterable[HiddenAction]) -> None:
        """Add what no screenshot shows."""
        for action in actions:
            self.add_words(hidden_words(action), action.press_ms)

    def _add(self, message: str, press_ms: int) -> None:
        time = datetime.fromtimestamp(press_ms / 1000, UTC).isoformat(timespec="milliseconds")
        step = {"step_id": len(self.steps) + 1, "timestamp": time, "source": "system"}
        self.steps.append({**step, "message": message})

    def show(self, screenshot: Path, name: str) -> None:
        """Add a screen to the last step."""
        path = f"images/{name}.png"
        self.images[path] = screenshot
        part = {"type": "image", "source": {"media_type": "image/png", "path": path}}
        last = self.steps[-1]
        if last["source"] == "user":
            last["message"].append(part)
            return
        call = [call["tool_call_id"] for call in last.get("tool_calls", ())]
        result = {"source_call_id": call[0]} if call else {}
        last["observation"] = {"results": [{**result, "content": [part]}]}


# `<split>/<trajectory>/trajectory.json` with its `images/`, and a list of all. `metadata.json` says
# which steps are words, by reason.
FORM = Form(
    name="atif",
    asset="atif_trajectories",
    folder="atif",
    description="Trajectories in the Agent Trajectory Interchange Format 1.8, a file each with its "
    "images. What no screenshot shows is said in words.",
    code_version="14",
    settings=("max_hidden_share", *STEP_SETTINGS),
    exclusions=(*STEP_EXCLUSIONS[:2], INCOMPLETE, *LEAK_EXCLUSIONS, NO_STEPS),
    unit="steps",
    rows=_rows,
    files=(
        *(
            File(split.value, ATIF_LIST, checked=_ENTRY_FORMAT, only=frozenset({split}))
            for split in Split
        ),
        File("document", f"{{split}}/{{id}}/{ATIF_FILE}", checked=ATIF_FORMAT),
    ),
    check="atif_files",
    marks=(ATIF_LIST,),
    pictures=lambda candidate, split, row, _settings: {
        f"{split.value}/{row.id}/{name}": f"{candidate.source.folder}/{path}"
        for name, path in row.files.items()
    },
    details=counted_details,
    side_files=losses_file,
)
