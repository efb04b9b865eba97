"""Our actions in the forms of CUA-Lite and AgentNet; the inverses of those forms' decoders.

Belongs here: the encoders, and why an action cannot be said in a form. An action that a form
cannot say exactly is a loss that the export counts; it is never written as another one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from demo_pipeline.formats.agentnet.pyautogui_code import (
    MOST_CALLS,
    MOST_PRESSES,
    is_code_key,
)
from demo_pipeline.formats.answers import AnsweredAction
from demo_pipeline.formats.cua_lite.keys import to_lite_key
from demo_pipeline.formats.cua_lite.models import LITE_MAX
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    PointParameters,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
)
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.formats.pixels import Pixel, shares_of

UNKNOWN_KEY, HELD_KEYS, CLICKS_OF_BUTTON = "unknown_key", "held_keys", "clicks_of_button"
LITE_LOSSES = (UNKNOWN_KEY,)
AGENTNET_LOSSES = (UNKNOWN_KEY, HELD_KEYS, CLICKS_OF_BUTTON)
_DIGITS = 4  # of a share: 0.0001 of 1920 pixels is a fifth of a pixel
_CODE_OF_CLICK = {
    ("left", 1): "pyautogui.click",
    ("right", 1): "pyautogui.rightClick",
    ("middle", 1): "pyautogui.middleClick",
    ("left", 2): "pyautogui.doubleClick",
    ("left", 3): "computer.tripleClick",
}


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


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """An action as the `actions` of CUA-Lite's `computer`; see `ActionEncoder`.

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
    done = _lite_pointing(action, size)
    modifiers = _lite_keys(action.parameters.members().get("modifiers") or [])
    if not modifiers:
        return [done]
    down = {"action": "key_down", "keys": modifiers}
    return [down, done, {"action": "key_up", "keys": modifiers[::-1]}]


def _lite_pointing(action: AnsweredAction, size: Pixel) -> dict[str, Any]:
    match action.parameters:
        case DragParameters() as drag:
            start = _units(drag.start_x, drag.start_y, size)
            done = {"action": "drag", "start_coordinate": start}
            done["coordinate"] = _units(drag.end_x, drag.end_y, size)
            return done | _unless("button", drag.button or "left", "left")
        case ScrollParameters() as scroll:
            turned = {"direction": scroll.direction, "amount": scroll.amount}
            return {"action": "scroll", **turned, "coordinate": _units(scroll.x, scroll.y, size)}
    button, clicks, x, y = _click(action)
    done = {"action": "click", "coordinate": _units(x, y, size)}
    return done | _unless("button", button, "left") | _unless("clicks", clicks, 1)


def _click(action: AnsweredAction) -> tuple[str, int, int, int]:
    """Button, number of clicks, x and y."""
    match action.parameters:
        case ClickParameters() as click:
            return click.button, click.clicks or 1, click.x, click.y
        case PointParameters(x=x, y=y) if action.action_type is ActionType.DOUBLE_CLICK:
            return "left", 2, x, y
        case PointParameters(x=x, y=y):
            return "right", 1, x, y
    raise TypeError(f"no encoder for {type(action.parameters).__name__}")


def _unless(name: str, value: object, default: object) -> dict[str, Any]:
    return {} if value == default else {name: value}


def _units(x: int, y: int, size: Pixel) -> list[int]:
    return [round(share * LITE_MAX) for share in shares_of(x, y, size)]


def _lite_keys(keys: Sequence[str]) -> list[str]:
    named = [to_lite_key(key) for key in keys]
    if None in named:
        raise InexpressibleError(UNKNOWN_KEY)
    return [key for key in named if key]


def agentnet_code(action: AnsweredAction, size: Pixel) -> str:
    """An action as AgentNet's code, one call a line; see `ActionEncoder`."""
    if action.parameters.members().get("modifiers"):
        raise InexpressibleError(HELD_KEYS)
    lines = list(_code_lines(action, size))
    if len(lines) > MOST_CALLS:  # of keys that were held down until they repeated as often
        raise InexpressibleError(HELD_KEYS)
    return "\n".join(lines)


def _code_lines(action: AnsweredAction, size: Pixel) -> Iterator[str]:
    match action.parameters:
        case TypeParameters(text=text):
            yield f"pyautogui.write(message={text!r})"
        case HotkeyParameters(keys=keys, presses=presses):
            yield from _key_lines(keys, presses or 1)
        case WaitParameters(seconds=seconds):
            whole = seconds.is_integer()
            yield f"computer.wait({int(seconds) if whole else seconds!r})"
        case DragParameters() as drag:
            yield f"pyautogui.moveTo({_place(drag.start_x, drag.start_y, size)})"
            end = _place(drag.end_x, drag.end_y, size)
            yield f"pyautogui.dragTo({end}, button={drag.button or 'left'!r})"
        case ScrollParameters() as scroll:
            yield f"pyautogui.moveTo({_place(scroll.x, scroll.y, size)})"
            name = "scroll" if scroll.direction in ("up", "down") else "hscroll"
            sign = 1 if scroll.direction in ("up", "right") else -1
            yield f"pyautogui.{name}({sign * scroll.amount})"
        case _:
            button, clicks, x, y = _click(action)
            if (button, clicks) not in _CODE_OF_CLICK:
                raise InexpressibleError(CLICKS_OF_BUTTON)
            yield f"{_CODE_OF_CLICK[button, clicks]}({_place(x, y, size)})"


def _key_lines(keys: Sequence[str], presses: int) -> Iterator[str]:
    if not all(map(is_code_key, keys)):
        raise InexpressibleError(UNKNOWN_KEY)
    if len(keys) > 1:
        yield from [f"pyautogui.hotkey({list(keys)!r})"] * presses
    else:
        full, rest = divmod(presses, MOST_PRESSES)
        for times in [MOST_PRESSES] * full + [rest] * bool(rest):
            yield f"pyautogui.press({keys[0]!r}{f', presses={times}' if times > 1 else ''})"


def share_text(x: int, y: int, size: Pixel) -> str:
    """A place as AgentNet writes its two numbers: `0.5, 0.25`."""
    return ", ".join(map(repr, _shares(x, y, size)))


def _place(x: int, y: int, size: Pixel) -> str:
    across, down = _shares(x, y, size)
    return f"x={across!r}, y={down!r}"


def _shares(x: int, y: int, size: Pixel) -> tuple[float, float]:
    across, down = shares_of(x, y, size)
    return round(across, _DIGITS), round(down, _DIGITS)
