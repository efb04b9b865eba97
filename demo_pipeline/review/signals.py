"""Figures of doubt without a model: what may be wrong with a step or a demonstration.

Belongs here: the definition of every signal with its points, and the pure functions that find them.
None is a filter: they order the queue of the review page and are shown. What pictures tell alone is
in `pictures`, reading the inputs in `triage`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import hypot
from typing import Any

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.actions.inputs import Input
from demo_pipeline.desktopd.models import ActionType, HotkeyParameters, Role, StepAction, points
from demo_pipeline.observation.trees.recorder_windows import name_pattern
from demo_pipeline.review.pictures import PictureFacts, different_cells, torn


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure of doubt: its points in the score, and its definition."""

    name: str
    points: float
    definition: str


IDLE_S = 10.0  # seconds; who reads for longer has thought about it (waits.READING_S)
STRAIGHT = 0.4  # of the path; people's direct movements have 0.8 to 1
SHORT_PATH = 200.0  # screen pixels; shorter paths are corrections at the target
CORRECTED_SHARE, MOST_CORRECTIONS = 20.0, 3  # a hundred characters; and at least as many
PACE, PACED_CHARACTERS = (0.7, 25.0), 10  # characters a second; world-class typing is 18
AGAIN_S, AGAIN_PX = 2.0, 8.0  # seconds and canvas pixels between a click and its repetition
ALONE_S = 3.0  # seconds after an action in which the screen still answers it
NEAR_PAUSE_S = 2.5  # seconds; `actions.pause_ms` is 2 s by default
FROZEN_STEPS, MOVED_PX = 3, 50.0  # pointing steps in a row, and the distance between them
UNUSED_SHARE, UNUSED_S = 0.5, 15.0
DURATION_S, DURATION_SHARE = 3.0, 0.1  # between meta.json and the film; recorders round to seconds
CLOCK_MS = 500.0  # of uncertainty; a screen answers a click within that
FLAGGED = 1.0  # points; what is above is worth a look
MOST_COUNTED = 3  # steps with one signal; more of them say the same

STEP_SIGNALS = (
    Signal("no_effect", 0.5, "nothing but the pointer changed from this screenshot to the next"),
    Signal("undone", 1.5, "the next step takes it back: undo, back, Escape, or the same click"),
    Signal("discontinuity", 1.5, "the screen before it is not what the step before led to"),
    Signal("hesitation", 0.5, f"more than {IDLE_S:g} s without input before it, no wait"),
    Signal("wandering", 0.25, f"the pointer's path is over {1 / STRAIGHT:g} times the distance"),
    Signal("corrections", 1.0, f"over {CORRECTED_SHARE:g} deletions a hundred characters typed"),
    Signal("pace", 0.5, f"under {PACE[0]:g} or over {PACE[1]:g} characters a second"),
    Signal("off_task", 1.5, "of the last steps, in windows nothing before or in the task names"),
    Signal("leak", 0.25, "the screenshot may already show the pointer at the target"),
    Signal("no_target", 0.1, "a pointing action without a target"),
    Signal("no_tree", 0.5, "no tree, or one that cannot be read or is nearly empty"),
    Signal("stale_tree", 0.05, "the tree is older than what the screenshot shows"),
    Signal("short_wait", 0.25, f"a wait of less than {NEAR_PAUSE_S:g} s, near the threshold"),
    Signal("black", 3.0, "the screenshot is black"),
    Signal(
        "torn",
        2.0,
        "one part shows the screen before, the other the screen after, across its width",
    ),
    Signal("frozen", 2.0, f"one of {FROZEN_STEPS} pointing steps or more with the same screenshot"),
    Signal("recorder_window", 2.0, "it acts on the recorder's own window"),
)
DEMONSTRATION_SIGNALS = (
    Signal("unused_time", 1.0, f"over {UNUSED_SHARE:.0%} of the film, and {UNUSED_S:g} s, unused"),
    Signal("duration", 2.0, f"meta.json and the film differ by over {DURATION_S:g} s and a tenth"),
    Signal("clock", 2.0, f"by meta.timestamp alone, or uncertain by over {CLOCK_MS:g} ms"),
)


@dataclass(frozen=True)
class StepFacts:
    """What is known about a step.

    Attributes:
        written: its action.json.
        row: its row of provenance.parquet.
        action: the recorded action that it came from.
        picture: its screenshot.
        window: name of the top-level window of its target; empty: not known.
        pointers: canvas points where the pointer was in its screenshot.
    """

    written: StepAction
    row: Mapping[str, Any]
    action: Action
    picture: PictureFacts
    window: str = ""
    pointers: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Facts:
    """What is known about a demonstration.

    Attributes:
        steps: in order.
        final: the final screenshot.
        inputs: pointer and keyboard events in time order.
        changes_ms: epoch milliseconds of large changes of the screen.
        words: all texts of the task.
        recorder_windows: words of the recorder's windows that the task does not mention.
        meta_s, film: duration by meta.json; epoch milliseconds of the film's first and last frame.
    """

    steps: Sequence[StepFacts]
    final: PictureFacts
    inputs: Sequence[Input] = ()
    changes_ms: Sequence[float] = ()
    words: str = ""
    recorder_windows: Sequence[str] = ()
    meta_s: float = 0.0
    film: tuple[float, float] = (0.0, 0.0)


@dataclass
class Found:
    """The signals of a step, and what they were measured from."""

    signals: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)


def step_signals(facts: Facts) -> list[Found]:
    """The signals of every step, in order."""
    found = [Found() for _ in facts.steps]
    times = [item.time for item in facts.inputs]
    for place, (step, here) in enumerate(zip(facts.steps, found, strict=True)):
        following = facts.steps[place + 1] if place + 1 < len(facts.steps) else None
        _effect(facts, place, here)
        _timing(facts, place, here)
        _pointer(facts, times, step, here)
        _typing(facts, step, here)
        _observation(step, here)
        if following and (how := _undone_by(facts, place, here)):
            here.signals.add("undone")
            here.values["undone_by"] = how
    _faults(facts, found)
    _windows(facts, found)
    return found


def _effect(facts: Facts, place: int, here: Found) -> None:
    step, after = facts.steps[place], _after(facts, place)
    kind = step.written.action_type
    following = facts.steps[place + 1] if place + 1 < len(facts.steps) else None
    pointers = (*step.pointers, *(following.pointers if following else ()), *_points(step))
    changed = different_cells(step.picture, after, pointers)
    here.values["changed_share"] = changed / step.picture.cells.size
    if changed or kind is ActionType.WAIT or step.picture.missing or after.missing:
        return
    keys = getattr(step.written.parameters, "keys", ())
    if {"c", "s"} & set(keys):  # copying and saving may show nothing
        return
    target = step.written.target_element
    hidden_effect = {Role.CHECKBOX, Role.RADIOBUTTON, Role.TEXTFIELD, Role.TEXTAREA, Role.COMBOBOX}
    if target and target.role in hidden_effect and kind is not ActionType.TYPE:
        return  # a tick is under the pointer, and a caret blinks
    focuses = {ActionType.TYPE, ActionType.HOTKEY}
    if target is None and following and following.written.action_type in focuses:
        return
    here.signals.add("no_effect")


def _after(facts: Facts, place: int) -> PictureFacts:
    return facts.steps[place + 1].picture if place + 1 < len(facts.steps) else facts.final


def _points(step: StepFacts) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points(step.written)]


def _undone_by(facts: Facts, place: int, here: Found) -> str | None:
    """How the next step takes this one back: undo, back, escape or again; None: it does not."""
    step, following, after = facts.steps[place], facts.steps[place + 1], _after(facts, place + 1)
    keys, target = _keys(following.written), following.written.target_element
    named = target.name.strip().casefold() if target and target.role is Role.BUTTON else ""
    if step.written.action_type is ActionType.WAIT:
        return None
    if keys in ({"ctrl", "z"}, {"command", "z"}) or named == "undo":
        return "undo"
    if keys in ({"alt", "left"}, {"command", "["}) or named == "back":
        return "back"
    same = step.written.action_type is following.written.action_type and _near(step, following)
    gap_s = (following.action.press_ms - step.action.end_ms) / 1000
    if "no_effect" in here.signals:
        return "again" if same and gap_s <= AGAIN_S else None
    pointers = (*step.pointers, *following.pointers, *_points(step), *_points(following))
    returned = here.values["changed_share"] > 0 and not after.missing
    returned = returned and not different_cells(step.picture, after, pointers)
    again = "again" if same and step.written.action_type in POINTER_TYPES else None
    return ("escape" if keys == {"esc"} else again) if returned else None


def _keys(action: StepAction) -> set[str]:
    parameters = action.parameters
    return set(parameters.keys) if isinstance(parameters, HotkeyParameters) else set()


def _near(one: StepFacts, other: StepFacts) -> bool:
    a, b = _points(one), _points(other)
    return bool(a and b) and hypot(a[0][0] - b[0][0], a[0][1] - b[0][1]) <= AGAIN_PX


def _timing(facts: Facts, place: int, here: Found) -> None:
    step = facts.steps[place]
    waits = step.written.action_type is ActionType.WAIT
    if waits and step.written.parameters.seconds < NEAR_PAUSE_S:  # type: ignore[attr-defined]
        here.signals.add("short_wait")
    if place == 0:
        return
    before = facts.steps[place - 1]
    hidden = step.row["hidden_before"] > 0
    if not waits and before.written.action_type is not ActionType.WAIT:
        idle_s = (step.action.press_ms - before.action.end_ms) / 1000
        here.values["idle_s"] = max(0.0, idle_s)
        if idle_s > IDLE_S and not hidden:
            here.signals.add("hesitation")
        shown = step.action.press_ms - (step.row["lead_ms"] or 0.0)
        late = (before.action.end_ms + ALONE_S * 1000 < ms <= shown for ms in facts.changes_ms)
        if any(late):
            here.signals.add("discontinuity")
    if hidden:
        here.signals.add("discontinuity")


def _pointer(facts: Facts, times: Sequence[int], step: StepFacts, here: Found) -> None:
    start = step.action.pre_move_ms
    if start is None or step.action.x is None or step.action.y is None:
        return
    first = max(bisect_right(times, start) - 2, 0)  # with the place where it had rested
    moves = facts.inputs[first : bisect_right(times, step.action.press_ms)]
    path = [(item.x, item.y) for item in moves if item.x is not None and item.y is not None]
    path.append((step.action.x, step.action.y))
    travelled = sum(hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(path))
    if travelled <= SHORT_PATH:
        return
    straight = hypot(path[-1][0] - path[0][0], path[-1][1] - path[0][1])
    here.values["path_efficiency"] = min(1.0, straight / travelled)
    if straight / travelled < STRAIGHT:
        here.signals.add("wandering")


def _typing(facts: Facts, step: StepFacts, here: Found) -> None:
    if step.written.action_type is not ActionType.TYPE:
        return
    lines = set(step.action.events)
    deletions = sum(
        item.kind == "keydown" and item.index in lines and item.name in {"Backspace", "Delete"}
        for item in facts.inputs
    )
    characters = len(step.action.text or "")
    seconds = (step.action.end_ms - step.action.press_ms) / 1000
    here.values |= {"characters": characters, "deletions": deletions}
    share = 100 * deletions / max(1, characters)
    if deletions >= MOST_CORRECTIONS and share > CORRECTED_SHARE:
        here.signals.add("corrections")
    if characters >= PACED_CHARACTERS and seconds > 0:
        here.values["characters_per_second"] = (characters + deletions) / seconds
        if not PACE[0] <= here.values["characters_per_second"] <= PACE[1]:
            here.signals.add("pace")


def _observation(step: StepFacts, here: Found) -> None:
    row, pointing = step.row, step.written.action_type in POINTER_TYPES
    marks = {
        "leak": bool(row["leak"]),
        "no_target": pointing and step.written.target_element is None,
        "no_tree": row["freshness"] in {"none", "sparse", "unreadable"},
        "stale_tree": row["freshness"] in {"stale", "changed"}
        or row["tree_agreement"] == "differs",
        "black": step.picture.black,
    }
    here.signals |= {name for name, is_set in marks.items() if is_set}


def _faults(facts: Facts, found: Sequence[Found]) -> None:
    """Torn and frozen pictures, which only their neighbours show."""
    pictures = [*(step.picture for step in facts.steps), facts.final]
    for place, here in list(enumerate(found))[1:]:
        if torn(*pictures[place - 1 : place + 2]):
            here.signals.add("torn")
    runs: list[list[int]] = []  # of pointing steps
    for place in (place for place, step in enumerate(facts.steps) if _points(step)):
        if runs and _still(facts.steps[runs[-1][-1]], facts.steps[place]):
            runs[-1].append(place)
        else:
            runs.append([place])
    for place in (place for run in runs if len(run) >= FROZEN_STEPS for place in run):
        found[place].signals.add("frozen")


def _still(one: StepFacts, other: StepFacts) -> bool:
    """Whether the picture is the same, though the pointer was not."""
    a, b = _points(one)[0], _points(other)[0]
    moved = hypot(a[0] - b[0], a[1] - b[1]) > MOVED_PX
    return moved and not different_cells(one.picture, other.picture, ())


def _windows(facts: Facts, found: Sequence[Found]) -> None:
    phrases = [name_pattern(name) for name in facts.recorder_windows if name.strip()]
    for step, here in zip(facts.steps, found, strict=True):
        if step.window and any(phrase.search(step.window) for phrase in phrases):
            here.signals.add("recorder_window")
    for place in _tail(facts):
        found[place].signals.add("off_task")


def _tail(facts: Facts) -> range:
    """The last two steps or more, at most half of all, in windows that nothing before names."""
    steps, last = facts.steps, len(facts.steps)
    start = last
    for first in range(last - 2, (last - 1) // 2, -1):
        known = _words(" ".join([facts.words, *(step.window for step in steps[:first])]))
        foreign = not any(_words(step.window) & known for step in steps[first:])
        if steps[first].window and foreign and any(step.window for step in steps[:first]):
            start = first
    return range(start, last)


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 2}


def demonstration_signals(facts: Facts) -> Found:
    """The signals of the demonstration as a whole."""
    here = Found()
    film_s = (facts.film[1] - facts.film[0]) / 1000
    acted = [step.action for step in facts.steps if step.written.action_type is not ActionType.WAIT]
    unused_s = 0.0
    if acted and film_s > 0:
        head = max(0.0, acted[0].press_ms - facts.film[0]) / 1000
        unused_s = head + max(0.0, facts.film[1] - acted[-1].end_ms) / 1000
        unused_s = min(film_s, unused_s)
        if unused_s > UNUSED_S and unused_s > UNUSED_SHARE * film_s:
            here.signals.add("unused_time")
    differs_s = abs(facts.meta_s - film_s)
    if differs_s > DURATION_S and differs_s > DURATION_SHARE * film_s and facts.meta_s:
        here.signals.add("duration")
    row = facts.steps[0].row if facts.steps else {}
    if row and (row["clock_method"] == "meta_timestamp" or row["clock_uncertainty_ms"] > CLOCK_MS):
        here.signals.add("clock")
    here.values = {"unused_s": unused_s, "film_s": film_s, "meta_s": facts.meta_s}
    return here


def step_doubt(signals: Iterable[str]) -> float:
    """The doubt about a step: the sum of its signals' points."""
    return sum(signal.points for signal in STEP_SIGNALS if signal.name in signals)


def doubt(counts: Mapping[str, int], signals: Iterable[str]) -> float:
    """The doubt about a demonstration.

    The sum of points: of each signal of the whole once, of each signal of steps as often as there
    are such steps, at most three times.

    Args:
        counts: signal → number of steps that have it.
        signals: of the demonstration as a whole.
    """
    of_steps = (s.points * min(counts.get(s.name, 0), MOST_COUNTED) for s in STEP_SIGNALS)
    return sum(of_steps) + sum(s.points for s in DEMONSTRATION_SIGNALS if s.name in signals)
