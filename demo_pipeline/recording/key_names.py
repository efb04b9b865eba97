"""Key names: from the name that a recorder logged to the physical key.

Belongs here: one table for the names that Windows recorders log and those that macOS and Linux
recorders log, for a US keyboard (other layouts are tables too). What a sequence of keys means is in
actions/keyboard.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

Side = Literal["left", "right", ""]
KeyboardLayout = Literal["us", "uk"]


@dataclass(frozen=True, slots=True)
class Key:
    """A physical key.

    Attributes:
        name: pyautogui's lower-case name (`ctrl`, `enter`, `a`, `f1`); for an unknown key the
            logged name. The name of a printable key is its unshifted character.
        char: character without Shift; empty for keys that type nothing.
        shifted: character with Shift.
        modifier: whether it is Ctrl, Shift, Alt, AltGr, Windows, Command or Fn.
        side: left or right, for keys that exist twice.
        keypad: whether it is on the numeric keypad, where Num Lock decides its meaning.
        known: False for a name that is in no table.
    """

    name: str
    char: str = ""
    shifted: str = ""
    modifier: bool = False
    side: Side = ""
    keypad: bool = False
    known: bool = True


_US_SHIFTED = dict(
    zip("1234567890-=[]\\;'`,./", '!@#$%^&*()_+{}|:"~<>?', strict=True),
)
_UK_SHIFTED = _US_SHIFTED | {"2": '"', "3": "£", "'": "@", "`": "¬", "#": "~"}
_SHIFTED = {"us": _US_SHIFTED | {"#": "~"}, "uk": _UK_SHIFTED}

DIGIT_WORDS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")

# names of printable keys beyond letters and digits → unshifted character
_SYMBOLS = {
    # Windows recorders
    "BackTick": "`",
    "BackSlash": "\\",
    "ForwardSlash": "/",
    "Plus": "=",
    "Minus": "-",
    "FullStop": ".",
    "Comma": ",",
    "LeftSquareBracket": "[",
    "RightSquareBracket": "]",
    "SemiColon": ";",
    "Apostrophe": "'",
    "Hash": "#",
    # Mac and Linux recorders
    "BackQuote": "`",
    "Equal": "=",
    "LeftBracket": "[",
    "RightBracket": "]",
    "Quote": "'",
    "Dot": ".",
    "Slash": "/",
    "IntlBackslash": "\\",
}

_KEYPAD = {
    # Windows recorders
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Decimal": ".",
    "Separator": ",",
    # Mac and Linux recorders
    "KpMinus": "-",
    "KpPlus": "+",
    "KpMultiply": "*",
    "KpDivide": "/",
    "KpDecimal": ".",
    "KpEqual": "=",
    "KpComma": ",",
}

_SPECIAL = {
    "Escape": "esc",
    "Return": "enter",
    "Enter": "enter",
    "KpReturn": "enter",
    "Backspace": "backspace",
    "Tab": "tab",
    "Left": "left",
    "Right": "right",
    "Up": "up",
    "Down": "down",
    "LeftArrow": "left",
    "RightArrow": "right",
    "UpArrow": "up",
    "DownArrow": "down",
    "Home": "home",
    "End": "end",
    "PageUp": "pageup",
    "PageDown": "pagedown",
    "Insert": "insert",
    "Delete": "delete",
    "KpDelete": "delete",
    "CapsLock": "capslock",
    "Numlock": "numlock",
    "NumLock": "numlock",
    "ScrollLock": "scrolllock",
    "Pause": "pause",
    "PrintScreen": "printscreen",
    "KanaMode": "kana",
    "IntlRo": "intlro",
    "IntlYen": "intlyen",
    "Apps": "apps",
    "Menu": "apps",
    "VolumeUp": "volumeup",
    "VolumeDown": "volumedown",
    "VolumeMute": "volumemute",
    "PlayPause": "playpause",
    "PreviousTrack": "prevtrack",
    "NextTrack": "nexttrack",
}

_MODIFIERS: dict[str, tuple[str, Side]] = {
    "Shift": ("shift", ""),
    "LeftShift": ("shift", "left"),
    "RightShift": ("shift", "right"),
    "ShiftLeft": ("shift", "left"),
    "ShiftRight": ("shift", "right"),
    "LeftCtrl": ("ctrl", "left"),
    "RightCtrl": ("ctrl", "right"),
    "ControlLeft": ("ctrl", "left"),
    "ControlRight": ("ctrl", "right"),
    "LeftAlt": ("alt", "left"),
    "RightAlt": ("alt", "right"),
    "Alt": ("alt", "left"),
    "AltGr": ("altgr", "right"),
    "Function": ("fn", ""),
    "LeftWindows": ("win", "left"),
    "RightWindows": ("win", "right"),
    "LeftWin": ("win", "left"),
    "RightWin": ("win", "right"),
    "LeftMeta": ("win", "left"),
    "RightMeta": ("win", "right"),
    "MetaLeft": ("win", "left"),
    "MetaRight": ("win", "right"),
    "LeftCommand": ("command", "left"),
    "RightCommand": ("command", "right"),
    "Command": ("command", "left"),
}


def lookup(raw: str, platform: str = "", layout: KeyboardLayout = "us") -> Key:
    """The key that a recorder on `platform` (`windows`, `macos`, `linux`) logs as `raw`.

    A name that is in no table gives a `Key` with `known=False` and that name; it types nothing.
    """
    key = _table(layout).get(raw)
    if key is None:
        return Key(name=raw, known=False)
    if platform == "macos" and key.modifier and key.name == "win":
        return Key("command", modifier=True, side=key.side)
    return key


def shifted_characters(layout: KeyboardLayout) -> Mapping[str, str]:
    """Unshifted → shifted character of the keys that are no letters."""
    return MappingProxyType(_SHIFTED[layout])


@cache
def _table(layout: KeyboardLayout) -> MappingProxyType[str, Key]:
    shifted = _SHIFTED[layout]
    table: dict[str, Key] = {"Space": Key("space", " ", " ")}
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[letter] = table[f"Key{letter}"] = Key(letter.lower(), letter.lower(), letter)
    for digit, word in enumerate(DIGIT_WORDS):
        key = Key(str(digit), str(digit), shifted[str(digit)])
        table[word] = table[f"Num{digit}"] = key
        pad = Key(str(digit), str(digit), str(digit), keypad=True)
        table[f"Kp{digit}"] = table[f"Numpad{digit}"] = pad
    for raw, char in _SYMBOLS.items():
        table[raw] = Key(char, char, shifted[char])
    for raw, char in _KEYPAD.items():
        table[raw] = Key(char, char, char, keypad=True)
    for raw, name in _SPECIAL.items():
        table[raw] = Key(name)
    for number in range(1, 25):
        table[f"F{number}"] = Key(f"f{number}")
    for raw, (name, side) in _MODIFIERS.items():
        table[raw] = Key(name, modifier=True, side=side)
    return MappingProxyType(table)


@cache
def output_key_names() -> frozenset[str]:
    """The names that keys have in actions, of every layout's tables."""
    return frozenset({key.name for key in _table("us").values()} | {"clear"})
