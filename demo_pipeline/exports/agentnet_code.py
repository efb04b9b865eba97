"""Writes and reads AgentNet's code: calls of `pyautogui` and `computer`, one per line.

Code is parsed, never executed. Strict reading accepts only the calls that AgentNet's own readers
accept; tolerant reading also accepts other spellings in answers of models.
"""

import ast
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from demo_pipeline.desktopd.models import Button, Pixel, is_canonical_key, shares_of
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import (
    CLICKS_OF_BUTTON,
    MOST_CALLS,
    UNKNOWN_KEY,
    ActionCall,
    Answer,
    AnsweredAction,
    AnswerFormatError,
    InexpressibleError,
    Share,
    answered_key,
    call_of,
    hovered_shares,
    read_calls,
    wheel_direction,
    wheel_turn,
)
from demo_pipeline.exports.cua_lite_actions import to_lite_key
from demo_pipeline.exports.step_facts import readable_size
from demo_pipeline.files.shown_text import MARKER, replace_surrogates

AGENTNET_LOSSES = (UNKNOWN_KEY, CLICKS_OF_BUTTON)  # reasons why an action has no code
_DIGITS = 4  # decimals of a coordinate; 0.0001 of 1920 pixels is a fifth of a pixel
# Duration of a drag. Without a duration, the pointer jumps to the end. Measured: 3 of 3 such drags
# failed.
_DRAG_SECONDS = 0.6
_MOST_CALLS = 1000  # maximum number of calls in the code of a step
_MOST_PRESSES = 1000  # maximum number of presses of one call of `press`
_MOST_CHARACTERS = 1_000_000  # maximum length of the code of a step
_PLACE = ("x", "y")


class _Function(NamedTuple):
    """A function that code may call.

    Attributes:
        does: a value of `ActionCall.does`, or `end` for the function that ends the task.
        arguments: names of the arguments, in order. If `x` and `y` are among them, all other
            arguments must be given by name.
        tolerated: names of the arguments for tolerant reading; empty if equal to `arguments`.
        clicked: button and number of clicks.
        strict: whether strict reading accepts the function. Strict reading accepts only functions
            that occur in AgentNet's own data.
    """

    does: str
    arguments: tuple[str, ...]
    tolerated: tuple[str, ...] = ()
    clicked: tuple[Button, int] = ("left", 1)
    strict: bool = True


_POINTED = (*_PLACE, "interval", "button", "duration")
_FUNCTIONS: Mapping[str, _Function] = {
    "pyautogui.click": _Function("click", _PLACE, (*_POINTED, "clicks")),
    "pyautogui.rightClick": _Function("click", _PLACE, _POINTED, ("right", 1)),
    "pyautogui.middleClick": _Function("click", _PLACE, _POINTED, ("middle", 1)),
    "pyautogui.doubleClick": _Function("click", _PLACE, _POINTED, ("left", 2)),
    "computer.tripleClick": _Function("click", _PLACE, _POINTED, ("left", 3), strict=False),
    "pyautogui.tripleClick": _Function("click", _PLACE, _POINTED, ("left", 3)),
    "pyautogui.moveTo": _Function("move", _PLACE, (*_PLACE, "duration")),
    "pyautogui.dragTo": _Function("drag", (*_PLACE, "duration", "button")),
    "pyautogui.scroll": _Function("scroll", ("clicks",), ("clicks", *_PLACE)),
    "pyautogui.hscroll": _Function("scroll", ("clicks",), ("clicks", *_PLACE)),
    "pyautogui.hotkey": _Function("press", ("keys",)),
    "pyautogui.press": _Function("press", ("keys", "presses"), ("keys", "presses", "interval")),
    "pyautogui.keyDown": _Function("hold", ("key",)),
    "pyautogui.keyUp": _Function("release", ("key",)),
    "pyautogui.write": _Function("type", ("message",), ("message", "interval")),
    "pyautogui.typewrite": _Function("type", ("message",), ("message", "interval"), strict=False),
    "computer.wait": _Function("wait", ("seconds",)),
    "computer.terminate": _Function("end", ("status",)),
}
_CLICKS = {  # maps button and number of clicks to the name of the function
    function.clicked: name
    for name, function in _FUNCTIONS.items()
    if function.does == "click" and function.strict
}


def agentnet_code(action: AnsweredAction, size: Pixel) -> str:
    """Returns the code of an action, one call per line; see `answers.ActionEncoder`."""
    call = call_of(action, size)
    moves = [f"pyautogui.moveTo({_x_and_y(at)})" for at in hovered_shares(action, size)]
    return "\n".join([*moves, *_holding(call.held, _lines(call))])


def code_or_nothing(action: AnsweredAction, size: Pixel) -> str:
    """Returns the code of an action, or "" if AgentNet cannot express the action."""
    try:
        return agentnet_code(action, size)
    except InexpressibleError:
        return ""


def step_code(step: StepFiles) -> str:
    """Returns the code of a step.

    Returns "" if the screenshot is unreadable or AgentNet cannot express the action.
    """
    size = readable_size(step.screenshot)
    if size is None:
        return ""
    return code_or_nothing(AnsweredAction(step.action.action_type, step.action.parameters), size)


def _lines(call: ActionCall) -> Iterator[str]:
    """Yields the lines of code for a call, without held keys."""
    at = call.at and _x_and_y(call.at)
    match call.does:
        case "type":
            text = repr(replace_surrogates(call.text))
            # Code must not contain a model's control marker. Python reads `\x3c` as `<`.
            if MARKER.search(call.text):
                text = text.replace("<", "\\x3c")
            yield f"pyautogui.write(message={text})"
        case "press":
            yield from _key_lines(call)
        case "wait":
            yield f"computer.wait({_number_text(call.seconds)})"
        case "drag" if call.clicks > 1:
            raise InexpressibleError(CLICKS_OF_BUTTON)
        case "drag" if call.start:
            yield f"pyautogui.moveTo({_x_and_y(call.start)})"
            yield f"pyautogui.dragTo({at}, duration={_DRAG_SECONDS}, button={call.button!r})"
        case "scroll":
            name, sign = wheel_turn(call.direction)
            yield f"pyautogui.moveTo({at})"
            yield f"pyautogui.{name}({sign * call.amount})"
        case _ if (call.button, call.clicks) in _CLICKS:
            yield f"{_CLICKS[call.button, call.clicks]}({at})"
        case _:
            raise InexpressibleError(CLICKS_OF_BUTTON)


def _key_lines(call: ActionCall) -> Iterator[str]:
    """Yields the lines that press keys together, once or several times.

    Several keys that are pressed at most `MOST_CALLS` times become one `hotkey` call per press. For
    more presses, all keys but the last are held while the last key is pressed.
    """
    *others, last = _code_keys(call.keys)
    if others and call.times <= MOST_CALLS:
        for _ in range(call.times):
            yield f"pyautogui.hotkey({[*others, last]!r})"
        return
    lines = list[str]()
    left = call.times
    while left:
        presses = min(left, _MOST_PRESSES)
        left -= presses
        if presses == 1:
            lines.append(f"pyautogui.press({last!r})")
        else:
            lines.append(f"pyautogui.press({last!r}, presses={presses})")
    yield from _holding(others, lines)


def _number_text(number: float) -> str:
    if number.is_integer():
        return str(int(number))
    return repr(number)


def _holding(keys: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    """Yields calls that hold the keys down, then the lines, then calls that release the keys."""
    names = _code_keys(keys)
    for name in names:
        yield f"pyautogui.keyDown({name!r})"
    yield from lines
    for name in reversed(names):
        yield f"pyautogui.keyUp({name!r})"


def _code_keys(keys: Sequence[str]) -> list[str]:
    """Returns the names of keys in code.

    Raises:
        InexpressibleError: the code has no name for a key.
    """
    if not all(map(_is_code_key, keys)):
        raise InexpressibleError(UNKNOWN_KEY)
    return list(keys)


def _is_code_key(name: str) -> bool:
    """Returns whether both pyautogui and AgentNet's readers know a key by our name."""
    return name != "apps" and to_lite_key(name) is not None


def share_text(x: int, y: int, size: Pixel) -> str:
    """Formats a pixel as shares of the screenshot's width and height, such as `0.5, 0.25`."""
    return ", ".join(repr(round(share, _DIGITS)) for share in shares_of(x, y, size))


def share_place(point: Pixel, size: Pixel) -> str:
    """Formats a pixel for a sentence, such as `(0.5, 0.25)`."""
    return f"({share_text(*point, size)})"


def _x_and_y(at: Share) -> str:
    x, y = at
    return f"x={round(x, _DIGITS)!r}, y={round(y, _DIGITS)!r}"


def read_code(code: str, *, tolerant: bool = False) -> tuple[ActionCall, ...]:
    """Parses the code of a step into calls. The names of the calls do not include the module.

    Args:
        code: one call per line.
        tolerant: whether other spellings, such as `hotkey('ctrl', 'c')`, are accepted.

    Raises:
        AnswerFormatError: the code contains anything but valid calls. The error never quotes code.
    """
    _demand(len(code) <= _MOST_CHARACTERS, "too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
        calls = list[ActionCall]()
        for statement in body:
            calls += _calls(statement, tolerant=tolerant)
    except AnswerFormatError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise AnswerFormatError("not Python") from None
    _demand(bool(calls), "no code")
    _demand(len(body) <= _MOST_CALLS, "too long")
    held = Counter[str]()
    for call in calls:
        if call.does == "hold":
            held.update(call.keys)
        elif call.does == "release":
            held.subtract(call.keys)
    _demand(not any(held.values()), "a key stays held")
    return tuple(calls)


def _demand(is_valid: bool, reason: str = "wrong arguments") -> None:
    """Raises `AnswerFormatError` with the reason unless the condition is true."""
    if not is_valid:
        raise AnswerFormatError(reason)


def _calls(statement: ast.stmt, *, tolerant: bool) -> Iterator[ActionCall]:
    """Yields the call of a statement; `press` with a list of keys yields a call for each press."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise AnswerFormatError("not a call")
    call = statement.value
    name = ast.unparse(statement.value.func)
    function = _FUNCTIONS.get(name)
    if function is None or not (function.strict or tolerant):
        raise AnswerFormatError("unknown call")
    short = name.partition(".")[2]
    if tolerant and short == "hotkey" and len(call.args) > 1 and not call.keywords:
        keys = _keys(list(map(_value, call.args)), tolerant=True)
        yield ActionCall(short, "press", keys=keys)
        return
    names = function.arguments
    if tolerant and function.tolerated:
        names = function.tolerated
    action_call = _action_call(short, function, _arguments(call, names), tolerant=tolerant)
    if short == "press" and len(action_call.keys) > 1:
        for _ in range(action_call.times):
            for key in action_call.keys:
                yield replace(action_call, keys=(key,), times=1)
    else:
        yield action_call


def _arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the values of a call's arguments by name; the values must be literals.

    `names` contains the names of all arguments, in order.
    """
    positional_names = names
    if names[:2] == _PLACE:
        positional_names = _PLACE
    _demand(len(call.args) <= len(positional_names))
    nodes: list[tuple[str | None, ast.expr]] = [*zip(positional_names, call.args, strict=False)]
    nodes += [(keyword.arg, keyword.value) for keyword in call.keywords]
    values = dict[str, Any]()
    for name, node in nodes:
        if name is None or name not in names or name in values:
            raise AnswerFormatError("wrong arguments")
        values[name] = _value(node)
    return values


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise AnswerFormatError("wrong arguments") from None


def _action_call(
    name: str, function: _Function, given: Mapping[str, Any], *, tolerant: bool
) -> ActionCall:
    """Checks the arguments of a call, and converts it.

    Args:
        name: name of the function without its module.
        given: the values of the arguments by name.
        tolerant: see `read_code`.
    """
    at = None
    if function.arguments[:2] == _PLACE or given.keys() & set(_PLACE):
        at = _point(given)
    button = given.get("button", function.clicked[0])
    clicks = function.clicked[1]
    _demand(button in ("left", "right", "middle"))
    checked: dict[str, Any] = {}
    match function.does:
        case "click" if name == "click":
            clicks = _whole(given.get("clicks", 1), 1, 3)
        case "scroll":
            number = _whole(given.get("clicks"), 1 - 10**9, 10**9 - 1)
            _demand(number != 0)
            checked["direction"] = wheel_direction(name, number)
            checked["amount"] = abs(number)
        case "press":
            keys = given.get("keys")
            _demand(name == "press" or tolerant or not isinstance(keys, str))
            if isinstance(keys, str):
                keys = [keys]
            checked["keys"] = _keys(keys, tolerant=tolerant)
            checked["times"] = _whole(given.get("presses", 1), 1, _MOST_PRESSES)
        case "hold" | "release":
            checked["keys"] = _keys([given.get("key")], tolerant=tolerant)
        case "drag":
            duration = given.get("duration", 0)
            _demand(_is_number(duration) and duration >= 0)
        case "type":
            name = "write"
            text = given.get("message")
            _demand(isinstance(text, str) and not re.search("[\ud800-\udfff]", text))
            checked["text"] = text
        case "wait":
            seconds = given.get("seconds", 1)  # the default of AgentNet's readers
            _demand(_is_number(seconds) and seconds > 0)
            checked["seconds"] = float(seconds)
        case "end":
            status = given.get("status")
            if tolerant and status == "fail":
                status = "failure"
            _demand(status in ("success", "failure"))
            checked["status"] = status
    return ActionCall(name, function.does, at, button=button, clicks=clicks, **checked)


def _point(given: Mapping[str, Any]) -> Share:
    """Returns the position in the arguments `x` and `y`."""
    x: Any = given.get("x")
    y: Any = given.get("y")
    _demand(_is_number(x) and _is_number(y))
    _demand(0 <= x <= 1 and 0 <= y <= 1, "place outside the screen")
    return float(x), float(y)


def _is_number(value: Any) -> bool:
    """Returns whether a value is a number below 1e9 in magnitude, and not a boolean."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < 1e9 and math.isfinite(value)


def _whole(value: Any, least: int, most: int) -> int:
    """Returns an integer argument, which must be between two limits, both included."""
    _demand(isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)
    return int(value)


def _keys(values: Any, *, tolerant: bool) -> tuple[str, ...]:
    """Converts the key names in an argument to our names.

    Tolerant reading also accepts other spellings of keys.
    """
    _demand(isinstance(values, list | tuple) and bool(values))
    _demand(all(isinstance(value, str) for value in values), "unknown key")
    names = list[str]()
    for value in values:
        name = value
        if tolerant and not _is_code_key(value):
            name = answered_key(value)
        _demand(_is_code_key(name) or (tolerant and is_canonical_key(name)), "unknown key")
        names.append(name)
    return tuple(names)


_HEADING = re.compile(r"^[ \t]*#{2,3}[ \t]*(\w+)[ \t]*:?[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def decode_agentnet_answer(text: str, size: Pixel) -> Answer:
    """Decodes an answer in AgentNet's format; see `answers.AnswerDecoder`.

    If there is a heading `## Code`, the code is the text in the first code fence below the heading,
    or all text below it if there is no code fence. Without the heading, the code is the text in the
    last code fence, or the whole answer if there is no code fence.

    A scroll without a position and a drag without a start use the position of the pointer move
    directly before them. Without such a move, they become `ForeignAction` objects. So does a
    pointer move that belongs to no click, drag or scroll.

    Raises:
        AnswerFormatError: the answer has no code, or its code is not valid.
    """
    code, thought = _code_and_thought(text)
    calls = read_code(code, tolerant=True)
    _demand(not any(call.status for call in calls[:-1]), "a call after the end")
    actions = read_calls((call for call in calls if not call.status), size)
    return Answer(actions, calls[-1].status or None, thought)


def _code_and_thought(text: str) -> tuple[str, str]:
    """Returns the code and the thought of an answer.

    The thought is the text below the heading `## Thought`. Without this heading, it is the text
    before the code.
    """
    headings = list(_HEADING.finditer(text))
    section_ends = [*(heading.start() for heading in headings[1:]), len(text)]
    sections = dict[str, tuple[int, int]]()
    for heading, end in zip(headings, section_ends, strict=False):
        sections[heading[1].lower()] = (heading.end(), end)
    code = text
    thought = ""
    if "code" in sections:
        begin, _ = sections["code"]
        code = text[begin:]
        thought = text[:begin]
        if fence := _FENCED.search(code):
            code = fence[1]
    elif fences := list(_FENCED.finditer(text)):
        code = fences[-1][1]
        thought = text[: fences[-1].start()]
    if "thought" in sections:
        begin, end = sections["thought"]
        thought = text[begin:end]
    return code.strip(), _HEADING.sub("", thought).strip()
