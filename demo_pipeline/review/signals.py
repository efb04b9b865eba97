"""Doubt signals: reasons why a step or a demonstration may be wrong, found without a model.

The review page shows the signals and orders its queue by them. No data is filtered by signals.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import dist, inf
from operator import attrgetter
from typing import Any

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.actions.inputs import Input
from demo_pipeline.desktopd.models import ActionType, Role, StepAction, points
from demo_pipeline.observation.frames.screenshot_files import ScreenshotFacts
from demo_pipeline.observation.trees.recorder_control import name_pattern
from demo_pipeline.review.screenshot_comparison import different_cells, torn


@dataclass(frozen=True, slots=True)
class Signal:
    """A reason to doubt a step or a demonstration.

    Attributes:
        name: name of the signal in tables and on the review page.
        points: the weight of the signal in the doubt score.
        definition: a phrase for people that says when a step or demonstration has the signal.
    """

    name: str
    points: float
    definition: str


# A step has the signal `hesitation` if it begins more than 10 s after the previous action. Reading
# explains shorter pauses (`waits.READING_S`).
IDLE_S = 10.0
# Below this ratio of direct distance to path length, a step has the signal `wandering`. Direct
# pointer movements of people have ratios of 0.8 to 1.
STRAIGHT = 0.4
SHORT_PATH = 200.0  # screen pixels; shorter paths are corrections at the target, not `wandering`
# Above this number of deletions per 100 typed characters, a step has the signal `corrections`.
CORRECTED_SHARE = 20.0
FEWEST_CORRECTIONS = 3  # minimum number of deletions for the signal `corrections`
# Range of normal typing, in typed and deleted characters per second. Typing steps outside this
# range have the signal `pace`. The fastest typists in the world reach 18.
PACE = (0.7, 25.0)
PACED_CHARACTERS = 10  # the pace of texts with fewer characters is not judged
AGAIN_S = 2.0  # maximum time between an action and its repetition, seconds
AGAIN_PX = 8.0  # maximum distance between a click and its repetition, screenshot pixels
ALONE_S = 3.0  # a screen change more than 3 s after an action is not the action's effect
# Below this time, in seconds, a wait has the signal `short_wait`. Only pauses of at least 2 s
# become waits (`ActionSettings.pause_ms`).
NEAR_PAUSE_S = 2.5
# At least three successive pointing steps have the signal `frozen` if their screenshots are the
# same, although the pointer moves more than `FROZEN_MOVE_PX` screenshot pixels between them.
FROZEN_STEPS = 3
FROZEN_MOVE_PX = 50.0
# A demonstration has the signal `unused_time` if the time before its first action plus the time
# after its last action exceeds both limits: a share of the video's length, and a number of seconds.
UNUSED_SHARE = 0.5
UNUSED_S = 15.0
# A demonstration has the signal `duration` if the duration in meta.json differs from the video's
# length by more than both limits: a number of seconds, and a share of the length. Recorders round
# durations to seconds.
DURATION_S = 3.0
DURATION_SHARE = 0.1
# A demonstration has the signal `clock` if the video confirms less than a third of its pointer
# moves. With correct clocks, the measured shares were 0.34 to 0.91.
CLOCK_SCORE = 1 / 3
# A demonstration has the signal `clock` if its clock is uncertain by more than 500 ms. Screens
# respond to a click within this time.
CLOCK_MS = 500.0
FLAGGED = 1.0  # minimum doubt score of the demonstrations that are flagged for reviewers
MOST_COUNTED = 3  # maximum number of steps with the same signal that add to the score

STEP_SIGNALS = (
    Signal("no_effect", 0.5, "only the pointer changed from this screenshot to the next"),
    Signal(
        "undone", 1.5, "the next step takes this one back: undo, back, Escape or the same action"
    ),
    Signal(
        "discontinuity",
        1.5,
        "before the step, the screen changed without input, or an action is not shown",
    ),
    Signal(
        "hesitation",
        0.5,
        f"over {IDLE_S:g} s without an action before the step, except next to waits",
    ),
    Signal(
        "wandering", 0.25, f"the pointer's path is over {1 / STRAIGHT:g} times the direct distance"
    ),
    Signal(
        "corrections",
        1.0,
        f"at least {FEWEST_CORRECTIONS} deletions, and over {CORRECTED_SHARE:g} per 100 characters",
    ),
    Signal(
        "pace",
        0.5,
        f"under {PACE[0]:g} or over {PACE[1]:g} typed and deleted characters per second",
    ),
    Signal(
        "off_task",
        1.5,
        "one of the last steps, in windows with no word of the task or of an earlier window",
    ),
    Signal("leak", 0.25, "the screenshot may already show the pointer at the target"),
    Signal("no_target", 0.1, "a pointing action without a known target"),
    Signal("no_tree", 0.5, "the UI tree is missing, unreadable or nearly empty"),
    Signal(
        "stale_tree",
        0.05,
        "the UI tree is from before the end of the previous action, or contradicts the screenshot",
    ),
    Signal(
        "short_wait",
        0.25,
        f"a wait of under {NEAR_PAUSE_S:g} s, close to the shortest possible wait",
    ),
    Signal("black", 3.0, "the screenshot is black"),
    Signal("torn", 2.0, "the upper and the lower part of the screenshot show different screens"),
    Signal(
        "frozen",
        2.0,
        f"one of {FROZEN_STEPS} or more pointing steps in a row with the same screenshot",
    ),
    Signal("doubtful_text", 1.0, "the typed text is uncertain; no training record uses it"),
    Signal("recorder_window", 2.0, "the action is in a window of the recorder"),
    Signal("erased_text", 1.0, "the screenshot may show erased text that no step typed"),
)
DEMONSTRATION_SIGNALS = (
    Signal(
        "unused_time",
        1.0,
        f"over {UNUSED_SHARE:.0%} of the video, and over {UNUSED_S:g} s, are before the first and "
        "after the last action",
    ),
    Signal(
        "duration",
        2.0,
        f"meta.json and video differ in length by over {DURATION_S:g} s and a tenth",
    ),
    Signal(
        "clock",
        2.0,
        f"the clock rests on meta.timestamp alone, is uncertain by over {CLOCK_MS:g} ms, or fits "
        "few moves of the pointer",
    ),
)


@dataclass(frozen=True)
class StepFacts:
    """The facts about a step from which its signals are derived.

    Attributes:
        written: content of the step's action.json.
        row: the step's row of provenance.parquet.
        action: the recorded action from which the step was made.
        window: name of the top-level window with the step's target; empty if unknown.
        pointers: positions of the pointer in the step's screenshot, in screenshot pixels.
    """

    written: StepAction
    row: Mapping[str, Any]
    action: Action
    screenshot: ScreenshotFacts
    window: str = ""
    pointers: tuple[tuple[float, float], ...] = ()

    @property
    def kind(self) -> ActionType:
        """The type of the step's action."""
        return self.written.action_type

    @property
    def keys(self) -> set[str]:
        """The keys of a hotkey; empty for other actions."""
        return set(getattr(self.written.parameters, "keys", ()))

    @property
    def places(self) -> list[tuple[int, int]]:
        """The points of the action in screenshot pixels: none, one, or the two ends of a drag."""
        return points(self.written)

    def distance(self, other: "StepFacts") -> float:
        """Returns the distance between the first points of two steps in screenshot pixels.

        Returns infinity if either step has no point.
        """
        if not self.places or not other.places:
            return inf
        return dist(self.places[0], other.places[0])


@dataclass(frozen=True)
class Facts:
    """The facts about a demonstration from which its signals are derived.

    Attributes:
        final: facts about the final screenshot.
        inputs: pointer and keyboard events in time order.
        changes_ms: times of large changes of the screen, epoch milliseconds.
        words: all texts of the task, joined.
        recorder_windows: words in titles of the recorder's windows, except words of the task.
        meta_s: duration of the recording according to meta.json, in seconds.
        video_ms: times of the first and the last frame, epoch milliseconds.
        clock_score: share of the pointer's moves that the video confirms; None if not measured.
    """

    steps: Sequence[StepFacts]
    final: ScreenshotFacts
    inputs: Sequence[Input] = ()
    changes_ms: Sequence[float] = ()
    words: str = ""
    recorder_windows: Sequence[str] = ()
    meta_s: float = 0.0
    video_ms: tuple[float, float] = (0.0, 0.0)
    clock_score: float | None = None

    def screenshot(self, place: int) -> ScreenshotFacts:
        """Returns the screenshot of the step at index `place`, or `final` after the last step."""
        if place < len(self.steps):
            return self.steps[place].screenshot
        return self.final


_TIME = attrgetter("time")
# Hotkeys that revert a step. A click on a button named `undo` or `back` also reverts a step.
_TAKING_BACK = {
    "undo": ({"ctrl", "z"}, {"command", "z"}),
    "back": ({"alt", "left"}, {"command", "["}),
}


@dataclass
class SignalsFound:
    """The signals and measurements of a step or a demonstration.

    Attributes:
        values: maps column names in the tables of the triage to measured values.
    """

    signals: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)


def step_signals(facts: Facts) -> list[SignalsFound]:
    """Returns the signals of every step, in order."""
    results: list[SignalsFound] = []
    for place, step in enumerate(facts.steps):
        values: dict[str, Any] = {}
        signals = {*_effect(facts, place, values), *_timing(facts, place, values)}
        signals |= {*_path(facts, step, values), *_typing(facts, step, values)}
        signals |= {*_provenance_signals(facts, step)}
        if how := _undone_by(facts, place, values, "no_effect" in signals):
            values["undone_by"] = how
            signals.add("undone")
        results.append(SignalsFound(signals, values))
    screenshots = [facts.screenshot(place) for place in range(len(results) + 1)]
    for place in range(1, len(results)):
        if torn(*screenshots[place - 1 : place + 2]):
            results[place].signals.add("torn")
    for place in _frozen(facts.steps):
        results[place].signals.add("frozen")
    for place in _off_task_tail(facts):
        results[place].signals.add("off_task")
    return results


def _effect(facts: Facts, place: int, values: dict[str, Any]) -> Iterator[str]:
    """Yields `no_effect` if the step should have changed the screen but did not.

    Args:
        place: index of the step in `facts.steps`.
        values: measured values are added to this dictionary.
    """
    step = facts.steps[place]
    after = facts.screenshot(place + 1)
    following: StepFacts | None = None
    pointers = [*step.pointers, *step.places]
    if place + 1 < len(facts.steps):
        following = facts.steps[place + 1]
        pointers += following.pointers
    changed = different_cells(step.screenshot, after, pointers)
    values["changed_share"] = changed / step.screenshot.cells.size
    if changed or step.kind is ActionType.WAIT or step.screenshot.missing or after.missing:
        return
    if {"c", "s"} & step.keys:  # copying and saving can leave the screen unchanged
        return
    target = step.written.target_element
    # The pointer may hide a new check mark, and a blinking caret in a field may be invisible.
    hidden_effect = {Role.CHECKBOX, Role.RADIOBUTTON, Role.TEXTFIELD, Role.TEXTAREA, Role.COMBOBOX}
    if target and target.role in hidden_effect and step.kind is not ActionType.TYPE:
        return
    # A step without a known target, followed by keys, may have moved the focus invisibly.
    keys_follow = following is not None and following.kind in {ActionType.TYPE, ActionType.HOTKEY}
    if target or not keys_follow:
        yield "no_effect"


def _undone_by(facts: Facts, place: int, values: Mapping[str, Any], no_effect: bool) -> str | None:
    """Returns how the next step reverts the step at `place`, or None if it does not.

    The result is `undo`, `back` (navigation), `escape` (the key), or `again` (the same action).

    Args:
        place: index of the step in `facts.steps`.
        values: measured values of the step.
        no_effect: whether the step has the signal `no_effect`.
    """
    step = facts.steps[place]
    if step.kind is ActionType.WAIT or place + 1 == len(facts.steps):
        return None
    following = facts.steps[place + 1]
    target = following.written.target_element
    button = ""
    if target and target.role is Role.BUTTON:
        button = target.name.strip().casefold()
    for how, hotkeys in _TAKING_BACK.items():
        if following.keys in hotkeys or button == how:
            return how
    is_same_action = step.kind is following.kind and step.distance(following) <= AGAIN_PX
    if no_effect:
        gap_s = (following.action.press_ms - step.action.end_ms) / 1000
        if is_same_action and gap_s <= AGAIN_S:
            return "again"
        return None
    # The step was reverted only if the screen before it looks like the screen after the next step.
    after = facts.screenshot(place + 2)
    changed = bool(values["changed_share"]) and not after.missing
    pointers = (*step.pointers, *following.pointers, *step.places, *following.places)
    if not changed or different_cells(step.screenshot, after, pointers):
        return None
    if following.keys == {"esc"}:
        return "escape"
    if is_same_action and step.kind in POINTER_TYPES:
        return "again"
    return None


def _timing(facts: Facts, place: int, values: dict[str, Any]) -> Iterator[str]:
    """Yields `short_wait`, `discontinuity` and `hesitation` if a step has these signals.

    Args:
        place: index of the step in `facts.steps`.
        values: measured values are added to this dictionary.
    """
    step = facts.steps[place]
    is_wait = step.kind is ActionType.WAIT
    if is_wait and step.written.parameters.seconds < NEAR_PAUSE_S:  # type: ignore[attr-defined]
        yield "short_wait"
    if place == 0:
        return
    before = facts.steps[place - 1]
    hidden = step.row["hidden_before"] > 0
    if hidden:
        yield "discontinuity"
    if is_wait or before.kind is ActionType.WAIT:
        return
    idle_s = (step.action.press_ms - before.action.end_ms) / 1000
    values["idle_s"] = max(0.0, idle_s)
    if idle_s > IDLE_S and not hidden:
        yield "hesitation"
    # No logged input explains a screen change more than `ALONE_S` after the previous action.
    frame_ms = step.action.press_ms - (step.row["lead_ms"] or 0.0)
    response_end_ms = before.action.end_ms + ALONE_S * 1000
    if any(response_end_ms < change_ms <= frame_ms for change_ms in facts.changes_ms):
        yield "discontinuity"


def _path(facts: Facts, step: StepFacts, values: dict[str, Any]) -> Iterator[str]:
    """Yields `wandering` if the pointer made a detour, and adds the measurement to `values`."""
    start_ms = step.action.pre_move_ms
    x = step.action.x
    y = step.action.y
    if start_ms is None or x is None or y is None:
        return
    # The path starts where the pointer rested, one event before the first move.
    first = max(bisect_right(facts.inputs, start_ms, key=_TIME) - 2, 0)
    moves = facts.inputs[first : bisect_right(facts.inputs, step.action.press_ms, key=_TIME)]
    path = list[tuple[float, float]]()
    for move in moves:
        if move.x is not None and move.y is not None:
            path.append((move.x, move.y))
    path.append((x, y))
    travelled = sum(dist(start, end) for start, end in pairwise(path))
    if travelled <= SHORT_PATH:
        return
    efficiency = dist(path[0], path[-1]) / travelled
    values["path_efficiency"] = min(1.0, efficiency)
    if efficiency < STRAIGHT:
        yield "wandering"


def _typing(facts: Facts, step: StepFacts, values: dict[str, Any]) -> Iterator[str]:
    """Yields `corrections` and `pace` if typing has these signals, and fills `values`."""
    if step.kind is not ActionType.TYPE:
        return
    lines = set(step.action.events)
    deletions = 0
    for event in facts.inputs:
        is_deletion = event.kind == "keydown" and event.name in {"Backspace", "Delete"}
        deletions += is_deletion and event.index in lines
    characters = len(step.action.text or "")
    seconds = (step.action.end_ms - step.action.press_ms) / 1000
    values |= {"characters": characters, "deletions": deletions}
    if deletions >= FEWEST_CORRECTIONS and 100 * deletions > CORRECTED_SHARE * max(1, characters):
        yield "corrections"
    if characters >= PACED_CHARACTERS and seconds > 0:
        values["characters_per_second"] = (characters + deletions) / seconds
        if not PACE[0] <= values["characters_per_second"] <= PACE[1]:
            yield "pace"


def _provenance_signals(facts: Facts, step: StepFacts) -> Iterator[str]:
    """Yields the signals that follow from the step's own provenance, target and screenshot."""
    row = step.row
    stale = row["freshness"] in {"stale", "changed"} or row["tree_agreement"] == "differs"
    is_recorder_window = False
    for name in facts.recorder_windows:
        if name.strip() and name_pattern(name).search(step.window):
            is_recorder_window = True
    present = {
        "leak": row["leak"],
        "no_target": step.kind in POINTER_TYPES and step.written.target_element is None,
        "no_tree": row["freshness"] in {"none", "sparse", "unreadable"},
        "stale_tree": stale,
        "black": step.screenshot.black,
        "doubtful_text": row["doubtful_text"] is True,
        "erased_text": bool(row.get("erased_text")),
        "recorder_window": is_recorder_window,
    }
    for name, is_present in present.items():
        if is_present:
            yield name


def _frozen(steps: Sequence[StepFacts]) -> Iterator[int]:
    """Yields the indexes of successive pointing steps that have the same screenshot.

    The screenshots should differ, because the pointer moves between these steps.
    """
    runs: list[list[int]] = []
    for place, step in enumerate(steps):
        if not step.places:
            continue
        before = steps[runs[-1][-1]] if runs else None
        moved = before is not None and before.distance(step) > FROZEN_MOVE_PX
        if before and moved and not different_cells(before.screenshot, step.screenshot, ()):
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        if len(run) >= FROZEN_STEPS:
            yield from run


def _off_task_tail(facts: Facts) -> range:
    """Returns the indexes of the last steps whose windows seem unrelated to the task.

    These windows share no word with the task or with earlier windows. The range is empty, or it
    contains at least two steps and at most half of all steps.
    """
    steps = facts.steps
    start = len(steps)
    for first in range(len(steps) - 2, (len(steps) - 1) // 2, -1):
        earlier_windows = [step.window for step in steps[:first]]
        familiar = _words(" ".join([facts.words, *earlier_windows]))
        is_foreign = not any(_words(step.window) & familiar for step in steps[first:])
        if steps[first].window and is_foreign and any(earlier_windows):
            start = first
    return range(start, len(steps))


def _words(text: str) -> set[str]:
    """Returns the words of at least three letters, converted to lower case."""
    return set(re.findall(r"\w{3,}", text.casefold()))


def demonstration_signals(facts: Facts) -> SignalsFound:
    """Returns the signals of the whole demonstration: `unused_time`, `duration` and `clock`."""
    signals = set[str]()
    unused_s = 0.0
    first_ms, last_ms = facts.video_ms
    video_s = (last_ms - first_ms) / 1000
    acted = [step.action for step in facts.steps if step.kind is not ActionType.WAIT]
    if acted and video_s > 0:
        before_s = max(0.0, acted[0].press_ms - first_ms) / 1000
        after_s = max(0.0, last_ms - acted[-1].end_ms) / 1000
        unused_s = min(video_s, before_s + after_s)
        if unused_s > UNUSED_S and unused_s > UNUSED_SHARE * video_s:
            signals.add("unused_time")
    difference_s = abs(facts.meta_s - video_s)
    if difference_s > DURATION_S and difference_s > DURATION_SHARE * video_s and facts.meta_s:
        signals.add("duration")
    row = facts.steps[0].row if facts.steps else {}
    is_uncertain = row and row["clock_uncertainty_ms"] > CLOCK_MS
    is_unconfirmed = facts.clock_score is not None and facts.clock_score < CLOCK_SCORE
    if is_uncertain or is_unconfirmed or (row and row["clock_method"] == "meta_timestamp"):
        signals.add("clock")
    values = {"unused_s": unused_s, "film_s": video_s, "meta_s": facts.meta_s}
    return SignalsFound(signals, values)


def doubt(counts: Mapping[str, int], signals: Iterable[str]) -> float:
    """Returns the doubt score of a demonstration or a step: the sum of its signals' points.

    A signal of steps counts for each step that has it, but at most three times.

    Args:
        counts: maps the name of each signal to the number of steps that have the signal.
        signals: names of the signals of the demonstration as a whole.
    """
    points_of_steps = sum(
        signal.points * min(counts.get(signal.name, 0), MOST_COUNTED) for signal in STEP_SIGNALS
    )
    present = set(signals)
    points_of_whole = sum(
        signal.points for signal in DEMONSTRATION_SIGNALS if signal.name in present
    )
    return points_of_steps + points_of_whole
