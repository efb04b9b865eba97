"""Divides a recording into stretches, each with a single keyboard layout.

A stretch ends where the person may have switched the layout or the input method.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from demo_pipeline.actions.inputs import Gesture, GestureKind, Input
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import Keyboard, lookup

# Taps and hotkeys that switch the layout or the input method: Alt+Shift and Ctrl+Shift on Windows,
# Win+Space on Windows and GNOME, Ctrl+Space on macOS and in input methods.
_SWITCH_TAPS = (frozenset({"alt", "shift"}), frozenset({"ctrl", "shift"}))
_SWITCH_HOTKEYS = (frozenset({"win", "space"}), frozenset({"ctrl", "space"}))
# Logged names of keys that switch the input method, on macOS and on Japanese and Korean keyboards.
_SWITCH_KEYS = frozenset(
    {
        "Hangul",
        "HangulMode",
        "Kana",
        "KanaMode",
        "Kanji",
        "Eisu",
        "Convert",
        "NonConvert",
        "Lang1",
        "Lang2",
        "Lang3",
        "Lang4",
        "ModeChange",
        "ZenkakuHankaku",
        "Junja",
    }
)
# Names that recorders log for the keys VK_HANGUL and VK_KANJI of Windows.
_SWITCH_CODES = frozenset({"Unknown(21)", "Unknown(25)"})
_SHIFT_TAP = frozenset({"shift"})  # switches an input method to Latin letters and back


@dataclass(frozen=True, slots=True)
class Locks:
    """Whether Caps Lock and Num Lock were on before the recording began."""

    caps: bool = False
    num: bool = True


@dataclass(frozen=True, slots=True)
class KeyboardStretch:
    """A part of a recording with a single keyboard layout.

    Attributes:
        first_line: first line of the stretch in the log.
        keyboard: the keyboard of the stretch.
        switched: whether the stretch begins because the person may have switched the layout or the
            input method.
    """

    first_line: int
    keyboard: Keyboard
    switched: bool = False


@dataclass(frozen=True, slots=True)
class Keyboards:
    """The keyboard at every line of a log.

    Attributes:
        stretches: parts of the log with one layout each, in order. The first begins at line 0.
        locks: states of Caps Lock and Num Lock before the recording began.
    """

    stretches: tuple[KeyboardStretch, ...]
    locks: Locks = Locks()

    @classmethod
    def of(cls, keyboard: Keyboard) -> "Keyboards":
        """Returns a single stretch with this keyboard, for the whole recording."""
        return cls((KeyboardStretch(0, keyboard),))

    def number_at(self, line: int) -> int:
        """Returns the index of the stretch that contains a line of the log."""
        if len(self.stretches) == 1:
            return 0
        first_lines = [stretch.first_line for stretch in self.stretches]
        return max(0, bisect_right(first_lines, line) - 1)

    def at(self, line: int) -> KeyboardStretch:
        """Returns the stretch that contains a line of the log."""
        return self.stretches[self.number_at(line)]

    def everywhere(self, keyboard: Keyboard, locks: Locks) -> "Keyboards":
        """Returns the same stretches with a single keyboard and the given lock states."""
        stretches = (replace(stretch, keyboard=keyboard) for stretch in self.stretches)
        return Keyboards(tuple(stretches), locks)

    def switched_at(self, lines: Sequence[int]) -> "Keyboards":
        """Splits the log after each given line.

        All stretches get the keyboard of the first stretch.
        """
        keyboard = self.stretches[0].keyboard
        later = (KeyboardStretch(line + 1, keyboard, switched=True) for line in sorted(set(lines)))
        return Keyboards((self.stretches[0], *later), self.locks)


def is_switch_key(name: str, platform: str) -> bool:
    """Returns whether a logged key only switches the layout or the input method."""
    return name in _SWITCH_KEYS or (platform == "windows" and name in _SWITCH_CODES)


def switch_lines(
    gestures: Iterable[Gesture], inputs: Iterable[Input], platform: str, *, input_method: bool
) -> list[int]:
    """Returns the lines at which the person may have switched the layout or the input method.

    Args:
        gestures: keyboard gestures, including taps of modifiers.
        platform: platform of the recording, which decides the meaning of key codes.
        input_method: whether the person types with an input method, which a tap of Shift switches.
    """
    taps = list(_SWITCH_TAPS)
    if input_method:
        taps.append(_SHIFT_TAP)
    lines: list[int] = []
    for gesture in gestures:
        if gesture.kind is not GestureKind.HOTKEY:
            continue
        chords = taps if "modifier_tap" in gesture.flags else _SWITCH_HOTKEYS
        if frozenset(gesture.keys) in chords:
            lines.append(max(gesture.events))
    lines += [
        item.index
        for item in inputs
        if item.kind == EventType.KEYDOWN and is_switch_key(item.name, platform)
    ]
    return lines


def has_keypad(inputs: Iterable[Input]) -> bool:
    """Returns whether any keypad key was pressed, so that Num Lock matters."""
    return any(item.kind == EventType.KEYDOWN and lookup(item.name).keypad for item in inputs)
