"""Modifiers: from which press to which release each was held, and what it modified.

Belongs here: holds, taps of modifiers alone, AltGr, modifiers that never came up. Not here: what a
modified key means (keyboard.py).
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.recording.key_names import Key, lookup

REPEAT_START_MS = 1100  # the longest delay before auto-repeat that systems offer is 1 s
STUCK_MS = 1000  # a modifier that never came up acts on one key, this soon after it
TAP_MAX_MS = 1000  # a modifier held longer without effect was no tap
ALTGR_WINDOW_MS = 5  # Windows logs AltGr as LeftCtrl and RightAlt at once
_KEY_TOKENS = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE, GestureKind.HOTKEY})


@dataclass
class _Hold:
    """A modifier from its press to its release."""

    name: str
    raw: str
    start: int
    events: list[int]
    used_by: list[Gesture] = field(default_factory=list)


class ModifierTracker:
    """Reads the modifiers' events in time order; `tokens` (taps) and `reasons` are its findings."""

    def __init__(self, inputs: list[Input]) -> None:
        self._let_go = modifier_releases(inputs)
        self._holds: dict[str, _Hold] = {}
        self._chord: list[_Hold] = []
        self.tokens: list[Gesture] = []
        self.reasons: dict[int, str] = {}

    def modify(self, token: Gesture, time: int) -> tuple[str, ...]:
        """Names of the modifiers held at `time`; what was not yet used becomes part of `token`.

        A key's token begins with the first modifier pressed for it; a pointer's with its button.
        """
        self.let_go_stuck(time)
        names = []
        for hold in self._holds.values():
            if not hold.used_by:
                token.events.extend(hold.events)
                if token.kind in _KEY_TOKENS:
                    token.start = min(token.start, hold.start)
            hold.used_by.append(token)
            names.append(hold.name)
        return tuple(dict.fromkeys(names))

    def down(self, key: Key, item: Input) -> None:
        """A modifier's keydown: a new hold, or auto-repeat of one."""
        held = self._holds.get(item.name)
        if held is not None:
            (held.used_by[0].events if held.used_by else held.events).append(item.index)
            return
        hold = _Hold(key.name, item.name, item.time, [item.index])
        if key.name == "alt" and key.side == "right":
            self._merge_altgr(hold)
        self._holds[item.name] = hold
        self._chord.append(hold)

    def up(self, item: Input) -> bool:
        """A keyup; False when no modifier of that name is held."""
        self.let_go_stuck(item.time)
        hold = self._holds.pop(item.name, None)
        if hold is None:
            return False
        if hold.used_by:
            last = hold.used_by[-1]
            last.events.append(item.index)
            if last.kind in _KEY_TOKENS:
                last.end = max(last.end, item.time)
        else:
            hold.events.append(item.index)
        if not self._holds:
            self._close_chord(item.time)
        return True

    def finish(self) -> None:
        """The end of the log: what is still held was never let go."""
        for hold in list(self._holds.values()):
            self._end(hold)
        self._chord = []

    def let_go_stuck(self, time: int) -> None:
        """End the holds whose keyup is missing and that can act no more at `time`."""
        for hold in list(self._holds.values()):
            if self._let_go.get(hold.events[0], time) < time:
                self._end(hold)
        if self._chord and not self._holds:
            self._close_chord(time)

    def _merge_altgr(self, alt: _Hold) -> None:
        ctrl = self._holds.get("LeftCtrl") or self._holds.get("ControlLeft")
        if ctrl is not None and alt.start - ctrl.start <= ALTGR_WINDOW_MS and not ctrl.used_by:
            ctrl.name = alt.name = "altgr"

    def _end(self, hold: _Hold) -> None:
        self._holds.pop(hold.raw, None)
        for token in hold.used_by[:1]:
            token.flags.add("modifier_never_released")
        if not hold.used_by:
            self.reasons.update(dict.fromkeys(hold.events, "modifier_never_released"))
            self._chord = [other for other in self._chord if other is not hold]

    def _close_chord(self, time: int) -> None:
        """All modifiers are up: those that modified nothing were a tap of their own."""
        chord, self._chord = self._chord, []
        unused = [hold for hold in chord if not hold.used_by]
        if not unused:
            return
        events = [index for hold in unused for index in hold.events]
        first = unused[0]
        if len(unused) < len(chord) or time - first.start > TAP_MAX_MS:
            self.reasons.update(dict.fromkeys(events, "modifier_without_effect"))
            return
        names = tuple(dict.fromkeys("alt" if h.name == "altgr" else h.name for h in unused))
        token = Gesture(GestureKind.HOTKEY, first.start, time, first.events[0], events, keys=names)
        token.flags.add("modifier_tap")
        self.tokens.append(token)


def modifier_releases(inputs: list[Input]) -> dict[int, int]:
    """Index of a keydown → the latest time at which a modifier that never came up can still act.

    A keyup is missing when the log ends first, or when the same modifier goes down again and that
    cannot be auto-repeat: another key went down in between, which stops any auto-repeat, or more
    time went by than auto-repeat ever waits.
    """
    held: dict[str, tuple[Input, int]] = {}
    latest: dict[str, int] = {}
    lost: list[tuple[Input, int]] = []
    last_key = 0
    for position, item in enumerate(inputs):
        if item.kind == EventType.KEYUP:
            held.pop(item.name, None)
        elif item.kind == EventType.KEYDOWN and not lookup(item.name).modifier:
            last_key = position
        elif item.kind == EventType.KEYDOWN:
            again = held.get(item.name)
            if again is not None:
                before = latest[item.name]
                if last_key > before or item.time - inputs[before].time > REPEAT_START_MS:
                    lost.append(again)
                    again = None
            if again is None:
                held[item.name] = (item, position)
            latest[item.name] = position
    acted_on = [
        position
        for position, item in enumerate(inputs)
        if item.kind == EventType.MOUSEDOWN
        or (item.kind == EventType.KEYDOWN and not lookup(item.name).modifier)
    ]
    return {
        press.index: _last_effect(inputs, acted_on, press, position)
        for press, position in [*lost, *held.values()]
    }


def _last_effect(inputs: list[Input], acted_on: list[int], press: Input, position: int) -> int:
    following = bisect_right(acted_on, position)
    if following == len(acted_on):
        return press.time
    effect = inputs[acted_on[following]].time
    return effect if effect - press.time <= STUCK_MS else press.time
