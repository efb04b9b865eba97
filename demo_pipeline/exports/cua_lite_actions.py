"""CUA-Lite's actions: the arguments of its tools, our actions in them, and reading an answer.

Belongs here: the names of keys, which AgentNet's code uses too, and the models of what `computer`,
`point` and `bbox` are called with.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from demo_pipeline.desktopd.models import (
    DragParameters,
    HotkeyParameters,
    Parameters,
    Pixel,
    ScrollParameters,
    Text,
    TypeParameters,
    WaitParameters,
    pixel_at,
    shares_of,
)
from demo_pipeline.exports.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
    answered,
    click_action,
    click_of,
    merge_presses,
    parse_answer,
)
from demo_pipeline.exports.record_checks import StrictDocument
from demo_pipeline.exports.whole_trajectories import UNKNOWN_KEY, InexpressibleError
from demo_pipeline.files.base_model import DocumentT, explain, field_name

_SAME = (
    "ctrl alt shift enter tab space backspace delete esc up down left right home end pageup"
    " pagedown insert capslock clear printscreen volumeup volumedown volumemute playpause nexttrack"
    " prevtrack"
)
_CHARACTERS = frozenset(map(chr, range(33, 127))) - frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TO_LITE: Mapping[str, str] = {
    **{name: name for name in (*_SAME.split(), *(f"f{number}" for number in range(1, 25)))},
    "win": "meta",
    "command": "meta",
    "apps": "menu",
}
# A key of two names of ours is read as the first; the second key for Enter is read as Enter.
_FROM_LITE: Mapping[str, str] = {
    **{lite: ours for ours, lite in reversed(list(_TO_LITE.items()))},
    "kp_enter": "enter",
}


def to_lite_key(name: str) -> str | None:
    """CUA-Lite's name of one of our keys; None: it has none."""
    return name if name in _CHARACTERS else _TO_LITE.get(name)


def from_lite_key(name: str) -> str | None:
    """Our name of one of CUA-Lite's keys, `meta` being `win`; None: it is not one."""
    return name if name in _CHARACTERS else _FROM_LITE.get(name)


_MAX = 1000  # coordinates are integers from 0 to this, on each axis
LITE_DONE = "Done."  # the last words of a task that was ended
COMPUTER, POINT, BBOX = "computer", "point", "bbox"  # the tools
_Unit = Annotated[int, Field(ge=0, le=_MAX)]
_Coordinate = Annotated[list[_Unit], Field(min_length=2, max_length=2)]
_Button = Literal["left", "right", "middle"]
_Seconds = Annotated[float, Field(ge=0)]


def _known_keys(keys: list[str]) -> list[str]:
    if any(from_lite_key(key) is None for key in keys):
        raise ValueError("a key is none of the form's names")
    return keys


_Keys = Annotated[list[Text], Field(min_length=1), AfterValidator(_known_keys)]


class LiteClick(StrictDocument):
    """Clicks; without a coordinate where the pointer is."""

    action: Literal["click"]
    coordinate: _Coordinate | None = None
    button: _Button = "left"
    clicks: Annotated[int, Field(ge=1, le=3)] = 1


class _Drag(StrictDocument):
    action: Literal["drag"]
    start_coordinate: _Coordinate | None = None
    coordinate: _Coordinate
    button: _Button = "left"


class LiteScroll(StrictDocument):
    """Turning the wheel by some notches."""

    action: Literal["scroll"]
    direction: Literal["up", "down", "left", "right"]
    amount: Annotated[int, Field(gt=0)]
    coordinate: _Coordinate | None = None


class _Type(StrictDocument):
    action: Literal["type"]
    text: str  # a final line break is the Enter key


class _Press(StrictDocument):
    action: Literal["key", "key_down", "key_up"]
    keys: _Keys


class _HoldKey(StrictDocument):
    action: Literal["hold_key"]
    keys: _Keys
    duration: _Seconds


class _Move(StrictDocument):
    action: Literal["mouse_move"]
    coordinate: _Coordinate


class _HoldButton(StrictDocument):
    action: Literal["mouse_down", "mouse_up"]
    button: _Button = "left"


class _Wait(StrictDocument):
    action: Literal["wait"]
    duration: _Seconds


class _Look(StrictDocument):
    action: Literal["screenshot", "cursor_position"]


_Pointing = LiteClick | _Drag | LiteScroll
_Action = Annotated[
    _Pointing | _Type | _Press | _HoldKey | _Move | _HoldButton | _Wait | _Look,
    Field(discriminator="action"),
]


class LiteActions(StrictDocument):
    """The arguments of `computer`."""

    actions: list[_Action] = Field(min_length=1)


class LitePoint(StrictDocument):
    """The arguments of `point`."""

    coordinate: _Coordinate


class LiteBox(StrictDocument):
    """The arguments of `bbox`."""

    coordinate: Annotated[list[_Unit], Field(min_length=4, max_length=4)]  # left, top, right, …


LITE_TOOLS: Mapping[str, type[StrictDocument]] = {
    COMPUTER: LiteActions,
    POINT: LitePoint,
    BBOX: LiteBox,
}


def lite_value(model: type[DocumentT], value: Any) -> DocumentT | list[str]:
    """The model of a JSON value, or what is wrong with it, without the value itself."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return [f"{field_name(place) or 'value'}: {said}" for place, said in explain(error)]


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """An action as the `actions` of `computer`; see `ActionEncoder`.

    Members with the form's default value are left out, as the form's own rows do. Modifiers are
    keys that go down before the action and up after it; keys pressed n times are n actions.
    """
    match action.parameters:
        case TypeParameters(text=text):
            return [{"action": "type", "text": text}]
        case HotkeyParameters(keys=keys, presses=presses):
            return [{"action": "key", "keys": _lite_keys(keys)} for _ in range(presses or 1)]
        case WaitParameters(seconds=seconds):
            return [{"action": "wait", "duration": seconds}]
        case DragParameters() as drag:
            done: dict[str, Any] = {
                "action": "drag",
                "start_coordinate": _units(drag.start_x, drag.start_y, size),
                "coordinate": _units(drag.end_x, drag.end_y, size),
            }
            done |= {"button": drag.button} if drag.button not in {None, "left"} else {}
        case ScrollParameters() as scroll:
            done = {"action": "scroll", "direction": scroll.direction, "amount": scroll.amount}
            done["coordinate"] = _units(scroll.x, scroll.y, size)
        case _:
            button, clicks, x, y = click_of(action)
            done = {"action": "click", "coordinate": _units(x, y, size)}
            done |= {"button": button} if button != "left" else {}
            done |= {"clicks": clicks} if clicks != 1 else {}
    if not (modifiers := _lite_keys(action.parameters.members().get("modifiers") or [])):
        return [done]
    down = {"action": "key_down", "keys": modifiers}
    return [down, done, {"action": "key_up", "keys": modifiers[::-1]}]


def _units(x: int, y: int, size: Pixel) -> list[int]:
    return [round(share * _MAX) for share in shares_of(x, y, size)]


def _lite_keys(keys: Sequence[str]) -> list[str]:
    named = [to_lite_key(key) for key in keys]
    if None in named:
        raise InexpressibleError(UNKNOWN_KEY)
    return [key for key in named if key]


_SHOWN_WORDS = ("inline_reasoning", "action_description", "text")


def decode_cua_lite_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `answers.AnswerDecoder`.

    It is JSON: an assistant's message, its list of calls, one call, or the arguments of `computer`.
    The words `Done.` without a call end the task. Keys that are held around one action are its
    modifiers; held otherwise they are foreign.

    Raises:
        AnswerFormatError: it is something else, or a call is not as the form defines it.
    """
    value = {"content": LITE_DONE} if text.strip() == LITE_DONE else parse_answer(text)
    words, calls = _answered_words(value), _answered_calls(value)
    if not calls and words == LITE_DONE:
        return Answer((), "success")
    if not calls:
        raise AnswerFormatError("no tool call")
    actions = merge_presses(action for call in calls for action in _answered(call, size))
    return Answer(tuple(actions), thought=words)


def _answered_words(value: Any) -> str:
    """The words of a message, a line a part."""
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    shown = (part for part in parts if isinstance(part, dict) and part.get("type") in _SHOWN_WORDS)
    return "\n".join(part["text"] for part in shown if isinstance(part.get("text"), str))


def _answered_calls(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return ()
    if "actions" in value:
        return [{"name": COMPUTER, "arguments": value}]
    if "function" in value or "name" in value:
        return [value]
    calls = value.get("tool_calls")
    return calls if isinstance(calls, list) else ()


def _answered(call: Any, size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
    """Yield the actions of one call."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, Mapping):
        raise AnswerFormatError("not a tool call")
    name = function.get("name")
    if not isinstance(name, str) or name not in LITE_TOOLS:
        raise AnswerFormatError("unknown tool")
    arguments = lite_value(LITE_TOOLS[name], function.get("arguments"))
    match arguments:
        case LiteActions(actions=actions):
            yield from _done(actions, size)
        case LitePoint(coordinate=point):
            yield ForeignAction(POINT, _pixel(point, size))
        case LiteBox(coordinate=[left, top, right, bottom]):
            yield ForeignAction(BBOX, _pixel(((left + right) / 2, (top + bottom) / 2), size))
        case _:
            raise AnswerFormatError("wrong arguments")


def _done(actions: Sequence[_Action], size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
    """Yield an action each; keys held around one pointing action become its modifiers."""
    number = 0
    while number < len(actions):
        held, action = None, actions[number]
        match actions[number : number + 3]:
            case [
                _Press(action="key_down", keys=down),
                LiteClick() | _Drag() | LiteScroll() as inner,
                _Press(action="key_up", keys=up),
            ] if up == down[::-1]:
                held, action, number = _our_keys(down), inner, number + 2
        number += 1
        place = getattr(action, "coordinate", None)
        foreign = ForeignAction(action.action, _pixel(place, size) if place else None)
        yield _single(action, held, size) or foreign


def _single(action: _Action, held: list[str] | None, size: Pixel) -> AnsweredAction | None:
    """Our action; None: we have no such action, or it has no place."""
    parameters: Parameters
    match action:
        case LiteClick(coordinate=[_, _] as place):
            return click_action(action.button, action.clicks, _pixel(place, size), held)
        case _Drag(start_coordinate=[_, _] as start):
            (x, y), (to_x, to_y) = _pixel(start, size), _pixel(action.coordinate, size)
            button = None if action.button == "left" else action.button
            parameters = DragParameters(
                start_x=x, start_y=y, end_x=to_x, end_y=to_y, button=button, modifiers=held
            )
        case LiteScroll(coordinate=[_, _] as place, direction=direction, amount=amount):
            x, y = _pixel(place, size)
            parameters = ScrollParameters(
                x=x, y=y, direction=direction, amount=amount, modifiers=held
            )
        case _Type(text=text):
            parameters = TypeParameters(text=text)
        case _Press(action="key", keys=keys):
            parameters = HotkeyParameters(keys=_our_keys(keys))
        case _Wait(duration=seconds) if seconds > 0:
            parameters = WaitParameters(seconds=seconds)
        case _:
            return None
    return answered(parameters)


def _pixel(coordinate: Sequence[float], size: Pixel) -> Pixel:
    return pixel_at(coordinate[0] / _MAX, coordinate[1] / _MAX, size)


def _our_keys(keys: Sequence[str]) -> list[str]:
    return [from_lite_key(key) or key for key in keys]
