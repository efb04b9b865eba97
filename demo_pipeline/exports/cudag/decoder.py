"""Reads what a model answers in tool calls: the inverse of how the CUDAG records are written.

Belongs here: from text to our actions. The grammar of one call is in tool_calls.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from demo_pipeline.desktopd.models import (
    ActionType,
    Button,
    DragParameters,
    HotkeyParameters,
    Pixel,
    PointParameters,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
)
from demo_pipeline.exports.answers import (
    Answer,
    AnswerDecoder,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
    answered,
    answered_key,
    click_action,
)
from demo_pipeline.exports.cudag.tool_calls import RU_MAX, ToolCall, call_faults, is_number
from demo_pipeline.files.json_files import JsonFileError, parse_json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MOST_CALLS = 100_000  # of one answer; a held key repeats some 30 times a second, a call each
_MOST_WHEEL_UNITS = 1_000_000
_LONGEST_WAIT = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class WheelUnits:
    """What `pixels` of a scroll mean: the direction of positive ones, and how many a notch is."""

    positive: Literal["up", "down"] = "up"
    units_per_notch: int = 100


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

    Raises:
        AnswerFormatError: there is no block, one has no end, or there are more than a step needs.
    """
    start = text.find(_OPEN)
    if start < 0:
        raise AnswerFormatError("no tool call")
    thought = text[:start].strip()
    blocks: list[str] = []
    while start >= 0:
        end = text.find(_CLOSE, start)
        if end < 0:
            raise AnswerFormatError("a tool call has no end")
        if len(blocks) == _MOST_CALLS:
            raise AnswerFormatError("too many tool calls")
        blocks.append(text[start + len(_OPEN) : end])
        start = text.find(_OPEN, end)
    return thought, blocks


def decode_calls(blocks: Sequence[str], thought: str, size: Pixel, wheel: WheelUnits) -> Answer:
    """The answer that calls make together.

    `mouse_move` and then `left_click_drag` is a drag; the same keys several times in a row are one
    action with `presses`, and a key may have another name than ours. A drag without its start, a
    pointer that only moves, and `answer` are none of our actions.

    Args:
        blocks: the JSON text of every call, in order.
        thought: the words beside them.
        size: width and height of the screenshot, pixels.
        wheel: the meaning of `pixels`.

    Raises:
        AnswerFormatError: a call is not JSON, breaks the grammar, or is out of range.
    """
    calls = [_call(block) for block in blocks]
    status = None
    for number, call in enumerate(calls):
        if call.action == "terminate":
            status, calls = call.arguments["status"], calls[:number]
            break
    return Answer(tuple(_actions(calls, size, wheel)), status, thought)


def _call(block: str) -> ToolCall:
    try:
        value = parse_json(block.strip(), "tool call", any_depth=False)
    except JsonFileError:
        raise AnswerFormatError("a tool call is not JSON") from None
    arguments = value.get("arguments") if isinstance(value, dict) else None
    if isinstance(arguments, dict) and "coordinate" in arguments:
        value = {**value, "arguments": {**arguments, "coordinate": _rounded(arguments)}}
    if any(True for _ in call_faults(value)):
        raise AnswerFormatError("a tool call breaks the grammar")
    known = dict(value["arguments"])
    if "keys" in known:
        known["keys"] = [answered_key(key) for key in known["keys"]]
    return ToolCall(known.pop("action"), known)


def _rounded(arguments: dict[str, Any]) -> Any:
    """A coordinate as integers: models write fractions too, which the grammar does not have."""
    pair = arguments["coordinate"]
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
        return pair  # the grammar refuses it
    if not all(0 <= part <= RU_MAX for part in pair):
        raise AnswerFormatError("a coordinate is out of range")
    return [round(part) for part in pair]


def _actions(
    calls: Sequence[ToolCall], size: Pixel, wheel: WheelUnits
) -> Iterator[AnsweredAction | ForeignAction]:
    runs = [(call, sum(1 for _ in run)) for call, run in groupby(calls)]
    moved: Pixel | None = None
    for number, (call, times) in enumerate(runs):
        following = runs[number + 1][0].action if number + 1 < len(runs) else ""
        point = _pixel(call, size)
        if call.action == "mouse_move" and following == "left_click_drag":
            moved = point
        elif call.action == "left_click_drag" and moved is not None and point is not None:
            (x, y), (to_x, to_y) = moved, point
            yield answered(DragParameters(start_x=x, start_y=y, end_x=to_x, end_y=to_y))
            moved = None
        elif call.action == "key":
            presses = times if times > 1 else None
            yield answered(HotkeyParameters(keys=call.arguments["keys"], presses=presses))
        else:
            yield from [_action(call, point, wheel)] * times


def _action(
    call: ToolCall, point: Pixel | None, wheel: WheelUnits
) -> AnsweredAction | ForeignAction:
    """One call that is an action by itself."""
    done: AnsweredAction | None = None
    match call.action, point:
        case "type", _:
            done = answered(TypeParameters(text=call.arguments["text"]))
        case "wait", _ if 0 < call.arguments["time"] <= _LONGEST_WAIT:
            done = answered(WaitParameters(seconds=float(call.arguments["time"])))
        case "left_click" | "middle_click", (x, y):
            button: Button = "left" if call.action == "left_click" else "middle"
            done = click_action(button, 1, (x, y))
        case "triple_click", (x, y):
            done = click_action("left", 3, (x, y))
        case "right_click" | "double_click", (x, y):
            done = AnsweredAction(ActionType(call.action), PointParameters(x=x, y=y))
        case "scroll" | "hscroll", (x, y):
            done = _scroll(call, (x, y), wheel)
    return done or ForeignAction(call.action, point and (float(point[0]), float(point[1])))


def _scroll(call: ToolCall, point: Pixel, wheel: WheelUnits) -> AnsweredAction | None:
    units = call.arguments["pixels"]
    if abs(units) > _MOST_WHEEL_UNITS:
        raise AnswerFormatError("a scroll is out of range")
    if not units:
        return None
    direction: Literal["up", "down", "left", "right"] = "right" if units > 0 else "left"
    if call.action == "scroll":
        direction = "up" if (units > 0) == (wheel.positive == "up") else "down"
    amount = max(1, round(abs(units) / wheel.units_per_notch))
    x, y = point
    return answered(ScrollParameters(x=x, y=y, direction=direction, amount=amount))


def _pixel(call: ToolCall, size: Pixel) -> Pixel | None:
    """The pixel of a call's coordinate; None without one."""
    pair = call.arguments.get("coordinate")
    if pair is None:
        return None
    x, y = (
        min(round(part / RU_MAX * side), side - 1) for part, side in zip(pair, size, strict=True)
    )
    return x, y
