"""The keyboard: what each key press means, as gestures.

Belongs here: characters, Caps Lock and Num Lock, auto-repeat, hotkeys. When modifiers are held is
in modifiers.py; how characters are grouped into typed text is in grouping.py.
"""

from dataclasses import dataclass, field

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import Input
from demo_pipeline.actions.modifiers import REPEAT_START_MS, ModifierTracker
from demo_pipeline.recording.key_names import Key, KeyboardLayout, lookup

REPEAT_GAP_MS = 600  # longest time between two keydowns of a key that auto-repeats
LOCK_TAP_MS = 500  # nobody holds Caps Lock longer
# With one of these held, a key is a hotkey and types nothing.
SHORTCUT_MODIFIERS = frozenset({"ctrl", "alt", "win", "command", "fn"})
# Keys whose auto-repeat acts again, and whose presses in quick succession are one action.
NAVIGATION_KEYS = frozenset(
    {"left", "right", "up", "down", "pageup", "pagedown", "home", "end", "tab"}
    | {"delete", "backspace"}
)
LOCK_KEYS = frozenset({"capslock", "numlock", "scrolllock"})
# Keypad keys without Num Lock: character with Num Lock → pyautogui name.
_NUMLOCK_OFF = {
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
    ".": "delete",
}


@dataclass
class KeyHold:
    """A key that types, from its press to its release.

    Attributes:
        pressed, released: epoch milliseconds; `released` is None without a release.
        gestures: of the press and of its auto-repeats, in time order.
    """

    pressed: int
    released: int | None = None
    gestures: list[Gesture] = field(default_factory=list)


@dataclass
class _Press:
    """A key that is held down.

    Attributes:
        time: of its last keydown, epoch milliseconds.
        number: how many presses there were in the log up to this one.
        gesture: to which its keyup belongs; None if it has none.
        hold: of a key that types.
        repeating: whether auto-repeat has begun.
    """

    time: int
    number: int
    gesture: Gesture | None
    hold: KeyHold | None = None
    repeating: bool = False


class KeyboardReader:
    """Reads the keydown and keyup events in time order.

    Attributes:
        gestures: characters, backspaces, hotkeys and unknown keys, in the order of their presses.
        holds: of the keys that typed characters, in the order of their presses.
        reasons: line number → why the event is part of no action.
        unknown_keys: logged names that are in no table.
    """

    def __init__(self, platform: str, layout: KeyboardLayout, modifiers: ModifierTracker) -> None:
        self._platform = platform
        self._layout: KeyboardLayout = layout
        self._modifiers = modifiers
        self._down: dict[str, _Press] = {}
        self._presses = 0
        self._caps = False
        self._numlock = True
        self.gestures: list[Gesture] = []
        self.holds: list[KeyHold] = []
        self.reasons: dict[int, str] = {}
        self.unknown_keys: set[str] = set()

    def down(self, item: Input) -> None:
        """A keydown: a new press, or auto-repeat of a held key."""
        key = lookup(item.name, self._platform, self._layout)
        self._modifiers.release_stuck(item.time)
        if key.modifier:
            self._modifiers.down(key, item)
            return
        press = self._down.get(item.name)
        if press is not None and self._is_repeat(press, item.time):
            self._repeat(press, key, item)
            return
        self._presses += 1
        press = _Press(item.time, self._presses, self._press(key, item))
        self._down[item.name] = press
        if press.gesture is not None and press.gesture.kind is GestureKind.CHAR:
            press.hold = KeyHold(item.time, gestures=[press.gesture])
            self.holds.append(press.hold)

    def up(self, item: Input) -> None:
        """A keyup: it belongs to the gesture of its press."""
        if self._modifiers.up(item):
            return
        press = self._down.pop(item.name, None)
        if press is None:
            self.reasons[item.index] = "release_without_press"
        elif press.gesture is None:
            self.reasons[item.index] = "keyboard_state"
            self._release_lock(press, item)
        else:
            press.gesture.events.append(item.index)
            press.gesture.end = max(press.gesture.end, item.time)
        if press is not None and press.hold is not None:
            press.hold.released = item.time

    def _release_lock(self, press: _Press, item: Input) -> None:
        """MacOS logs only a keydown when Caps Lock is switched on, only a keyup when it is off.

        If a key was pressed between the two, or if they are too far apart for one tap, they are two
        taps, and Caps Lock is off again. Otherwise it may be one tap that was logged whole.
        """
        if self._platform == "macos" and item.name == "CapsLock":
            two_taps = self._presses > press.number or item.time - press.time > LOCK_TAP_MS
            self._caps ^= two_taps

    def _is_repeat(self, press: _Press, time: int) -> bool:
        return time - press.time <= (REPEAT_GAP_MS if press.repeating else REPEAT_START_MS)

    def _repeat(self, press: _Press, key: Key, item: Input) -> None:
        """An auto-repeat: a new gesture if the key acts again, else one long press."""
        press.time, press.repeating = item.time, True
        gesture = press.gesture
        if gesture is not None and (
            gesture.kind in {GestureKind.CHAR, GestureKind.BACKSPACE}
            or gesture.keys[-1] in NAVIGATION_KEYS
        ):
            press.gesture = self._press(key, item)
            if press.gesture is not None:
                press.gesture.repeat = True
                if press.hold is not None:
                    press.hold.gestures.append(press.gesture)
        elif gesture is not None:
            gesture.events.append(item.index)
            gesture.flags.add("held")
        else:
            self.reasons[item.index] = "keyboard_state"

    def _press(self, key: Key, item: Input) -> Gesture | None:
        if key.name in LOCK_KEYS:
            self._caps ^= key.name == "capslock"
            self._numlock ^= key.name == "numlock"
            self.reasons[item.index] = "keyboard_state"
            return None
        if not key.known and not item.char and not item.dead:
            self.unknown_keys.add(key.name)
            self.reasons[item.index] = "unknown_key"
            unknown = Gesture(GestureKind.UNKNOWN, item.time, item.time, item.index, [])
            self._modifiers.apply_to(unknown, item.time)
            self.gestures.append(unknown)
            return None
        gesture = Gesture(GestureKind.HOTKEY, item.time, item.time, item.index, [])
        held = self._modifiers.apply_to(gesture, item.time)
        gesture.events.append(item.index)
        gesture.modifiers, gesture.key_press = held, item.time
        self._interpret(gesture, key, item, set(held))
        self.gestures.append(gesture)
        return gesture

    def _interpret(self, gesture: Gesture, key: Key, item: Input, held: set[str]) -> None:
        text = self._text(key, item, held)
        if text is not None:
            gesture.kind, gesture.char = GestureKind.CHAR, text
            gesture.dead = item.dead
            if not text and not item.dead:
                gesture.flags.add("unknown_character")
            return
        if key.name == "backspace" and not held - {"shift"}:
            gesture.kind = GestureKind.BACKSPACE
        name = key.name if key.known else item.char.lower()  # the logged name may be any text
        if key.keypad and not self._numlock:
            name = _NUMLOCK_OFF.get(key.char, key.name)
        names = ["alt" if mod == "altgr" else mod for mod in gesture.modifiers]
        if not key.char:
            # The logged key already includes the effect of fn.
            names = [mod for mod in names if mod != "fn"]
        gesture.keys = tuple(dict.fromkeys([*names, name]))

    def _text(self, key: Key, item: Input, held: set[str]) -> str | None:
        """The character that a press types; empty: unknown or a dead key; None: no character."""
        altgr = "altgr" in held
        option = self._platform == "macos" and held <= {"alt", "altgr", "shift"}
        logged = bool(item.char) or item.dead
        if held & SHORTCUT_MODIFIERS and not altgr and not (option and logged):
            return None
        if logged:
            return item.char
        if not key.char or (key.keypad and not self._numlock and key.char in _NUMLOCK_OFF):
            return None
        if altgr:
            return ""
        shift = "shift" in held
        if key.char.isalpha():
            return key.shifted if shift != self._caps else key.char
        return key.shifted if shift else key.char
