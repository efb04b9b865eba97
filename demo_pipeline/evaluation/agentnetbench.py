"""The rules of AgentNetBench, in their form of actions: a name and a value.

Source: OpenCUA, evaluation/agentnetbench/eval.py and run.py. There are two states of the script;
published numbers are by the first, which only looks at the type of a scroll and at the set of keys.
Belongs here: both rules with their quirks, and our actions in that form. docs/evaluation.md lists
the quirks.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from demo_pipeline.evaluation.edit_distance import edit_distance
from demo_pipeline.evaluation.true_steps import TrueStep, action_kind, places
from demo_pipeline.formats.answers import Answer, AnsweredAction, ForeignAction
from demo_pipeline.formats.desktopd.step_actions import (
    HotkeyParameters,
    ScrollParameters,
    TypeParameters,
)

_NEAR = 0.01 * 2**0.5  # of the screen's sides
_DECAY = 120
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
    boxes: tuple[tuple[float, float, float, float], ...] = ()


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


def _named(action: AnsweredAction | ForeignAction, size: tuple[int, int]) -> list[BenchAction]:
    kind, (width, height) = action_kind(action), size
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


Options = Sequence[Sequence[BenchAction]]
"""The true actions of a step, then every alternative; the one with the best score counts."""


def score_bench(options: Options, answer: Sequence[BenchAction]) -> float:
    """The score of the first state of their script, 0 to 1."""
    return max(_score(truth, answer, revised=False) for truth in options)


def score_bench_revised(options: Options, answer: Sequence[BenchAction]) -> float:
    """The score of the revised script: scrolls, the order of keys and surplus actions count."""
    return max(_score(truth, answer, revised=True) for truth in options)


def _score(truth: Sequence[BenchAction], answer: Sequence[BenchAction], *, revised: bool) -> float:
    if not truth or not answer:
        return 0.0
    first = answer[0].name.lower()
    if all(action.name.lower() != first for action in truth):
        return 0.0
    truth, answer = _joined(truth, _KEYS), _joined(answer, {"press"})
    surplus = min(1.0, len(truth) / len(answer)) if revised else 1.0
    if truth[0].name == "terminate":
        same = answer[0].name == "terminate" and answer[0].value == truth[0].value
        return surplus if same else 0.0
    names = [action.name.lower() for action in truth]
    if first not in names:
        return 0.0
    sums: dict[str, float] = {}
    for number, (name, action) in enumerate(zip(names, truth, strict=True)):
        score: float | None = 0.0
        if number < len(answer) and answer[number].name.lower() == name:
            score = _part(name, action, answer[number].value, revised=revised)
        if score is not None:
            sums[name] = sums.get(name, 0.0) + score
    means = [total / names.count(name) for name, total in sums.items()]
    return surplus * sum(means) / len(means) if means else 0.0


def _joined(actions: Sequence[BenchAction], keys: Collection[str]) -> list[BenchAction]:
    """Text and then Enter alone is text with a final line end."""
    joined: list[BenchAction] = []
    number = 0
    while number < len(actions):
        action = actions[number]
        following = actions[number + 1 : number + 2]
        if action.name.lower() == "write" and any(_is_enter(part, keys) for part in following):
            joined.append(replace(action, value=f"{action.value}\n"))
            number += 2
        else:
            joined.append(action)
            number += 1
    return joined


def _is_enter(action: BenchAction, keys: Collection[str]) -> bool:
    if action.name.lower() not in keys or not isinstance(action.value, list):
        return False
    return [str(key).lower() for key in action.value] in (["enter"], ["return"])


def _part(name: str, truth: BenchAction, value: Any, *, revised: bool) -> float | None:
    """The score of one action of the right type; None for types that their script passes over."""
    if name in _PLACED:
        return _place_score(truth, value) if isinstance(value, tuple) else 0.0
    if name == "write":
        return _text_score(str(truth.value), str(value))
    if name in _KEYS:
        if not isinstance(value, list):
            return 0.0
        wanted, given = ([str(key).lower() for key in keys] for keys in (truth.value, value))
        return float(wanted == given if revised else set(wanted) == set(given))
    if name == "scroll":
        return _scroll_score(truth.value, value) if revised else 1.0
    return None


def _place_score(truth: BenchAction, point: tuple[float, float]) -> float:
    x, y = point
    for left, top, width, height in truth.boxes:
        if left <= x <= left + width and top <= y <= top + height:
            return 1.0
    distance = ((x - truth.value[0]) ** 2 + (y - truth.value[1]) ** 2) ** 0.5
    return 1.0 if distance <= _NEAR else math.exp(-_DECAY * (distance - _NEAR))


def _text_score(truth: str, text: str) -> float:
    """Final line ends are stripped before they are compared, so that a missing Enter is free."""
    wanted, given = truth.lower().strip(), text.lower().strip()
    longest = max(len(wanted), len(given))
    similarity = 1.0 - edit_distance(given, wanted) / longest if longest else 1.0
    return 1.0 if similarity >= _SIMILAR else similarity / _SIMILAR


def _scroll_score(truth: Any, value: Any) -> float:
    wanted, given = _sign(truth), _sign(value)
    if wanted and given != wanted:
        return 0.0
    if isinstance(truth, int | float) and isinstance(value, int | float):
        low, high = sorted((abs(float(truth)), abs(float(value))))
        return (low / high if low else 0.0) if high else 1.0
    return float(wanted == given)


def _sign(value: Any) -> int:
    if isinstance(value, str):
        return {"up": 1, "down": -1}.get(value.strip().lower(), 0)
    return (value > 0) - (value < 0) if isinstance(value, int | float) else 0


def score_step_bench(step: TrueStep, answer: Answer) -> float:
    """A step under the first state of their script."""
    return score_bench([bench_truth(step)], bench_answer(answer, step.size))


def score_step_bench_revised(step: TrueStep, answer: Answer) -> float:
    """A step under the revised script."""
    return score_bench_revised([bench_truth(step)], bench_answer(answer, step.size))


def as_ground_truth(action: BenchAction) -> Mapping[str, Any]:
    """A true action as their file has it: type, params, and metadata with the boxes."""
    name = action.name.lower()
    params: dict[str, Any] = {}
    if name in _PLACED:
        params = {"position": {"x": action.value[0], "y": action.value[1]}}
    elif name == "write":
        params = {"text": action.value}
    elif name in _KEYS:
        params = {"keys": action.value}
    elif name in ("scroll", "hscroll"):
        params = {"amount": action.value}
    elif name == "terminate":
        params = {"status": action.value}
    boxes = [{"category_id": 1, "rel_bbox": list(box)} for box in action.boxes]
    metadata = {"bboxes": boxes} if name in _PLACED else {}
    return {"type": action.name, "params": params, "metadata": metadata}
