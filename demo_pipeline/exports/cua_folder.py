"""Exports whole trajectories as Cua's trajectory folders, which Cua's trajectory viewer opens.

The format is that of trycua/cua, libs/python/agent/agent/callbacks/trajectory_saver.py.

A folder contains `metadata.json` and a folder per turn (`turn_000/`, `turn_001/`, …) with the
screenshot before the call, the response of the agent, and the result of the call. File numbers
continue from turn to turn. Times are in units of 0.1 microseconds since 15 October 1582, as
in UUIDs of version 1. Points are pixels of the screenshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from demo_pipeline.desktopd.models import Pixel, Text
from demo_pipeline.exports.answers import (
    CLICKS_OF_BUTTON,
    HELD_KEYS,
    MOST_PRESSES,
    ActionCall,
    AnsweredAction,
    InexpressibleError,
    call_of,
)
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source
from demo_pipeline.exports.record_checks import RecordFormat, StrictDocument
from demo_pipeline.exports.whole_trajectories import (
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    Stretch,
    counted_details,
    counted_steps,
    losses_file,
    sentence,
    stretch_rows,
)
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.shown_text import replace_surrogates

_PIXELS_OF_NOTCH = 100  # pixels in `scroll_x` or `scroll_y` for one notch of the wheel
# Number of points on the path of a drag. Web pages and file managers ignore drags without points
# between start and end.
_PATH_POINTS = 12
_MODEL = "human"  # written where Cua writes the name of a model
_EPOCH = datetime(1582, 10, 15, tzinfo=UTC)


class _Metadata(StrictDocument):
    trajectory_id: Text
    created_at: Annotated[str, Field(pattern=r"^\d+$")]
    completed_at: Annotated[str, Field(pattern=r"^\d+$")]
    status: Literal["running", "completed"]
    kwargs: dict[str, Any]
    total_usage: dict[str, Any]
    new_items: list[dict[str, Any]] = Field(min_length=1)
    total_turns: int = Field(ge=1)


def _actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """Converts an action to Cua's computer actions, which are those of OpenAI.

    A key that is pressed n times becomes n actions. For the arguments see `answers.ActionEncoder`.
    """
    call = call_of(action, size)
    if call.held or call.times > MOST_PRESSES:
        raise InexpressibleError(HELD_KEYS)
    return [_computer_action(call, action.parameters.members())] * call.times


def _computer_action(call: ActionCall, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the computer action of a call.

    Args:
        given: the parameters of our action, whose points are pixels.
    """
    at: dict[str, Any] = {name: given[name] for name in ("x", "y") if name in given}
    match call.does:
        case "type":
            return {"type": "type", "text": replace_surrogates(call.text)}
        case "wait":
            return {"type": "wait"}
        case "press":
            return {"type": "keypress", "keys": list(call.keys)}
        case "scroll":
            pixels = call.amount * _PIXELS_OF_NOTCH
            if call.direction in ("up", "left"):
                pixels = -pixels
            if call.direction in ("up", "down"):
                return {"type": "scroll", **at, "scroll_x": 0, "scroll_y": pixels}
            return {"type": "scroll", **at, "scroll_x": pixels, "scroll_y": 0}
        case "drag" if call.button == "left":
            start = (given["start_x"], given["start_y"])
            return {"type": "drag", "path": _path(start, (given["end_x"], given["end_y"]))}
        case "click" if call.clicks == 1:
            return {"type": "click", "button": call.button, **at}
        case "click" if (call.button, call.clicks) == ("left", 2):
            return {"type": "double_click", **at}
    raise InexpressibleError(CLICKS_OF_BUTTON)


def _path(start: Pixel, end: Pixel) -> list[dict[str, int]]:
    """Returns the points of a drag's path, at equal distances from start to end."""
    path: list[dict[str, int]] = []
    for number in range(_PATH_POINTS):
        share = number / (_PATH_POINTS - 1)
        x = round(start[0] + share * (end[0] - start[0]))
        y = round(start[1] + share * (end[1] - start[1]))
        path.append({"x": x, "y": y})
    return path


def _text(value: dict[str, Any]) -> str:
    return json_bytes(value).decode()


def _row(stretch: Stretch, source: Source) -> Iterator[Row | Excluded]:
    """Yields the row with the content of the folder for a stretch of consecutive steps."""
    top = f"{{split}}/{source.id}"
    prompt = stretch.prompt(source.instruction)
    first = stretch.steps[0].files
    start = datetime.fromisoformat(str(source.rows[first.index]["recorded_at"]))
    documents = dict[str, str]()
    files = dict[str, Path]()
    items = list[dict[str, Any]]()
    number = 0
    time = "0"
    for turn, step in enumerate(stretch.steps):
        press = source.rows[step.files.index]["press_ms"] - source.rows[first.index]["press_ms"]
        time = _time(start + timedelta(milliseconds=press))
        folder = f"{top}/turn_{turn:03d}"
        files[f"{folder}/{number:04d}_screenshot.png"] = step.files.screenshot
        words = [{"type": "output_text", "text": sentence(step.files.action)}]
        message = {"type": "message", "role": "assistant", "content": words}
        calls = list(_calls(turn, step.encoded))
        response = {
            "timestamp": time,
            "created_at": time,
            "model": _MODEL,
            "kwargs": {},
            "response": {"output": [message, *calls], "usage": {}},
        }
        documents[f"{folder}/{number + 1:04d}_agent_response.json"] = _text(response)
        items.append(message)
        number += 2
        for call in calls:
            image = {"type": "input_image", "image_url": "[omitted]"}
            result = {"type": "computer_call_output", "call_id": call["call_id"], "output": image}
            call_result = {"item": call, "result": [result], "created_at": time}
            documents[f"{folder}/{number:04d}_computer_call_result.json"] = _text(call_result)
            items += [call, result]
            number += 1
    if stretch.final is not None:
        folder = f"{top}/turn_{len(stretch.steps):03d}"
        files[f"{folder}/{number:04d}_screenshot.png"] = stretch.final
    metadata = {
        "trajectory_id": source.id,
        "created_at": _time(start),
        "completed_at": time,
        "status": "completed" if stretch.whole else "running",
        "kwargs": {
            "model": _MODEL,
            "messages": [{"role": "user", "content": prompt}],
            **({} if stretch.part is None else {"part": stretch.part}),
        },
        "total_usage": {},
        "new_items": items,
        "total_turns": len(stretch.steps),
    }
    parts = {"metadata": _text(metadata)}
    counts = counted_steps(stretch.steps, source)
    yield Row(source.id, prompt, first.screenshot, parts, files, counts, documents)


def _calls(turn: int, actions: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the calls of a turn. Every id but the first ends with the call's 0-based number."""
    for number, action in enumerate(actions):
        call_id = f"call_{turn:04d}"
        if number:
            call_id += f"_{number}"
        yield {
            "type": "computer_call",
            "call_id": call_id,
            "action": action,
            "status": "completed",
        }


def _time(moment: datetime) -> str:
    """Returns a time as Cua writes it, in units of 0.1 microseconds."""
    return str((moment - _EPOCH) // timedelta(microseconds=1) * 10)


FORM = Form(
    name="cua_folder",
    asset="cua_folders",
    folder="cua_folder",
    description="Whole trajectories as Cua's trajectory folders, which its viewer opens. Each "
    "trajectory is a folder with numbered turns, screenshots, and the actions as "
    "responses of an agent.",
    code_version="6",
    settings=STRETCH_SETTINGS,
    exclusions=(*STRETCH_EXCLUSIONS, CLICKS_OF_BUTTON, HELD_KEYS),
    unit="steps",
    whole=True,
    rows=stretch_rows(_actions, _row),
    files=(
        File(
            "metadata",
            "{split}/{id}/metadata.json",
            checked=RecordFormat(_Metadata, id_field="trajectory_id"),
        ),
    ),
    check="cua_folders",
    marks=("metadata.json", "train"),
    decisive=False,
    details=counted_details,
    side_files=losses_file,
)
