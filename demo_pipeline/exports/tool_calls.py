"""Writes, reads and checks the tool calls of the CUDAG and messages formats.

The calls have the names and arguments of Qwen3-VL's tool `computer_use`. Markers, which are texts
that look like control tokens of a model, are escaped.
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
# The largest coordinate in RU (resolution units): thousandths of the image's width and height.
RU_MAX = 1000
RU_SCREEN = (RU_MAX, RU_MAX)
THOUGHT_LINE = "Thought: "  # starts an optional first line, which says why the model acts
ACTION_LINE = "Action: "  # starts an optional line before the calls, which describes the action
_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


class ToolCallError(ValueError):
    """Raised if an answer is not a sequence of valid tool calls.

    The message never contains typed text.
    """


def is_int(value: object) -> TypeGuard[int]:
    """Returns whether a JSON value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a JSON value is a finite number and not a boolean."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def is_pair(value: object) -> TypeGuard[list[int]]:
    """Returns whether a JSON value is a list of two integers."""
    return isinstance(value, list) and len(value) == 2 and all(map(is_int, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_keys(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(key, str) and key for key in value)


def _is_duration(value: object) -> bool:
    return is_number(value) and value >= 0


def _is_status(value: object) -> bool:
    return value in ("success", "failure")


# Maps the name of an argument to a check of its value and a description of valid values.
_Arguments = Mapping[str, tuple[Callable[[Any], bool], str]]
_COORDINATE: _Arguments = {"coordinate": (is_pair, "[x, y] with integers")}
_WHEEL: _Arguments = {**_COORDINATE, "pixels": (is_int, "an integer")}
_TEXT: _Arguments = {"text": (_is_text, "a string")}
_CLICKS: Mapping[str, tuple[Button, int]] = {  # maps the call's name to button and clicks
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
_NAMES = {clicked: name for name, clicked in _CLICKS.items()}
_DOES = {  # maps the call's name to `ActionCall.does`
    **dict.fromkeys(_CLICKS, "click"),
    "mouse_move": "move",
    "left_click_drag": "drag",
    "key": "press",
    "type": "type",
    "wait": "wait",
    "scroll": "scroll",
    "hscroll": "scroll",
}
ARGUMENTS: Mapping[str, _Arguments] = {
    "mouse_move": _COORDINATE,
    "left_click": _COORDINATE,
    "left_click_drag": _COORDINATE,
    "right_click": _COORDINATE,
    "middle_click": _COORDINATE,
    "double_click": _COORDINATE,
    "triple_click": _COORDINATE,
    "scroll": _WHEEL,
    "hscroll": _WHEEL,
    "key": {"keys": (_is_keys, "a list of key names")},
    "type": _TEXT,
    "answer": _TEXT,
    "wait": {"time": (_is_duration, "a number of seconds")},
    "terminate": {"status": (_is_status, "success or failure")},
}
"""Maps the name of each action of the tool to its required arguments."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the tool `computer_use`.

    Attributes:
        action: name of the action, a key of `ARGUMENTS`.
        arguments: all arguments except `action`.
    """

    action: str
    arguments: Mapping[str, Any]

    def named_arguments(self) -> dict[str, Any]:
        """Returns a dictionary of all arguments, with `action` first."""
        return {"action": self.action, **self.arguments}

    def as_dict(self) -> dict[str, Any]:
        """Returns the call as a JSON object with `name` and `arguments`."""
        return {"name": TOOL_NAME, "arguments": self.named_arguments()}


def render_json(value: object) -> tuple[str, int]:
    r"""Returns a value as JSON on one line with markers escaped, and the number of markers.

    If the text contains a marker, each `<` is written as `\u003c`, which JSON parsers read as `<`.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    markers = len(MARKER.findall(text))
    if markers:
        text = text.replace("<", "\\u003c")
    return text, markers


def render_tool_calls(calls: Sequence[ToolCall]) -> tuple[str, int]:
    """Returns the text of an answer, with markers escaped, and the number of markers."""
    blocks = list[str]()
    all_markers = 0
    for call in calls:
        line, markers = render_json(call.as_dict())
        blocks.append(f"<tool_call>\n{line}\n</tool_call>")
        all_markers += markers
    return "\n".join(blocks), all_markers


def call_faults(call: object, screen: Pixel = RU_SCREEN) -> Iterator[str]:
    """Yields a phrase for each fault of a tool call.

    Args:
        call: any JSON value.
        screen: largest allowed x and y of coordinates.
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
    """Yields a phrase for each fault of the arguments of a call; see `call_faults`."""
    if not isinstance(arguments, dict):
        yield "arguments must be an object"
        return
    action = arguments.get("action")
    if not isinstance(action, str) or action not in ARGUMENTS:
        yield f"action must be one of {', '.join(ARGUMENTS)}"
        return
    expected = ARGUMENTS[action]
    for name, (accepts, description) in expected.items():
        value = arguments.get(name)
        if name not in arguments:
            yield f"{action} is missing argument {name}"
        elif name == "coordinate" and not (is_pair(value) and _within(value, screen)):
            largest = " and ".join(map(str, dict.fromkeys(screen)))
            yield f"{action} argument {name} must be {description} from 0 to {largest}"
        elif not accepts(value):
            yield f"{action} argument {name} must be {description}"
    if unknown := len(set(arguments) - set(expected) - {"action"}):
        yield f"{action} has {unknown} unknown arguments"


def _within(pair: Sequence[float], screen: Pixel) -> bool:
    x, y = pair
    return 0 <= x <= screen[0] and 0 <= y <= screen[1]


def parse_tool_calls(value: str, screen: Pixel = RU_SCREEN) -> list[ToolCall]:
    """Parses an answer that must consist of `<tool_call>` blocks and nothing else.

    Args:
        screen: largest allowed x and y of coordinates.

    Raises:
        ToolCallError: the answer contains other text, invalid JSON, or a call with a fault.
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
    """Returns the JSON text in each `<tool_call>` block of an answer.

    Raises:
        ToolCallError: the answer contains other text, or no block.
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
    """The unit of the argument `pixels` of scroll calls in a dataset.

    Attributes:
        units_per_notch: the value of `pixels` for one notch of the wheel.
    """

    units_per_notch: int = 100


def write_calls(
    action: AnsweredAction, size: Pixel, wheel: WheelUnits, seen: Pixel | None = None
) -> tuple[ToolCall, ...]:
    """Converts an action to one or more tool calls.

    Each place where the pointer rests before the action becomes a `mouse_move`. A drag becomes
    `mouse_move` and `left_click_drag`. A key that is pressed n times becomes n calls, because
    programs that execute the calls press a key only once per call.

    Args:
        action: the action; its points are pixels of the screenshot.
        size: width and height of the screenshot, pixels.
        seen: width and height of the image whose pixels are the unit of coordinates in calls. If it
            is None, the unit is RU.
    """
    moves = [ToolCall("mouse_move", _coordinate(at, seen)) for at in hovered_shares(action, size)]
    return *moves, *_tool_calls(call_of(action, size), wheel, seen)


def _tool_calls(call: ActionCall, wheel: WheelUnits, seen: Pixel | None) -> tuple[ToolCall, ...]:
    """Converts an `ActionCall` to tool calls; for the arguments see `write_calls`."""
    at = _coordinate(call.at, seen)
    match call.does:
        case "type":
            return (ToolCall("type", {"text": call.text}),)
        case "press":
            return (ToolCall("key", {"keys": list(call.keys)}),) * call.times
        case "wait":
            return (ToolCall("wait", {"time": call.seconds}),)
        case "drag":
            move = ToolCall("mouse_move", _coordinate(call.start, seen))
            return move, ToolCall("left_click_drag", at)
        case "scroll":
            name, sign = wheel_turn(call.direction)
            pixels = call.amount * wheel.units_per_notch * sign
            return (ToolCall(name, {**at, "pixels": pixels}),)
    name = _NAMES.get((call.button, call.clicks), f"{call.button}_click")
    return (ToolCall(name, at),)


def _coordinate(at: Share | None, seen: Pixel | None) -> dict[str, list[int]]:
    """Returns the argument `coordinate` of a call as a dict; empty if `at` is None.

    For `seen`, see `write_calls`.
    """
    if at is None:
        return {}
    x, y = at
    if seen is None:
        return {"coordinate": [round(x * RU_MAX), round(y * RU_MAX)]}
    width, height = seen
    pixel_x = min(round(x * width), width - 1)
    pixel_y = min(round(y * height), height - 1)
    return {"coordinate": [pixel_x, pixel_y]}


_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_FENCED = re.compile(r"```[ \t]*(?:json)?[ \t]*\n(\s*\{.*?)\n?[ \t]*```", re.DOTALL)
_MOST_CALLS = 100_000  # maximum number of calls in an answer; a key held for 1 s can be 30 calls
_MOST_WHEEL_UNITS = 1_000_000  # largest absolute value of `pixels` in a scroll call
_LONGEST_WAIT = 86_400  # seconds; longer waits become `ForeignAction`


def cudag_decoder(wheel: WheelUnits) -> AnswerDecoder:
    """Returns a decoder for answers that are `<tool_call>` blocks, or one call as bare JSON."""

    def decode(text: str, size: Pixel) -> Answer:
        stripped = text.strip()
        if stripped.startswith("{"):
            return decode_calls([stripped], "", size, wheel)
        thought, blocks = answer_blocks(text)
        return decode_calls(blocks, thought, size, wheel)

    return decode


def answer_blocks(text: str) -> tuple[str, list[str]]:
    """Returns the words before the first `<tool_call>` block, and the text inside each block.

    Words between and after blocks are ignored. The end tag of the last block may be missing. If
    there is no block, the first code fence counts as a block.

    Raises:
        AnswerFormatError: there is no block, or there are more than `_MOST_CALLS` blocks.
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
        if end < 0:  # models sometimes forget the last end tag
            end = len(text)
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
    """Decodes the calls of an answer; see `answers.read_calls`.

    Calls after `terminate` are checked, but ignored. A drag without a start, a mere pointer move,
    and `answer` become `ForeignAction`, because OSWorld-Desktopd has no such actions.

    Args:
        blocks: the JSON text of each call, in order.
        thought: the words before the calls.
        size: width and height of the screenshot, pixels.
        screen: width and height of the image to which the coordinates refer.

    Raises:
        AnswerFormatError: a call is not JSON, has a fault, or has a number out of range.
    """
    decoded = [_action_call(_tool_call(block, screen), wheel, screen) for block in blocks]
    calls = list[ActionCall]()
    status: Literal["success", "failure"] | None = None
    for call in decoded:
        if call.status:
            status = call.status
            break
        calls.append(call)
    return Answer(read_calls(calls, size), status, thought)


def _tool_call(block: str, screen: Pixel) -> ToolCall:
    """Parses a call; translates keyboard keys to the pipeline's names, and rounds coordinates."""
    text = block.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1]
    try:
        value = parse_json(text, "tool call", any_depth=False)
    except JsonFileError:
        raise AnswerFormatError("a tool call is not JSON") from None
    arguments = value.get("arguments") if isinstance(value, dict) else None
    if isinstance(arguments, dict) and "coordinate" in arguments:
        coordinate = _rounded(arguments["coordinate"], screen)
        value = {**value, "arguments": {**arguments, "coordinate": coordinate}}
    if next(call_faults(value, screen), None) is not None:
        raise AnswerFormatError("a tool call breaks the grammar")
    checked = dict(value["arguments"])
    if "keys" in checked:
        checked["keys"] = [answered_key(key) for key in checked["keys"]]
    return ToolCall(checked.pop("action"), checked)


def _rounded(pair: Any, screen: Pixel) -> Any:
    """Rounds a coordinate, because some models write fractions; returns other values unchanged."""
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
        return pair
    if not _within(pair, screen):
        raise AnswerFormatError("a coordinate is out of range")
    return [round(part) for part in pair]


def _action_call(tool_call: ToolCall, wheel: WheelUnits, screen: Pixel) -> ActionCall:
    """Converts a tool call to an `ActionCall`; for the arguments see `decode_calls`."""
    name = tool_call.action
    arguments = tool_call.arguments
    share = None
    if at := arguments.get("coordinate"):
        share = (at[0] / screen[0], at[1] / screen[1])
    call = ActionCall(name, _DOES.get(name, ""), share)
    match name:
        case "type":
            return replace(call, text=arguments["text"])
        case "key":
            return replace(call, keys=tuple(arguments["keys"]))
        case "terminate":
            return replace(call, status=arguments["status"])
        case "wait":
            if not 0 < arguments["time"] <= _LONGEST_WAIT:
                return ActionCall(name)
            return replace(call, seconds=float(arguments["time"]))
        case "scroll" | "hscroll":
            units = arguments["pixels"]
            if abs(units) > _MOST_WHEEL_UNITS:
                raise AnswerFormatError("a scroll is out of range")
            if units == 0:
                return replace(call, does="")
            direction = wheel_direction(name, units)
            amount = max(1, round(abs(units) / wheel.units_per_notch))
            return replace(call, direction=direction, amount=amount)
    button, clicks = _CLICKS.get(name, ("left", 1))
    return replace(call, button=button, clicks=clicks)
