"""Segmentation: repaired inputs in, the actions of a demonstration with their pauses out.

Belongs here: the order of the steps, what is left out (fumbled modifiers, the recorder's own stop
keys), approaches and pauses. Not here: how tokens join into one action (join.py).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.grouping import Grouper
from demo_pipeline.actions.inputs import Input
from demo_pipeline.actions.keyboard import KeyboardReader
from demo_pipeline.actions.modifiers import ModifierTracker
from demo_pipeline.actions.pointer import PointerReader
from demo_pipeline.actions.wheel import wheel_rule
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.settings import ActionSettings

_FUMBLE_MS = 1000  # a Shift tapped this close to typing was part of typing


@dataclass
class Segmentation:
    """The actions in time order, and why the other input events are part of none."""

    actions: list[Action]
    reasons: dict[int, str]
    unknown_keys: set[str] = field(default_factory=set)


def segment(inputs: list[Input], platform: str, settings: ActionSettings) -> Segmentation:
    """Join repaired inputs (in time order) into actions."""
    holds = ModifierTracker(inputs)
    keyboard = KeyboardReader(platform, settings.keyboard_layout, holds)
    pointer = PointerReader(settings, holds)
    readers: dict[str, Callable[[Input], None]] = {
        EventType.KEYDOWN: keyboard.down,
        EventType.KEYUP: keyboard.up,
    }
    for item in inputs:
        readers.get(item.kind, pointer.read)(item)
    holds.finish()
    pointer.finish()
    reasons = keyboard.reasons | holds.reasons | pointer.reasons
    found = [*keyboard.tokens, *holds.tokens, *pointer.tokens]
    tokens = _without_fumbles(sorted(found, key=lambda t: (t.start, t.index)), reasons)
    deltas = [token.delta for token in tokens if token.kind is GestureKind.WHEEL]
    joiner = Grouper(settings, wheel_rule(deltas, platform, settings), reasons)
    for token in tokens:
        joiner.take(token)
    actions = _without_stop_shortcut(joiner.finish(), settings, reasons)
    actions.sort(key=_order)
    _add_pre_moves(actions, inputs, settings)
    actions = sorted([*actions, *_pauses(actions, inputs, settings)], key=_order)
    for number, action in enumerate(actions):
        action.action_index = number
    return Segmentation(actions, reasons, keyboard.unknown_keys)


def _order(action: Action) -> tuple[int, int]:
    return action.press_ms, action.first_event


def _without_fumbles(tokens: list[Gesture], reasons: dict[int, str]) -> list[Gesture]:
    """Modifiers tapped amid a drag are part of it; Shift tapped amid typing did nothing."""
    typed = [token.start for token in tokens if token.kind is GestureKind.CHAR]
    kept: list[Gesture] = []
    drag: Gesture | None = None
    for token in tokens:
        if "modifier_tap" in token.flags:
            if drag is not None and token.start <= drag.end:
                drag.events.extend(token.events)
                drag.flags.add("modified_midway")
                continue
            near = bisect_right(typed, token.end + _FUMBLE_MS) > bisect_right(
                typed, token.start - _FUMBLE_MS
            )
            if near and token.keys == ("shift",):
                reasons.update(dict.fromkeys(token.events, "modifier_without_effect"))
                continue
        if token.kind is GestureKind.DRAG:
            drag = token
        kept.append(token)
    return kept


def _without_stop_shortcut(
    actions: list[Action], settings: ActionSettings, reasons: dict[int, str]
) -> list[Action]:
    """The keys that stopped the recorder are no part of the demonstration."""
    if not actions or actions[-1].action_type != "hotkey":
        return actions
    if not settings.stop_shortcut or set(actions[-1].keys) != set(settings.stop_shortcut):
        return actions
    reasons.update(dict.fromkeys(actions[-1].events, "stop_shortcut"))
    return actions[:-1]


def _add_pre_moves(
    actions: list[Action], inputs: Sequence[Input], settings: ActionSettings
) -> None:
    """The first move of the unbroken run of moves that ends in each pointer press.

    A rest breaks a run, and so does the pointer action before.
    """
    times = [item.time for item in inputs if item.kind == EventType.MOUSEMOVE]
    begins: list[int] = []
    for position, time in enumerate(times):
        rested = not position or time - times[position - 1] >= settings.pointer_rest_ms
        begins.append(position if rested else begins[-1])
    done = -1
    for action in actions:
        if action.x is None:
            continue
        last = bisect_right(times, action.press_ms) - 1
        if last >= 0 and action.press_ms - times[last] < settings.pointer_rest_ms:
            first = max(begins[last], bisect_right(times, done))
            action.pre_move_ms = times[first] if first <= last else None
        done = max(done, action.end_ms)


def _pauses(
    actions: Sequence[Action], inputs: Sequence[Input], settings: ActionSettings
) -> Iterator[Action]:
    """Gaps without input of any kind that lie between two actions, not inside one."""
    if not actions:
        return
    presses = [action.press_ms for action in actions]
    ends = list(accumulate((action.end_ms for action in actions), max))
    first_end = min(action.end_ms for action in actions)
    for before, after in pairwise(inputs):
        if after.time - before.time < settings.pause_ms:
            continue
        begun = bisect_right(presses, before.time)
        inside = begun > 0 and ends[begun - 1] >= after.time
        if first_end <= before.time and after.time <= presses[-1] and not inside:
            pause = Action("pause", before.time, after.time, [])
            pause.first_event, pause.last_event = before.index, after.index
            pause.seconds = (after.time - before.time) / 1000
            yield pause
