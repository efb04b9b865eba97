"""CUA-Lite's actions: the arguments of its tools, and our actions in them.

Belongs here: the names of keys, which AgentNet's code uses too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from demo_pipeline.desktopd.models import Pixel
from demo_pipeline.exports.answers import (
    CLICKS_OF_BUTTON,
    HELD_KEYS,
    MOST_PRESSES,
    UNKNOWN_KEY,
    AnsweredAction,
    InexpressibleError,
    Share,
    call_of,
    hovered_shares,
)
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


def to_lite_key(name: str) -> str | None:
    """CUA-Lite's name of one of our keys; None: it has none."""
    return name if name in _CHARACTERS else _TO_LITE.get(name)


_MAX = 1000  # coordinates are integers from 0 to this, on each axis
LITE_DONE = "Done."  # the last words of a task that was ended
COMPUTER, POINT, BBOX = "computer", "point", "bbox"  # the tools


def lite_value(model: type[DocumentT], value: Any) -> DocumentT | list[str]:
    """The model of a JSON value, or what is wrong with it, without the value itself."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return [f"{field_name(place) or 'value'}: {said}" for place, said in explain(error)]


_NAMES = {
    **{name: name for name in ("click", "drag", "scroll", "type", "wait")},
    "press": "key",
    "move": "mouse_move",
}


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """An action as the `actions` of `computer`; see `ActionEncoder`.

    Members with the form's default value are left out, as the form's own rows do. Modifiers are
    keys that go down before the action and up after it; keys pressed n times are n actions.
    """
    call = call_of(action, size)
    if call.times > MOST_PRESSES:
        raise InexpressibleError(HELD_KEYS)
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
    if call.does == "drag" and call.clicks != 1:
        raise InexpressibleError(CLICKS_OF_BUTTON)
    given |= {"clicks": call.clicks} if call.clicks != 1 else {}
    done = [{"action": _NAMES[call.does], **given}] * call.times
    moves = [
        {"action": "mouse_move", "coordinate": _units(at)} for at in hovered_shares(action, size)
    ]
    if not (held := _lite_keys(call.held)):
        return [*moves, *done]
    down = {"action": "key_down", "keys": held}
    return [*moves, down, *done, {"action": "key_up", "keys": held[::-1]}]


def _units(at: Share | None) -> list[int]:
    return [round(share * _MAX) for share in at or ()]


def _lite_keys(keys: Sequence[str]) -> list[str]:
    named = [to_lite_key(key) for key in keys]
    if None in named:
        raise InexpressibleError(UNKNOWN_KEY)
    return [key for key in named if key]
