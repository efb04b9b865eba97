"""From an action of seed 001 to the `computer_use` tool's calls.

Belongs here: the table of formats notes, section 4, and what to say of an action that the tool has
no words for (held modifiers, a drag with another button) or that lies outside the screen.
"""

from dataclasses import dataclass
from typing import Any

from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.formats.cudag.models import to_ru
from demo_pipeline.formats.cudag.tool_calls import ToolCall
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    ScrollParameters,
    StepAction,
    TypeParameters,
    WaitParameters,
    points,
)
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.settings import DatasetSettings

ImageSize = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ActionCalls:
    """An action in the tool's words; `note` says what they cannot, and is empty when they can."""

    calls: tuple[ToolCall, ...]
    note: str


def tool_calls(
    action: StepAction, size: ImageSize, settings: DatasetSettings
) -> tuple[ToolCall, ...]:
    """The table of formats notes, section 4: an action as one or, for a drag, two calls.

    Args:
        action: coordinates in pixels of the screenshot.
        size: width and height of the screenshot, pixels.
        settings: sign and unit of the wheel.
    """
    match action.parameters:
        case TypeParameters(text=text):
            return (ToolCall("type", {"text": text}),)
        case HotkeyParameters(keys=keys):
            return (ToolCall("key", {"keys": list(keys)}),)
        case WaitParameters(seconds=seconds):
            return (ToolCall("wait", {"time": seconds}),)
    places = [{"coordinate": list(to_ru(*point, size))} for point in points(action)]
    if isinstance(action.parameters, DragParameters):
        return ToolCall("mouse_move", places[0]), ToolCall("left_click_drag", places[1])
    return (_pointing_call(action, places[0], settings),)


def _pointing_call(
    action: StepAction, place: dict[str, Any], settings: DatasetSettings
) -> ToolCall:
    match action.parameters:
        case ScrollParameters(direction=direction, amount=amount):
            name = "scroll" if direction in ("up", "down") else "hscroll"
            pixels = amount * settings.cudag_pixels_per_notch * _sign(direction, settings)
            return ToolCall(name, {**place, "pixels": pixels})
        case ClickParameters(button=button, clicks=clicks):
            triple = clicks == 3 and button == "left"
            return ToolCall("triple_click" if triple else f"{button}_click", place)
    return ToolCall(action.action_type.value, place)


def _sign(direction: str, settings: DatasetSettings) -> int:
    """Sideways, positive is right, whatever the vertical rule."""
    return 1 if direction in ("right", settings.cudag_scroll_sign) else -1


def task_type(action: StepAction, calls: tuple[ToolCall, ...]) -> str:
    """Kebab-case name of the action: left-click, triple-click, drag, scroll, hotkey and so on."""
    if action.action_type is ActionType.CLICK:
        return calls[0].action.replace("_", "-")
    return action.action_type.value.replace("_", "-")


def describe_action(
    action: StepAction, row: ProvenanceRow, size: ImageSize, settings: DatasetSettings
) -> ActionCalls:
    """What was done, as the history tells it."""
    calls = tool_calls(action, size, settings)
    if is_off_screen(action, row, size):
        bare = tuple(_without_place(call) for call in calls[:1])
        return ActionCalls(bare, " outside the recorded screen")
    given = action.parameters.members()
    notes = []
    if modifiers := given.get("modifiers"):
        notes.append(f" while holding {' + '.join(modifiers)}")
    if isinstance(action.parameters, DragParameters) and given.get("button") in ("right", "middle"):
        notes.append(f" with the {given['button']} button")
    return ActionCalls(calls, "".join(notes))


def _without_place(call: ToolCall) -> ToolCall:
    return ToolCall(call.action, {k: v for k, v in call.arguments.items() if k != "coordinate"})


def is_off_screen(action: StepAction, row: ProvenanceRow, size: ImageSize) -> bool:
    """Whether an action with a place has it outside the picture."""
    places = points(action)
    inside = all(0 <= x < size[0] and 0 <= y < size[1] for x, y in places)
    return bool(places) and (bool(row["off_screen"]) or not inside)
