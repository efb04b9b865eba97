"""Converts our actions to CUA-Lite's actions."""

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

_SAME_NAMES = (
    "ctrl alt shift enter tab space backspace delete esc up down left right home end pageup"
    " pagedown insert capslock clear printscreen volumeup volumedown volumemute playpause nexttrack"
    " prevtrack"
)
_CHARACTERS = frozenset(map(chr, range(33, 127))) - frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# Maps our key names to CUA-Lite's. Characters have the same name in both, and are not listed.
_TO_LITE: Mapping[str, str] = {
    **{name: name for name in _SAME_NAMES.split()},
    **{f"f{number}": f"f{number}" for number in range(1, 25)},
    "win": "meta",
    "command": "meta",
    "apps": "menu",
}


def to_lite_key(name: str) -> str | None:
    """Returns CUA-Lite's name of one of our keys; None if CUA-Lite has no name for the key."""
    if name in _CHARACTERS:
        return name
    return _TO_LITE.get(name)


_MAX = 1000  # largest coordinate on each axis
LITE_DONE = "Done."  # the last turn of a task that was done
# CUA-Lite's tools: actions, the centre of an element, and the box of an element.
COMPUTER = "computer"
POINT = "point"
BBOX = "bbox"


def lite_value(model: type[DocumentT], value: Any) -> DocumentT | list[str]:
    """Parses a JSON value as a model. Returns error messages that do not quote an invalid value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return [f"{field_name(place) or 'value'}: {message}" for place, message in explain(error)]


_NAMES = {  # maps `ActionCall.does` to the name of CUA-Lite's action
    **{name: name for name in ("click", "drag", "scroll", "type", "wait")},
    "press": "key",
    "move": "mouse_move",
}


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """Converts an action to the argument `actions` of CUA-Lite's tool `computer`.

    Modifiers become `key_down` before the action and `key_up` after it. A key that is pressed n
    times becomes n actions. Arguments with their default value are left out, as in CUA-Lite's own
    rows. For the arguments of this function see `answers.ActionEncoder`.
    """
    call = call_of(action, size)
    if call.times > MOST_PRESSES:
        raise InexpressibleError(HELD_KEYS)
    members: dict[str, Any] = {}
    match call.does:
        case "type":
            members = {"text": call.text}
        case "press":
            members = {"keys": _lite_keys(call.keys)}
        case "wait":
            members = {"duration": call.seconds}
        case "scroll":
            members = {"direction": call.direction, "amount": call.amount}
        case "drag":
            members = {"start_coordinate": _units(call.start)}
    if call.at:
        members["coordinate"] = _units(call.at)
    if call.button != "left":
        members["button"] = call.button
    if call.does == "drag" and call.clicks != 1:
        raise InexpressibleError(CLICKS_OF_BUTTON)
    if call.clicks != 1:
        members["clicks"] = call.clicks
    actions = [{"action": _NAMES[call.does], **members}] * call.times
    if held := _lite_keys(call.held):
        key_down = {"action": "key_down", "keys": held}
        key_up = {"action": "key_up", "keys": held[::-1]}
        actions = [key_down, *actions, key_up]
    moves = [
        {"action": "mouse_move", "coordinate": _units(at)} for at in hovered_shares(action, size)
    ]
    return [*moves, *actions]


def _units(at: Share | None) -> list[int]:
    """Returns a position as CUA-Lite's coordinate, 0 to 1000, or [] for None."""
    return [round(share * _MAX) for share in at or ()]


def _lite_keys(keys: Sequence[str]) -> list[str]:
    """Returns CUA-Lite's names of keys.

    Raises:
        InexpressibleError: CUA-Lite has no name for a key.
    """
    lite_keys = list[str]()
    for key in keys:
        lite_key = to_lite_key(key)
        if lite_key is None:
            raise InexpressibleError(UNKNOWN_KEY)
        lite_keys.append(lite_key)
    return lite_keys
