"""What a model answers for one step, and our actions in the vocabularies of others.

Belongs here: the types that the decoder of every form returns, other names of keys, and our own
form: `{"action_type": …, "parameters": …}` as action.json has it, without the target and the
sentence. Points are pixels of the screenshot.

A foreign vocabulary is a table of names, and knows how to write an `ActionCall` and to read one;
which of our actions it is, is the same for all of them and decided here, in both directions.
Written datasets are read without the aliases: a key there has our name.
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
        action_type: of the action.
        parameters: of the action.
        hovered: where the pointer rests before, in order, to open what is pressed. An action
            compares equal with and without it: a menu may also be open already.
    """

    action_type: ActionType
    parameters: Parameters
    hovered: tuple[Pixel, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ForeignAction:
    """An action of the form that is none of ours: the pointer moved, a key held, a screenshot.

    Attributes:
        name: as the form calls it.
        point: pixels of the screenshot, when it has a place.
    """

    name: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answers for one step.

    Attributes:
        actions: in the order in which they are to be done.
        status: how the model says the task ended; None: it does not end it.
        thought: its words beside the actions; empty: none.
    """

    actions: tuple[AnsweredAction | ForeignAction, ...]
    status: Literal["success", "failure"] | None = None
    thought: str = ""


class AnswerFormatError(ValueError):
    """An answer that the form does not allow, or that cannot be read.

    Attributes:
        reason: one of a few fixed phrases, such as "no tool call"; never words of the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


AnswerDecoder = Callable[[str, tuple[int, int]], Answer]
"""Reads a model's answer; the size is that of the step's screenshot, width and height in pixels.

Raises `AnswerFormatError` and nothing else, for any text.
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
    """Our name of a key that an answer names in another way; an unknown name stays as it is.

    Case does not count, so that `Enter`, `Return` and `return` are `enter`; of the two keys of a
    name (`ctrlleft`, `ctrlright`) we have one.
    """
    lower = name.strip().lower() or name
    known = _ALIASES.get(lower, lower)
    return known if is_canonical_key(known) else name


def action_text(action_type: ActionType, parameters: Parameters) -> str:
    """The action as JSON on one line; lone surrogates, which UTF-8 has not, become "?"."""
    value = {"action_type": action_type.value, "parameters": parameters.model_dump(mode="json")}
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


Share = tuple[float, float]
"""A place as shares of the screenshot's sides, 0 to 1."""
ScrollDirection = Literal["up", "down", "left", "right"]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """A call of a foreign vocabulary, its arguments in our words.

    Attributes:
        name: as the vocabulary calls it; empty for an action that is to be written.
        does: `click`, `move`, `drag`, `scroll`, `type`, `press`, `wait`, or for the keys of other
            calls `hold` and `release`; empty: none of ours.
        at: the place, of a drag its end; None: the call has none.
        start: where a drag begins; None: where the pointer was moved to before.
        button: of a click or a drag.
        clicks: how many.
        direction: of a scroll.
        amount: of a scroll, notches of the wheel.
        keys: that are pressed together.
        times: how often they are.
        text: that is typed.
        seconds: of a wait.
        held: keys that are down meanwhile.
        status: with which the task ends; empty: it goes on.
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
"""Name of a call of the wheel → directions of a positive and of a negative number."""


def wheel_turn(direction: ScrollDirection) -> tuple[str, int]:
    """The call of the wheel in a direction, and the sign of its number, 1 or -1."""
    name = "scroll" if direction in _WHEELS["scroll"] else "hscroll"
    return name, 1 if direction == _WHEELS[name][0] else -1


def wheel_direction(name: str, number: int) -> ScrollDirection:
    """The direction that a number has in a call of the wheel."""
    return _WHEELS[name][number < 0]


def call_of(action: AnsweredAction, size: Pixel) -> ActionCall:
    """An action as the call that a vocabulary writes; `size`: of the screenshot, pixels."""
    known = action.parameters.members()
    places = [shares_of(known[f"{x}x"], known[f"{x}y"], size) for x in _PLACES if f"{x}x" in known]
    at = places[-1] if places else None
    held = tuple(known.get("modifiers") or ())
    match action.parameters:
        case TypeParameters(text=text):
            return ActionCall("", "type", text=text)
        case HotkeyParameters(keys=keys, presses=presses):
            return ActionCall("", "press", keys=tuple(keys), times=presses or 1)
        case WaitParameters(seconds=seconds):
            return ActionCall("", "wait", seconds=seconds)
        case DragParameters(button=button, clicks=many):
            call = ActionCall("", "drag", at, places[0], button=button or "left", held=held)
            return replace(call, clicks=many or 1)
        case ScrollParameters(direction=direction, amount=amount):
            return ActionCall("", "scroll", at, direction=direction, amount=amount, held=held)
    button = known.get("button", "left")
    clicks = known.get("clicks") or 1
    if isinstance(action.parameters, PointParameters):
        button, clicks = next(k for k, kind in _POINT_TYPES.items() if kind == action.action_type)
    return ActionCall("", "click", at, button=button, clicks=clicks, held=held)


def hovered_shares(action: AnsweredAction, size: Pixel) -> list[Share]:
    """The places to which the pointer moves before an action; `size`: of the screenshot."""
    return [shares_of(x, y, size) for x, y in action.hovered]


_PLACES = ("", "start_", "end_")
_START = ("start_x", "start_y")
_KINDS = {model: kind for kind, model in PARAMETERS.items()}  # of a point it is not the only one


def answered(parameters: Parameters) -> AnsweredAction:
    """The action of its parameters, which say its type unless they are a bare point."""
    return AnsweredAction(_KINDS[type(parameters)], parameters)


def read_calls(
    calls: Iterable[ActionCall], size: Pixel
) -> tuple[AnsweredAction | ForeignAction, ...]:
    """The actions that calls make together: the inverse of `call_of`.

    A move of the pointer and the drag or the turn of the wheel that says no place of its own are
    one action, and so are the same keys several times in a row. Keys that are held during other
    calls belong to these. Moves before a press are where the pointer rests to open what is pressed.
    """
    return tuple(_merged(_read(_with_held_keys(calls), size)))


def _with_held_keys(calls: Iterable[ActionCall]) -> Iterator[ActionCall]:
    """Yield the calls between the presses and releases of keys, with the keys that are held.

    Keys that are released without a call while they are held were pressed together.
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
    return replace(call, does="")  # typing or waiting while keys are held is none of our actions


def _read(calls: Iterable[ActionCall], size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
    runs = [(call, sum(1 for _ in run)) for call, run in groupby(calls)]
    moves: list[Share] = []
    for (call, times), after in zip(runs, _calls_after_moves(runs), strict=True):
        if call.does == "move" and call.at and _takes_moves(after):
            moves.append(call.at)
        elif call.does == "press":
            yield _action(replace(call, times=call.times * times), None, size)
        else:
            for _ in range(times):
                moved = moves.pop() if moves and _lacks_place(call) else None
                action = _action(call, moved, size)
                if moves and isinstance(action, AnsweredAction):
                    hovered = tuple(pixel_at(*move, size) for move in moves)
                    action = replace(action, hovered=hovered)
                yield action
                moves = []


def _calls_after_moves(runs: Sequence[tuple[ActionCall, int]]) -> list[ActionCall]:
    """Of each call the next one, itself included, that is no move of the pointer."""
    acting = [ActionCall("")]
    for call, _ in reversed(runs):
        acting.append(acting[-1] if call.does == "move" else call)
    return acting[:0:-1]


def _takes_moves(call: ActionCall) -> bool:
    """Whether moves of the pointer before a call belong to it."""
    return _lacks_place(call) or call.does == "drag" or (call.does == "click" and bool(call.at))


def _lacks_place(call: ActionCall) -> bool:
    """Whether a drag lacks its start or a scroll its place: the pointer was moved there before."""
    if call.does == "drag":
        return call.start is None
    return call.does == "scroll" and call.at is None


def _action(call: ActionCall, moved: Share | None, size: Pixel) -> AnsweredAction | ForeignAction:
    """The action of a call; `moved`: where the pointer was moved to before it."""
    at = call.at or (moved if call.does == "scroll" else None)
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
        case "drag", (x, y) if start := call.start or moved:
            begin: dict[str, Any] = dict(zip(_START, pixel_at(*start, size), strict=True))
            button = None if call.button == "left" else call.button
            parameters = DragParameters(**begin, end_x=x, end_y=y, button=button, **held)
    return answered(parameters) if parameters else ForeignAction(call.name, place)


def _merged(
    actions: Iterable[AnsweredAction | ForeignAction],
) -> Iterator[AnsweredAction | ForeignAction]:
    """Yield the actions; the same keys one after another are one action with `presses`."""
    for keys, run in groupby(actions, _keys):
        same = list(run)
        if keys and len(same) > 1:
            given = [one.parameters.members() for one in same if isinstance(one, AnsweredAction)]
            presses = sum(one.get("presses") or 1 for one in given)
            same = [answered(HotkeyParameters(keys=keys, presses=presses))]
        yield from same


def _keys(action: AnsweredAction | ForeignAction) -> list[str] | None:
    parameters = action.parameters if isinstance(action, AnsweredAction) else None
    return parameters.keys if isinstance(parameters, HotkeyParameters) else None


# Of one answer: a key held for 3 s is 86 presses (measured), which trainers cut in the middle.
MOST_CALLS = 8
# Of a step of a whole trajectory: 50 presses are a quarter of the tokens of a screenshot.
MOST_PRESSES = 50
UNKNOWN_KEY = "unknown_key"
HELD_KEYS = "held_keys"
CLICKS_OF_BUTTON = "clicks_of_button"


class InexpressibleError(ValueError):
    """A form has no words for an action.

    Attributes:
        reason: one of the form's losses.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ActionEncoder = Callable[[AnsweredAction, Pixel], Any]
"""Writes an action in a form; the size is that of its screenshot.

Raises `InexpressibleError` for what the form cannot say.
"""
