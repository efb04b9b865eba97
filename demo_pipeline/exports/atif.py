"""Exports trajectories in the Agent Trajectory Interchange Format (ATIF).

An action with a correct screenshot becomes a tool call: `function_name` is an action type of
OSWorld-Desktopd, `arguments` are its parameters, and points are pixels of the screenshot. All other
actions are described in words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from demo_pipeline.datasets.selection import BAD_STEP
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Pixel, Text
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import AnsweredAction
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
    EncodedStep,
    counted_details,
    counted_steps,
    encoded_step,
    losses_file,
    sentence,
)
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import INCOMPLETE, HiddenAction, HiddenReason

ATIF_VERSION = "ATIF-v1.8"
ATIF_FILE = "trajectory.json"
ATIF_LIST = "atif_trajectories.jsonl"  # a line per trajectory: its id, split and file
# Fields that only a step of the source `agent` may have.
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
        is_text = self.type == "text"
        has_text = self.text is not None
        has_image = self.source is not None
        if has_text != is_text or has_image == is_text:
            raise ValueError("a part has a text or the source of an image, as its type says")
        return self


_Content = str | list[_Part]


class _Call(StrictDocument):
    tool_call_id: Text
    function_name: Text
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class _Result(StrictDocument):
    source_call_id: str | None = None  # None if the screenshot does not follow a call
    content: _Content | None = None
    subagent_trajectory_ref: list[Any] | None = None
    extra: dict[str, Any] | None = None


class _Observation(StrictDocument):
    results: list[_Result]


class _AtifStep(StrictDocument):
    """A turn of the user or the agent, or an event of the source `system`."""

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
        call_ids = {call.tool_call_id for call in self.tool_calls or ()}
        results = self.observation.results if self.observation else ()
        if any(result.source_call_id not in {None, *call_ids} for result in results):
            raise ValueError("a result names a call that the step does not have")
        return self


class _Agent(StrictDocument):
    name: Text
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class _AtifTrajectory(StrictDocument):
    """The content of trajectory.json; steps are numbered from 1."""

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
    """Yields the faults that pydantic does not find: a wrong first step and repeated call ids."""
    if document.steps[0].source != "user":
        yield Fault("first_step", "steps[0]: must be the user's")
    call_ids = list[str]()
    for step in document.steps:
        call_ids += [call.tool_call_id for call in step.tool_calls or ()]
    if len(set(call_ids)) < len(call_ids):
        yield Fault("call_id", "steps: two calls have the same id")


def _paths(step: _AtifStep) -> Iterator[str]:
    """Yields the paths of all images of a step: those in its message, then those of its results."""
    contents: list[_Content | None] = [step.message]
    if step.observation:
        contents += [result.content for result in step.observation.results]
    for content in contents:
        if isinstance(content, list):
            yield from (part.source.path for part in content if part.source)


def _placed_paths(document: _AtifTrajectory) -> Iterator[tuple[str, str]]:
    for number, step in enumerate(document.steps):
        for path in _paths(step):
            yield f"steps[{number}]", path


ATIF_FORMAT = RecordFormat(
    _AtifTrajectory,
    _placed_paths,
    _faults,
    id_field="trajectory_id",
)
_ENTRY_FORMAT = RecordFormat(_Entry, id_field="trajectory_id")


def _file_of(split: str, name: str) -> str:
    """Returns the path of the file that contains the trajectory with the id `name`."""
    return f"{split}/{name}/{ATIF_FILE}"


_NOTES = (
    "A person acted; no model was called. Tools are action types of OSWorld-Desktopd, points are "
    "pixels of the screenshot before the call. A step of the source `system` says in words what "
    "no call can say, because no right screenshot shows it."
)
# Maps the reason why a step has no correct screenshot to the `HiddenReason` that describes it.
_REASONS = {"off_screen": HiddenReason.OFF_SCREEN, "missing_frame": HiddenReason.UNDECODABLE}


def atif_call(action: AnsweredAction, _size: Pixel) -> dict[str, Any]:
    """Returns name and arguments of the call for an action; ATIF can express all actions."""
    arguments = action.parameters.model_dump(mode="json")
    for name, value in arguments.items():
        if isinstance(value, str):
            arguments[name] = replace_surrogates(value)
    return {"function_name": action.action_type.value, "arguments": arguments}


def _rows(recorded: Source) -> Iterator[Row | Excluded]:
    """Yields an `Excluded` for each step that is described in words, and then the trajectory's row.

    A trajectory without any call has no row.
    """
    source = with_native_screenshots(recorded)
    trajectory = source.trajectory
    calls_or_reasons = [_call_or_reason(source, step) for step in trajectory.steps]
    calls = list[EncodedStep]()
    for call_or_reason in calls_or_reasons:
        if isinstance(call_or_reason, str):
            yield Excluded(call_or_reason)
        else:
            calls.append(call_or_reason)
    if not calls:
        yield Excluded(NO_STEPS)
        return
    turns = _Turns(escape_markers(source.instruction)[0])
    hidden = source.candidate.hidden
    for step, call_or_reason in zip(trajectory.steps, calls_or_reasons, strict=True):
        turns.add_hidden(hidden.before(step.index))
        press_ms = source.rows[step.index]["press_ms"]
        if isinstance(call_or_reason, str):
            turns.add_words(_words(step, call_or_reason), press_ms)
        else:
            turns.add_call(call_or_reason, press_ms)
    shows_end = _add_end(turns, source)
    parts: dict[str, Any] = {}
    for split in Split:
        file = _file_of(split.value, source.id)
        parts[split.value] = {"trajectory_id": source.id, "split": split.value, "file": file}
    document = _document(source, turns.steps, shows_end=shows_end)
    parts["document"] = json_bytes(document).decode()
    screenshot = calls[0].files.screenshot
    counts = counted_steps(calls, source)
    yield Row(source.id, turns.instruction, screenshot, parts, turns.images, counts)


def _call_or_reason(source: Source, step: StepFiles) -> EncodedStep | str:
    """Returns the step as a call, or the reason why it is described in words."""
    if step.index in source.candidate.bad_steps:
        return BAD_STEP
    if step.index in source.candidate.incomplete:
        return INCOMPLETE
    return encoded_step(source, step, atif_call)


def _add_end(turns: "_Turns", source: Source) -> bool:
    """Adds the final screenshot and the hidden actions after the last step, in order of time.

    Returns:
        Whether the final screenshot shows the state after all actions.
    """
    trajectory = source.trajectory
    later = source.candidate.hidden.before(trajectory.steps[-1].index + 1)
    after_video = [action.reason == HiddenReason.AFTER_VIDEO for action in later]
    recorded_count = after_video.index(True) if True in after_video else len(later)
    turns.add_hidden(later[:recorded_count])
    final = trajectory.final_screenshot
    has_final = is_last_end_filmed(trajectory.steps, source.rows) and bool(readable_size(final))
    if has_final:
        turns.show(final, "final")
    turns.add_hidden(later[recorded_count:])
    return has_final and recorded_count == len(later)


def _document(
    source: Source, steps: Sequence[Mapping[str, Any]], *, shows_end: bool
) -> dict[str, Any]:
    """Returns the content of trajectory.json; `shows_end` is the result of `_add_end`."""
    trajectory = source.trajectory
    model = trajectory.result.model_info
    extra: dict[str, Any] = {
        "task_id": replace_surrogates(trajectory.task.task_id),
        "application": source.application,
        "platform": source.rows[trajectory.steps[0].index]["platform"],
        "actions_not_shown": sum(step["source"] == "system" for step in steps),
    }
    if shows_end:  # without the end, the file does not show whether the task was done
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
    """Describes a step without a correct screenshot; omits the position and typed text."""
    hidden_reason = _REASONS.get(reason, reason)
    action = HiddenAction(step.index, 0, step.action.action_type, 0, hidden_reason)
    return hidden_words(action).removesuffix(" out of sight")


class _Turns:
    """Collects the steps of a trajectory.json, and the images of these steps.

    In ATIF, a screenshot belongs to the step before it.
    """

    def __init__(self, instruction: str) -> None:
        self.instruction = instruction
        message = [{"type": "text", "text": instruction}]
        self.steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": message}]
        self.images: dict[str, Path] = {}

    def add_call(self, step: EncodedStep, press_ms: int) -> None:
        """Adds the screenshot of a step to the previous turn, and then the call of the step."""
        index = step.files.index
        self.show(step.files.screenshot, f"{index:03d}")
        call = {"tool_call_id": f"call_{index:04d}", **step.encoded}
        self._add(sentence(step.files.action), press_ms)
        self.steps[-1] |= {"source": "agent", "tool_calls": [call], "llm_call_count": 0}
        self.steps[-1]["extra"] = {"step_index": index}

    def add_words(self, words: str, press_ms: int) -> None:
        """Adds a step of the source `system` that describes an action in words."""
        self._add(f"Not shown: {words}.", press_ms)

    def add_hidden(self, actions: Iterable[HiddenAction]) -> None:
        """Adds actions that no screenshot shows."""
        for action in actions:
            self.add_words(hidden_words(action), action.press_ms)

    def _add(self, message: str, press_ms: int) -> None:
        """Adds a step of the source `system`; `press_ms` is its time in epoch milliseconds."""
        time = datetime.fromtimestamp(press_ms / 1000, UTC).isoformat(timespec="milliseconds")
        step = {"step_id": len(self.steps) + 1, "timestamp": time, "source": "system"}
        self.steps.append({**step, "message": message})

    def show(self, screenshot: Path, name: str) -> None:
        """Adds a screenshot to the last turn; `name` is the stem of the screenshot's file name."""
        path = f"images/{name}.png"
        self.images[path] = screenshot
        part = {"type": "image", "source": {"media_type": "image/png", "path": path}}
        last = self.steps[-1]
        if last["source"] == "user":
            last["message"].append(part)
            return
        result: dict[str, Any] = {}
        if calls := last.get("tool_calls"):
            result["source_call_id"] = calls[0]["tool_call_id"]
        result["content"] = [part]
        last["observation"] = {"results": [result]}


# The dataset has the files `<split>/<trajectory>/trajectory.json` with `images/` next to each, and
# a list of all trajectories. Some steps are described in words instead of a call; `metadata.json`
# contains their number for each reason.
FORM = Form(
    name="atif",
    asset="atif_trajectories",
    folder="atif",
    description="Trajectories in the Agent Trajectory Interchange Format 1.8, each in a file "
    "with its images. Texts describe the actions that no screenshot shows.",
    code_version="16",
    settings=STEP_SETTINGS,
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
