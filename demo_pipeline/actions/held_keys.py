"""Printable keys held while a mouse button is down: they change the drag and type nothing.

Belongs here: which presses and auto-repeats of such keys are no typing. In drawing programs, for
example, dragging with Space held moves the canvas. Modifiers held with a button are in
modifiers.py.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.keyboard import KeyHold

_HELD_WITH_BUTTON = "held_with_button"  # reason of the events of such a key
_start = attrgetter("start")


def without_held_keys(
    gestures: list[Gesture], holds: Sequence[KeyHold], reasons: dict[int, str]
) -> list[Gesture]:
    """Leave out the characters of keys that were held for a drag; flag the drag `key_held`.

    A key is held for a drag if it was pressed before and released after it, or if it auto-repeated
    during it. With a button held that drags nothing, only the auto-repeat is left out: the key may
    have been pressed to type.

    Args:
        gestures: in time order.
        holds: of printable keys.
        reasons: line number → why the event is part of no action; gains the left-out events.
    """
    by_button: dict[str, list[Gesture]] = {}
    for gesture in gestures:
        if gesture.kind in {GestureKind.CLICK, GestureKind.DRAG}:
            by_button.setdefault(gesture.button, []).append(gesture)
    held = list(by_button.values())
    dragged = [[g for g in of_one if g.kind is GestureKind.DRAG] for of_one in held]
    left_out: set[int] = set()
    for hold in holds:
        drags = _drags_within(hold, dragged)
        repeated = []
        for gesture in hold.gestures:
            buttons = _held_at(gesture.start, held) if gesture.repeat else []
            drags += [button for button in buttons if button.kind is GestureKind.DRAG]
            if buttons:
                repeated.append(gesture)
        for drag in drags:
            drag.flags.add("key_held")
        for gesture in hold.gestures if drags else repeated:
            left_out.add(gesture.index)
            reasons.update(dict.fromkeys(gesture.events, _HELD_WITH_BUTTON))
    return [gesture for gesture in gestures if gesture.index not in left_out]


def _drags_within(hold: KeyHold, drags: Sequence[Sequence[Gesture]]) -> list[Gesture]:
    """Of each button, the first drag that began and ended while the key was down."""
    if hold.released is None:
        return []
    found = []
    for of_one in drags:
        first = bisect_left(of_one, hold.pressed, key=_start)
        if first < len(of_one) and of_one[first].end <= hold.released:
            found.append(of_one[first])
    return found


def _held_at(time: int, buttons: Sequence[Sequence[Gesture]]) -> list[Gesture]:
    """Of each button, the press that held it down at `time`, epoch milliseconds."""
    latest = ((of_one, bisect_right(of_one, time, key=_start)) for of_one in buttons)
    return [of_one[n - 1] for of_one, n in latest if n and time <= of_one[n - 1].end]
