"""The answer of a model to a step, and the conversion between our actions and foreign calls.

Every decoder returns an `Answer`. Its points are pixels of the screenshot.

Each foreign vocabulary (pyautogui code, tool calls, …) only reads and writes `ActionCall` objects.
This module converts between `ActionCall` objects and our actions, in both directions, so that all
vocabularies agree.
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
    """One of our actions, without target and reasoning; points are pixels of the screenshot.

    Attributes:
        hovered: places where the pointer rests before the action, in order, to open a menu. Actions
            compare equal with and without them, because a menu may be open already.
    """

    action_type: ActionType
    parameters: Parameters
    hovered: tuple[Pixel, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ForeignAction:
    """An action that we do not have, such as a pointer move, a held key or a screenshot.

    Attributes:
        name: its name in the foreign form.
        point: pixels of the screenshot, if it has a place.
    """

    name: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a model to a step.

    Attributes:
        actions: in the order of their execution.
        status: how the task ended according to the model; None if the task goes on.
        thought: the words before the actions.
    """

    actions: tuple[AnsweredAction | ForeignAction, ...]
    status: Literal["success", "failure"] | None = None
    thought: str = ""


class AnswerFormatError(ValueError):
    """An answer does not follow its form.

    Attributes:
        reason: a fixed phrase such as "no tool call". It never quotes the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


AnswerDecoder = Callable[[str, tuple[int, int]], Answer]
"""Reads a model's answer, given the width and height of the screenshot in pixels.

For any text, it raises only `AnswerFormatError`.
"""


_POINT_TYPES: Mapping[tuple[Button, int], ActionType] = {
    ("left", 2): ActionType.DOUBLE_CLICK,
    ("right", 1): ActionType.RIGHT_CLICK,
}
_ALIASES: Mapping[str, str] = {
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
    **{
        f"{key}{side}": key for key in ("ctrl", "shift", "alt", "win") for side in ("left", "right")
    },
    "prtsc": "printscreen",
    " ": "space",
}


def answered_key(name: str) -> str:
    """Returns our name of a key; unknown names are returned unchanged.

    Upper and lower case are equal: `Enter`, `Return` and `return` are `enter`. The left and right
    keys of a pair (`ctrlleft`, `ctrlright`) have one name.
    """
    lower = name.strip().lower() or name
    canonical = _ALIASES.get(lower, lower)
    if is_canonical_key(canonical):
        return canonical
    return name


def action_text(action_type: ActionType, parameters: Parameters) -> str:
    """Returns the action as JSON on one line.

    Lone surrogates cannot be encoded in UTF-8 and become "?".
    """
    value = {"action_type": action_type.value, "parameters": parameters.model_dump(mode="json")}
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


Share = tuple[float, float]
"""A place as shares of the screenshot's sides, 0 to 1."""
ScrollDirection = Literal["up", "down", "left", "right"]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """A call of a foreign vocabulary with normalised arguments.

    Attributes:
        name: its name in the vocabulary; empty for a call made from one of our actions.
        does: `click`, `move`, `drag`, `scroll`, `type`, `press`, `wait`, `hold` or `release`; empty
            if the call matches none of our actions.
        at: the place; for a drag its end. None if the call has no place.
        start: the begin of a drag; None: the place to which the pointer moved before.
        button: of a click or a drag.
        clicks: number of clicks.
        direction: of a scroll.
        amount: of a scroll, notches of the wheel.
        keys: keys that are pressed together.
        times: number of presses.
        text: typed text.
        seconds: of a wait.
        held: keys that are held during the call.
        status: with which the task ends; empty if it goes on.
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
"""Name of a scroll call → directions of a positive and of a negative number."""


def wheel_turn(direction: ScrollDirection) -> tuple[str, int]:
    """Returns the scroll call for a direction, and the sign of its number, 1 or -1."""
    for name, (positive, negative) in _WHEELS.items():
        if direction == positive:
            return name, 1
        if direction == negative:
            return name, -1
    raise AssertionError(direction)


def wheel_direction(name: str, number: int) -> ScrollDirection:
    """Returns the direction of a scroll call with this number."""
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
    """Returns the places where the pointer rests before an action.

    Args:
        size: width and height of the screenshot, pixels.
    """
    return [shares_of(x, y, size) for x, y in action.hovered]


_PLACE_PREFIXES = ("", "start_", "end_")
_BUTTON_AND_CLICKS = {kind: clicked for clicked, kind in _POINT_TYPES.items()}
_ACTION_TYPES = {model: kind for kind, model in PARAMETERS.items()}


def answered(parameters: Parameters) -> AnsweredAction:
    """Returns the action with these parameters, which must not be `PointParameters`.

    Several action types share `PointParameters`; the type of all other parameters is unique.
    """
    return AnsweredAction(_ACTION_TYPES[type(parameters)], parameters)


def read_calls(
    calls: Iterable[ActionCall], size: Pixel
) -> tuple[AnsweredAction | ForeignAction, ...]:
    """Converts calls to our actions; the inverse of `call_of`.

    A pointer move followed by a drag or scroll without a place of its own becomes one action. So do
    equal keys that are pressed several times in a row. Keys that are held during other calls become
    their modifiers. Pointer moves before a click become its `hovered` places.
    """
    return tuple(_with_repeated_keys_merged(_actions(_with_held_keys(calls), size)))


def _with_held_keys(calls: Iterable[ActionCall]) -> Iterator[ActionCall]:
    """Removes `hold` and `release` calls and attaches the held keys to the calls between them.

    Held keys without a call between become one press of these keys.
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
    match call.does:
        case "press":
            return replace(call, keys=(*held, *call.keys))
        case "click" | "move" | "drag" | "scroll":
            return replace(call, held=tuple(held))
    return replace(call, does="")  # we have no action for typing or waiting with held keys


def _actions(calls: Iterable[ActionCall], size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
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
    """Returns for each call the next call, itself included, that is not a pointer move."""
    next_calls = list[ActionCall]()
    next_call = ActionCall("")
    for call, _ in reversed(runs):
        if call.does != "move":
            next_call = call
        next_calls.append(next_call)
    return next_calls[::-1]


def _takes_moves(call: ActionCall) -> bool:
    """Whether pointer moves before a call belong to it."""
    return _lacks_place(call) or call.does == "drag" or (call.does == "click" and bool(call.at))


def _lacks_place(call: ActionCall) -> bool:
    """Whether a drag has no start or a scroll no place, so that a pointer move gives it."""
    if call.does == "drag":
        return call.start is None
    return call.does == "scroll" and call.at is None


def _action(
    call: ActionCall, moved_to: Share | None, size: Pixel
) -> AnsweredAction | ForeignAction:
    """Returns the action of a call.

    Args:
        moved_to: place to which the pointer moved before the call.
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
    """Yields the actions; equal keys in a row become one action with `presses`."""
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


# Calls of an answer. A key held for 3 s makes 86 presses (measured), which trainers would cut off.
MOST_CALLS = 8
# Presses in a step of a whole trajectory: 50 take a quarter of the tokens of a screenshot.
MOST_PRESSES = 50
UNKNOWN_KEY = "unknown_key"
HELD_KEYS = "held_keys"
CLICKS_OF_BUTTON = "clicks_of_button"


class InexpressibleError(ValueError):
    """A form cannot express an action.

    Attributes:
        reason: one of the reasons for which the form leaves out steps.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ActionEncoder = Callable[[AnsweredAction, Pixel], Any]
"""Writes an action in a form; the size is that of its screenshot.

Raises `InexpressibleError` for what the form cannot say.
"""
