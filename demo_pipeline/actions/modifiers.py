"""Modifiers: when each modifier key was held, and which gestures it modified.

Belongs here: presses and releases of modifiers, taps of modifiers alone, AltGr, and modifiers whose
release is missing. What a modified key means is in keyboard.py.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.recording.key_names import Key, lookup

REPEAT_START_MS = 1100  # auto-repeat begins by then: systems offer delays of up to 1 s
STUCK_MS = 1000  # a modifier without a release modifies one press, at most this much later
TAP_MAX_MS = 1000  # a modifier that was held longer and modified nothing is not a tap
ALTGR_WINDOW_MS = 5  # Windows logs AltGr as LeftCtrl and RightAlt within this time
_KEY_GESTURES = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE, GestureKind.HOTKEY})


@dataclass
class _HeldModifier:
    """A modifier from its press to its release.

    Attributes:
        name, raw: canonical name and name as logged.
        start: of the press, epoch milliseconds.
        events: line numbers of its own events, as long as it modified nothing.
        gestures: what it modified, in order.
    """

    name: str
    raw: str
    start: int
    events: list[int]
    gestures: list[Gesture] = field(default_factory=list)


class ModifierTracker:
    """Reads the events of modifiers in time order.

    Attributes:
        gestures: taps of modifiers alone, as hotkeys.
        reasons: line number → why the event is part of no action.
    """

    def __init__(self, inputs: list[Input]) -> None:
        self._last_effect = stuck_modifiers(inputs)
        self._held: dict[str, _HeldModifier] = {}
        self._chord: list[_HeldModifier] = []
        self.gestures: list[Gesture] = []
        self.reasons: dict[int, str] = {}

    def apply_to(self, gesture: Gesture, time: int) -> tuple[str, ...]:
        """Names of the modifiers held at `time`, in press order.

        The events of a modifier join the first gesture that it modifies. A keyboard gesture then
        begins with its first modifier, a pointer gesture still with its button.
        """
        self.release_stuck(time)
        names = []
        for held in self._held.values():
            if not held.gestures:
                gesture.events.extend(held.events)
                if gesture.kind in _KEY_GESTURES:
                    gesture.start = min(gesture.start, held.start)
            held.gestures.append(gesture)
            names.append(held.name)
        return tuple(dict.fromkeys(names))

    def down(self, key: Key, item: Input) -> None:
        """A modifier's keydown: a new press, or auto-repeat of a held modifier."""
        held = self._held.get(item.name)
        if held is not None:
            (held.gestures[0].events if held.gestures else held.events).append(item.index)
            return
        held = _HeldModifier(key.name, item.name, item.time, [item.index])
        if key.name == "alt" and key.side == "right":
            self._merge_altgr(held)
        self._held[item.name] = held
        self._chord.append(held)

    def up(self, item: Input) -> bool:
        """A keyup; False if no modifier with this name is held."""
        self.release_stuck(item.time)
        held = self._held.pop(item.name, None)
        if held is None:
            return False
        if held.gestures:
            last = held.gestures[-1]
            last.events.append(item.index)
            if last.kind in _KEY_GESTURES:
                last.end = max(last.end, item.time)
        else:
            held.events.append(item.index)
        if not self._held:
            self._close_chord(item.time)
        return True

    def finish(self) -> None:
        """The end of the log: modifiers that are still held were never released."""
        for held in list(self._held.values()):
            self._end_unreleased(held)
        self._chord = []

    def release_stuck(self, time: int) -> None:
        """Release modifiers whose keyup is missing and that can have no effect after `time`."""
        for held in list(self._held.values()):
            if self._last_effect.get(held.events[0], time) < time:
                self._end_unreleased(held)
        if self._chord and not self._held:
            self._close_chord(time)

    def _merge_altgr(self, alt: _HeldModifier) -> None:
        ctrl = self._held.get("LeftCtrl") or self._held.get("ControlLeft")
        if ctrl is not None and alt.start - ctrl.start <= ALTGR_WINDOW_MS and not ctrl.gestures:
            ctrl.name = alt.name = "altgr"

    def _end_unreleased(self, held: _HeldModifier) -> None:
        self._held.pop(held.raw, None)
        for gesture in held.gestures[:1]:
            gesture.flags.add("modifier_never_released")
        if not held.gestures:
            self.reasons.update(dict.fromkeys(held.events, "modifier_never_released"))
            self._chord = [other for other in self._chord if other is not held]

    def _close_chord(self, time: int) -> None:
        """All modifiers are released: if none modified anything, they were a tap."""
        chord, self._chord = self._chord, []
        unused = [held for held in chord if not held.gestures]
        if not unused:
            return
        events = [index for held in unused for index in held.events]
        first = unused[0]
        if len(unused) < len(chord) or time - first.start > TAP_MAX_MS:
            self.reasons.update(dict.fromkeys(events, "modifier_without_effect"))
            return
        names = tuple(dict.fromkeys("alt" if m.name == "altgr" else m.name for m in unused))
        tap = Gesture(GestureKind.HOTKEY, first.start, time, first.events[0], events, keys=names)
        tap.flags.add("modifier_tap")
        self.gestures.append(tap)


def stuck_modifiers(inputs: list[Input]) -> dict[int, int]:
    """Modifier presses without a release: index of the keydown → latest time of an effect.

    A release is missing if the log ends first, or if the same modifier is pressed again and that is
    not auto-repeat: because another key was pressed in between, which stops any auto-repeat, or
    because the time between the presses is longer than any auto-repeat delay.
    """
    held: dict[str, tuple[Input, int]] = {}
    last_press: dict[str, int] = {}
    unreleased: list[tuple[Input, int]] = []
    last_key = 0
    for position, item in enumerate(inputs):
        if item.kind == EventType.KEYUP:
            held.pop(item.name, None)
        elif item.kind == EventType.KEYDOWN and not lookup(item.name).modifier:
            last_key = position
        elif item.kind == EventType.KEYDOWN:
            press = held.get(item.name)
            if press is not None:
                before = last_press[item.name]
                if last_key > before or item.time - inputs[before].time > REPEAT_START_MS:
                    unreleased.append(press)
                    press = None
            if press is None:
                held[item.name] = (item, position)
            last_press[item.name] = position
    modifiable = [
        position
        for position, item in enumerate(inputs)
        if item.kind == EventType.MOUSEDOWN
        or (item.kind == EventType.KEYDOWN and not lookup(item.name).modifier)
    ]
    return {
        press.index: _last_effect(inputs, modifiable, press, position)
        for press, position in [*unreleased, *held.values()]
    }


def _last_effect(inputs: list[Input], modifiable: list[int], press: Input, position: int) -> int:
    """Time of the first press after `press`, if within `STUCK_MS`; else the time of `press`."""
    following = bisect_right(modifiable, position)
    if following == len(modifiable):
        return press.time
    effect = inputs[modifiable[following]].time
    return effect if effect - press.time <= STUCK_MS else press.time
