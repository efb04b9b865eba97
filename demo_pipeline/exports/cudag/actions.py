"""What CUDAG records say of a step's action: its calls, its type, and what calls cannot say.

Calls cannot say held modifiers, a drag with another button, a place outside the screen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.desktopd.models import (
    ActionType,
    DragParameters,
    HotkeyParameters,
    StepAction,
    WaitParameters,
    points,
)
from demo_pipeline.desktopd.reader import StepFiles
from demo_pipeline.exports.answers import AnsweredAction
from demo_pipeline.exports.cudag.models import Pair
from demo_pipeline.exports.cudag.tool_calls import ToolCall, WheelUnits, write_calls
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


def wheel_units(settings: DatasetSettings) -> WheelUnits:
    """What `pixels` mean in the records that these settings give."""
    return WheelUnits(settings.cudag_scroll_sign, max(1, units_per_notch(settings)))


def tool_calls(action: StepAction, size: Pair, settings: DatasetSettings) -> tuple[ToolCall, ...]:
    """The calls of a step's action; see `write_calls`."""
    said = AnsweredAction(action.action_type, action.parameters)
    return write_calls(said, size, wheel_units(settings))


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
