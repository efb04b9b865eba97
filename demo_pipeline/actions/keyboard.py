"""Turns key events into gestures: characters, Backspaces and hotkeys.

A key that is held during a drag modifies the drag, so its characters are dropped. For example, a
drag with Space held moves the canvas in drawing programs.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from demo_pipeline.actions.action_tables import DOUBTFUL_TEXT
from demo_pipeline.actions.inputs import Gesture, GestureKind, Input
from demo_pipeline.actions.keyboard_stretches import Keyboards, is_switch_key
from demo_pipeline.recording.alt_codes import alt_code_character
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import Key, lookup
from demo_pipeline.recording.keyboard_layouts import accented, is_dead

REPEAT_START_MS = 1100  # longest delay before auto-repeat begins; systems offer delays up to 1 s
# A modifier without a release affects only the next press, and only within 1 s.
STUCK_MS = 1000
TAP_MAX_MS = 1000  # a modifier that is held alone for longer was not tapped
# Longest time between the events LeftCtrl and RightAlt, which together mean AltGr on Windows.
ALTGR_WINDOW_MS = 5
_RIGHT_ALT = frozenset({"RightAlt", "AltGr"})
_KEY_GESTURES = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE, GestureKind.HOTKEY})


@dataclass
class _HeldModifier:
    """A modifier from its press to its release.

    Attributes:
        name: name of the modifier in actions.
        raw: name of the key as logged.
        start: time of the press, epoch milliseconds.
        events: line numbers of the modifier's own events before the first gesture that it modifies.
        gestures: the gestures that it modified, in order.
    """

    name: str
    raw: str
    start: int
    events: list[int]
    gestures: list[Gesture] = field(default_factory=list)


class ModifierTracker:
    """Tracks which modifiers are held, from their events in time order.

    Attributes:
        gestures: hotkeys that consist only of modifiers, because the modifiers were tapped alone.
        reasons: maps line numbers of events to the reason why the event belongs to no action.
    """

    def __init__(self, inputs: list[Input]) -> None:
        self._last_effect = stuck_modifiers(inputs)
        self._held: dict[str, _HeldModifier] = {}
        self._chord: list[_HeldModifier] = []
        self.gestures: list[Gesture] = []
        self.reasons: dict[int, str] = {}

    @property
    def right_alt(self) -> bool:
        """Whether the right Alt key is held, under any of its names."""
        return any(held.raw in _RIGHT_ALT for held in self._held.values())

    def apply_to(self, gesture: Gesture, time: int) -> tuple[str, ...]:
        """Adds the modifiers held at `time` to a gesture, and returns their names in press order.

        The events of a modifier become part of the first gesture that the modifier modifies. A
        keyboard gesture then begins with the press of its first modifier.
        """
        self.release_stuck(time)
        gesture.held_since = min((held.start for held in self._held.values()), default=0)
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
        """Reads the keydown of a modifier: a new press, or auto-repeat of a held modifier."""
        held = self._held.get(item.name)
        if held is not None:
            events = held.gestures[0].events if held.gestures else held.events
            events.append(item.index)
            return
        held = _HeldModifier(key.name, item.name, item.time, [item.index])
        is_right_alt = key.name in {"alt", "altgr"} and key.side == "right"
        ctrl = self._held.get("LeftCtrl") or self._held.get("ControlLeft")
        is_altgr = (
            is_right_alt
            and ctrl is not None
            and not ctrl.gestures
            and held.start - ctrl.start <= ALTGR_WINDOW_MS
        )
        if ctrl is not None and is_altgr:
            ctrl.name = "altgr"
            held.name = "altgr"
        self._held[item.name] = held
        self._chord.append(held)

    def up(self, item: Input) -> bool:
        """Reads a keyup. Returns False if no modifier with this name is held."""
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
        """Ends the modifiers that are still held when the log ends."""
        for held in list(self._held.values()):
            self._end_unreleased(held)
        self._chord = []

    def release_stuck(self, time: int) -> None:
        """Ends modifiers that have no keyup and can no longer have an effect."""
        for held in list(self._held.values()):
            if self._last_effect.get(held.events[0], time) < time:
                self._end_unreleased(held)
        if self._chord and not self._held:
            self._close_chord(time)

    def _end_unreleased(self, held: _HeldModifier) -> None:
        self._held.pop(held.raw, None)
        if held.gestures:
            held.gestures[0].flags.add("modifier_never_released")
        else:
            self.reasons.update(dict.fromkeys(held.events, "modifier_never_released"))
            self._chord = [other for other in self._chord if other is not held]

    def _close_chord(self, time: int) -> None:
        """Turns modifiers that were held together into a tap if none of them modified anything.

        They become no tap if more than `TAP_MAX_MS` pass from the first press to the last release.
        """
        chord = self._chord
        self._chord = []
        unused = [held for held in chord if not held.gestures]
        if not unused:
            return
        events: list[int] = []
        for held in unused:
            events += held.events
        first = unused[0]
        if len(unused) < len(chord) or time - first.start > TAP_MAX_MS:
            self.reasons.update(dict.fromkeys(events, "modifier_without_effect"))
            return
        names = tuple(dict.fromkeys(_without_altgr(held.name for held in unused)))
        tap = Gesture(GestureKind.HOTKEY, first.start, time, first.events[0], events, keys=names)
        tap.flags.add("modifier_tap")
        self.gestures.append(tap)


def _without_altgr(names: Iterable[str]) -> list[str]:
    """Replaces AltGr with Alt, because actions never use the name AltGr in hotkeys."""
    return ["alt" if name == "altgr" else name for name in names]


def stuck_modifiers(inputs: list[Input]) -> dict[int, int]:
    """Finds modifier presses without a release, and the time of the last effect of each press.

    A release is missing if the log ends without it, or if the same modifier is pressed again and
    the second press does not come from auto-repeat.

    Returns:
        A dictionary from the line number of each such keydown to the time of its last effect, in
        epoch milliseconds.
    """
    held: dict[str, tuple[Input, int]] = {}
    last_press: dict[str, int] = {}
    unreleased: list[tuple[Input, int]] = []
    modifiable: list[int] = []  # indexes in `inputs` of presses that a modifier may modify
    last_key = 0
    for position, item in enumerate(inputs):
        if item.kind == EventType.KEYUP:
            held.pop(item.name, None)
        elif item.kind == EventType.MOUSEDOWN:
            modifiable.append(position)
        elif item.kind == EventType.KEYDOWN and not lookup(item.name).modifier:
            modifiable.append(position)
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
    effects: dict[int, int] = {}
    for stuck, position in [*unreleased, *held.values()]:
        following = bisect_right(modifiable, position)
        effects[stuck.index] = stuck.time
        if following < len(modifiable):
            next_press = inputs[modifiable[following]].time
            if next_press - stuck.time <= STUCK_MS:
                effects[stuck.index] = next_press
    return effects


REPEAT_GAP_MS = 600  # longest time between two keydowns once auto-repeat has begun
UNKNOWN_TYPING = "unknown_text"  # flag for an unknown key that may have typed something
LOCK_TAP_MS = 500  # longest time for which people hold Caps Lock when they tap it
# Modifiers that turn a key into a hotkey, which types nothing.
SHORTCUT_MODIFIERS = frozenset({"ctrl", "alt", "win", "command", "fn"})
# Keys that act again with every auto-repeat. Quick presses of such a key become a single action.
NAVIGATION_KEYS = frozenset(
    {
        "left",
        "right",
        "up",
        "down",
        "pageup",
        "pagedown",
        "home",
        "end",
        "tab",
        "delete",
        "backspace",
    }
)
LOCK_KEYS = frozenset({"capslock", "numlock", "scrolllock"})
_POINTS = frozenset(".,")  # decimal separators on keypads, depending on the country
# Maps the character that a keypad key types with Num Lock to the pyautogui name of the key without
# Num Lock.
_NUMLOCK_OFF = {
    ".": "delete",
    ",": "delete",
    "0": "insert",
    "1": "end",
    "2": "down",
    "3": "pagedown",
    "4": "left",
    "5": "clear",
    "6": "right",
    "7": "home",
    "8": "up",
    "9": "pageup",
}


@dataclass
class _KeyPress:
    """A key from its press to its release.

    Attributes:
        pressed: time of the first keydown, epoch milliseconds.
        number: number of this key press in the log, counted from 1.
        gesture: gesture that gets the keyup, or None if the press belongs to no action.
        gestures: gestures of the press and of its auto-repeats, in time order.
        last: time of the last keydown, epoch milliseconds.
        released: time of the keyup in epoch milliseconds, or None if there was no keyup so far.
        repeating: whether auto-repeat has begun.
    """

    pressed: int
    number: int
    gesture: Gesture | None
    gestures: list[Gesture]
    last: int
    released: int | None = None
    repeating: bool = False


class KeyboardReader:
    """Turns keydown and keyup events into gestures. The events must come in time order.

    Attributes:
        gestures: characters, Backspaces, hotkeys and unknown keys, in the order of their presses.
        holds: presses of keys that typed characters, in order.
        reasons: maps line numbers of events to the reason why the event belongs to no action.
        unknown_keys: logged names that recording/key_names.py does not know.
    """

    def __init__(self, platform: str, keyboards: Keyboards, modifiers: ModifierTracker) -> None:
        self._platform = platform
        self._keyboards = keyboards
        self._keyboard = keyboards.stretches[0].keyboard
        self._accent = ""  # accent of the previous key, or empty if that key was not a dead key
        self._modifiers = modifiers
        self._down: dict[str, _KeyPress] = {}
        self._presses = 0
        self._caps = keyboards.locks.caps
        self._numlock = keyboards.locks.num
        self._alt_digits: list[tuple[Gesture, str]] = []  # keypad digits typed while Alt is held
        self.gestures: list[Gesture] = []
        self.holds: list[_KeyPress] = []
        self.reasons: dict[int, str] = {}
        self.unknown_keys: set[str] = set()

    def down(self, item: Input) -> None:
        """Reads a keydown: a new press, or auto-repeat of a held key."""
        self._keyboard = self._keyboards.at(item.index).keyboard
        key = lookup(item.name, self._platform, self._keyboard.layout)
        self._modifiers.release_stuck(item.time)
        if key.modifier:
            self._modifiers.down(key, item)
            return
        press = self._down.get(item.name)
        if press is not None:
            longest = REPEAT_GAP_MS if press.repeating else REPEAT_START_MS
            if item.time - press.last <= longest:
                self._repeat(press, key, item)
                return
        self._presses += 1
        gesture = self._press(key, item)
        typed = [gesture] if gesture is not None and gesture.kind is GestureKind.CHAR else []
        press = _KeyPress(item.time, self._presses, gesture, typed, item.time)
        self._down[item.name] = press
        if typed:
            self.holds.append(press)

    def up(self, item: Input) -> None:
        """Reads a keyup, and adds it to the gesture of its press."""
        if self._modifiers.up(item):
            if lookup(item.name).name == "alt":
                self._end_alt_code(item)
            return
        press = self._down.pop(item.name, None)
        if press is None:
            self.reasons[item.index] = "release_without_press"
        elif press.gesture is None:
            self.reasons[item.index] = "keyboard_state"
            # macOS logs a keydown when Caps Lock is switched on, and a keyup when Caps Lock is
            # switched off. If the events are at most `LOCK_TAP_MS` apart, with no other key in
            # between, both may come from a single tap.
            if self._platform == "macos" and item.name == "CapsLock":
                are_two_taps = self._presses > press.number or item.time - press.last > LOCK_TAP_MS
                self._caps ^= are_two_taps
        else:
            press.gesture.events.append(item.index)
            press.gesture.end = max(press.gesture.end, item.time)
        if press is not None:
            press.released = item.time

    def _repeat(self, press: _KeyPress, key: Key, item: Input) -> None:
        """Reads a keydown from auto-repeat.

        The keydown becomes a new gesture if the key acts again, as with characters and arrow keys.
        Otherwise it becomes part of the gesture of the press.
        """
        press.last = item.time
        press.repeating = True
        gesture = press.gesture
        if gesture is not None and (
            gesture.kind in {GestureKind.CHAR, GestureKind.BACKSPACE}
            or gesture.keys[-1] in NAVIGATION_KEYS
        ):
            press.gesture = self._press(key, item)
            if press.gesture is not None:
                press.gesture.repeat = True
                press.gestures.append(press.gesture)
        elif gesture is not None:
            gesture.events.append(item.index)
            gesture.flags.add("held")
        else:
            self.reasons[item.index] = "keyboard_state"

    def _press(self, key: Key, item: Input) -> Gesture | None:
        """Returns the gesture of a key press, or None if the press belongs to no action."""
        if is_switch_key(item.name, self._platform):
            self.reasons[item.index] = "keyboard_state"
            return None
        if key.name in LOCK_KEYS:
            self._caps ^= key.name == "capslock"
            self._numlock ^= key.name == "numlock"
            self.reasons[item.index] = "keyboard_state"
            return None
        if not (key.known or item.char or item.dead or item.half):
            self.unknown_keys.add(key.name)
            self.reasons[item.index] = "unknown_key"
            unknown = Gesture(GestureKind.UNKNOWN, item.time, item.time, item.index, [])
            held = self._modifiers.apply_to(unknown, item.time)
            if not _TYPE_NOTHING.fullmatch(key.name) and not SHORTCUT_MODIFIERS & set(held):
                unknown.flags.add(UNKNOWN_TYPING)
            self.gestures.append(unknown)
            return None
        gesture = Gesture(GestureKind.HOTKEY, item.time, item.time, item.index, [])
        held = self._modifiers.apply_to(gesture, item.time)
        gesture.events.append(item.index)
        gesture.modifiers = held
        gesture.key_press = item.time
        self._interpret(gesture, key, item, set(held))
        self._note_alt_code(gesture, key, set(held))
        self.gestures.append(gesture)
        return gesture

    def _note_alt_code(self, gesture: Gesture, key: Key, held: set[str]) -> None:
        """Collects the digits of an Alt code on Windows. Any other key discards the digits."""
        is_digit = self._platform == "windows" and key.keypad and key.char.isdigit()
        if is_digit and held == {"alt"}:
            self._alt_digits.append((gesture, key.char))
        else:
            self._alt_digits = []

    def _end_alt_code(self, item: Input) -> None:
        """Turns the digits of an Alt code into a single character when Alt is released."""
        if not self._alt_digits:
            return
        gestures, digits = zip(*self._alt_digits, strict=True)
        self._alt_digits = []
        typed: Gesture = gestures[0]
        others = {id(gesture) for gesture in gestures[1:]}
        char, is_sure = alt_code_character("".join(digits), self._keyboard)
        typed.kind = GestureKind.CHAR
        typed.char = char
        typed.keys = ()
        for other in gestures[1:]:
            typed.events.extend(other.events)
        typed.end = max(typed.end, item.time)
        if not char:
            typed.flags.add("unknown_character")
        if not char or not is_sure:
            typed.flags.add(DOUBTFUL_TEXT)
        self.gestures = [gesture for gesture in self.gestures if id(gesture) not in others]
        for press in self._down.values():
            if id(press.gesture) in others:
                press.gesture = typed

    def _interpret(self, gesture: Gesture, key: Key, item: Input, held: set[str]) -> None:
        """Decides whether the gesture of a known key is a character, a Backspace or a hotkey."""
        text = self._text(key, item, held)
        accent = self._accent
        self._accent = ""
        if text is not None:
            gesture.kind = GestureKind.CHAR
            gesture.char = text
            gesture.dead = item.dead
            if text and not item.char:
                self._set_character(gesture, text, accent, altgr="altgr" in held)
                if key.keypad and key.char in _POINTS and self._keyboard.other:
                    gesture.flags.add(DOUBTFUL_TEXT)
            if not gesture.char and not gesture.dead:
                gesture.flags |= {"unknown_character", DOUBTFUL_TEXT}
            return
        if key.name == "backspace" and not held - {"shift"}:
            gesture.kind = GestureKind.BACKSPACE
        # The logged name of an unknown key may be any text, so the typed character is used instead.
        name = key.name if key.known else item.char.lower()
        if key.keypad and not self._numlock:
            name = _NUMLOCK_OFF.get(key.char, key.name)
        names = _without_altgr(gesture.modifiers)
        if not key.char:
            # The logged key name already includes the effect of Fn.
            names = [modifier for modifier in names if modifier != "fn"]
        gesture.keys = tuple(dict.fromkeys([*names, name]))

    def _set_character(self, gesture: Gesture, text: str, accent: str, *, altgr: bool) -> None:
        """Sets the character of a gesture from the layout, joined with a preceding dead key.

        Args:
            text: character of the key in the layout.
            accent: accent of the preceding dead key, or empty.
        """
        gesture.by_layout = True
        if self._keyboard.is_doubtful(text, self._platform):
            gesture.flags.add(DOUBTFUL_TEXT)
        if accent:
            gesture.char = accented(accent, text, self._platform)
        elif is_dead(self._keyboard.layout, text, altgr=altgr):
            self._accent = text
            gesture.char = ""
            gesture.dead = True

    def _is_logged_altgr(self, key: Key, item: Input, held: set[str]) -> bool:
        """Returns whether the logged character shows that Ctrl and Alt were AltGr on Windows.

        On a slow remote desktop or a busy computer, more than `ALTGR_WINDOW_MS` may pass between
        LeftCtrl and RightAlt, so their times do not always show that they are AltGr.
        """
        if self._platform != "windows" or not item.char or not {"ctrl", "alt"} <= held:
            return False
        return self._modifiers.right_alt or item.char.lower() != key.char

    def _text(self, key: Key, item: Input, held: set[str]) -> str | None:
        """Returns the character of a key press, or None if the key types nothing.

        The result is empty if the character is unknown, or if the recorder logged a dead key. For a
        dead key of the layout, the result is the accent.
        """
        altgr = "altgr" in held or self._is_logged_altgr(key, item, held)
        option = self._platform == "macos" and held <= {"alt", "altgr", "shift"}
        is_logged = bool(item.char) or item.dead
        if held & SHORTCUT_MODIFIERS and not altgr and not (option and is_logged):
            return None
        if is_logged or item.half:
            return item.char
        if not key.char or (key.keypad and not self._numlock and key.char in _NUMLOCK_OFF):
            return None
        shift = "shift" in held
        if altgr:
            return key.both if shift else key.altgr
        if key.char.isalpha():
            return key.shifted if shift != self._caps else key.char
        return key.shifted if shift else key.char


# Logged names of keys that recording/key_names.py does not list, but that never type a character.
_TYPE_NOTHING = re.compile(
    r"(Browser|Launch|Media|Brightness)[A-Za-z0-9]+|Eject|Power|Sleep|WakeUp|FnLock|Zoom|PlayCd"
)
_TYPED = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


def doubt_beside_unknown_keys(gestures: Sequence[Gesture]) -> None:
    """Flags typing around an unknown key as doubtful, because the key may have typed a character.

    In both directions, flagging ends at a gesture that is neither typing nor an unknown key.
    """
    typing: list[Gesture] = []
    is_doubtful = False
    for gesture in [*gestures, None]:
        if gesture is not None and gesture.kind in _TYPED | {GestureKind.UNKNOWN}:
            typing.append(gesture)
            is_doubtful = is_doubtful or UNKNOWN_TYPING in gesture.flags
            continue
        if is_doubtful:
            for other in typing:
                other.flags |= {DOUBTFUL_TEXT, "unknown_input"}
        typing = []
        is_doubtful = False


_HELD_WITH_BUTTON = "held_with_button"  # reason in ledger.parquet; see `without_held_keys`
_start = attrgetter("start")


def without_held_keys(
    gestures: list[Gesture], holds: Sequence[_KeyPress], reasons: dict[int, str]
) -> list[Gesture]:
    """Leaves out the characters of keys that were held for a drag, and flags the drag `key_held`.

    A key was held for a drag if it was down during the whole drag, or if it auto-repeated during
    the drag. If a button was held without dragging, only the characters of auto-repeat are left
    out.

    Args:
        holds: presses of keys that typed characters.
        reasons: maps line numbers of events to the reason why the event belongs to no action. The
            events of characters that are left out are added.
    """
    presses: dict[str, list[Gesture]] = {}
    drags: dict[str, list[Gesture]] = {}
    for gesture in gestures:
        if gesture.kind in {GestureKind.CLICK, GestureKind.DRAG}:
            presses.setdefault(gesture.button, []).append(gesture)
        if gesture.kind is GestureKind.DRAG:
            drags.setdefault(gesture.button, []).append(gesture)
    left_out: set[int] = set()
    for hold in holds:
        drags_with_key = _drags_within(hold, drags.values())
        repeated: list[Gesture] = []
        for gesture in hold.gestures:
            if not gesture.repeat:
                continue
            held_presses = _presses_around(gesture, presses.values())
            if held_presses:
                repeated.append(gesture)
            for press in held_presses:
                if press.kind is GestureKind.DRAG:
                    drags_with_key.append(press)
        for drag in drags_with_key:
            drag.flags.add("key_held")
        for gesture in hold.gestures if drags_with_key else repeated:
            left_out.add(gesture.index)
            reasons.update(dict.fromkeys(gesture.events, _HELD_WITH_BUTTON))
    return [gesture for gesture in gestures if gesture.index not in left_out]


def _presses_around(gesture: Gesture, by_button: Iterable[Sequence[Gesture]]) -> list[Gesture]:
    """Returns the presses of the buttons that were held when a gesture began."""
    around: list[Gesture] = []
    for presses in by_button:
        begun = bisect_right(presses, gesture.start, key=_start)
        if begun and gesture.start <= presses[begun - 1].end:
            around.append(presses[begun - 1])
    return around


def _drags_within(hold: _KeyPress, by_button: Iterable[Sequence[Gesture]]) -> list[Gesture]:
    """Returns, for each button, the first drag that began and ended while a key was down."""
    if hold.released is None:
        return []
    within: list[Gesture] = []
    for drags in by_button:
        first = bisect_left(drags, hold.pressed, key=_start)
        if first < len(drags) and drags[first].end <= hold.released:
            within.append(drags[first])
    return within
