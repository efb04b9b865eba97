"""Keyboard layouts over the time of a recording: where the person switched, and what is in force.

Belongs here: the chords and keys that switch a layout or an input method, and the layout and the
states of Caps Lock and Num Lock by which the keys of a stretch are read. Which layout is right is
decided in text_evidence.py.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from demo_pipeline.actions.inputs import Gesture, GestureKind, Input
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import Keyboard, lookup

# Alt+Shift and Ctrl+Shift (Windows), Win+Space (Windows, GNOME), Ctrl+Space (macOS, input methods).
_SWITCH_TAPS = (frozenset({"alt", "shift"}), frozenset({"ctrl", "shift"}))
_SWITCH_HOTKEYS = (frozenset({"win", "space"}), frozenset({"ctrl", "space"}))
# Keys of Japanese and Korean keyboards and of macOS that switch the input method. As logged.
_SWITCH_KEYS = frozenset(
    {
        *("Hangul", "HangulMode", "Kana", "KanaMode", "Kanji", "Eisu", "Convert", "NonConvert"),
        *("Lang1", "Lang2", "Lang3", "Lang4", "ModeChange", "ZenkakuHankaku", "Junja"),
    }
)
# Virtual keys of Windows without a name in recorders' libraries: VK_HANGUL and VK_KANJI.
_SWITCH_CODES = frozenset({"Unknown(21)", "Unknown(25)"})
_SHIFT_TAP = frozenset({"shift"})  # switches between Latin letters and the input method


@dataclass(frozen=True, slots=True)
class Locks:
    """The states of Caps Lock and Num Lock before the recording began."""

    caps: bool = False
    num: bool = True


@dataclass(frozen=True, slots=True)
class KeyboardStretch:
    """The part of a recording in which one keyboard layout is in force.

    Attributes:
        first_line: line of the log at which it begins.
        keyboard: by which its keys are read.
        switched: the person switched the layout or the input method at its beginning.
    """

    first_line: int
    keyboard: Keyboard
    switched: bool = False


@dataclass(frozen=True, slots=True)
class Keyboards:
    """The keyboard at every line of a log.

    Attributes:
        stretches: in the order of the log; the first one begins at line 0.
        locks: before the recording began.
    """

    stretches: tuple[KeyboardStretch, ...]
    locks: Locks = Locks()

    @classmethod
    def of(cls, keyboard: Keyboard) -> "Keyboards":
        """One keyboard for a whole recording."""
        return cls((KeyboardStretch(0, keyboard),))

    def number_at(self, line: int) -> int:
        """The number of the stretch that holds a line of the log."""
        if len(self.stretches) == 1:
            return 0
        first_lines = [stretch.first_line for stretch in self.stretches]
        return max(0, bisect_right(first_lines, line) - 1)

    def at(self, line: int) -> KeyboardStretch:
        """The stretch that holds a line of the log."""
        return self.stretches[self.number_at(line)]

    def everywhere(self, keyboard: Keyboard, locks: Locks) -> "Keyboards":
        """The same stretches, all read by one keyboard."""
        stretches = (replace(stretch, keyboard=keyboard) for stretch in self.stretches)
        return Keyboards(tuple(stretches), locks)

    def switched_at(self, lines: Sequence[int]) -> "Keyboards":
        """The same keyboard, with a new stretch after each of the lines."""
        keyboard = self.stretches[0].keyboard
        later = (KeyboardStretch(line + 1, keyboard, switched=True) for line in sorted(set(lines)))
        return Keyboards((self.stretches[0], *later), self.locks)


def is_switch_key(name: str, platform: str) -> bool:
    """Whether a key, as logged, only switches the layout or the input method."""
    return name in _SWITCH_KEYS or (platform == "windows" and name in _SWITCH_CODES)


def switch_lines(
    gestures: Iterable[Gesture], inputs: Iterable[Input], platform: str, *, input_method: bool
) -> list[int]:
    """The lines of the log at which the person may have switched layout or input method.

    Args:
        gestures: of the keyboard, taps of modifiers included.
        inputs: of the log.
        platform: of the recording: the meaning of key codes depends on it.
        input_method: the person's language is typed with one, which a tap of Shift switches, too.
    """
    taps = [*_SWITCH_TAPS, *([_SHIFT_TAP] if input_method else [])]
    lines = []
    for gesture in gestures:
        if gesture.kind is not GestureKind.HOTKEY:
            continue
        keys = frozenset(gesture.keys)
        chords = taps if "modifier_tap" in gesture.flags else _SWITCH_HOTKEYS
        if keys in chords:
            lines.append(max(gesture.events))
    pressed = (item for item in inputs if item.kind == EventType.KEYDOWN)
    return lines + [item.index for item in pressed if is_switch_key(item.name, platform)]


def has_keypad(inputs: Iterable[Input]) -> bool:
    """Whether a key of the keypad was pressed, whose meaning Num Lock decides."""
    return any(item.kind == EventType.KEYDOWN and lookup(item.name).keypad for item in inputs)
