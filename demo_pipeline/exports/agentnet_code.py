"""AgentNet's code: calls of pyautogui and of `computer`, one a line, and nothing else.

Belongs here: the table of functions, by which our actions are written as code and code is read
without running it. The strict reading takes what AgentNet's own readers take; the tolerant one is
for what models answer.
"""

import ast
import math
import re
import warnings
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

AGENTNET_LOSSES = (UNKNOWN_KEY, CLICKS_OF_BUTTON)
_DIGITS = 4  # of a share: 0.0001 of 1920 pixels is a fifth of a pixel
_DRAG_SECONDS = 0.6  # 3 of 3 drags fail without a duration: the pointer jumps to the end
_MOST_CALLS = 1000  # of one step
_MOST_PRESSES = 1000  # of one `press`
_MOST_CHARACTERS = 1_000_000
_PLACE = ("x", "y")


class _Function(NamedTuple):
    """A function of the form; a click says which button, and how often.

    Attributes:
        does: see `ActionCall`; `end` ends the task.
        given: the names of its arguments, in order; those without a place must be named.
        tolerated: the same for the answers of models; empty: the same ones.
        clicked: button and number of clicks.
        strict: written by the form itself.
    """

    does: str
    given: tuple[str, ...]
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
_CLICKS = {
    known.clicked: name
    for name, known in _FUNCTIONS.items()
    if known.does == "click" and known.strict
}


def agentnet_code(action: AnsweredAction, size: Pixel) -> str:
    """An action as AgentNet's code, one call a line; see `ActionEncoder`."""
    call = call_of(action, size)
    moves = [f"pyautogui.moveTo({_named(at)})" for at in hovered_shares(action, size)]
    return "\n".join([*moves, *_holding(call.held, _lines(call))])


def code_or_nothing(action: AnsweredAction, size: Pixel) -> str:
    """The same; empty when the form has no words for the action."""
    try:
        return agentnet_code(action, size)
    except InexpressibleError:
        return ""


def step_code(step: StepFiles) -> str:
    """The code of a step in the export; empty: it has none."""
    action = AnsweredAction(step.action.action_type, step.action.parameters)
    size = readable_size(step.screenshot)
    return code_or_nothing(action, size) if size else ""


def _lines(call: ActionCall) -> Iterator[str]:
    at = call.at and _named(call.at)
    match call.does:
        case "type":
            text = repr(replace_surrogates(call.text))
            # Markers of a model, in the spelling that means the same.
            text = text.replace("<", "\\x3c") if MARKER.search(call.text) else text
            yield f"pyautogui.write(message={text})"
        case "press":
            yield from _key_lines(call)
        case "wait":
            seconds = call.seconds
            yield f"computer.wait({int(seconds) if seconds.is_integer() else seconds!r})"
        case "drag" if call.clicks > 1:
            raise InexpressibleError(CLICKS_OF_BUTTON)
        case "drag" if call.start:
            yield f"pyautogui.moveTo({_named(call.start)})"
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
    """Yield the presses of keys; the last of several is pressed while the others are held."""
    *others, last = _code_keys(call.keys)
    if others and call.times <= MOST_CALLS:
        yield from [f"pyautogui.hotkey({[*others, last]!r})"] * call.times
        return
    full, rest = divmod(call.times, _MOST_PRESSES)
    presses = [_MOST_PRESSES] * full + [rest] * bool(rest)
    lines = [
        f"pyautogui.press({last!r}{f', presses={times}' if times > 1 else ''})" for times in presses
    ]
    yield from _holding(others, lines)


def _holding(keys: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines between those that press and release the keys."""
    names = _code_keys(keys)
    yield from (f"pyautogui.keyDown({name!r})" for name in names)
    yield from lines
    yield from (f"pyautogui.keyUp({name!r})" for name in reversed(names))


def _code_keys(keys: Sequence[str]) -> list[str]:
    if not all(map(_is_code_key, keys)):
        raise InexpressibleError(UNKNOWN_KEY)
    return list(keys)


def _is_code_key(name: str) -> bool:
    """Whether pyautogui and AgentNet's readers know one of our keys."""
    return name != "apps" and to_lite_key(name) is not None


def share_text(x: int, y: int, size: Pixel) -> str:
    """A place as AgentNet writes its two numbers: `0.5, 0.25`."""
    return ", ".join(repr(round(share, _DIGITS)) for share in shares_of(x, y, size))


def share_place(point: Pixel, size: Pixel) -> str:
    """A place in a sentence: `(0.5, 0.25)`."""
    return f"({share_text(*point, size)})"


def _named(at: Share) -> str:
    return f"x={round(at[0], _DIGITS)!r}, y={round(at[1], _DIGITS)!r}"


def read_code(code: str, *, tolerant: bool = False) -> tuple[ActionCall, ...]:
    """The calls of a step's code, in order, by the function's name without its module.

    Args:
        code: one call a line.
        tolerant: other spellings of the same calls are read too, as `hotkey('ctrl', 'c')`.

    Raises:
        AnswerFormatError: anything else than these calls; it never quotes the code.
    """
    _demand(len(code) <= _MOST_CHARACTERS, "too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
        calls = [call for statement in body for call in _calls(statement, tolerant=tolerant)]
    except AnswerFormatError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise AnswerFormatError("not Python") from None
    _demand(bool(calls), "no code")
    _demand(len(body) <= _MOST_CALLS, "too long")
    held = [key for call in calls if call.does == "hold" for key in call.keys]
    released = [key for call in calls if call.does == "release" for key in call.keys]
    _demand(sorted(held) == sorted(released), "a key stays held")
    return tuple(calls)


def _demand(holds: bool, reason: str = "wrong arguments") -> None:
    if not holds:
        raise AnswerFormatError(reason)


def _calls(statement: ast.stmt, *, tolerant: bool) -> Iterator[ActionCall]:
    """Yield the call of a statement; keys that `press` presses in turn are a call each."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise AnswerFormatError("not a call")
    call = statement.value
    name = ast.unparse(statement.value.func)
    known = _FUNCTIONS.get(name)
    if known is None or not (known.strict or tolerant):
        raise AnswerFormatError("unknown call")
    short = name.partition(".")[2]
    if tolerant and short == "hotkey" and len(call.args) > 1 and not call.keywords:
        keys = _keys(list(map(_value, call.args)), tolerant=True)
        yield ActionCall(short, "press", keys=keys)
        return
    names = (known.tolerated if tolerant else ()) or known.given
    read = _read(short, known, dict(_arguments(call, names)), tolerant=tolerant)
    if short == "press" and len(read.keys) > 1:
        for _ in range(read.times):
            yield from (replace(read, keys=(key,), times=1) for key in read.keys)
    else:
        yield read


def _arguments(call: ast.Call, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every argument; a value that is not a literal is refused."""
    places = names[:2] if names[:2] == _PLACE else names
    _demand(len(call.args) <= len(places))
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


def _read(name: str, known: _Function, given: Mapping[str, Any], *, tolerant: bool) -> ActionCall:
    """A call with its arguments checked."""
    has_place = known.given[:2] == _PLACE or bool(given.keys() & set(_PLACE))
    at = _point(given) if has_place else None
    button = given.get("button", known.clicked[0])
    clicks = known.clicked[1]
    _demand(button in ("left", "right", "middle"))
    said: dict[str, Any] = {}
    match known.does:
        case "click" if name == "click":
            clicks = _whole(given.get("clicks", 1), 1, 3)
        case "scroll":
            number = _whole(given.get("clicks"), 1 - 10**9, 10**9 - 1)
            _demand(number != 0)
            said = {"direction": wheel_direction(name, number), "amount": abs(number)}
        case "press":
            keys = given.get("keys")
            _demand(name == "press" or tolerant or not isinstance(keys, str))
            said["keys"] = _keys([keys] if isinstance(keys, str) else keys, tolerant=tolerant)
            said["times"] = _whole(given.get("presses", 1), 1, _MOST_PRESSES)
        case "hold" | "release":
            said["keys"] = _keys([given.get("key")], tolerant=tolerant)
        case "drag":
            _demand(_is_number(given.get("duration", 0)) and given.get("duration", 0) >= 0)
        case "type":
            name = "write"
            said["text"] = given.get("message")
            _demand(
                isinstance(said["text"], str) and not re.search("[\ud800-\udfff]", said["text"])
            )
        case "wait":  # AgentNet's readers take a bare one for a second
            _demand(_is_number(given.get("seconds", 1)) and given.get("seconds", 1) > 0)
            said["seconds"] = float(given.get("seconds", 1))
        case "end":
            status = given.get("status")
            said["status"] = "failure" if tolerant and status == "fail" else status
            _demand(said["status"] in ("success", "failure"))
    return ActionCall(name, known.does, at, button=button, clicks=clicks, **said)


def _point(given: Mapping[str, Any]) -> Share:
    x: Any = given.get("x")
    y: Any = given.get("y")
    _demand(_is_number(x) and _is_number(y))
    _demand(0 <= x <= 1 and 0 <= y <= 1, "place outside the screen")
    return float(x), float(y)


def _is_number(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) < 1e9 and math.isfinite(value)


def _whole(value: Any, least: int, most: int) -> int:
    _demand(isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)
    return int(value)


def _keys(values: Any, *, tolerant: bool) -> tuple[str, ...]:
    _demand(isinstance(values, list | tuple) and bool(values))
    _demand(all(isinstance(value, str) for value in values), "unknown key")
    names = [v if _is_code_key(v) or not tolerant else answered_key(v) for v in values]
    known = (_is_code_key(name) or (tolerant and is_canonical_key(name)) for name in names)
    _demand(all(known), "unknown key")
    return tuple(names)


_HEADING = re.compile(r"^[ \t]*#{2,3}[ \t]*(\w+)[ \t]*:?[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def decode_agentnet_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `answers.AnswerDecoder`.

    The code is what stands below the heading `## Code`, else the last fenced block, else the whole
    text. A scroll without a place, a drag without a start and a move of the pointer are foreign.

    Raises:
        AnswerFormatError: there is no code, or it is more than the calls of the form.
    """
    code, thought = _parts(text)
    return _decoded(read_code(code, tolerant=True), size, thought)


def _parts(text: str) -> tuple[str, str]:
    """The code and the words of an answer."""
    headings = list(_HEADING.finditer(text))
    ends = [*(found.start() for found in headings[1:]), len(text)]
    sections = {
        found[1].lower(): (found.end(), end) for found, end in zip(headings, ends, strict=False)
    }
    if "code" in sections:
        begin, _ = sections["code"]
        code = text[begin:]
        before = text[:begin]
        fenced = list(_FENCED.finditer(code))[:1]
        code = fenced[0][1] if fenced else code
    else:
        fenced = list(_FENCED.finditer(text))[-1:]
        code, before = (fenced[0][1], text[: fenced[0].start()]) if fenced else (text, "")
    thought = text[slice(*sections["thought"])] if "thought" in sections else before
    return code.strip(), _HEADING.sub("", thought).strip()


def _decoded(calls: tuple[ActionCall, ...], size: Pixel, thought: str) -> Answer:
    _demand(not any(call.status for call in calls[:-1]), "a call after the end")
    actions = read_calls((call for call in calls if not call.status), size)
    return Answer(actions, calls[-1].status or None, thought)
