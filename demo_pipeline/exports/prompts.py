"""The prompts of the CUDAG and messages exports: the system prompt and the human turn.

Belongs here: texts for a model. Records are made in cudag/records.py; the text form of tool calls
is in tool_calls.py.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    Pixel,
    ScrollParameters,
    StepAction,
)
from demo_pipeline.exports.tool_calls import (
    ACTION_LINE,
    RU_MAX,
    THOUGHT_LINE,
    TOOL_NAME,
    ToolCall,
    render_json,
)
from demo_pipeline.files.shown_text import escape_markers
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HiddenAction, HiddenReason
from demo_pipeline.trajectories.step_sentences import role_word

_ACTIONS = {
    "key": "press the keys in `keys` together, then release them",
    "type": "enter `text` at the keyboard focus",
    "mouse_move": "move the pointer to `coordinate`",
    "left_click": "click the left button at `coordinate`",
    "left_click_drag": "hold the left button and move the pointer from where it is to `coordinate`",
    "right_click": "click the right button at `coordinate`",
    "middle_click": "click the middle button at `coordinate`",
    "double_click": "click the left button twice at `coordinate`",
    "triple_click": "click the left button three times at `coordinate`",
    "scroll": "turn the wheel at `coordinate` by `pixels`",
    "hscroll": "scroll sideways at `coordinate` by `pixels`",
    "wait": "do nothing for `time` seconds while the screen changes",
    "terminate": "end the task and report its `status`",
    "answer": "give `text` as the answer to the task",
}


_ENDS = {"success": "End the task: it is done.", "failure": "End the task: it was not done."}


def units_per_notch(settings: DatasetSettings) -> int:
    """What `pixels` is for one notch of the wheel."""
    return 1 if settings.cudag_scroll_unit == "notches" else settings.cudag_pixels_per_notch


_CALLS_ONLY = "Answer with nothing but tool calls"
_WORDS_FIRST = (
    f"Answer with one line that begins with `{ACTION_LINE.strip()}` and says in a few words what to"
    " do, and then with nothing but tool calls"
)

_WHY_FIRST = (
    f"Answer with one line that begins with `{THOUGHT_LINE.strip()}` and says why you act so, and"
    " then with nothing but tool calls"
)


def scroll_rule(settings: DatasetSettings) -> str:
    """What sign and unit of `pixels` mean, as a sentence for the model."""
    unit = f"one notch of the wheel is {settings.cudag_pixels_per_notch}"
    if settings.cudag_scroll_unit == "notches":
        unit = "it counts notches of the wheel, not pixels"
    positive = settings.cudag_scroll_sign
    negative = "down" if positive == "up" else "up"
    return (
        f"`pixels` is positive to scroll {positive} and negative to scroll {negative};"
        f" for hscroll it is positive to the right and negative to the left; {unit}"
    )


def tool_schema(settings: DatasetSettings, seen: Pixel | None = None) -> dict[str, Any]:
    """The tool as a function schema (JSON Schema for its arguments); `seen`: see `write_calls`."""
    most = max(seen) - 1 if seen else RU_MAX
    pair = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": most}}
    properties: dict[str, Any] = {
        "action": {
            "type": "string",
            "enum": list(_ACTIONS),
            "description": "; ".join(f"{name}: {text}" for name, text in _ACTIONS.items()),
        },
        "coordinate": {**pair, "minItems": 2, "maxItems": 2, "description": "[x, y] on the screen"},
        "pixels": {"type": "integer", "description": scroll_rule(settings)},
        "keys": {"type": "array", "items": {"type": "string"}, "description": "names of keys"},
        "text": {"type": "string", "description": "for type and answer"},
        "time": {"type": "number", "minimum": 0, "description": "seconds, for wait"},
        "status": {"type": "string", "enum": [*_ENDS], "description": "for terminate"},
    }
    function = {
        "name": TOOL_NAME,
        "description": "Acts on a computer by mouse and keyboard.",
        "parameters": {"type": "object", "properties": properties, "required": ["action"]},
    }
    return {"type": "function", "function": function}


def system_prompt(
    settings: DatasetSettings,
    *,
    action_line: bool = False,
    thought: bool = False,
    seen: Pixel | None = None,
) -> str:
    """The system prompt of every record: the tool, the coordinates and how to answer.

    Args:
        settings: what the sign of a scroll means.
        action_line: whether answers begin with a line of words; see `action_sentence`.
        thought: whether they begin with a line of thought.
        seen: size of the picture whose pixels the coordinates are; None: they are RU.
    """
    rule = _WORDS_FIRST if action_line else _CALLS_ONLY
    if thought:
        rule = _WHY_FIRST if not action_line else f"{_WHY_FIRST.partition(', and then')[0]}. {rule}"
    schema = json.dumps(tool_schema(settings, seen), ensure_ascii=False)
    measure = f"{RU_MAX} x {RU_MAX} units, whatever its shape"
    corner = [RU_MAX, RU_MAX]
    if seen:
        measure = f"{seen[0]} x {seen[1]} pixels"
        corner = [side - 1 for side in seen]
    return (
        "You operate a computer for a person. You are shown the screen, the task and what was done "
        "so far; answer with the next action.\n\n"
        f"The screen is measured as {measure}: [0, 0] is the "
        f"top left corner, {corner} the bottom right. In scroll actions "
        f"{scroll_rule(settings)}.\n\n"
        f"There is one tool:\n<tools>\n{schema}\n</tools>\n\n"
        f"{rule}, each in this form:\n"
        f'<tool_call>\n{{"name": "{TOOL_NAME}", "arguments": {{"action": ...}}}}\n</tool_call>'
    )


def action_sentence(
    calls: Sequence[ToolCall], reasoning: str, places: Sequence[tuple[int, int]]
) -> str:
    """What to do, for the line before the calls: one line, with markers escaped.

    Args:
        calls: the answer.
        reasoning: the sentence of the step; a `terminate` has words of its own.
        places: the points of the calls in pixels, in order. Where the sentence names one, it gets
            the coordinate of the call, so that words and call agree.
    """
    if calls[0].action == "terminate":
        return _ENDS[calls[0].arguments["status"]]
    points = (call.arguments["coordinate"] for call in calls if "coordinate" in call.arguments)
    units = {f"({x}, {y})": f"({a}, {b})" for (x, y), (a, b) in zip(places, points, strict=False)}
    return said_with(reasoning, units)


_POINT = re.compile(r"\(\d+, \d+\)")


def points_in(reasoning: str) -> list[Pixel]:
    """The points that a sentence names, as `(12, 34)`, in order."""
    texts = (found[0][1:-1].split(", ") for found in _POINT.finditer(reasoning))
    return [(int(x), int(y)) for x, y in texts]


def said_with(reasoning: str, places: Mapping[str, str], other: str | None = None) -> str:
    """A sentence in one line without markers, with its points, as `(12, 34)`, in other words.

    Args:
        reasoning: the sentence.
        places: point → its words.
        other: of the other points; None: they stay.
    """
    words = _POINT.sub(lambda found: places.get(found[0], other or found[0]), reasoning)
    return escape_markers(" ".join(words.split()))[0]


def end_sentence(*, success: bool) -> str:
    """How the end of a task is said."""
    return _ENDS["success" if success else "failure"]


def history_line(number: int, calls: Sequence[ToolCall], note: str) -> str:
    """A previous action as `1. {arguments}`, with markers escaped; equal calls once, `n times`."""
    runs = ((call, sum(1 for _ in run)) for call, run in groupby(calls))
    texts = [
        render_json(call.named_arguments())[0] + (f" {times} times" if times > 1 else "")
        for call, times in runs
    ]
    return f"{number}. {' then '.join(texts)}{escape_markers(note)[0]}"


_DONE: Mapping[str, str] = {
    ActionType.CLICK: "clicked",
    ActionType.DOUBLE_CLICK: "double-clicked",
    ActionType.RIGHT_CLICK: "right-clicked",
    ActionType.DRAG: "dragged",
    ActionType.SCROLL: "scrolled",
    ActionType.TYPE: "typed text",
    ActionType.HOTKEY: "pressed keys",
    ActionType.WAIT: "waited",
}
_UNSEEN: Mapping[str, str] = {
    HiddenReason.OFF_SCREEN: "outside the recorded screen",
    HiddenReason.NO_POSITION: "at an unknown place",
    HiddenReason.UNKNOWN_SCALE: "at an unknown place",
    HiddenReason.NEVER_RELEASED: "with a button that was not let go",
    HiddenReason.BEFORE_VIDEO: "before the recording began",
    HiddenReason.AFTER_VIDEO: "after the recording had ended",
    HiddenReason.UNDECODABLE: "while the screen was not recorded",
    HiddenReason.UNKNOWN_TIME: "at an unknown time",
    HiddenReason.UNCLEAR_SCROLL: "by an unknown amount",
    HiddenReason.PRIVATE: "while the screen was dark or locked",
}


def done_words(action_type: str) -> str:
    """What an action of a type did, as in `clicked`; an unknown type is put in general words."""
    return _DONE.get(action_type, "acted")


def hidden_words(action: HiddenAction) -> str:
    """A hidden action as `clicked outside the recorded screen`: never where, never what text.

    A type or reason that is not known is put in general words.
    """
    return f"{done_words(action.action_type)} {_UNSEEN.get(action.reason, 'out of sight')}"


def human_prompt(instruction: str, history: Sequence[str], most: int) -> str:
    """The instruction and the previous actions, with markers escaped, without the image token.

    `most`: the last ones in full; those before them are one line with their number.
    """
    text, _ = escape_markers(instruction)
    if earlier := len(history[:-most]):
        told = f"{earlier} earlier action{'s' if earlier > 1 else ''}"
        history = [told, *history[-most:]]
    return "\n".join([text, "", "Previous actions:", *history]) if history else text


_CLICKS = {ActionType.DOUBLE_CLICK: "Double-click", ActionType.RIGHT_CLICK: "Right-click"}


def grounding_prompt(action: StepAction) -> str:
    """What to do to which element, as in `Click the Search button`; markers are not escaped.

    Empty when the action has no target, the target has no name, or the action is more than pointing
    at the target: the end of a drag has no name, and typed text has no position.
    """
    target = action.target_element
    match action.parameters:
        case ClickParameters(button="left", clicks=3):
            verb = "Triple-click"
        case ClickParameters(button=button):
            verb = "Click" if button == "left" else f"{button.capitalize()}-click"
        case ScrollParameters(direction=direction, amount=amount):
            verb = f"Scroll {direction} {'1 notch' if amount == 1 else f'{amount} notches'} on"
        case _:
            verb = _CLICKS.get(action.action_type, "")
    name = " ".join(target.name.split()) if target else ""
    return f"{verb} the {name} {role_word(target.role)}" if target and verb and name else ""
