"""The rules that score an answer: strict, AgentNetBench, ScreenSpot, Multimodal-Mind2Web, CUDAG.

Published rules give much credit for the correct action type alone; our strict rule gives none.

Sources of the rules:

- AgentNetBench: OpenCUA, evaluation/agentnetbench/eval.py and run.py. The published numbers were
  computed with the first version. Both the first and the revised version are implemented here.
  docs/guides/evaluation.md lists the quirks of both.
- CUDAG: its documents explain the tolerance in four contradictory ways. This module follows
  docs/reference/output-formats.md.
- Multimodal-Mind2Web: UGround, offline_evaluation/Multimodal-Mind2Web/eval.py, and SeeClick,
  agent_tasks/mind2web_test.py.
- ScreenSpot: ScreenSpot-Pro, eval_screenspot_pro.py.
"""

import math
import string
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from demo_pipeline.desktopd.models import (
    DragParameters,
    HotkeyParameters,
    ScrollParameters,
    TypeParameters,
)
from demo_pipeline.evaluation.true_steps import (
    TERMINATE,
    ScreenPoint,
    TargetBox,
    TrueStep,
    action_kind,
    in_box,
    places,
)
from demo_pipeline.exports.answers import Answer, AnsweredAction, ForeignAction
from demo_pipeline.exports.cudag.models import to_ru

AnyAction = AnsweredAction | ForeignAction


def edit_distance(left: str, right: str) -> int:
    """Returns the minimum number of insertions, deletions and replacements of characters.

    Uses the bit-vector algorithm of Myers (1999) and Hyyrö (2003), whose memory does not grow with
    the product of the lengths. Each integer stands for a column of the usual table of distances,
    and each of its bits for a character of the shorter text.
    """
    pattern, text = sorted((left, right), key=len)
    if not pattern:
        return len(text)
    positions: defaultdict[str, int] = defaultdict(int)  # positions of each character, as bits
    for number, character in enumerate(pattern):
        positions[character] |= 1 << number
    distance = len(pattern)
    last = 1 << (len(pattern) - 1)
    ones = (1 << len(pattern)) - 1
    more = ones  # cells that are 1 greater than the cell above
    less = 0  # cells that are 1 smaller than the cell above
    for character in text:
        equal = positions.get(character, 0)
        down = equal | less
        across = (((equal & more) + more) ^ more) | equal
        up_step = less | (ones & ~(across | more))
        down_step = more & across
        distance += bool(up_step & last) - bool(down_step & last)
        up_step = (up_step << 1) | 1
        down_step = down_step << 1
        more = (down_step | ~(down | up_step)) & ones
        less = up_step & down & ones
    return distance


# Constants of AgentNetBench's script. Distances are shares of the screen.
_NEAR = 0.01 * 2**0.5  # longest distance from the true point that gets the full score
_DECAY = 120  # beyond `_NEAR`, the score is exp(-_DECAY * (distance - _NEAR))
_SIMILAR = 0.8  # texts with at least this similarity (0 to 1) get the full score
# Maps our kinds of actions (see `action_kind`) to the script's names.
_CLICKS = {
    "left_click": "click",
    "right_click": "rightClick",
    "middle_click": "middleClick",
    "double_click": "doubleClick",
    "triple_click": "tripleClick",
    "mouse_move": "moveTo",
    "left_click_drag": "dragTo",
}
_PLACED = {"click", "doubleclick", "rightclick", "tripleclick", "moveto", "dragto"}
_KEYS = {"press", "hotkey"}
_PARAMETERS = {"write": "text", "press": "keys", "hotkey": "keys", "scroll": "amount"}
_PARAMETERS |= {"hscroll": "amount", "terminate": "status"}


@dataclass(frozen=True, slots=True)
class BenchAction:
    """An action in AgentNetBench's format.

    Positions and boxes are shares of the screen, 0 to 1.

    Attributes:
        name: click, doubleClick, moveTo, dragTo, write, press, hotkey, scroll, terminate, …
        value: a position, a text, a list of keys, an amount or a status.
        boxes: the targets' boxes; empty for an action of a model.
    """

    name: str
    value: Any = None
    boxes: tuple[TargetBox, ...] = ()


def bench_answer(answer: Answer, size: tuple[int, int]) -> list[BenchAction]:
    """Converts an answer to AgentNetBench's actions.

    A drag becomes a move and a drag; a scroll becomes a move and a scroll. A hotkey of one key
    becomes a `press`.
    """
    actions = list[BenchAction]()
    for action in answer.actions:
        actions += _bench_actions(action, size)
    if answer.status:
        actions.append(BenchAction("terminate", answer.status))
    return actions


def bench_truth(step: TrueStep) -> list[BenchAction]:
    """Converts the person's action to AgentNetBench's actions.

    If the first action is scored by its position (see `_PLACED`) and the target is known, this
    action gets the target's box.
    """
    actions = bench_answer(step.answer, step.size)
    if step.box is None or not actions or actions[0].name.lower() not in _PLACED:
        return actions
    screen_width, screen_height = step.size
    left, top, width, height = step.box
    box = (left / screen_width, top / screen_height, width / screen_width, height / screen_height)
    return [replace(actions[0], boxes=(box,)), *actions[1:]]


def _bench_actions(action: AnyAction, size: tuple[int, int]) -> list[BenchAction]:
    """Converts an action; the result is empty if its position is missing."""
    kind = action_kind(action)
    width, height = size
    points = [(x / width, y / height) for x, y in places(action)]
    has_bench_name = isinstance(action, ForeignAction) and kind.lower() in _PLACED
    if kind in _CLICKS or has_bench_name:
        if not points:
            return []
        return [BenchAction(_CLICKS.get(kind, kind), points[0])]
    if kind == "drag":
        return [BenchAction("moveTo", points[0]), BenchAction("dragTo", points[1])]
    match getattr(action, "parameters", None):
        case TypeParameters(text=text):
            return [BenchAction("write", text)]
        case HotkeyParameters(keys=keys, presses=presses):
            name = "press" if len(keys) == 1 else "hotkey"
            return [BenchAction(name, list(keys) * (presses or 1))]
        case ScrollParameters(direction=direction, amount=amount):
            name = "scroll" if direction in ("up", "down") else "hscroll"
            signed_amount = amount if direction in ("up", "right") else -amount
            return [BenchAction("moveTo", points[0]), BenchAction(name, signed_amount)]
    return [BenchAction(kind)]


def score_bench(
    truth: Sequence[BenchAction], answer: Sequence[BenchAction], *, revised: bool = False
) -> float:
    """Scores an answer as AgentNetBench's script does, 0 to 1.

    True and answered actions are compared in order. Scores are averaged for each type of true
    action, and then over the types.

    Args:
        revised: whether to use the revised version of the script, which also considers the amounts
            of scrolls, the order of keys and surplus actions.
    """
    if not truth or not answer:
        return 0.0
    first = answer[0].name.lower()
    truth = _with_enter_joined(truth, _KEYS)
    answer = _with_enter_joined(answer, {"press"})
    surplus_factor = 1.0
    if revised:
        surplus_factor = min(1.0, len(truth) / len(answer))
    if truth[0].name == "terminate":
        if answer[0].name != "terminate" or answer[0].value != truth[0].value:
            return 0.0
        return surplus_factor
    names = [action.name.lower() for action in truth]
    if first not in names:
        return 0.0
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for number, (name, action) in enumerate(zip(names, truth, strict=True)):
        score: float | None = 0.0
        if number < len(answer) and answer[number].name.lower() == name:
            score = _action_score(name, action, answer[number].value, revised=revised)
        if score is not None:
            scores[name].append(score)
    if not scores:
        return 0.0
    means = [sum(scores[name]) / names.count(name) for name in scores]
    return surplus_factor * sum(means) / len(means)


def _with_enter_joined(actions: Sequence[BenchAction], keys: Collection[str]) -> list[BenchAction]:
    """Joins each typed text and a following Enter into one text that ends with a line feed.

    Args:
        keys: lower-case names of the actions that press keys. Such an action counts as Enter if
            Enter is its only key.
    """
    joined: list[BenchAction] = []
    for before, action in pairwise((None, *actions)):
        if action is None:
            continue
        names = list[str]()
        if action.name.lower() in keys and isinstance(action.value, list):
            names = [str(key).lower() for key in action.value]
        is_enter = names in (["enter"], ["return"])
        if is_enter and before and before.name.lower() == "write":
            joined[-1] = replace(before, value=f"{before.value}\n")
        else:
            joined.append(action)
    return joined


def _action_score(name: str, truth: BenchAction, value: Any, *, revised: bool) -> float | None:
    """Scores an action of the correct type; returns None for types that the script ignores."""
    if name in _PLACED:
        return _place_score(truth, value) if isinstance(value, tuple) else 0.0
    if name == "write":
        return _text_score(str(truth.value), str(value))
    if name in _KEYS:
        if not isinstance(value, list):
            return 0.0
        true_keys = [str(key).lower() for key in truth.value]
        given_keys = [str(key).lower() for key in value]
        if revised:
            return float(true_keys == given_keys)
        return float(set(true_keys) == set(given_keys))
    if name == "scroll":
        return _amount_score(truth.value, value or 0) if revised else 1.0
    return None


def _text_score(true_text: str, given_text: str) -> float:
    """Scores a text by its similarity, 0 to 1; ignores case, and white space at both ends."""
    true_text = true_text.lower().strip()
    given_text = given_text.lower().strip()
    longest = max(len(true_text), len(given_text))
    if not longest:
        return 1.0
    similarity = 1.0 - edit_distance(given_text, true_text) / longest
    if similarity >= _SIMILAR:
        return 1.0
    return similarity / _SIMILAR


def _place_score(truth: BenchAction, point: ScreenPoint) -> float:
    """Scores a position: 1 near the true position or in a target's box, and less elsewhere."""
    distance = math.dist(point, truth.value)
    if distance <= _NEAR or any(in_box(point, box) for box in truth.boxes):
        return 1.0
    return math.exp(-_DECAY * (distance - _NEAR))


def _amount_score(true_amount: int, given_amount: int) -> float:
    if true_amount * given_amount <= 0:
        return 0.0
    return min(true_amount / given_amount, given_amount / true_amount)


def as_ground_truth(action: BenchAction) -> Mapping[str, Any]:
    """Returns an action as type, params and metadata, as in AgentNetBench's files."""
    name = action.name.lower()
    params = {}
    metadata = {}
    if name in _PLACED:
        params = {"position": {"x": action.value[0], "y": action.value[1]}}
        boxes = [{"category_id": 1, "rel_bbox": list(box)} for box in action.boxes]
        metadata = {"bboxes": boxes}
    elif name in _PARAMETERS:
        params = {_PARAMETERS[name]: action.value}
    return {"type": action.name, "params": params, "metadata": metadata}


def score_step_bench(step: TrueStep, answer: Answer, *, revised: bool = False) -> float:
    """Scores an answer to a step; see `score_bench`."""
    return score_bench(bench_truth(step), bench_answer(answer, step.size), revised=revised)


def score_step_cudag(step: TrueStep, answer: Answer) -> float:
    """Returns 1 if the last action of the answer is the expected action, else 0.

    Texts and keys must be equal. For a drag, only the end is compared. The number of presses of a
    key, the amount of a scroll and the duration of a wait are ignored.
    """
    if step.action is None:
        return float(answer.status == step.answer.status)
    if not answer.actions or answer.status:
        return 0.0
    given = answer.actions[-1]
    wanted = step.action
    is_drag = (action_kind(given), wanted.action_type) == ("left_click_drag", "drag")
    if _words(given) != _words(wanted) and not is_drag:
        return 0.0
    wanted_points = places(wanted)
    given_points = places(given)
    if not wanted_points or not given_points:
        return float(not wanted_points)
    x, y = step.centre or wanted_points[-1]
    true_x, true_y = to_ru(x, y, step.size)
    given_x, given_y = to_ru(*given_points[-1], step.size)
    is_near_across = abs(true_x - given_x) <= step.tolerance[0]
    is_near_down = abs(true_y - given_y) <= step.tolerance[1]
    return float(is_near_across and is_near_down)


def _words(action: AnyAction) -> tuple[Any, ...]:
    """Returns the kind of an action, followed by its text, keys or direction, if it has one."""
    kind = action_kind(action)
    match getattr(action, "parameters", None):
        case TypeParameters(text=text):
            return kind, text
        case HotkeyParameters(keys=keys):
            return kind, tuple(keys)
        case ScrollParameters(direction=direction):
            return kind, direction
    return (kind,)


def score_step_mind2web(step: TrueStep, answer: Answer) -> float | None:
    """Returns 1 if the point is in the target's box and the words of the actions agree, else 0.

    The words are the kind of the action and its text, keys or direction. Steps without a position,
    such as typing, are scored by their words alone. Returns None for a step with a position but
    without a known target, because every step of the benchmark has a target.
    """
    on_target = is_grounded(step, answer)
    if on_target is None and step.action is not None and places(step.action):
        return None
    # The benchmark requires an F1 score of 1, that is, equal sets of words.
    has_same_words = _tokens(step.answer) == _tokens(answer)
    return float(has_same_words and on_target is not False)


def _tokens(answer: Answer) -> set[str]:
    """Returns the words of the first action without punctuation, which the benchmark ignores."""
    words: tuple[Any, ...] = ()
    if answer.actions:
        words = _words(answer.actions[0])
    elif answer.status:
        words = (TERMINATE, answer.status)
    tokens = set[str]()
    for word in words:
        text = word if isinstance(word, str) else "+".join(word)
        tokens.update(text.lower().split())
    return {token for token in tokens if token not in string.punctuation}


def score_step_screenspot(step: TrueStep, answer: Answer) -> float | None:
    """Returns 1 if the first point of the answer is in the target's box or on its edge, else 0.

    The kind of the action is ignored. Returns None for a step without a position or without a known
    target.
    """
    on_target = is_grounded(step, answer)
    if on_target is None:
        return None
    return float(on_target)


def is_grounded(step: TrueStep, answer: Answer) -> bool | None:
    """Whether the first point of an answer is in the target's box.

    Returns None if the true action has no position or the target is unknown.
    """
    if step.box is None or step.action is None or not places(step.action):
        return None
    if not answer.actions:
        return False
    points = places(answer.actions[0])
    return bool(points) and in_box(points[0], step.box)


# Largest distance in x and y that the strict rule accepts for a drag or an unknown target, as a
# share of the screen's width and height.
NEAR = 0.01
_NOTCH = 1  # largest difference in notches that the strict rule accepts


def score_step_strict(step: TrueStep, answer: Answer) -> float:
    """Returns 1 if the answer is a single action that is correct in every respect, else 0.

    - The type, the button, the number of clicks and the held modifiers are equal.
    - The position is in the target's box. If the target is unknown, the position differs from the
      true position by at most 1 % of the screen's width and height.
    - Both ends of a drag differ by at most 1 % of the screen's width and height.
    - Texts are equal after `normalised_text`; keys are equal in order and number of presses.
    - The direction of a scroll is equal and its amount differs by at most one notch.
    - A wait may have any duration. The step that ends the task has the correct status.
    """
    if step.action is None:
        return float(not answer.actions and answer.status == step.answer.status)
    if len(answer.actions) != 1 or answer.status:
        return 0.0
    given = answer.actions[0]
    wanted = step.action
    if not isinstance(given, AnsweredAction) or _exact_parts(given) != _exact_parts(wanted):
        return 0.0
    given_amount = getattr(given.parameters, "amount", 0)
    wanted_amount = getattr(wanted.parameters, "amount", 0)
    if abs(given_amount - wanted_amount) > _NOTCH:
        return 0.0
    given_points = places(given)
    wanted_points = places(wanted)
    if len(wanted_points) == 1 and step.box is not None:
        return float(in_box(given_points[0], step.box))
    width, height = step.size
    for (given_x, given_y), (x, y) in zip(given_points, wanted_points, strict=True):
        if abs(given_x - x) > NEAR * width or abs(given_y - y) > NEAR * height:
            return 0.0
    return 1.0


def normalised_text(text: str) -> str:
    """Normalises a text to Unicode NFC and its line ends to LF, and removes a final line feed."""
    with_line_feeds = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", with_line_feeds).removesuffix("\n")


def _exact_parts(action: AnsweredAction) -> tuple[Any, ...]:
    """Returns the parts of an action that must be equal under the strict rule.

    The position, the amount of a scroll and the duration of a wait are not among them.
    """
    parameters = action.parameters
    kind = action_kind(action)
    modifiers = sorted(getattr(parameters, "modifiers", None) or ())
    match parameters:
        case TypeParameters(text=text):
            return kind, modifiers, normalised_text(text)
        case HotkeyParameters(keys=keys, presses=presses):
            return kind, modifiers, [key.lower() for key in keys], presses or 1
        case ScrollParameters(direction=direction):
            return kind, modifiers, direction
        case DragParameters(button=button):
            return kind, modifiers, button or "left"
    return kind, modifiers


Rule = Callable[[TrueStep, Answer], float | None]
"""Function that scores an answer, 0 to 1; None if the rule does not apply to the step."""

PRESETS: Mapping[str, Rule] = {
    "strict": score_step_strict,
    "agentnetbench": score_step_bench,
    "agentnetbench_revised": partial(score_step_bench, revised=True),
    "mind2web": score_step_mind2web,
    "screenspot": score_step_screenspot,
    "cudag": score_step_cudag,
}
FOOTNOTES: Mapping[str, str] = dict.fromkeys(
    ("agentnetbench", "agentnetbench_revised"),
    "The script of this rule does not know waits: a wait scores 0, even the true one.",
)
"""Maps the name of a rule to the reason why some true answers score less than 1."""
