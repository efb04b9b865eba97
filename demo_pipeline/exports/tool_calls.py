"""The tool calls of the CUDAG and messages formats: grammar, our actions in them, and answers.

Names and arguments are those of Qwen3-VL's `computer_use` tool. Belongs here also: escaping
markers, which are text that looks like a control token of a model.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

from demo_pipeline.desktopd.models import Button, Pixel
from demo_pipeline.exports.answers import (
    ActionCall,
    Answer,
    AnswerDecoder,
    AnsweredAction,
    AnswerFormatError,
    Share,
    answered_key,
    call_of,
    hovered_shares,
    read_calls,
    wheel_direction,
    wheel_turn,
)
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import MARKER

TOOL_NAME = "computer_use"
RU_MAX = 1000
RU_SCREEN = (RU_MAX, RU_MAX)
THOUGHT_LINE = "Thought: "  # begins the line of a thought that may precede it
ACTION_LINE = "Action: "  # begins the line of words that may precede the calls of a chat
_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


class ToolCallError(ValueError):
    """A turn is not a sequence of tool calls. The message never contains what was typed."""


def is_int(value: object) -> TypeGuard[int]:
    """Whether a JSON value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value is a number; true and false are not."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def is_pair(value: object) -> TypeGuard[list[int]]:
    """Whether a JSON value is [int, int]."""
    return isinstance(value, list) and len(value) == 2 and all(map(is_int, value))


def _is_keys(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(k, str) and k for k in value)


_COORDINATE = {"coordinate": (is_pair, "[x, y] with integers")}
_WHEEL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **_COORDINATE,
    "pixels": (is_int, "an integer"),
}
_TEXT = {"text": (lambda value: isinstance(value, str), "a string")}
_CLICKS: Mapping[str, tuple[Button, int]] = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
_NAMES = {clicked: name for name, clicked in _CLICKS.items()}
_DOES = {
    **dict.fromkeys(_CLICKS, "click"),
    "mouse_move": "move",
    "left_click_drag": "drag",
    "key": "press",
    **{name: name for name in ("type", "wait")},
    **dict.fromkeys(("scroll", "hscroll"), "scroll"),
}
_POINTER = (
    "mouse_move left_click left_click_drag right_click middle_click double_click triple_click"
)
ARGUMENTS: Mapping[str, Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(_POINTER.split(), _COORDINATE),
    "scroll": _WHEEL,
    "hscroll": _WHEEL,
    "key": {"keys": (_is_keys, "a list of key names")},
    "type": _TEXT,
    "answer": _TEXT,
    "wait": {"time": (lambda value: is_number(value) and value >= 0, "a number of seconds")},
    "terminate": {"status": (lambda value: value in ("success", "failure"), "success or failure")},
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of the tool.

    Attributes:
        action: a key of `ARGUMENTS`.
        arguments: the action's own arguments, without `action`.
    """

    action: str
    arguments: Mapping[str, Any]

    def named_arguments(self) -> dict[str, Any]:
        """The `arguments` object as written, `action` first."""
        return {"action": self.action, **self.arguments}

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the tool call."""
        return {"name": TOOL_NAME, "arguments": self.named_arguments()}


def render_json(value: object) -> tuple[str, int]:
    r"""One line of JSON without markers, and the number of markers escaped.

    If there is one, every `<` becomes `\u003c`, which any JSON parser reads as the same string.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    count = len(MARKER.findall(text))
    return (text.replace("<", "\\u003c"), count) if count else (text, 0)


def render_tool_calls(calls: Sequence[ToolCall]) -> tuple[str, int]:
    """The whole gpt turn for one or more calls, and the number of markers escaped."""
    lines = [render_json(call.as_dict()) for call in calls]
    blocks = [f"<tool_call>\n{line}\n</tool_call>" for line, _ in lines]
    return "\n".join(blocks), sum(count for _, count in lines)


def call_faults(call: object, screen: Pixel = RU_SCREEN) -> Iterator[str]:
    """Yield what is wrong with one parsed tool call object.

    `screen`: the largest coordinates are its width and height.
    """
    if not isinstance(call, dict):
        yield "tool call must be an object"
        return
    if call.get("name") != TOOL_NAME:
        yield f"tool call name must be '{TOOL_NAME}'"
    if unknown := len(set(call) - {"name", "arguments"}):
        yield f"tool call has {unknown} keys besides name and arguments"
    yield from _argument_faults(call.get("arguments"), screen)


def _argument_faults(arguments: object, screen: Pixel) -> Iterator[str]:
    if not isinstance(arguments, dict):
        yield "arguments must be an object"
        return
    action = arguments.get("action")
    if not isinstance(action, str) or action not in ARGUMENTS:
        yield f"action must be one of {', '.join(ARGUMENTS)}"
        return
    expected = ARGUMENTS[action]
    for name, (accepts, wanted) in expected.items():
        value = arguments.get(name)
        if name not in arguments:
            yield f"{action} is missing argument {name}"
        elif name == "coordinate" and not (is_pair(value) and _within(value, screen)):
            most = " and ".join(map(str, dict.fromkeys(screen)))
            yield f"{action} argument {name} must be {wanted} from 0 to {most}"
        elif not accepts(value):
            yield f"{action} argument {name} must be {wanted}"
    if unknown := len(set(arguments) - set(expected) - {"action"}):
        yield f"{action} has {unknown} unknown arguments"


def _within(pair: Sequence[float], screen: Pixel) -> bool:
    return all(0 <= part <= most for part, most in zip(pair, screen, strict=True))


def parse_tool_calls(value: str, screen: Pixel = RU_SCREEN) -> list[ToolCall]:
    """Parse a gpt turn: tool call blocks on lines of their own, and nothing else.

    `screen`: the largest coordinates are its width and height.

    Raises:
        ToolCallError: other text in the turn, invalid JSON, or a call that breaks the grammar.
    """
    calls = []
    for number, text in enumerate(_blocks(value), start=1):
        try:
            call = parse_json(text, "tool call", any_depth=False)
        except JsonFileError as error:
            raise ToolCallError(f"tool call {number}: {error.message}") from None
        if faults := list(call_faults(call, screen)):
            raise ToolCallError(f"tool call {number}: {'; '.join(faults)}")
        arguments = dict(call["arguments"])
        calls.append(ToolCall(arguments.pop("action"), arguments))
    return calls


def _blocks(value: str) -> Iterable[str]:
    """The JSON texts of the <tool_call> blocks of a gpt turn.

    Raises:
        ToolCallError: the turn has other text, or no call.
    """
    texts = []
    position = 0
    while block := _BLOCK.match(value, position):
        texts.append(block.group(1))
        position = block.end()
        if position == len(value):
            return texts
        if value[position] != "\n":
            break
        position += 1
    raise ToolCallError(
        f"turn must be <tool_call> blocks and nothing else (block {len(texts) + 1} is not one)"
    )


@dataclass(frozen=True, slots=True)
class WheelUnits:
    """What `pixels` of a scroll mean: the direction of positive ones, and how many a notch is."""

    positive: Literal["up", "down"] = "up"
    units_per_notch: int = 100

    def sign(self, name: str) -> int:
        """1, or -1 where positive numbers of a call have the opposite direction of ours."""
        return -1 if name == "scroll" and self.positive == "down" else 1


def write_calls(
    action: AnsweredAction, size: Pixel, wheel: WheelUnits, seen: Pixel | None = None
) -> tuple[ToolCall, ...]:
    """An action as one call or several.

    Each place where the pointer rests before is `mouse_move`. A drag is `mouse_move`, then
    `left_click_drag`. A key pressed n times is n calls: one call with the key n times would be
    executed as one press.

    Args:
        action: coordinates in pixels of the screenshot.
        size: width and height of the screenshot, pixels.
        wheel: the meaning of `pixels`.
        seen: width and height of the picture whose pixels the coordinates are; None: they are RU.
    """
    moves = [ToolCall("mouse_move", _place(at, seen)) for at in hovered_shares(action, size)]
    return *moves, *_calls_of(call_of(action, size), wheel, seen)


def _calls_of(call: ActionCall, wheel: WheelUnits, seen: Pixel | None) -> tuple[ToolCall, ...]:
    """The calls of an action alone; arguments as of `write_calls`."""
    at = _place(call.at, seen)
    match call.does:
        case "type":
            return (ToolCall("type", {"text": call.text}),)
        case "press":
            return (ToolCall("key", {"keys": list(call.keys)}),) * call.times
        case "wait":
            return (ToolCall("wait", {"time": call.seconds}),)
        case "drag":
            start = ToolCall("mouse_move", _place(call.start, seen))
            return start, ToolCall("left_click_drag", at)
        case "scroll":
            name, sign = wheel_turn(call.direction)
            pixels = call.amount * wheel.units_per_notch * sign * wheel.sign(name)
            return (ToolCall(name, {**at, "pixels": pixels}),)
    name = _NAMES.get((call.button, call.clicks), f"{call.button}_click")
    return (ToolCall(name, at),)


def _place(at: Share | None, seen: Pixel | None) -> dict[str, list[int]]:
    if at and seen:
        pairs = zip(at, seen, strict=True)
        return {"coordinate": [min(round(share * side), side - 1) for share, side in pairs]}
    return {"coordinate": [round(share * RU_MAX) for share in at]} if at else {}


_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_FENCED = re.compile(r"```[ \t]*(?:json)?[ \t]*\n(\s*\{.*?)\n?[ \t]*```", re.DOTALL)
_MOST_CALLS = 100_000  # of one answer; a held key repeats some 30 times a second, a call each
_MOST_WHEEL_UNITS = 1_000_000
_LONGEST_WAIT = 86_400  # seconds


def cudag_decoder(wheel: WheelUnits) -> AnswerDecoder:
    """The decoder of answers in the form of CUDAG records; a bare JSON call is accepted too."""

    def decode(text: str, size: Pixel) -> Answer:
        stripped = text.strip()
        bare = stripped.startswith("{")
        thought, blocks = ("", [stripped]) if bare else answer_blocks(text)
        return decode_calls(blocks, thought, size, wheel)

    return decode


def answer_blocks(text: str) -> tuple[str, list[str]]:
    """The words before the first `<tool_call>` block, and the text inside every block.

    Words between and after the blocks are dropped.

    A fenced text is a block, when there is no other; the last block may lack its end.

    Raises:
        AnswerFormatError: there is no block, or there are more than a step needs.
    """
    start = text.find(_OPEN)
    if start < 0 and (fenced := _FENCED.search(text)):
        return text[: fenced.start()].strip(), [fenced[1]]
    if start < 0:
        raise AnswerFormatError("no tool call")
    thought = text[:start].strip()
    blocks: list[str] = []
    while start >= 0:
        end = text.find(_CLOSE, start)
        end = len(text) if end < 0 else end  # models forget the last one
        if len(blocks) == _MOST_CALLS:
            raise AnswerFormatError("too many tool calls")
        blocks.append(text[start + len(_OPEN) : end])
        start = text.find(_OPEN, end)
    return thought, blocks


def decode_calls(
    blocks: Sequence[str],
    thought: str,
    size: Pixel,
    wheel: WheelUnits,
    screen: Pixel = RU_SCREEN,
) -> Answer:
    """The answer that calls make together.

    `mouse_move` and then `left_click_drag` is a drag; the same keys several times in a row are one
    action with `presses`, and a key may have another name than ours. A drag without its start, a
    pointer that only moves, and `answer` are none of our actions.

    Args:
        blocks: the JSON text of every call, in order.
        thought: the words beside them.
        size: width and height of the screenshot, pixels.
        wheel: the meaning of `pixels`.
        screen: width and height that coordinates are shares of.

    Raises:
        AnswerFormatError: a call is not JSON, breaks the grammar, or is out of range.
    """
    calls = [_known(_call(block, screen), wheel, screen) for block in blocks]
    end = next((number for number, call in enumerate(calls) if call.status), len(calls))
    status = calls[end].status if end < len(calls) else ""
    return Answer(read_calls(calls[:end], size), status or None, thought)


def _call(block: str, screen: Pixel) -> ToolCall:
    try:
        fenced = _FENCED.fullmatch(block.strip())
        text = fenced[1] if fenced else block.strip()
        value = parse_json(text, "tool call", any_depth=False)
    except JsonFileError:
        raise AnswerFormatError("a tool call is not JSON") from None
    arguments = value.get("arguments") if isinstance(value, dict) else None
    if isinstance(arguments, dict) and "coordinate" in arguments:
        value = {**value, "arguments": {**arguments, "coordinate": _rounded(arguments, screen)}}
    if any(True for _ in call_faults(value, screen)):
        raise AnswerFormatError("a tool call breaks the grammar")
    known = dict(value["arguments"])
    if "keys" in known:
        known["keys"] = [answered_key(key) for key in known["keys"]]
    return ToolCall(known.pop("action"), known)


def _rounded(arguments: dict[str, Any], screen: Pixel) -> Any:
    """A coordinate as integers: models write fractions too, which the grammar does not have."""
    pair = arguments["coordinate"]
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
        return pair  # the grammar refuses it
    if not _within(pair, screen):
        raise AnswerFormatError("a coordinate is out of range")
    return [round(part) for part in pair]


def _known(call: ToolCall, wheel: WheelUnits, screen: Pixel) -> ActionCall:
    """A call in our words."""
    name = call.action
    given = call.arguments
    at = given.get("coordinate")
    share = (at[0] / screen[0], at[1] / screen[1]) if at else None
    known = ActionCall(name, _DOES.get(name, ""), share)
    match name:
        case "type":
            return replace(known, text=given["text"])
        case "key":
            return replace(known, keys=tuple(given["keys"]))
        case "terminate":
            return replace(known, status=given["status"])
        case "wait":
            fits = 0 < given["time"] <= _LONGEST_WAIT
            return replace(known, seconds=float(given["time"])) if fits else ActionCall(name)
        case "scroll" | "hscroll":
            units = given["pixels"]
            if abs(units) > _MOST_WHEEL_UNITS:
                raise AnswerFormatError("a scroll is out of range")
            direction = wheel_direction(name, units * wheel.sign(name))
            amount = max(1, round(abs(units) / wheel.units_per_notch))
            known = replace(known, direction=direction, amount=amount)
            return known if units else replace(known, does="")
    button, clicks = _CLICKS.get(name, ("left", 1))
    return replace(known, button=button, clicks=clicks)
