"""Segmentation: from repaired input events to the actions and pauses of a demonstration.

Belongs here: the order of the steps, what is left out (stray modifier taps, the recorder's stop
shortcut) and pointer moves before an action. How gestures are grouped into one action is in
grouping.py, what a pause is in pauses.py.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.grouping import Grouper
from demo_pipeline.actions.held_keys import without_held_keys
from demo_pipeline.actions.inputs import Input
from demo_pipeline.actions.keyboard import KeyboardReader
from demo_pipeline.actions.modifiers import ModifierTracker
from demo_pipeline.actions.pauses import pauses_between
from demo_pipeline.actions.pointer import PointerReader
from demo_pipeline.actions.scrolls import join_scrolls
from demo_pipeline.actions.wheel import logs_pixels
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.settings import ActionSettings

STRAY_SHIFT_MS = 1000  # a Shift tap that is this close to a typed character has no meaning


@dataclass
class Segmentation:
    """The result of the segmentation.

    Attributes:
        actions: with pauses, in time order.
        reasons: line number → why the input event is part of no action.
        unknown_keys: logged key names that are in no table.
        wheel_remainder: notches that no scroll contains, signed as logged.
    """

    actions: list[Action]
    reasons: dict[int, str]
    unknown_keys: set[str] = field(default_factory=set)
    wheel_remainder: float = 0.0


def segment(inputs: list[Input], platform: str, settings: ActionSettings) -> Segmentation:
    """Turn repaired inputs (in time order) into actions."""
    deltas = [item.delta for item in inputs if item.kind == EventType.MOUSEWHEEL]
    in_pixels = logs_pixels(deltas, platform)
    modifiers = ModifierTracker(inputs)
    keyboard = KeyboardReader(platform, settings.keyboard_layout, modifiers)
    pointer = PointerReader(settings, modifiers, in_pixels=in_pixels)
    readers: dict[str, Callable[[Input], None]] = {
        EventType.KEYDOWN: keyboard.down,
        EventType.KEYUP: keyboard.up,
    }
    for item in inputs:
        readers.get(item.kind, pointer.read)(item)
    modifiers.finish()
    pointer.finish()
    reasons = keyboard.reasons | modifiers.reasons | pointer.reasons
    unsorted = [*keyboard.gestures, *modifiers.gestures, *pointer.gestures]
    in_time_order = sorted(unsorted, key=lambda g: (g.start, g.index))
    in_time_order = without_held_keys(in_time_order, keyboard.holds, reasons)
    gestures = _without_stray_taps(in_time_order, reasons)
    scrolls = join_scrolls(gestures, settings, reasons, in_pixels=in_pixels)
    grouper = Grouper(settings, reasons, in_pixels=in_pixels)
    for gesture in scrolls.gestures:
        grouper.add(gesture)
    actions = _without_stop_shortcut(grouper.finish(), settings, reasons)
    actions.sort(key=_order)
    _add_pre_moves(actions, inputs, settings)
    actions = sorted([*actions, *pauses_between(actions, inputs, settings)], key=_order)
    for number, action in enumerate(actions):
        action.action_index = number
    return Segmentation(actions, reasons, keyboard.unknown_keys, scrolls.remainder)


def _order(action: Action) -> tuple[int, int]:
    return action.press_ms, action.first_event


def _without_stray_taps(gestures: list[Gesture], reasons: dict[int, str]) -> list[Gesture]:
    """Modifier taps during a drag become part of it; Shift taps close to typing are left out."""
    typed = [gesture.start for gesture in gestures if gesture.kind is GestureKind.CHAR]
    kept: list[Gesture] = []
    drag: Gesture | None = None
    for gesture in gestures:
        if "modifier_tap" in gesture.flags:
            if drag is not None and gesture.start <= drag.end:
                drag.events.extend(gesture.events)
                drag.flags.add("modified_midway")
                continue
            near = bisect_right(typed, gesture.end + STRAY_SHIFT_MS) > bisect_right(
                typed, gesture.start - STRAY_SHIFT_MS
            )
            if near and gesture.keys == ("shift",):
                reasons.update(dict.fromkeys(gesture.events, "modifier_without_effect"))
                continue
        if gesture.kind is GestureKind.DRAG:
            drag = gesture
        kept.append(gesture)
    return kept


def _without_stop_shortcut(
    actions: list[Action], settings: ActionSettings, reasons: dict[int, str]
) -> list[Action]:
    """Leave out the last action if it is the shortcut that stopped the recorder."""
    if not actions or actions[-1].action_type != "hotkey":
        return actions
    if not settings.stop_shortcut or set(actions[-1].keys) != set(settings.stop_shortcut):
        return actions
    reasons.update(dict.fromkeys(actions[-1].events, "stop_shortcut"))
    return actions[:-1]


def _add_pre_moves(
    actions: list[Action], inputs: Sequence[Input], settings: ActionSettings
) -> None:
    """Set `pre_move_ms`: when the run of moves began that leads to each pointer press.

    A rest of `pointer_rest_ms` ends a run, and so does the previous pointer action.
    """
    times = [item.time for item in inputs if item.kind == EventType.MOUSEMOVE]
    run_starts: list[int] = []
    for position, time in enumerate(times):
        rested = not position or time - times[position - 1] >= settings.pointer_rest_ms
        run_starts.append(position if rested else run_starts[-1])
    previous_end = -1
    for action in actions:
        if action.x is None:
            continue
        last = bisect_right(times, action.press_ms) - 1
        if last >= 0 and action.press_ms - times[last] < settings.pointer_rest_ms:
            first = max(run_starts[last], bisect_right(times, previous_end))
            action.pre_move_ms = times[first] if first <= last else None
        previous_end = max(previous_end, action.end_ms)
