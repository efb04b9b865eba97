"""Key names: what a recorder called a key, and what key it was.

Belongs here: one canonical model for the Windows names and the Mac/Linux names of formats note 1,
as tables of a US board (other layouts are tables too). Not here: what a sequence of keys means.
"""

import re
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

Side = Literal["left", "right", ""]
KeyboardLayout = Literal["us", "uk"]

_KEY_NAME = re.compile(r"[A-Za-z]{2,24}[0-9]{0,3}(\([0-9]{1,10}\))?")


@dataclass(frozen=True, slots=True)
class Key:
    """A physical key.

    Attributes:
        name: pyautogui's lower-case name (`ctrl`, `enter`, `a`, `f1`); for an unknown key its raw
            name. The name of a printable key is its unshifted character.
        char: character without Shift, empty for keys that print nothing.
        shifted: character with Shift.
        modifier: Ctrl, Shift, Alt, AltGr, Windows, Command or Fn.
        side: which of two equal keys.
        keypad: on the numeric keypad, so that Num Lock decides.
        known: False for a name in no table.
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

_DIGIT_WORDS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")

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
    """The key a recorder on `platform` (`windows`, `macos`, `linux`) called `raw`.

    A name in no table comes back as a `Key` with `known=False` and its raw name; it is never text.
    """
    key = _table(layout).get(raw)
    if key is None:
        return Key(name=raw, known=False)
    if platform == "macos" and key.modifier and key.name == "win":
        return Key("command", modifier=True, side=key.side)
    return key


def public_name(raw: str) -> str:
    """An unknown key as a recorder named it, unless the name may be what was typed."""
    return raw if _KEY_NAME.fullmatch(raw) else "(unnamed)"


@cache
def _table(layout: KeyboardLayout) -> MappingProxyType[str, Key]:
    shifted = _SHIFTED[layout]
    table: dict[str, Key] = {"Space": Key("space", " ", " ")}
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[letter] = table[f"Key{letter}"] = Key(letter.lower(), letter.lower(), letter)
    for digit, word in enumerate(_DIGIT_WORDS):
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
