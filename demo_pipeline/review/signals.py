"""Figures of doubt without a model: what may be wrong with a step or a demonstration.

Belongs here: the definition of every signal with its points, and the pure functions that find them.
None is a filter: they order the queue of the review page and are shown. What pictures tell alone is
in `pictures`, reading the inputs in `triage`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import dist, inf
from operator import attrgetter
from typing import Any

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.actions.inputs import Input
from demo_pipeline.desktopd.models import ActionType, Role, StepAction, points
from demo_pipeline.observation.frames.screenshot_files import ScreenshotFacts
from demo_pipeline.observation.trees.recorder_control import name_pattern
from demo_pipeline.review.pictures import different_cells, torn


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
UNUSED_SHARE = 0.5
UNUSED_S = 15.0
DURATION_S, DURATION_SHARE = 3.0, 0.1  # between meta.json and the film; recorders round to seconds
CLOCK_SCORE = 1 / 3  # of the moves fit; right clocks of real films: 0.34 to 0.91
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
    Signal("doubtful_text", 1.0, "typed text that is not known; it is in no training record"),
    Signal("recorder_window", 2.0, "it acts on the recorder's own window"),
    Signal("erased_text", 1.0, "the screenshot may show erased text that no step typed"),
)
DEMONSTRATION_SIGNALS = (
    Signal("unused_time", 1.0, f"over {UNUSED_SHARE:.0%} of the film, and {UNUSED_S:g} s, unused"),
    Signal("duration", 2.0, f"meta.json and the film differ by over {DURATION_S:g} s and a tenth"),
    Signal(
        "clock",
        2.0,
        f"by meta.timestamp alone, uncertain by over {CLOCK_MS:g} ms, or few moves fit the film",
    ),
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
    picture: ScreenshotFacts
    window: str = ""
    pointers: tuple[tuple[float, float], ...] = ()

    @property
    def kind(self) -> ActionType:
        """The type of its action."""
        return self.written.action_type

    @property
    def keys(self) -> set[str]:
        """The keys that it presses together; none of other actions."""
        return set(getattr(self.written.parameters, "keys", ()))

    @property
    def places(self) -> list[tuple[int, int]]:
        """The canvas points that it acts on."""
        return points(self.written)

    def distance(self, other: "StepFacts") -> float:
        """Canvas pixels between their first points; infinite when one has none."""
        return min(
            (dist(self.places[0], at) for at in other.places[:1] if self.places), default=inf
        )


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
        clock_score: share of the pointer's moves that fit the film; None: the film does not tell.
    """

    steps: Sequence[StepFacts]
    final: ScreenshotFacts
    inputs: Sequence[Input] = ()
    changes_ms: Sequence[float] = ()
    words: str = ""
    recorder_windows: Sequence[str] = ()
    meta_s: float = 0.0
    film: tuple[float, float] = (0.0, 0.0)
    clock_score: float | None = None

    def picture(self, place: int) -> ScreenshotFacts:
        """The screenshot of a step; of the place after the last one, the final one."""
        return self.steps[place].picture if place < len(self.steps) else self.final


_TIME = attrgetter("time")
_TAKING_BACK = {
    "undo": ({"ctrl", "z"}, {"command", "z"}),
    "back": ({"alt", "left"}, {"command", "["}),
}

Found = tuple[set[str], dict[str, Any]]
"""The signals of a step, and what they were measured from, by column of the table of steps."""


def step_signals(facts: Facts) -> list[Found]:
    """The signals of every step, in order."""
    found: list[Found] = []
    for place, step in enumerate(facts.steps):
        values: dict[str, Any] = {}
        signals = {*_effect(facts, place, values), *_timing(facts, place, values)}
        signals |= {*_path(facts, step, values), *_typing(facts, step, values), *_seen(facts, step)}
        if how := _undone_by(facts, place, values, "no_effect" in signals):
            values["undone_by"] = how
            signals.add("undone")
        found.append((signals, values))
    pictures = [facts.picture(place) for place in range(len(found) + 1)]
    marked = {
        "torn": [n for n in range(1, len(found)) if torn(*pictures[n - 1 : n + 2])],
        "frozen": _frozen(facts.steps),
        "off_task": _tail(facts),
    }
    for name, places in marked.items():
        for place in places:
            found[place][0].add(name)
    return found


def _effect(facts: Facts, place: int, values: dict[str, Any]) -> Iterator[str]:
    step = facts.steps[place]
    after = facts.picture(place + 1)
    following = facts.steps[place + 1 : place + 2]
    pointers = (*step.pointers, *(at for one in following for at in one.pointers), *step.places)
    changed = different_cells(step.picture, after, pointers)
    values["changed_share"] = changed / step.picture.cells.size
    if changed or step.kind is ActionType.WAIT or step.picture.missing or after.missing:
        return
    if {"c", "s"} & step.keys:  # copying and saving may show nothing
        return
    target = step.written.target_element
    hidden_effect = {Role.CHECKBOX, Role.RADIOBUTTON, Role.TEXTFIELD, Role.TEXTAREA, Role.COMBOBOX}
    if target and target.role in hidden_effect and step.kind is not ActionType.TYPE:
        return  # a tick is under the pointer, and a caret blinks
    focused = any(one.kind in {ActionType.TYPE, ActionType.HOTKEY} for one in following)
    if target or not focused:
        yield "no_effect"


def _undone_by(facts: Facts, place: int, values: Mapping[str, Any], no_effect: bool) -> str | None:
    """How the next step takes this one back: undo, back, escape or again; None: it does not."""
    step = facts.steps[place]
    after = facts.picture(min(place + 2, len(facts.steps)))
    if step.kind is ActionType.WAIT or place + 1 == len(facts.steps):
        return None
    following = facts.steps[place + 1]
    keys = following.keys
    target = following.written.target_element
    named = target.name.strip().casefold() if target and target.role is Role.BUTTON else ""
    for how, shortcuts in _TAKING_BACK.items():
        if keys in shortcuts or named == how:
            return how
    same = step.kind is following.kind and step.distance(following) <= AGAIN_PX
    if no_effect:
        gap_s = (following.action.press_ms - step.action.end_ms) / 1000
        return "again" if same and gap_s <= AGAIN_S else None
    pointers = (*step.pointers, *following.pointers, *step.places, *following.places)
    returned = values["changed_share"] and not after.missing
    if not returned or different_cells(step.picture, after, pointers):
        return None
    again = "again" if same and step.kind in POINTER_TYPES else None
    return "escape" if keys == {"esc"} else again


def _timing(facts: Facts, place: int, values: dict[str, Any]) -> Iterator[str]:
    step = facts.steps[place]
    waits = facts.steps[place].kind is ActionType.WAIT
    if waits and step.written.parameters.seconds < NEAR_PAUSE_S:  # type: ignore[attr-defined]
        yield "short_wait"
    if place == 0:
        return
    before = facts.steps[place - 1]
    hidden = step.row["hidden_before"] > 0
    if hidden:
        yield "discontinuity"
    if waits or before.kind is ActionType.WAIT:
        return
    idle_s = (step.action.press_ms - before.action.end_ms) / 1000
    values["idle_s"] = max(0.0, idle_s)
    if idle_s > IDLE_S and not hidden:
        yield "hesitation"
    shown = step.action.press_ms - (step.row["lead_ms"] or 0.0)
    if any(before.action.end_ms + ALONE_S * 1000 < ms <= shown for ms in facts.changes_ms):
        yield "discontinuity"


def _path(facts: Facts, step: StepFacts, values: dict[str, Any]) -> Iterator[str]:
    start = step.action.pre_move_ms
    end = (step.action.x, step.action.y)
    if start is None or end[0] is None or end[1] is None:
        return
    first = max(bisect_right(facts.inputs, start, key=_TIME) - 2, 0)  # where it had rested
    moves = facts.inputs[first : bisect_right(facts.inputs, step.action.press_ms, key=_TIME)]
    path = [(item.x, item.y) for item in moves if item.x is not None and item.y is not None]
    path.append((end[0], end[1]))
    travelled = sum(dist(a, b) for a, b in pairwise(path))
    if travelled <= SHORT_PATH:
        return
    straight = dist(path[0], path[-1]) / travelled
    values["path_efficiency"] = min(1.0, straight)
    if straight < STRAIGHT:
        yield "wandering"


def _typing(facts: Facts, step: StepFacts, values: dict[str, Any]) -> Iterator[str]:
    if step.kind is not ActionType.TYPE:
        return
    lines = set(step.action.events)
    deletions = sum(
        item.kind == "keydown" and item.index in lines and item.name in {"Backspace", "Delete"}
        for item in facts.inputs
    )
    characters = len(step.action.text or "")
    seconds = (step.action.end_ms - step.action.press_ms) / 1000
    values |= {"characters": characters, "deletions": deletions}
    if deletions >= MOST_CORRECTIONS and 100 * deletions > CORRECTED_SHARE * max(1, characters):
        yield "corrections"
    if characters >= PACED_CHARACTERS and seconds > 0:
        values["characters_per_second"] = (characters + deletions) / seconds
        if not PACE[0] <= values["characters_per_second"] <= PACE[1]:
            yield "pace"


def _seen(facts: Facts, step: StepFacts) -> Iterator[str]:
    row = step.row
    stale = row["freshness"] in {"stale", "changed"} or row["tree_agreement"] == "differs"
    names = [name for name in facts.recorder_windows if name.strip()]
    marks = {
        "leak": row["leak"],
        "no_target": step.kind in POINTER_TYPES and step.written.target_element is None,
        "no_tree": row["freshness"] in {"none", "sparse", "unreadable"},
        "stale_tree": stale,
        "black": step.picture.black,
        "doubtful_text": row["doubtful_text"] is True,
        "erased_text": bool(row.get("erased_text")),
        "recorder_window": any(name_pattern(name).search(step.window) for name in names),
    }
    yield from (name for name, is_set in marks.items() if is_set)


def _frozen(steps: Sequence[StepFacts]) -> Iterator[int]:
    """Yield the places of pointing steps in a row that show the same, though the pointer moved."""
    runs: list[list[int]] = []
    for place in (place for place, step in enumerate(steps) if step.places):
        before = steps[runs[-1][-1]] if runs else None
        moved = before is not None and before.distance(steps[place]) > MOVED_PX
        if before and moved and not different_cells(before.picture, steps[place].picture, ()):
            runs[-1].append(place)
        else:
            runs.append([place])
    yield from (place for run in runs if len(run) >= FROZEN_STEPS for place in run)


def _tail(facts: Facts) -> range:
    """The last two steps or more, at most half of all, in windows that nothing before names."""
    steps = facts.steps
    last = len(facts.steps)
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
    signals = set[str]()
    unused_s = 0.0
    film_s = (facts.film[1] - facts.film[0]) / 1000
    acted = [step.action for step in facts.steps if step.kind is not ActionType.WAIT]
    if acted and film_s > 0:
        ends = (acted[0].press_ms - facts.film[0], facts.film[1] - acted[-1].end_ms)
        unused_s = min(film_s, sum(max(0.0, one) / 1000 for one in ends))
        if unused_s > UNUSED_S and unused_s > UNUSED_SHARE * film_s:
            signals.add("unused_time")
    differs_s = abs(facts.meta_s - film_s)
    if differs_s > DURATION_S and differs_s > DURATION_SHARE * film_s and facts.meta_s:
        signals.add("duration")
    row = facts.steps[0].row if facts.steps else {}
    unsure = row and row["clock_uncertainty_ms"] > CLOCK_MS
    unfit = facts.clock_score is not None and facts.clock_score < CLOCK_SCORE
    if unsure or unfit or (row and row["clock_method"] == "meta_timestamp"):
        signals.add("clock")
    return signals, {"unused_s": unused_s, "film_s": film_s, "meta_s": facts.meta_s}


def doubt(counts: Mapping[str, int], signals: Iterable[str]) -> float:
    """The doubt about a demonstration, or about a step: the sum of points.

    Of each signal of the whole once, of each signal of steps as often as there are such steps, at
    most three times.

    Args:
        counts: signal → number of steps that have it.
        signals: of the demonstration as a whole.
    """
    of_steps = (s.points * min(counts.get(s.name, 0), MOST_COUNTED) for s in STEP_SIGNALS)
    return sum(of_steps) + sum(s.points for s in DEMONSTRATION_SIGNALS if s.name in signals)
