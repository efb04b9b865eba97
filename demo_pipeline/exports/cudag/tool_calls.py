"""The tool calls of the CUDAG and messages formats: grammar, rendering and parsing.

Names and arguments are those of Qwen3-VL's `computer_use` tool. Belongs here also: escaping
markers, which are text that looks like a control token of a model.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import MARKER

TOOL_NAME = "computer_use"
RU_MAX = 1000
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


_COORDINATE = {
    "coordinate": (
        lambda value: is_pair(value) and all(0 <= part <= RU_MAX for part in value),
        "[x, y] with integers from 0 to 1000",
    )
}
_WHEEL = {**_COORDINATE, "pixels": (is_int, "an integer")}
_TEXT = {"text": (lambda value: isinstance(value, str), "a string")}
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


def call_faults(call: object) -> Iterator[str]:
    """Yield what is wrong with one parsed tool call object."""
    if not isinstance(call, dict):
        yield "tool call must be an object"
        return
    if call.get("name") != TOOL_NAME:
        yield f"tool call name must be '{TOOL_NAME}'"
    if unknown := len(set(call) - {"name", "arguments"}):
        yield f"tool call has {unknown} keys besides name and arguments"
    yield from _argument_faults(call.get("arguments"))


def _argument_faults(arguments: object) -> Iterator[str]:
    if not isinstance(arguments, dict):
        yield "arguments must be an object"
        return
    action = arguments.get("action")
    if not isinstance(action, str) or action not in ARGUMENTS:
        yield f"action must be one of {', '.join(ARGUMENTS)}"
        return
    expected = ARGUMENTS[action]
    for name, (accepts, wanted) in expected.items():
        if name not in arguments:
            yield f"{action} is missing argument {name}"
        elif not accepts(arguments[name]):
            yield f"{action} argument {name} must be {wanted}"
    if unknown := len(set(arguments) - set(expected) - {"action"}):
        yield f"{action} has {unknown} unknown arguments"


def parse_tool_calls(value: str) -> list[ToolCall]:
    """Parse a gpt turn: tool call blocks on lines of their own, and nothing else.

    Raises:
        ToolCallError: other text in the turn, invalid JSON, or a call that breaks the grammar.
    """
    calls = []
    for number, text in enumerate(_blocks(value), start=1):
        try:
            call = parse_json(text, "tool call", any_depth=False)
        except JsonFileError as error:
            raise ToolCallError(f"tool call {number}: {error.message}") from None
        if faults := list(call_faults(call)):
            raise ToolCallError(f"tool call {number}: {'; '.join(faults)}")
        arguments = dict(call["arguments"])
        calls.append(ToolCall(arguments.pop("action"), arguments))
    return calls


def _blocks(value: str) -> Iterable[str]:
    """The JSON texts of the <tool_call> blocks of a gpt turn.

    Raises:
        ToolCallError: the turn has other text, or no call.
    """
    texts, position = [], 0
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
