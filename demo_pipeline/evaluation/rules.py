"""The rules that score an answer: strict, AgentNetBench, ScreenSpot, Multimodal-Mind2Web, CUDAG.

AgentNetBench: OpenCUA, evaluation/agentnetbench/eval.py and run.py, in its first state, by which
numbers were published, and as revised; docs/guides/evaluation.md lists the quirks.
CUDAG: the sources read the tolerance in four ways that contradict each other; this is what
docs/reference/output-formats.md says.
Multimodal-Mind2Web: UGround, offline_evaluation/Multimodal-Mind2Web/eval.py; SeeClick,
agent_tasks/mind2web_test.py. ScreenSpot: ScreenSpot-Pro, eval_screenspot_pro.py. Published rules
give much for the type alone; the strict rule gives nothing for it.
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
    """Insertions, deletions and substitutions of characters between two texts, at least.

    A bit-vector algorithm, Myers (1999) and Hyyrö (2003): a long answer takes time, never memory.
    """
    pattern, text = (left, right) if len(left) <= len(right) else (right, left)
    if not pattern:
        return len(text)
    places: defaultdict[str, int] = defaultdict(int)
    for number, character in enumerate(pattern):
        places[character] |= 1 << number
    distance = len(pattern)
    last = 1 << (len(pattern) - 1)
    ones = (1 << len(pattern)) - 1
    more, less = ones, 0  # by how much a cell is above its upper neighbour: +1, -1
    for character in text:
        equal = places.get(character, 0)
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


_NEAR, _DECAY = 0.01 * 2**0.5, 120  # of the screen's sides
_SIMILAR = 0.8
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
    """An action as AgentNetBench names it.

    Attributes:
        name: click, doubleClick, moveTo, dragTo, write, press, hotkey, scroll, terminate, …
        value: a point (0 to 1), a text, a list of keys, a number or direction, or a status.
        boxes: of the true action: its targets as [x, y, width, height], 0 to 1.
    """

    name: str
    value: Any = None
    boxes: tuple[TargetBox, ...] = ()


def bench_answer(answer: Answer, size: tuple[int, int]) -> list[BenchAction]:
    """An answer in their form: drags and scrolls begin with a move, one key is a `press`."""
    found = [part for action in answer.actions for part in _named(action, size)]
    return [*found, BenchAction("terminate", answer.status)] if answer.status else found


def bench_truth(step: TrueStep) -> list[BenchAction]:
    """What the person did in their form; the target's box is that of the first action."""
    parts = bench_answer(step.answer, step.size)
    if step.box is None or not parts or parts[0].name.lower() not in _PLACED:
        return parts
    width, height = step.size
    left, top, across, down = step.box
    box = (left / width, top / height, across / width, down / height)
    return [BenchAction(parts[0].name, parts[0].value, (box,)), *parts[1:]]


def _named(action: AnyAction, size: tuple[int, int]) -> list[BenchAction]:
    kind = action_kind(action)
    (width, height) = size
    points = [(x / width, y / height) for x, y in places(action)]
    as_theirs = isinstance(action, ForeignAction) and kind.lower() in _PLACED  # calls of code
    if kind in _CLICKS or as_theirs:
        return [BenchAction(_CLICKS.get(kind, kind), points[0])] if points else []
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
            turned = BenchAction(name, amount if direction in ("up", "right") else -amount)
            return [BenchAction("moveTo", points[0]), turned]
    return [BenchAction(kind)]


def score_bench(
    truth: Sequence[BenchAction], answer: Sequence[BenchAction], *, revised: bool = False
) -> float:
    """The score of the first state of their script, 0 to 1.

    In its revised state scrolls, the order of keys and surplus actions count.
    """
    if not truth or not answer:
        return 0.0
    first = answer[0].name.lower()
    truth = _joined(truth, _KEYS)
    answer = _joined(answer, {"press"})
    surplus = min(1.0, len(truth) / len(answer)) if revised else 1.0
    if truth[0].name == "terminate":
        same = answer[0].name == "terminate" and answer[0].value == truth[0].value
        return surplus if same else 0.0
    names = [action.name.lower() for action in truth]
    if first not in names:
        return 0.0
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for number, (name, action) in enumerate(zip(names, truth, strict=True)):
        score: float | None = 0.0
        if number < len(answer) and answer[number].name.lower() == name:
            score = _part(name, action, answer[number].value, revised=revised)
        if score is not None:
            scores[name].append(score)
    means = [sum(scores[name]) / names.count(name) for name in scores]
    return surplus * sum(means) / len(means) if means else 0.0


def _joined(actions: Sequence[BenchAction], keys: Collection[str]) -> list[BenchAction]:
    """Text and then Enter alone is text with a final line end."""
    joined: list[BenchAction] = []
    for before, action in pairwise((None, *actions)):
        pressed = action and action.name.lower() in keys and isinstance(action.value, list)
        names = [str(key).lower() for key in action.value] if action and pressed else []
        enter = names in (["enter"], ["return"])
        if before and enter and before.name.lower() == "write":
            joined[-1] = replace(before, value=f"{before.value}\n")
        elif action:
            joined.append(action)
    return joined


def _part(name: str, truth: BenchAction, value: Any, *, revised: bool) -> float | None:
    """The score of one action of the right type; None for types that their script passes over."""
    if name in _PLACED:
        return _place_score(truth, value) if isinstance(value, tuple) else 0.0
    if name == "write":  # final line ends are stripped, so that a missing Enter is free
        text, given = (str(one).lower().strip() for one in (truth.value, value))
        longest = max(len(text), len(given))
        similarity = 1.0 - edit_distance(given, text) / longest if longest else 1.0
        return 1.0 if similarity >= _SIMILAR else similarity / _SIMILAR
    if name in _KEYS:
        if not isinstance(value, list):
            return 0.0
        wanted, keys = ([str(key).lower() for key in some] for some in (truth.value, value))
        return float(wanted == keys if revised else set(wanted) == set(keys))
    if name == "scroll":
        return _turn_score(truth.value, value or 0) if revised else 1.0
    return None


def _place_score(truth: BenchAction, point: ScreenPoint) -> float:
    distance = math.dist(point, truth.value)
    near = distance <= _NEAR or any(in_box(point, box) for box in truth.boxes)
    return 1.0 if near else math.exp(-_DECAY * (distance - _NEAR))


def _turn_score(wanted: int, given: int) -> float:
    return min(wanted / given, given / wanted) if wanted * given > 0 else 0.0


def as_ground_truth(action: BenchAction) -> Mapping[str, Any]:
    """A true action as their file has it: type, params, and metadata with the boxes."""
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
    """A step under the first state of AgentNetBench's script, or as it was revised."""
    return score_bench(bench_truth(step), bench_answer(answer, step.size), revised=revised)


def score_step_cudag(step: TrueStep, answer: Answer) -> float:
    """1 when the last call of the answer is the expected one, else 0.

    Of a drag the end counts, of a repeated key one press. Text and keys have to be equal, a scroll
    has to have the direction; its amount and the time of a wait do not count.
    """
    if step.action is None:
        return float(answer.status == step.answer.status)
    if not answer.actions or answer.status:
        return 0.0
    given = answer.actions[-1]
    wanted = step.action
    goal = places(wanted)[-1:]
    point = places(given)[-1:]
    said = [_words(one) for one in (given, wanted)]
    same = said[0] == said[1] or (said[0][0], wanted.action_type) == ("left_click_drag", "drag")
    if not goal or not point:
        return float(same and not goal)
    x, y = step.centre or goal[0]
    there = to_ru(x, y, step.size)
    here = to_ru(*point[0], step.size)
    near = (abs(a - b) <= limit for a, b, limit in zip(there, here, step.tolerance, strict=True))
    return float(same and all(near))


def _words(action: AnyAction) -> tuple[Any, ...]:
    """The kind of an action, and its text, keys or direction."""
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
    """1 when the point is in the target's box and the operation's words are the same, else 0.

    None for a step that points at no known target: every step of theirs has its element. What a
    step without a place does (typing, keys) is judged by its words alone.
    """
    on_target = is_grounded(step, answer)
    if on_target is None and step.action is not None and places(step.action):
        return None
    same = _tokens(step.answer) == _tokens(answer)  # F1 is 1 only for equal sets of tokens
    return float(same and on_target is not False)


def _tokens(answer: Answer) -> set[str]:
    """The words of the first operation; marks that stand alone do not count, as in their script."""
    ended = (TERMINATE, answer.status) if answer.status else ()
    words = _words(answer.actions[0]) if answer.actions else ended
    text = " ".join(word if isinstance(word, str) else "+".join(word) for word in words)
    return {token for token in text.lower().split() if token not in string.punctuation}


def score_step_screenspot(step: TrueStep, answer: Answer) -> float | None:
    """1 when the first point of the answer is in the box, edges included, else 0.

    What the answer does there does not count. None for a step without a place, or whose target is
    not known.
    """
    on_target = is_grounded(step, answer)
    return None if on_target is None else float(on_target)


def is_grounded(step: TrueStep, answer: Answer) -> bool | None:
    """Whether the first point is in the target's box; None without a place or a known target."""
    if step.box is None or step.action is None or not places(step.action):
        return None
    found = places(answer.actions[0]) if answer.actions else ()
    return bool(found) and in_box(found[0], step.box)


NEAR = 0.01  # of the screen's width and height, where no target is known
_NOTCH = 1


def score_step_strict(step: TrueStep, answer: Answer) -> float:
    """1 when the answer is one action that is right in everything, else 0.

    The type with button and number of clicks; held modifiers; the place in the target's box, or
    within 1 % of the screen's sides where the target is not known; both ends of a drag within 1 %;
    the text after `normalised_text`; keys in their order, as often; the direction of a scroll, and
    its amount within a notch; a wait as a wait, however long; the status at the end.
    """
    if step.action is None:
        return float(not answer.actions and answer.status == step.answer.status)
    if len(answer.actions) != 1 or answer.status:
        return 0.0
    given = answer.actions[0]
    wanted = step.action
    if not isinstance(given, AnsweredAction) or _exactly(given) != _exactly(wanted):
        return 0.0
    amounts = [getattr(one.parameters, "amount", 0) for one in (given, wanted)]
    if abs(amounts[0] - amounts[1]) > _NOTCH:
        return 0.0
    points = places(given)
    goals = places(wanted)
    if len(goals) == 1 and step.box is not None:
        return float(in_box(points[0], step.box))
    pairs = [pair for ends in zip(points, goals, strict=True) for pair in zip(*ends, strict=True)]
    sides = step.size * len(goals)
    near = (abs(a - b) <= NEAR * side for (a, b), side in zip(pairs, sides, strict=True))
    return float(all(near))


def normalised_text(text: str) -> str:
    """Unicode's composed form, line ends as line feeds, without one line end at the end."""
    plain = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain.removesuffix("\n")


def _exactly(action: AnsweredAction) -> tuple[Any, ...]:
    """What has to be the same: all but places, the amount of a scroll and the time of a wait."""
    known = action.parameters
    same = action_kind(action), sorted(getattr(known, "modifiers", None) or ())
    match known:
        case TypeParameters(text=text):
            return *same, normalised_text(text)
        case HotkeyParameters(keys=keys, presses=presses):
            return *same, [key.lower() for key in keys], presses or 1
        case ScrollParameters(direction=direction):
            return *same, direction
        case DragParameters(button=button):
            return *same, button or "left"
    return same


Rule = Callable[[TrueStep, Answer], float | None]
"""What an answer to a step is worth, 0 to 1; None: the rule does not judge this step."""

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
    "The script of this rule does not know waits: a wait scores 0, also in the truth.",
)
"""Rule → why the truth itself scores less than 1 by it."""
