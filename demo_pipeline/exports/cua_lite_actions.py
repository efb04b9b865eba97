"""CUA-Lite's actions: the arguments of its tools, our actions in them, and reading an answer.

Belongs here: the names of keys, which AgentNet's code uses too, and the models of what `computer`,
`point` and `bbox` are called with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from demo_pipeline.desktopd.models import Pixel, Text
from demo_pipeline.exports.answers import (
    UNKNOWN_KEY,
    ActionCall,
    Answer,
    AnsweredAction,
    AnswerFormatError,
    InexpressibleError,
    Share,
    call_of,
    parse_answer,
    read_calls,
)
from demo_pipeline.exports.record_checks import StrictDocument
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


# Action → its members that must be there, and those that may be.
_MEMBERS = {
    "click": ("", "coordinate button clicks"),
    "drag": ("coordinate", "start_coordinate button"),
    "scroll": ("direction amount", "coordinate"),
    "type": ("text", ""),
    "key": ("keys", ""),
    "key_down": ("keys", ""),
    "key_up": ("keys", ""),
    "hold_key": ("keys duration", ""),
    "mouse_move": ("coordinate", ""),
    "mouse_down": ("", "button"),
    "mouse_up": ("", "button"),
    "wait": ("duration", ""),
    "screenshot": ("", ""),
    "cursor_position": ("", ""),
}


class _LiteAction(StrictDocument):
    """What `computer` does; a final line break of a text is the Enter key.

    A click, or a turn of the wheel, without a coordinate is where the pointer is.
    """

    action: str
    coordinate: _Coordinate | None = None
    start_coordinate: _Coordinate | None = None
    button: _Button = "left"
    clicks: Annotated[int, Field(ge=1, le=3)] = 1
    direction: Literal["up", "down", "left", "right"] = "up"
    amount: Annotated[int, Field(gt=0)] = 1
    text: str = ""
    keys: _Keys = Field(default_factory=list)
    duration: _Seconds = 1.0

    @model_validator(mode="after")
    def _has_its_members(self) -> Self:
        if self.action not in _MEMBERS:
            raise ValueError(f"action must be one of {', '.join(_MEMBERS)}")
        needed, further = (set(names.split()) for names in _MEMBERS[self.action])
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        given -= {"action"}
        if absent := sorted(needed - given):
            raise ValueError(f"{self.action} has no {absent[0]}")
        if strange := sorted(given - needed - further):
            raise ValueError(f"{self.action} has the member {strange[0]} of another action")
        return self


class _LiteActions(StrictDocument):
    """The arguments of `computer`."""

    actions: list[_LiteAction] = Field(min_length=1)


class _LitePoint(StrictDocument):
    """The arguments of `point`."""

    coordinate: _Coordinate


class _LiteBox(StrictDocument):
    """The arguments of `bbox`."""

    coordinate: Annotated[list[_Unit], Field(min_length=4, max_length=4)]  # left, top, right, …


_TOOLS: Mapping[str, type[StrictDocument]] = {
    COMPUTER: _LiteActions,
    POINT: _LitePoint,
    BBOX: _LiteBox,
}


def lite_value(model: type[DocumentT], value: Any) -> DocumentT | list[str]:
    """The model of a JSON value, or what is wrong with it, without the value itself."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return [f"{field_name(place) or 'value'}: {said}" for place, said in explain(error)]


def argument_faults(tool: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the code of what is wrong with the arguments of a tool, and what follows its place."""
    arguments = lite_value(_TOOLS[tool], value)
    if isinstance(arguments, list):
        yield from (("arguments", f".arguments: {fault}") for fault in arguments)
    elif isinstance(arguments, _LiteBox):
        left, top, right, bottom = arguments.coordinate
        if left > right or top > bottom:
            yield "box", ": the box ends before it begins"
    elif isinstance(arguments, _LiteActions):
        for action in arguments.actions:
            if action.action in {"click", "scroll"} and action.coordinate is None:
                yield "no_place", f": a {action.action} has no coordinate"


_DOES = {
    **{name: name for name in ("click", "drag", "scroll", "type", "wait")},
    "key": "press",
    "mouse_move": "move",
}
_NAMES = {does: name for name, does in _DOES.items()}


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """An action as the `actions` of `computer`; see `ActionEncoder`.

    Members with the form's default value are left out, as the form's own rows do. Modifiers are
    keys that go down before the action and up after it; keys pressed n times are n actions.
    """
    call = call_of(action, size)
    given: dict[str, Any] = {}
    match call.does:
        case "type":
            given = {"text": call.text}
        case "press":
            given = {"keys": _lite_keys(call.keys)}
        case "wait":
            given = {"duration": call.seconds}
        case "scroll":
            given = {"direction": call.direction, "amount": call.amount}
        case "drag":
            given = {"start_coordinate": _units(call.start)}
    given |= {"coordinate": _units(call.at)} if call.at else {}
    given |= {"button": call.button} if call.button != "left" else {}
    given |= {"clicks": call.clicks} if call.clicks != 1 else {}
    done = [{"action": _NAMES[call.does], **given}] * call.times
    if not (held := _lite_keys(call.held)):
        return done
    return [{"action": "key_down", "keys": held}, *done, {"action": "key_up", "keys": held[::-1]}]


def _units(at: Share | None) -> list[int]:
    return [round(share * _MAX) for share in at or ()]


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
    return Answer(read_calls((one for call in calls for one in _answered(call)), size), None, words)


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


def _answered(call: Any) -> Iterator[ActionCall]:
    """Yield what one call of a tool does."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, Mapping):
        raise AnswerFormatError("not a tool call")
    name = function.get("name")
    if not isinstance(name, str) or name not in _TOOLS:
        raise AnswerFormatError("unknown tool")
    arguments = lite_value(_TOOLS[name], function.get("arguments"))
    match arguments:
        case _LiteActions(actions=actions):
            yield from _done(actions)
        case _LitePoint(coordinate=point):
            yield ActionCall(POINT, at=_share(point))
        case _LiteBox(coordinate=[left, top, right, bottom]):
            yield ActionCall(BBOX, at=_share([(left + right) / 2, (top + bottom) / 2]))
        case _:
            raise AnswerFormatError("wrong arguments")


def _done(actions: Sequence[_LiteAction]) -> Iterator[ActionCall]:
    """Yield a call each; keys held around one pointing action become its modifiers."""
    number = 0
    while number < len(actions):
        match actions[number : number + 3]:
            case [
                _LiteAction(action="key_down", keys=down),
                _LiteAction(action="click" | "drag" | "scroll") as inner,
                _LiteAction(action="key_up", keys=up),
            ] if up == down[::-1]:
                yield replace(_call(inner), held=_our_keys(down))
                number += 3
            case [action, *_]:
                yield _call(action)
                number += 1


def _call(action: _LiteAction) -> ActionCall:
    name = action.action
    return ActionCall(
        name,
        _DOES.get(name, "") if action.duration > 0 else "",
        at=_share(action.coordinate),
        start=_share(action.start_coordinate),
        button=action.button,
        clicks=action.clicks,
        direction=action.direction,
        amount=action.amount,
        keys=_our_keys(action.keys),
        text=action.text,
        seconds=action.duration,
    )


def _share(coordinate: Sequence[float] | None) -> Share | None:
    return (coordinate[0] / _MAX, coordinate[1] / _MAX) if coordinate else None


def _our_keys(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(from_lite_key(key) or key for key in keys)
