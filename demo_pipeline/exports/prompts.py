"""Writes the prompts of the CUDAG and messages exports: the system prompt and the human turn.

tool_calls.py writes the answers.
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


# The sentence that ends the task for each status of `terminate`.
_ENDS = {"success": "End the task: it is done.", "failure": "End the task: it was not done."}


def units_per_notch(settings: DatasetSettings) -> int:
    """Returns the value of a scroll call's argument `pixels` for one notch of the wheel."""
    if settings.cudag_scroll_unit == "notches":
        return 1
    return settings.cudag_pixels_per_notch


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
    """Returns the part of the system prompt that explains sign and unit of `pixels` in scrolls."""
    unit = f"one notch of the wheel is {settings.cudag_pixels_per_notch}"
    if settings.cudag_scroll_unit == "notches":
        unit = "it counts notches of the wheel, not pixels"
    return (
        "`pixels` is positive to scroll up and negative to scroll down;"
        f" for hscroll it is positive to the right and negative to the left; {unit}"
    )


def tool_schema(settings: DatasetSettings, seen: Pixel | None = None) -> dict[str, Any]:
    """Returns the definition of the tool: a function with the JSON Schema of its arguments.

    Args:
        settings: determine the unit of scrolls.
        seen: width and height of the image in whose pixels coordinates are given. If it is None,
            coordinates are RU: thousandths of the image's width and height.
    """
    largest = RU_MAX
    if seen:
        largest = max(seen) - 1
    pair = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": largest}}
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
    """Returns the system prompt: the tool, the coordinates and how to answer.

    Args:
        settings: determine the unit of scrolls.
        action_line: whether answers have an `Action: …` line before the calls.
        thought: whether answers begin with a `Thought: …` line.
        seen: see `tool_schema`.
    """
    if thought and action_line:
        rule = f"{_WHY_FIRST.partition(', and then')[0]}. {_WORDS_FIRST}"
    elif thought:
        rule = _WHY_FIRST
    elif action_line:
        rule = _WORDS_FIRST
    else:
        rule = _CALLS_ONLY
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
    """Returns the sentence for the `Action: …` line of an answer, with models' markers escaped.

    Args:
        reasoning: the sentence that describes the step; ignored for `terminate`.
        places: the points of the calls in pixels, in order. In the sentence, the coordinates of the
            calls replace these points.
    """
    if calls[0].action == "terminate":
        return _ENDS[calls[0].arguments["status"]]
    coordinates = [call.arguments["coordinate"] for call in calls if "coordinate" in call.arguments]
    replacements = dict[str, str]()
    for (x, y), (across, down) in zip(places, coordinates, strict=False):
        replacements[f"({x}, {y})"] = f"({across}, {down})"
    return with_points_replaced(reasoning, replacements)


_POINT = re.compile(r"\((\d+), (\d+)\)")


def points_in(reasoning: str) -> list[Pixel]:
    """Returns the points that a sentence contains, such as `(12, 34)`, in order."""
    return [(int(match[1]), int(match[2])) for match in _POINT.finditer(reasoning)]


def with_points_replaced(
    reasoning: str, replacements: Mapping[str, str], other: str | None = None
) -> str:
    """Replaces points such as `(12, 34)` in a sentence; returns one line with markers escaped.

    Args:
        replacements: maps the text of a point, such as `(12, 34)`, to its replacement.
        other: replacement of all other points. If it is None, other points stay unchanged.
    """

    def replacement(match: re.Match[str]) -> str:
        return replacements.get(match[0], other or match[0])

    return escape_markers(" ".join(_POINT.sub(replacement, reasoning).split()))[0]


def end_sentence(*, success: bool) -> str:
    """Returns the sentence for a final answer that ends the task as done or not done."""
    return _ENDS["success" if success else "failure"]


def history_line(number: int, calls: Sequence[ToolCall], note: str) -> str:
    """Returns the line `1. {arguments}` that lists an earlier action in a prompt.

    Consecutive equal calls are written once, followed by `n times`. Markers are escaped.

    Args:
        number: 1-based number of the action in the history.
        note: words for facts that the calls cannot express; may be empty.
    """
    texts = list[str]()
    for call, run in groupby(calls):
        text = render_json(call.named_arguments())[0]
        times = len(list(run))
        if times > 1:
            text += f" {times} times"
        texts.append(text)
    return f"{number}. {' then '.join(texts)}{escape_markers(note)[0]}"


# The past tense of each action type.
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
# Words that follow the verb, for each reason why no screenshot shows an action.
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
    """Returns an action type in the past tense, such as `clicked`; `acted` for unknown types."""
    return _DONE.get(action_type, "acted")


def hidden_words(action: HiddenAction) -> str:
    """Describes an action that no screenshot shows, as in `clicked outside the recorded screen`.

    The description contains neither the place nor typed text. Unknown types become `acted`, and
    unknown reasons `out of sight`.
    """
    return f"{done_words(action.action_type)} {_UNSEEN.get(action.reason, 'out of sight')}"


def human_prompt(instruction: str, history: Sequence[str], most: int) -> str:
    """Returns the human turn without its image token: the instruction and the earlier actions.

    Args:
        instruction: the instruction of the task, whose markers are escaped here.
        history: lines about the earlier actions, oldest first; their markers are escaped already.
        most: maximum number of listed actions. If there are more, the latest are listed after a
            line with the number of omitted actions.
    """
    text, _ = escape_markers(instruction)
    if not history:
        return text
    latest = history[-most:]
    omitted = len(history) - len(latest)
    if omitted == 1:
        latest = ["1 earlier action", *latest]
    elif omitted:
        latest = [f"{omitted} earlier actions", *latest]
    return "\n".join([text, "", "Previous actions:", *latest])


_CLICKS = {ActionType.DOUBLE_CLICK: "Double-click", ActionType.RIGHT_CLICK: "Right-click"}


def grounding_prompt(action: StepAction) -> str:
    """Returns an instruction for a single action, such as `Click the Search button`.

    Markers are not escaped. The result is empty if the target has no known name, and for drags,
    keys, typed text and waits, which need more than a target.
    """
    target = action.target_element
    if target is None:
        return ""
    match action.parameters:
        case ClickParameters(button="left", clicks=3):
            verb = "Triple-click"
        case ClickParameters(button="left"):
            verb = "Click"
        case ClickParameters(button=button):
            verb = f"{button.capitalize()}-click"
        case ScrollParameters(direction=direction, amount=1):
            verb = f"Scroll {direction} 1 notch on"
        case ScrollParameters(direction=direction, amount=amount):
            verb = f"Scroll {direction} {amount} notches on"
        case _:
            verb = _CLICKS.get(action.action_type, "")
    name = " ".join(target.name.split())
    if not verb or not name:
        return ""
    return f"{verb} the {name} {role_word(target.role)}"
