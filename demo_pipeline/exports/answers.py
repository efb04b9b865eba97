"""Converts actions of OSWorld-Desktopd to calls of other formats, and models' answers to actions.

The module of a format, such as pyautogui code or tool calls, only converts between its text and
`ActionCall` objects. This module converts between these objects and our actions, so that all
formats agree.

Decoders of answers return an `Answer`, whose points are pixels of the screenshot.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from demo_pipeline.desktopd.models import (
    PARAMETERS,
    ActionType,
    Button,
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    Parameters,
    Pixel,
    PointParameters,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
    is_canonical_key,
    pixel_at,
    shares_of,
)


@dataclass(frozen=True, slots=True)
class AnsweredAction:
    """An action of OSWorld-Desktopd without target and reasoning; points are screenshot pixels.

    Attributes:
        action_type, parameters: as in action.json.
        hovered: positions where the pointer hovers before the action, in order, to open a menu.
            Comparisons ignore these positions, because the menu may be open already.
    """

    action_type: ActionType
    parameters: Parameters
    hovered: tuple[Pixel, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ForeignAction:
    """An action that OSWorld-Desktopd does not define, such as a pointer move or a screenshot.

    Attributes:
        name: the name of the action in the format of the answer.
        point: the position in pixels of the screenshot; None if the action has no position.
    """

    name: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a model to a step.

    Attributes:
        actions: the actions in the order of their execution.
        status: how the task ended according to the model; None if the task goes on.
        thought: the words before the actions.
    """

    actions: tuple[AnsweredAction | ForeignAction, ...]
    status: Literal["success", "failure"] | None = None
    thought: str = ""


class AnswerFormatError(ValueError):
    """An answer does not follow its format.

    Attributes:
        reason: a fixed phrase such as "no tool call". It never quotes the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


AnswerDecoder = Callable[[str, tuple[int, int]], Answer]
"""Function that decodes a model's answer, given its text and the screenshot's size in pixels.

Raises only `AnswerFormatError`, whatever the text is.
"""


# Maps button and number of clicks to the action type, for clicks with `PointParameters`.
_POINT_TYPES: Mapping[tuple[Button, int], ActionType] = {
    ("left", 2): ActionType.DOUBLE_CLICK,
    ("right", 1): ActionType.RIGHT_CLICK,
}
_ALIASES: Mapping[str, str] = {  # maps lower-case key names in answers to our names
    "return": "enter",
    "escape": "esc",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "cmd": "command",
    "option": "alt",
    "control": "ctrl",
    "windows": "win",
    **{f"{key}left": key for key in ("ctrl", "shift", "alt", "win")},
    **{f"{key}right": key for key in ("ctrl", "shift", "alt", "win")},
    "prtsc": "printscreen",
    " ": "space",
}


def answered_key(name: str) -> str:
    """Translates a key name in an answer to our name; unknown names are returned unchanged.

    Case is ignored. Left and right keys (`ctrlleft`, `ctrlright`) have the same name.
    """
    lower = name.strip().lower() or name
    canonical = _ALIASES.get(lower, lower)
    if is_canonical_key(canonical):
        return canonical
    return name


def action_text(action_type: ActionType, parameters: Parameters) -> str:
    """Returns type and parameters of an action as JSON on one line.

    Lone surrogates cannot be encoded in UTF-8 and become "?".
    """
    value = {"action_type": action_type.value, "parameters": parameters.model_dump(mode="json")}
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


Share = tuple[float, float]
"""A position: x and y as shares of the screenshot's width and height, 0 to 1."""
ScrollDirection = Literal["up", "down", "left", "right"]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """A call in any format, such as code or tool calls; the fields are the same for all formats.

    Attributes:
        name: the call's name in the format; empty if the call was made from one of our actions.
        does: `click`, `move`, `drag`, `scroll`, `type`, `press`, `wait`, `hold` or `release`; empty
            if none of our actions matches the call.
        at: position of a click, move or scroll, or end of a drag; None if there is no position.
        start: start of a drag; None if the drag starts where an earlier call moved the pointer.
        button: button of a click or drag.
        clicks: number of clicks.
        direction: direction of a scroll.
        amount: notches of a scroll.
        keys: keys that are pressed together.
        times: number of presses of `keys`.
        text: typed text.
        seconds: duration of a wait.
        held: keys that are held during the call.
        status: how the call ends the task; empty if the task goes on.
    """

    name: str
    does: str = ""
    at: Share | None = None
    start: Share | None = None
    button: Button = "left"
    clicks: int = 1
    direction: ScrollDirection = "up"
    amount: int = 0
    keys: tuple[str, ...] = ()
    times: int = 1
    text: str = ""
    seconds: float = 1.0
    held: tuple[str, ...] = ()
    status: Literal["success", "failure", ""] = ""


_WHEELS: Mapping[str, tuple[ScrollDirection, ScrollDirection]] = {
    "scroll": ("up", "down"),
    "hscroll": ("right", "left"),
}
"""Maps each scroll call to its directions for a positive and for a negative number."""


def wheel_turn(direction: ScrollDirection) -> tuple[str, int]:
    """Returns the scroll call's name for a direction, and the sign (1 or -1) of its argument."""
    for name, (positive, negative) in _WHEELS.items():
        if direction == positive:
            return name, 1
        if direction == negative:
            return name, -1
    raise AssertionError(direction)


def wheel_direction(name: str, number: int) -> ScrollDirection:
    """Returns the direction of a scroll call from its name and the sign of its number."""
    positive, negative = _WHEELS[name]
    return negative if number < 0 else positive


def call_of(action: AnsweredAction, size: Pixel) -> ActionCall:
    """Converts one of our actions to a call.

    Args:
        size: width and height of the screenshot, pixels.
    """
    members = action.parameters.members()
    places = list[Share]()
    for prefix in _PLACE_PREFIXES:
        if f"{prefix}x" in members:
            places.append(shares_of(members[f"{prefix}x"], members[f"{prefix}y"], size))
    at = places[-1] if places else None
    held = tuple(members.get("modifiers") or ())
    match action.parameters:
        case TypeParameters(text=text):
            return ActionCall("", "type", text=text)
        case HotkeyParameters(keys=keys, presses=presses):
            return ActionCall("", "press", keys=tuple(keys), times=presses or 1)
        case WaitParameters(seconds=seconds):
            return ActionCall("", "wait", seconds=seconds)
        case DragParameters(button=drag_button, clicks=drag_clicks):
            return ActionCall(
                "",
                "drag",
                at,
                places[0],
                button=drag_button or "left",
                clicks=drag_clicks or 1,
                held=held,
            )
        case ScrollParameters(direction=direction, amount=amount):
            return ActionCall("", "scroll", at, direction=direction, amount=amount, held=held)
    button = members.get("button", "left")
    clicks = members.get("clicks") or 1
    if isinstance(action.parameters, PointParameters):
        button, clicks = _BUTTON_AND_CLICKS[action.action_type]
    return ActionCall("", "click", at, button=button, clicks=clicks, held=held)


def hovered_shares(action: AnsweredAction, size: Pixel) -> list[Share]:
    """Returns the positions where the pointer hovers before an action, in order.

    `size` is the width and height of the screenshot in pixels.
    """
    return [shares_of(x, y, size) for x, y in action.hovered]


_PLACE_PREFIXES = ("", "start_", "end_")  # as in the parameters `x`, `start_x` and `end_x`
_BUTTON_AND_CLICKS = {kind: clicked for clicked, kind in _POINT_TYPES.items()}
_ACTION_TYPES = {model: kind for kind, model in PARAMETERS.items()}


def answered(parameters: Parameters) -> AnsweredAction:
    """Returns the action with these parameters.

    `PointParameters` are not allowed, because several action types share them.
    """
    return AnsweredAction(_ACTION_TYPES[type(parameters)], parameters)


def read_calls(
    calls: Iterable[ActionCall], size: Pixel
) -> tuple[AnsweredAction | ForeignAction, ...]:
    """Converts the calls of an answer to our actions; the inverse of `call_of`.

    - A pointer move and a following drag or scroll without a position become one action.
    - Consecutive presses of the same keys become one action.
    - Keys that are held during a call become modifiers of the call's action.
    - Pointer moves before a click become the `hovered` places of the click.

    Args:
        calls: in the order of the answer.
        size: width and height of the screenshot, pixels.
    """
    return tuple(_with_repeated_keys_merged(_actions(_with_held_keys(calls), size)))


def _with_held_keys(calls: Iterable[ActionCall]) -> Iterator[ActionCall]:
    """Removes `hold` and `release` calls, and adds the held keys to the calls between them.

    A `hold` and a `release` without a call between them become a press of the held keys.
    """
    held: list[str] = []
    is_used = True
    for call in calls:
        if call.does == "hold":
            held.extend(call.keys)
            is_used = False
        elif call.does == "release":
            if not is_used:
                yield replace(call, does="press", keys=tuple(held))
            held = [key for key in held if key not in call.keys]
            is_used = True
        elif held:
            yield _while_held(call, held)
            is_used = True
        else:
            yield call


def _while_held(call: ActionCall, held: Sequence[str]) -> ActionCall:
    """Returns the call with the held keys added."""
    match call.does:
        case "press":
            return replace(call, keys=(*held, *call.keys))
        case "click" | "move" | "drag" | "scroll":
            return replace(call, held=tuple(held))
    return replace(call, does="")  # we have no action that types or waits while keys are held


def _actions(calls: Iterable[ActionCall], size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
    """Yields the actions of calls without `hold` and `release`; see `read_calls`."""
    runs = [(call, len(list(run))) for call, run in groupby(calls)]
    moves: list[Share] = []
    for (call, times), after in zip(runs, _calls_after_moves(runs), strict=True):
        if call.does == "move" and call.at and _takes_moves(after):
            moves.append(call.at)
        elif call.does == "press":
            yield _action(replace(call, times=call.times * times), None, size)
        else:
            for _ in range(times):
                moved_to = None
                if moves and _lacks_place(call):
                    moved_to = moves.pop()
                action = _action(call, moved_to, size)
                if moves and isinstance(action, AnsweredAction):
                    hovered = tuple(pixel_at(*move, size) for move in moves)
                    action = replace(action, hovered=hovered)
                yield action
                moves = []


def _calls_after_moves(runs: Sequence[tuple[ActionCall, int]]) -> list[ActionCall]:
    """Returns the calls, with each move replaced by the next call that is not a move."""
    next_calls = list[ActionCall]()
    next_call = ActionCall("")
    for call, _ in reversed(runs):
        if call.does != "move":
            next_call = call
        next_calls.append(next_call)
    return next_calls[::-1]


def _takes_moves(call: ActionCall) -> bool:
    """Returns whether preceding pointer moves become a part of the call's action."""
    return _lacks_place(call) or call.does == "drag" or (call.does == "click" and bool(call.at))


def _lacks_place(call: ActionCall) -> bool:
    """Returns whether a call is a drag without a start, or a scroll without a position."""
    if call.does == "drag":
        return call.start is None
    return call.does == "scroll" and call.at is None


def _action(
    call: ActionCall, moved_to: Share | None, size: Pixel
) -> AnsweredAction | ForeignAction:
    """Returns the action of a call.

    Args:
        moved_to: the position to which earlier calls moved the pointer; used for a scroll without a
            position and for a drag without a start.
        size: width and height of the screenshot, pixels.
    """
    at = call.at
    if at is None and call.does == "scroll":
        at = moved_to
    place = pixel_at(*at, size) if at else None
    parameters: Parameters | None = None
    held: dict[str, Any] = {"modifiers": list(call.held) or None}
    kind = _POINT_TYPES.get((call.button, call.clicks))
    match call.does, place:
        case "type", _:
            parameters = TypeParameters(text=call.text)
        case "press", _:
            times = call.times if call.times > 1 else None
            parameters = HotkeyParameters(keys=list(call.keys), presses=times)
        case "wait", _:
            parameters = WaitParameters(seconds=call.seconds)
        case "click", (x, y) if kind:
            return AnsweredAction(kind, PointParameters(x=x, y=y, **held))
        case "click", (x, y) if call.clicks in {1, 3}:
            clicks: Literal[3] | None = 3 if call.clicks == 3 else None
            parameters = ClickParameters(x=x, y=y, button=call.button, clicks=clicks, **held)
        case "scroll", (x, y):
            turn: dict[str, Any] = {"direction": call.direction, "amount": call.amount}
            parameters = ScrollParameters(x=x, y=y, **turn, **held)
        case "drag", (x, y) if start := call.start or moved_to:
            start_x, start_y = pixel_at(*start, size)
            button = None if call.button == "left" else call.button
            parameters = DragParameters(
                start_x=start_x, start_y=start_y, end_x=x, end_y=y, button=button, **held
            )
    if parameters is None:
        return ForeignAction(call.name, place)
    return answered(parameters)


def _with_repeated_keys_merged(
    actions: Iterable[AnsweredAction | ForeignAction],
) -> Iterator[AnsweredAction | ForeignAction]:
    """Yields the actions, with consecutive presses of the same keys merged into one action."""
    for keys, run in groupby(actions, _keys):
        equal_actions = list(run)
        if keys and len(equal_actions) > 1:
            presses = sum(map(_presses, equal_actions))
            yield answered(HotkeyParameters(keys=keys, presses=presses))
        else:
            yield from equal_actions


def _keys(action: AnsweredAction | ForeignAction) -> list[str] | None:
    if isinstance(action, AnsweredAction) and isinstance(action.parameters, HotkeyParameters):
        return action.parameters.keys
    return None


def _presses(action: AnsweredAction | ForeignAction) -> int:
    if isinstance(action, AnsweredAction) and isinstance(action.parameters, HotkeyParameters):
        return action.parameters.presses or 1
    return 1


# Maximum number of calls in an answer, because trainers cut off long answers. Measured: a key that
# is held for 3 s would give 86 calls.
MOST_CALLS = 8
# Maximum number of presses in a step of a whole trajectory. 50 presses take a quarter as many
# tokens as a screenshot.
MOST_PRESSES = 50
# Reasons of `InexpressibleError`.
UNKNOWN_KEY = "unknown_key"
HELD_KEYS = "held_keys"
CLICKS_OF_BUTTON = "clicks_of_button"


class InexpressibleError(ValueError):
    """A format cannot express an action.

    Attributes:
        reason: the reason under which the left-out step is counted, an item of `Form.exclusions`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ActionEncoder = Callable[[AnsweredAction, Pixel], Any]
"""Function that writes an action in a format, given the screenshot's size in pixels.

Raises `InexpressibleError` if the format cannot express the action.
"""
