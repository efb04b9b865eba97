"""Translates OSWorld-Desktopd actions into calls of the `computer_use` tool.

Belongs here: the calls of every action type, and the note for what calls cannot express: held
modifiers, a drag with another button, a place outside the screen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    ScrollParameters,
    StepAction,
    TypeParameters,
    WaitParameters,
    points,
)
from demo_pipeline.desktopd.reader import StepFiles
from demo_pipeline.exports.cudag.models import Pair, to_ru
from demo_pipeline.exports.cudag.tool_calls import ToolCall
from demo_pipeline.exports.prompts import units_per_notch
from demo_pipeline.files.image_header import png_size
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

DRAG = "drag"  # the task type


@dataclass(frozen=True, slots=True)
class ActionCalls:
    """An action as tool calls; `note` is what they cannot express, empty when they say it all."""

    calls: tuple[ToolCall, ...]
    note: str


def tool_calls(action: StepAction, size: Pair, settings: DatasetSettings) -> tuple[ToolCall, ...]:
    """An action as one call or several.

    A drag is `mouse_move`, then `left_click_drag`. A key pressed n times is n calls: one call with
    the key n times would be executed as one press.

    Args:
        action: coordinates in pixels of the screenshot.
        size: width and height of the screenshot, pixels.
        settings: sign and unit of the wheel (`cudag_scroll_sign`, `cudag_scroll_unit`).
    """
    at = [{"coordinate": list(to_ru(*point, size))} for point in points(action)]
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    match action.parameters:
        case TypeParameters(text=text):
            calls = [("type", {"text": text})]
        case HotkeyParameters(keys=keys):
            calls = [("key", {"keys": list(keys)})] * presses_of(action)
        case WaitParameters(seconds=seconds):
            calls = [("wait", {"time": seconds})]
        case DragParameters():
            calls = [("mouse_move", at[0]), ("left_click_drag", at[1])]
        case ScrollParameters(direction=direction, amount=amount):
            name = "scroll" if direction in ("up", "down") else "hscroll"
            sign = 1 if direction in ("right", settings.cudag_scroll_sign) else -1
            calls = [(name, {**at[0], "pixels": amount * units_per_notch(settings) * sign})]
        case ClickParameters(button="left", clicks=3):
            calls = [("triple_click", at[0])]
        case ClickParameters(button=button):
            calls = [(f"{button}_click", at[0])]
        case _:
            calls = [(action.action_type.value, at[0])]
    return tuple(ToolCall(*call) for call in calls)


def presses_of(action: StepAction) -> int:
    """How often the keys of an action are pressed; 1 for actions without keys."""
    parameters = action.parameters
    return (parameters.presses or 1) if isinstance(parameters, HotkeyParameters) else 1


def task_type(action: StepAction, calls: tuple[ToolCall, ...]) -> str:
    """The `task_type` of a record: left-click, triple-click, drag, scroll, hotkey and so on."""
    if action.action_type is ActionType.CLICK:
        return calls[0].action.replace("_", "-")
    return action.action_type.value.replace("_", "-")


def describe_action(
    action: StepAction, row: ProvenanceRow, size: Pair, settings: DatasetSettings
) -> ActionCalls:
    """The calls of an action and its note, as the history of later records shows them."""
    calls = tool_calls(action, size, settings)
    if is_off_screen(action, row, size):
        rest = {name: given for name, given in calls[0].arguments.items() if name != "coordinate"}
        return ActionCalls((ToolCall(calls[0].action, rest),), " outside the recorded screen")
    parameters = action.parameters.members()
    notes = []
    if modifiers := parameters.get("modifiers"):
        notes.append(f" while holding {' + '.join(modifiers)}")
    button = parameters.get("button")
    if isinstance(action.parameters, DragParameters) and button in ("right", "middle"):
        notes.append(f" with the {button} button")
    return ActionCalls(calls, "".join(notes))


def is_off_screen(action: StepAction, row: ProvenanceRow, size: Pair) -> bool:
    """Whether an action points at a place outside the screenshot."""
    positions = points(action)
    inside = all(0 <= x < size[0] and 0 <= y < size[1] for x, y in positions)
    return bool(positions) and (bool(row["off_screen"]) or not inside)


def is_last_end_filmed(steps: Sequence[StepFiles], rows: Mapping[int, ProvenanceRow]) -> bool:
    """Whether the final screenshot may show what the last action of a trajectory led to.

    It shows the last frame when the video ends before the action does. A wait after the action is
    not an action: the person waited for what the video shows.
    """
    acted = [step for step in steps if not isinstance(step.action.parameters, WaitParameters)]
    return not acted or bool(rows[acted[-1].index]["end_filmed"])


def readable_size(screenshot: Path) -> Pair | None:
    """Width and height of a PNG; None: it is missing or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        return None
