"""Keys: what each press means, and the tokens that come of it.

Belongs here: characters, Caps Lock and Num Lock, auto-repeat, which key a chord ends in. Not here:
how long modifiers are held (holds.py), how characters join into typed text (join.py).
"""

from dataclasses import dataclass

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import Input
from demo_pipeline.actions.modifiers import REPEAT_START_MS, ModifierTracker
from demo_pipeline.recording.key_names import Key, KeyboardLayout, lookup

REPEAT_GAP_MS = 600
SHORTCUT_MODIFIERS = frozenset({"ctrl", "alt", "win", "command", "fn"})
NAVIGATION = frozenset(
    {"left", "right", "up", "down", "delete", "pageup", "pagedown", "home", "end"}
)
LOCKS = frozenset({"capslock", "numlock", "scrolllock"})
_KEYPAD_OFF = {
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
class _Press:
    """A key that is down: its last keydown and the token that its keyup belongs to."""

    time: int
    number: int
    token: Gesture | None
    repeating: bool = False


class KeyboardReader:
    """Reads keydown and keyup in time order; `tokens` and `reasons` are its findings.

    Attributes:
        tokens: characters, backspaces and hotkeys, by press.
        reasons: event index → why it is part of no action.
    """

    def __init__(self, platform: str, layout: KeyboardLayout, holds: ModifierTracker) -> None:
        self._platform = platform
        self._layout: KeyboardLayout = layout
        self._holds = holds
        self._down: dict[str, _Press] = {}
        self._presses = 0
        self._caps = False
        self._numlock = True
        self.tokens: list[Gesture] = []
        self.reasons: dict[int, str] = {}
        self.unknown_keys: set[str] = set()

    def down(self, item: Input) -> None:
        """A keydown: a new press, or auto-repeat of one that is held."""
        key = lookup(item.name, self._platform, self._layout)
        self._holds.let_go_stuck(item.time)
        if key.modifier:
            self._holds.down(key, item)
            return
        press = self._down.get(item.name)
        if press is not None and self._is_repeat(press, item.time):
            self._repeat(press, key, item)
            return
        self._presses += 1
        self._down[item.name] = _Press(item.time, self._presses, self._press(key, item))

    def up(self, item: Input) -> None:
        """A keyup: it belongs to the token of its press."""
        if self._holds.up(item):
            return
        press = self._down.pop(item.name, None)
        if press is None:
            self.reasons[item.index] = "release_without_press"
        elif press.token is None:
            self.reasons[item.index] = "keyboard_state"
            self._release_lock(press, item)
        else:
            press.token.events.append(item.index)
            press.token.end = max(press.token.end, item.time)

    def _release_lock(self, press: _Press, item: Input) -> None:
        """MacOS logs Caps Lock's on as a keydown and its off as a keyup; others log taps."""
        if self._platform == "macos" and item.name == "CapsLock":
            self._caps ^= self._presses > press.number

    def _is_repeat(self, press: _Press, time: int) -> bool:
        return time - press.time <= (REPEAT_GAP_MS if press.repeating else REPEAT_START_MS)

    def _repeat(self, press: _Press, key: Key, item: Input) -> None:
        """Printable keys, Backspace and navigation act again; all else is one held press."""
        press.time, press.repeating = item.time, True
        token = press.token
        acts = token is not None and (
            token.kind in {GestureKind.CHAR, GestureKind.BACKSPACE}
            or (key.name in NAVIGATION and not SHORTCUT_MODIFIERS & set(token.modifiers))
        )
        if acts:
            press.token = self._press(key, item)
        elif token is not None:
            token.events.append(item.index)
            token.flags.add("held")
        else:
            self.reasons[item.index] = "keyboard_state"

    def _press(self, key: Key, item: Input) -> Gesture | None:
        if key.name in LOCKS:
            self._caps ^= key.name == "capslock"
            self._numlock ^= key.name == "numlock"
            self.reasons[item.index] = "keyboard_state"
            return None
        if not key.known and not _printable(item.char):
            self.unknown_keys.add(key.name)
            self.reasons[item.index] = "unknown_key"
            return None
        token = Gesture(GestureKind.HOTKEY, item.time, item.time, item.index, [])
        held = self._holds.modify(token, item.time)
        token.events.append(item.index)
        token.modifiers = held
        self._interpret(token, key, item, set(held))
        self.tokens.append(token)
        return token

    def _interpret(self, token: Gesture, key: Key, item: Input, held: set[str]) -> None:
        text = self._text(key, item, held)
        if text is not None:
            token.kind, token.char = GestureKind.CHAR, text
            if not text:
                token.flags.add("unknown_character")
            return
        if key.name == "backspace" and not held - {"shift"}:
            token.kind = GestureKind.BACKSPACE
        name = key.name
        if key.keypad and not self._numlock:
            name = _KEYPAD_OFF.get(key.char, key.name)
        names = ["alt" if mod == "altgr" else mod for mod in token.modifiers]
        if not key.char:
            names = [mod for mod in names if mod != "fn"]  # fn chose the key that was logged
        token.keys = tuple(dict.fromkeys([*names, name]))

    def _text(self, key: Key, item: Input, held: set[str]) -> str | None:
        """The character a press types; empty when unknown; None when it types nothing."""
        altgr = "altgr" in held
        option = self._platform == "macos" and held <= {"alt", "altgr", "shift"}
        if held & SHORTCUT_MODIFIERS and not altgr and not (option and _printable(item.char)):
            return None
        if _printable(item.char):
            return item.char
        if not key.char or (key.keypad and not self._numlock and key.char in _KEYPAD_OFF):
            return None
        if altgr:
            return ""
        shift = "shift" in held
        if key.char.isalpha():
            return key.shifted if shift != self._caps else key.char
        return key.shifted if shift else key.char


def _printable(text: str) -> bool:
    return bool(text) and text.isprintable()
