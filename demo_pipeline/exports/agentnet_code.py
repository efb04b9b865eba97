"""AgentNet's code: calls of pyautogui and of `computer`, one a line, and nothing else.

Belongs here: our actions as code, and as answers of a model; reading code without running it. The
strict reading takes what AgentNet's own readers take; the tolerant one is for what models answer.
"""

import ast
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from demo_pipeline.desktopd.models import (
    Button,
    DragParameters,
    HotkeyParameters,
    Pixel,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
    is_canonical_key,
    pixel_at,
    shares_of,
)
from demo_pipeline.desktopd.reader import StepFiles
from demo_pipeline.exports.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
    answered,
    answered_key,
    click_action,
    click_of,
    merge_presses,
)
from demo_pipeline.exports.cua_lite_actions import to_lite_key
from demo_pipeline.exports.cudag.actions import readable_size
from demo_pipeline.exports.whole_trajectories import (
    CLICKS_OF_BUTTON,
    HELD_KEYS,
    UNKNOWN_KEY,
    InexpressibleError,
)
from demo_pipeline.files.shown_text import replace_surrogates

AGENTNET_LOSSES = (UNKNOWN_KEY, HELD_KEYS, CLICKS_OF_BUTTON)
_DIGITS = 4  # of a share: 0.0001 of 1920 pixels is a fifth of a pixel
_CLICKS: Mapping[str, tuple[Button, int]] = {  # function → button and how often
    "pyautogui.click": ("left", 1),
    "pyautogui.rightClick": ("right", 1),
    "pyautogui.middleClick": ("middle", 1),
    "pyautogui.doubleClick": ("left", 2),
    "computer.tripleClick": ("left", 3),
}
_CODE_OF_CLICK: Mapping[tuple[str, int], str] = {clicked: name for name, clicked in _CLICKS.items()}
_TRIPLE = "pyautogui.tripleClick"
_PLACE = ("x", "y")
# Function → the names of its arguments, in order; those without a place must be named.
_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_CLICKS, _PLACE),
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
    **dict.fromkeys((*_CLICKS, _TRIPLE), (*_PLACE, "interval", "button", "duration")),
    "pyautogui.click": (*_PLACE, "clicks", "interval", "button", "duration"),
    "pyautogui.moveTo": (*_PLACE, "duration"),
    "pyautogui.dragTo": (*_PLACE, "duration", "button"),
    "pyautogui.scroll": ("clicks", *_PLACE),
    "pyautogui.hscroll": ("clicks", *_PLACE),
    "pyautogui.press": ("keys", "presses", "interval"),
    "pyautogui.write": ("message", "interval"),
    "pyautogui.typewrite": ("message", "interval"),
}
_MOST_CALLS = 1000  # of one step
_MOST_PRESSES = 1000  # of one `press`
_MOST_CHARACTERS = 1_000_000


def agentnet_code(action: AnsweredAction, size: Pixel) -> str:
    """An action as AgentNet's code, one call a line; see `ActionEncoder`."""
    if action.parameters.members().get("modifiers"):
        raise InexpressibleError(HELD_KEYS)
    lines = list(_lines(action, size))
    if len(lines) > _MOST_CALLS:  # of keys that were held down until they repeated as often
        raise InexpressibleError(HELD_KEYS)
    return "\n".join(lines)


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
    return replace_surrogates(code_or_nothing(action, size)) if size else ""


def _lines(action: AnsweredAction, size: Pixel) -> Iterator[str]:
    match action.parameters:
        case TypeParameters(text=text):
            yield f"pyautogui.write(message={text!r})"
        case HotkeyParameters(keys=keys, presses=presses):
            yield from _key_lines(keys, presses or 1)
        case WaitParameters(seconds=seconds):
            yield f"computer.wait({int(seconds) if seconds.is_integer() else seconds!r})"
        case DragParameters() as drag:
            yield f"pyautogui.moveTo({_named(drag.start_x, drag.start_y, size)})"
            end = _named(drag.end_x, drag.end_y, size)
            yield f"pyautogui.dragTo({end}, button={drag.button or 'left'!r})"
        case ScrollParameters() as scroll:
            yield f"pyautogui.moveTo({_named(scroll.x, scroll.y, size)})"
            name = "scroll" if scroll.direction in ("up", "down") else "hscroll"
            sign = 1 if scroll.direction in ("up", "right") else -1
            yield f"pyautogui.{name}({sign * scroll.amount})"
        case _:
            button, clicks, x, y = click_of(action)
            if (button, clicks) not in _CODE_OF_CLICK:
                raise InexpressibleError(CLICKS_OF_BUTTON)
            yield f"{_CODE_OF_CLICK[button, clicks]}({_named(x, y, size)})"


def _key_lines(keys: Sequence[str], presses: int) -> Iterator[str]:
    if not all(map(_is_code_key, keys)):
        raise InexpressibleError(UNKNOWN_KEY)
    if len(keys) > 1:
        yield from [f"pyautogui.hotkey({list(keys)!r})"] * presses
    else:
        full, rest = divmod(presses, _MOST_PRESSES)
        for times in [_MOST_PRESSES] * full + [rest] * bool(rest):
            yield f"pyautogui.press({keys[0]!r}{f', presses={times}' if times > 1 else ''})"


def _is_code_key(name: str) -> bool:
    """Whether pyautogui and AgentNet's readers know one of our keys."""
    return name != "apps" and to_lite_key(name) is not None


def share_text(x: int, y: int, size: Pixel) -> str:
    """A place as AgentNet writes its two numbers: `0.5, 0.25`."""
    return ", ".join(repr(round(share, _DIGITS)) for share in shares_of(x, y, size))


def _named(x: int, y: int, size: Pixel) -> str:
    return "x={}, y={}".format(*share_text(x, y, size).split(", "))


@dataclass(frozen=True, slots=True)
class CodeCall:
    """One call, by its function's name without the module; the arguments are in our words."""

    name: str
    point: tuple[float, float] | None = None  # shares of the screenshot's sides, 0 to 1
    button: Button = "left"
    clicks: int = 1
    amount: int = 0  # notches of the wheel; positive is up or right
    keys: tuple[str, ...] = ()
    presses: int = 1
    text: str = ""
    seconds: float = 1.0  # what AgentNet's readers take a bare wait for
    status: str = ""


def read_code(code: str, *, tolerant: bool = False) -> tuple[CodeCall, ...]:
    """The calls of a step's code, in order.

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
        calls = [_call(statement, tolerant=tolerant) for statement in body]
    except AnswerFormatError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise AnswerFormatError("not Python") from None
    _demand(bool(calls), "no code")
    _demand(len(calls) <= _MOST_CALLS, "too long")
    return tuple(calls)


def _demand(holds: bool, reason: str = "wrong arguments") -> None:
    if not holds:
        raise AnswerFormatError(reason)


def _call(statement: ast.stmt, *, tolerant: bool) -> CodeCall:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise AnswerFormatError("not a call")
    call, function = statement.value, ast.unparse(statement.value.func)
    names = (_TOLERATED.get(function) if tolerant else None) or _SIGNATURES.get(function)
    if names is None:
        raise AnswerFormatError("unknown call")
    if tolerant and function.endswith("hotkey") and len(call.args) > 1 and not call.keywords:
        return CodeCall("hotkey", keys=_keys(list(map(_value, call.args)), tolerant=True))
    return _read(function, dict(_arguments(call, names)), tolerant=tolerant)


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


def _read(function: str, given: Mapping[str, Any], *, tolerant: bool) -> CodeCall:
    """A call with its arguments checked."""
    name = function.partition(".")[2]
    said: dict[str, Any] = {}
    said["button"], said["clicks"] = _CLICKS.get(
        function, ("left", 3 if function == _TRIPLE else 1)
    )
    names = _SIGNATURES.get(function) or _TOLERATED[function]
    if names[:2] == _PLACE or given.keys() & set(_PLACE):
        said["point"] = _point(given)
    if "button" in given:
        said["button"] = given["button"]
        _demand(given["button"] in ("left", "right", "middle"))
    match name:
        case "click":
            said["clicks"] = _whole(given.get("clicks", 1), 1, 3)
        case "scroll" | "hscroll":
            said["amount"] = _whole(given.get("clicks"), 1 - 10**9, 10**9 - 1)
            _demand(said["amount"] != 0)
        case "hotkey" | "press":
            keys = given.get("keys")
            _demand(name == "press" or tolerant or not isinstance(keys, str))
            said["keys"] = _keys([keys] if isinstance(keys, str) else keys, tolerant=tolerant)
            said["presses"] = _whole(given.get("presses", 1), 1, _MOST_PRESSES)
        case "write" | "typewrite":
            name, said["text"] = "write", given.get("message")
            _demand(
                isinstance(said["text"], str) and not re.search("[\ud800-\udfff]", said["text"])
            )
        case "wait":
            _demand(_is_number(given.get("seconds", 1)) and given.get("seconds", 1) > 0)
            said["seconds"] = float(given.get("seconds", 1))
        case "terminate":
            status = given.get("status")
            said["status"] = "failure" if tolerant and status == "fail" else status
            _demand(said["status"] in ("success", "failure"))
    return CodeCall(name, **said)


def _point(given: Mapping[str, Any]) -> tuple[float, float]:
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


def decode_code(code: str, size: Pixel) -> Answer:
    """Read the code of one step, as AgentNet's own readers would; the errors are the same."""
    return _decoded(read_code(code), size, "")


def _parts(text: str) -> tuple[str, str]:
    """The code and the words of an answer."""
    headings = list(_HEADING.finditer(text))
    ends = [*(found.start() for found in headings[1:]), len(text)]
    sections = {
        found[1].lower(): (found.end(), end) for found, end in zip(headings, ends, strict=False)
    }
    if "code" in sections:
        begin, _ = sections["code"]
        code, before = text[begin:], text[:begin]
        fenced = list(_FENCED.finditer(code))[:1]
        code = fenced[0][1] if fenced else code
    else:
        fenced = list(_FENCED.finditer(text))[-1:]
        code, before = (fenced[0][1], text[: fenced[0].start()]) if fenced else (text, "")
    thought = text[slice(*sections["thought"])] if "thought" in sections else before
    return code.strip(), _HEADING.sub("", thought).strip()


def _decoded(calls: Sequence[CodeCall], size: Pixel, thought: str) -> Answer:
    _demand(not any(call.status for call in calls[:-1]), "a call after the end")
    actions = merge_presses(_actions([call for call in calls if not call.status], size))
    status = cast('Literal["success", "failure", ""]', calls[-1].status)
    return Answer(tuple(actions), status or None, thought)


def _actions(calls: Sequence[CodeCall], size: Pixel) -> Iterator[AnsweredAction | ForeignAction]:
    """Yield an action a call; where the pointer moves first, the two are one."""
    moved: CodeCall | None = None
    for number, call in enumerate(calls):
        after = calls[number + 1] if number + 1 < len(calls) else CodeCall("")
        wheel = after.name in ("scroll", "hscroll") and after.point is None
        if call.name == "moveTo" and (wheel or after.name == "dragTo"):
            moved = call
        elif call.name == "dragTo" and moved:
            (x, y), (to_x, to_y) = _pixel(moved, size), _pixel(call, size)
            button = None if call.button == "left" else call.button
            drag = DragParameters(start_x=x, start_y=y, end_x=to_x, end_y=to_y, button=button)
            yield answered(drag)
            moved = None
        elif call.name in ("scroll", "hscroll"):
            yield _scroll(call, call if call.point else moved, size)
            moved = None
        elif call.keys:
            yield from _pressed(call)
        else:
            yield _single(call, size)


def _pixel(call: CodeCall, size: Pixel) -> Pixel:
    return pixel_at(*(call.point or (0.0, 0.0)), size)


def _scroll(call: CodeCall, placed: CodeCall | None, size: Pixel) -> AnsweredAction | ForeignAction:
    if placed is None:
        return ForeignAction(call.name)
    x, y = _pixel(placed, size)
    names = ("up", "down") if call.name == "scroll" else ("right", "left")
    direction = cast('Literal["up", "down", "left", "right"]', names[call.amount < 0])
    return answered(ScrollParameters(x=x, y=y, direction=direction, amount=abs(call.amount)))


def _pressed(call: CodeCall) -> Iterator[AnsweredAction]:
    """Yield a chord, or the keys of a `press`, which follow one another."""
    chords = [call.keys] if call.name == "hotkey" else [(key,) for key in call.keys]
    for _ in range(call.presses if len(chords) > 1 else 1):
        for chord in chords:
            presses = call.presses if len(chords) == 1 and call.presses > 1 else None
            yield answered(HotkeyParameters(keys=list(chord), presses=presses))


def _single(call: CodeCall, size: Pixel) -> AnsweredAction | ForeignAction:
    if call.name == "write":
        return answered(TypeParameters(text=call.text))
    if call.name == "wait":
        return answered(WaitParameters(seconds=call.seconds))
    at = _pixel(call, size)
    is_click = call.name not in ("moveTo", "dragTo")
    clicked = click_action(call.button, call.clicks, at) if is_click else None
    return clicked or ForeignAction(call.name, at)
