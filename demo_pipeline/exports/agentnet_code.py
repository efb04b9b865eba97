"""AgentNet's code: calls of pyautogui and of `computer`, one a line, and nothing else.

Belongs here: reading code without running it, and the keys that may be named in it. The strict
reading takes what AgentNet's own readers take; the tolerant one is for what models answer.
"""

import ast
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from demo_pipeline.desktopd.models import is_canonical_key
from demo_pipeline.exports.answers import AnswerFormatError, answered_key
from demo_pipeline.exports.cua_lite_models import to_lite_key

CLICKS: Mapping[str, tuple[str, int]] = {
    "click": ("left", 1),
    "rightClick": ("right", 1),
    "middleClick": ("middle", 1),
    "doubleClick": ("left", 2),
    "tripleClick": ("left", 3),
}
"""Name of a click → its button and how often."""

_PLACE = ("x", "y")
# Function → the names of its arguments, in order; those without a place must be named.
_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    **{f"pyautogui.{name}": _PLACE for name in CLICKS if name != "tripleClick"},
    "computer.tripleClick": _PLACE,
    "pyautogui.moveTo": _PLACE,
    "pyautogui.dragTo": (*_PLACE, "button"),
    "pyautogui.scroll": ("clicks",),
    "pyautogui.hscroll": ("clicks",),
    "pyautogui.hotkey": ("keys",),
    "pyautogui.press": ("keys", "presses"),
    "pyautogui.write": ("message",),
    "computer.wait": ("seconds",),
    "computer.terminate": ("status",),
}
_TOLERATED: Mapping[str, tuple[str, ...]] = {
    **{f"pyautogui.{name}": (*_PLACE, "interval", "button", "duration") for name in CLICKS},
    "pyautogui.click": (*_PLACE, "clicks", "interval", "button", "duration"),
    "pyautogui.moveTo": (*_PLACE, "duration"),
    "pyautogui.dragTo": (*_PLACE, "duration", "button"),
    "pyautogui.scroll": ("clicks", *_PLACE),
    "pyautogui.hscroll": ("clicks", *_PLACE),
    "pyautogui.press": ("keys", "presses", "interval"),
    "pyautogui.write": ("message", "interval"),
    "pyautogui.typewrite": ("message", "interval"),
}
MOST_CALLS = 1000
"""Calls of one step; more are refused."""
MOST_PRESSES = 1000
"""Presses of one `press`; more are refused."""

_MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class CodeCall:
    """One call.

    Attributes:
        name: of the function, without its module.
        point: shares of the screenshot's sides, 0 to 1.
        button: left, right or middle.
        clicks: of a button.
        amount: notches of the wheel; positive is up or right.
        keys: our names.
        presses: how often the keys are pressed.
        text: what is typed.
        seconds: how long is waited.
        status: success or failure.
    """

    name: str
    point: tuple[float, float] | None = None
    button: str = "left"
    clicks: int = 1
    amount: int = 0
    keys: tuple[str, ...] = ()
    presses: int = 1
    text: str = ""
    seconds: float = 0
    status: str = ""


def is_code_key(name: str) -> bool:
    """Whether one of our keys may be named in code: pyautogui and AgentNet's readers know it."""
    return name != "apps" and to_lite_key(name) is not None


def read_code(code: str, *, tolerant: bool = False) -> tuple[CodeCall, ...]:
    """The calls of a step's code, in order.

    Args:
        code: one call a line.
        tolerant: other spellings of the same calls are read too, as `hotkey('ctrl', 'c')`.

    Raises:
        AnswerFormatError: anything else than these calls; it never quotes the code.
    """
    if len(code) > _MOST_CHARACTERS:
        raise AnswerFormatError("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
        calls = [_call(statement, tolerant=tolerant) for statement in body]
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        if isinstance(error, AnswerFormatError):
            raise
        raise AnswerFormatError("not Python") from None
    if not calls:
        raise AnswerFormatError("no code")
    if len(calls) > MOST_CALLS:
        raise AnswerFormatError("too long")
    return tuple(calls)


def _call(statement: ast.stmt, *, tolerant: bool) -> CodeCall:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise AnswerFormatError("not a call")
    call = statement.value
    function = _dotted(call.func)
    names = (_TOLERATED.get(function) if tolerant else None) or _SIGNATURES.get(function)
    if names is None:
        raise AnswerFormatError("unknown call")
    name = function.partition(".")[2]
    several = tolerant and name == "hotkey" and len(call.args) > 1 and not call.keywords
    if several:
        return CodeCall(name, keys=_keys([_value(node) for node in call.args], tolerant=True))
    given = dict(_arguments(call, names))
    return _READERS[name](name, given, tolerant)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _arguments(call: ast.Call, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every argument; a value that is not a literal is refused."""
    places = names[:2] if names[:2] == _PLACE else names
    if len(call.args) > len(places):
        raise AnswerFormatError("wrong arguments")
    seen = set()
    positional = zip(places, call.args, strict=False)
    for name, node in (*positional, *((word.arg, word.value) for word in call.keywords)):
        if name is None or name not in names or name in seen:
            raise AnswerFormatError("wrong arguments")
        seen.add(name)
        yield name, _value(node)


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise AnswerFormatError("wrong arguments") from None


Given = Mapping[str, Any]


def _clicked(name: str, given: Given, _tolerant: bool) -> CodeCall:
    button, clicks = CLICKS[name]
    if name == "click":
        clicks = _whole(given.get("clicks", 1), 3)
    button = given.get("button", button)
    return CodeCall(name, _point(given), _button(button), clicks)


def _moved(name: str, given: Given, _tolerant: bool) -> CodeCall:
    return CodeCall(name, _point(given), _button(given.get("button", "left")))


def _scrolled(name: str, given: Given, _tolerant: bool) -> CodeCall:
    amount = given.get("clicks")
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < abs(amount) < 10**9:
        raise AnswerFormatError("wrong arguments")
    return CodeCall(name, _point(given) if {"x", "y"} & set(given) else None, amount=amount)


def _pressed(name: str, given: Given, tolerant: bool) -> CodeCall:
    keys = given.get("keys")
    if name == "hotkey" and isinstance(keys, str) and not tolerant:
        raise AnswerFormatError("wrong arguments")
    listed = [keys] if isinstance(keys, str) else keys
    presses = _whole(given.get("presses", 1), MOST_PRESSES)
    return CodeCall(name, keys=_keys(listed, tolerant=tolerant), presses=presses)


def _typed(_name: str, given: Given, _tolerant: bool) -> CodeCall:
    text = given.get("message")
    if not isinstance(text, str) or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise AnswerFormatError("wrong arguments")
    return CodeCall("write", text=text)


def _waited(name: str, given: Given, _tolerant: bool) -> CodeCall:
    seconds = given.get("seconds", 1.0)  # what AgentNet's readers take a bare wait for
    if not _is_number(seconds) or seconds <= 0:
        raise AnswerFormatError("wrong arguments")
    return CodeCall(name, seconds=float(seconds))


def _ended(name: str, given: Given, tolerant: bool) -> CodeCall:
    status = given.get("status")
    if tolerant and status == "fail":
        status = "failure"
    if status not in ("success", "failure"):
        raise AnswerFormatError("wrong arguments")
    return CodeCall(name, status=status)


_READERS: Mapping[str, Callable[[str, Given, bool], CodeCall]] = {
    **dict.fromkeys(CLICKS, _clicked),
    **dict.fromkeys(("moveTo", "dragTo"), _moved),
    **dict.fromkeys(("scroll", "hscroll"), _scrolled),
    **dict.fromkeys(("hotkey", "press"), _pressed),
    **dict.fromkeys(("write", "typewrite"), _typed),
    "wait": _waited,
    "terminate": _ended,
}


def _point(given: Given) -> tuple[float, float]:
    x, y = given.get("x"), given.get("y")
    if not _is_number(x) or not _is_number(y):
        raise AnswerFormatError("wrong arguments")
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise AnswerFormatError("place outside the screen")
    return float(x), float(y)


def _is_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e9 and math.isfinite(value)


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise AnswerFormatError("wrong arguments")
    return value


def _button(value: Any) -> str:
    if value not in ("left", "right", "middle"):
        raise AnswerFormatError("wrong arguments")
    return str(value)


def _keys(values: Any, *, tolerant: bool) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise AnswerFormatError("wrong arguments")
    return tuple(_key(value, tolerant=tolerant) for value in values)


def _key(value: Any, *, tolerant: bool) -> str:
    if isinstance(value, str) and is_code_key(value):
        return value
    if tolerant and isinstance(value, str):
        name = answered_key(value)
        if is_canonical_key(name):
            return name
    raise AnswerFormatError("unknown key")
