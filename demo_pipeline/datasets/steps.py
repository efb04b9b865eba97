"""Turns recorded actions into OSWorld-Desktopd steps, on the canvas.

Belongs here: which actions become steps, their parameters, their targets, and the sentence that
describes a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.wheel import EVIDENCE, WheelVote, scroll_direction
from demo_pipeline.formats.desktopd.step_actions import PARAMETERS, StepAction, TargetElement
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.frames.evidence import Evidence
from demo_pipeline.observation.frames.recorder_actions import RECORDER_REASON
from demo_pipeline.observation.frames.screenshot_writer import UNKNOWN_SCALE_REASON

_Row = Mapping[str, Any]

# Why an action is no step.
LEFT_OUT = (
    "thinking_pause",
    RECORDER_REASON,
    UNKNOWN_SCALE_REASON,
    "off_screen",
    "no_position",
    "missing_frame",
)


@dataclass(frozen=True)
class Step:
    """An action that became a step, with its rows of the frames and trees tables."""

    action: Action
    written: StepAction
    frame: _Row
    tree: _Row


@dataclass(frozen=True)
class Steps:
    """The steps of a demonstration, and how many actions were left out by reason."""

    steps: tuple[Step, ...]
    left_out: Mapping[str, int]


def build_steps(
    actions: Sequence[Action], frames: Sequence[_Row], trees: Sequence[_Row], evidence: Evidence
) -> Steps:
    """Number the steps.

    Left out: pauses to think, what the person did to the recorder itself, and actions off screen,
    without a place or without a frame, or while the screen's resolution is not known.
    """
    screen, base = evidence.screen(), evidence.as_canvas()
    waits = {wait.action_index: wait.seconds for wait in evidence.waits}
    steps: list[Step] = []
    left_out = dict.fromkeys(LEFT_OUT, 0)
    for recorded, frame, tree in zip(actions, frames, trees, strict=True):
        action = _as_filmed(recorded, evidence.wheel)
        if action.action_index in evidence.recorder_control:
            left_out[RECORDER_REASON] += 1
            continue
        canvas = screen.canvas_of(action) or base
        reason = _exclusion(action, frame, waits, canvas)
        if reason is not None:
            left_out[reason] += 1
            continue
        target = _target(tree)
        kind, parameters = _parameters(action, canvas, waits)
        written = StepAction(
            step_index=len(steps),
            action_type=kind,
            parameters=PARAMETERS[kind].model_validate(parameters),
            target_element=target,
            reasoning=_reasoning(action, target, parameters),
        )
        steps.append(Step(action, written, frame, tree))
    return Steps(tuple(steps), left_out)


def _as_filmed(action: Action, vote: WheelVote) -> Action:
    """A scroll with the direction that the video shows; any other action as it is."""
    if action.action_type != "scroll":
        return action
    direction = scroll_direction(action.action_index, action.wheel_sum, action.wheel_method, vote)
    if direction is None:
        return action
    return replace(action, direction=direction, wheel_method=EVIDENCE)


def _exclusion(
    action: Action, frame: _Row, waits: Mapping[int, float], canvas: Canvas
) -> str | None:
    if action.action_type == "pause":
        return None if action.action_index in waits and frame["file"] else "thinking_pause"
    if frame.get("reason_code") == UNKNOWN_SCALE_REASON:
        return UNKNOWN_SCALE_REASON
    if action.action_type not in {"type", "hotkey"}:
        ends = [(action.x, action.y)]
        if action.action_type == "drag":
            ends.append((action.end_x, action.end_y))
        for x, y in ends:
            if x is None or y is None:
                return "no_position"
            if not canvas.on_screen(x, y):
                return "off_screen"
    return None if frame["file"] else "missing_frame"


def _target(tree: _Row) -> TargetElement | None:
    if tree["target_id"] is None:
        return None
    return TargetElement(id=tree["target_id"], role=tree["target_role"], name=tree["target_name"])


def _point(x: float | None, y: float | None, canvas: Canvas) -> tuple[int, int]:
    """The pixel of the canvas that holds the point."""
    left, top = canvas.to_canvas(x or 0.0, y or 0.0)
    return min(max(int(left), 0), canvas.width - 1), min(max(int(top), 0), canvas.height - 1)


def _parameters(
    action: Action, canvas: Canvas, waits: Mapping[int, float]
) -> tuple[ActionType, dict[str, Any]]:
    match action.action_type:
        case "type":
            return ActionType.TYPE, {"text": action.text}
        case "hotkey":
            return ActionType.HOTKEY, {"keys": list(action.keys)}
        case "pause":
            return ActionType.WAIT, {"seconds": waits[action.action_index]}
    modifiers = {"modifiers": list(action.modifiers)} if action.modifiers else {}
    return ActionType(action.action_type), {**_pointer_parameters(action, canvas), **modifiers}


def _pointer_parameters(action: Action, canvas: Canvas) -> dict[str, Any]:
    x, y = _point(action.x, action.y, canvas)
    match action.action_type:
        case "click":
            clicks = {"clicks": 3} if action.clicks == 3 else {}
            return {"x": x, "y": y, "button": action.button, **clicks}
        case "drag":
            end_x, end_y = _point(action.end_x, action.end_y, canvas)
            path = {"start_x": x, "start_y": y, "end_x": end_x, "end_y": end_y}
            return path | ({"button": action.button} if action.button != "left" else {})
        case "scroll":
            return {"x": x, "y": y, "direction": action.direction, "amount": action.amount}
        case _:
            return {"x": x, "y": y}


_VERBS = {"click": "Click", "double_click": "Double-click", "right_click": "Right-click"}


def _reasoning(action: Action, target: TargetElement | None, parameters: Mapping[str, Any]) -> str:
    """The `reasoning` of a step: a sentence made by a template, as the provenance says."""
    element = _element_phrase(target)
    match action.action_type:
        case "click" | "double_click" | "right_click":
            verb = _VERBS[action.action_type]
            if action.clicks == 3:
                verb = "Triple-click"
            elif action.button == "middle":
                verb = "Middle-click"
            keys = f" while holding {' and '.join(action.modifiers)}" if action.modifiers else ""
            where = element or f"at ({parameters['x']}, {parameters['y']})"
            return f"{verb} {where}{keys}."
        case "drag":
            goal = f"to ({parameters['end_x']}, {parameters['end_y']})"
            start = element or f"from ({parameters['start_x']}, {parameters['start_y']})"
            return f"Drag {start} {goal}."
        case "scroll":
            notches = "notch" if action.amount == 1 else "notches"
            where = f" in {element}" if element else ""
            return f"Scroll {action.direction} {action.amount} {notches}{where}."
        case "type":
            return f"Type the text into {element}." if element else "Type the text."
        case "hotkey":
            return f"Press {'+'.join(action.keys)}."
        case _:
            return "Wait until the screen has settled."


def _element_phrase(target: TargetElement | None) -> str:
    if target is None:
        return ""
    name = " ".join(target.name.split())
    return f'the "{name}" {target.role}' if name else f"the {target.role}"
