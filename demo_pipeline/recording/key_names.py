"""Key names: from the name that a recorder logged to the physical key.

Belongs here: one table for the names that Windows recorders log and those that macOS and Linux
recorders log, and the US and the UK keyboard of each platform. What a sequence of keys means is in
actions/keyboard.py.
"""

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

Side = Literal["left", "right", ""]
KeyboardLayout = Literal["us", "uk"]
LAYOUTS: tuple[KeyboardLayout, ...] = ("us", "uk")


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


# unshifted → shifted character
_US_SHIFTED = dict(
    zip("1234567890-=[]\\;'`,./#§", '!@#$%^&*()_+{}|:"~<>?~±', strict=True),
)
_UK_SHIFTED = _US_SHIFTED | {"2": '"', "3": "£", "'": "@", "`": "¬"}
# Apple's British layout has Shift+2, the quotes and the backquote where the US one has them.
_UK_MAC_SHIFTED = _US_SHIFTED | {"3": "£"}

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

# (layout, platform) → name → unshifted character, where it is not that of `_SYMBOLS`. Linux and
# macOS recorders name a key by its place; Windows recorders by the character. On a Mac, each name
# is a key code: `BackQuote` is 50 and types ` also where that key is beside the left Shift;
# `IntlBackslash` is 10, which the boards with one more key have left of the 1.
_MOVED: dict[tuple[KeyboardLayout, str], dict[str, str]] = {
    ("uk", "linux"): {"BackSlash": "#"},
    ("us", "macos"): {"IntlBackslash": "§"},
    ("uk", "macos"): {"IntlBackslash": "§"},
}
_PLATFORMS = ("windows", "macos", "linux", "")

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
    Without a platform, keys have the characters that they have on Windows.
    """
    key = _table(layout, _of_table(platform)).get(raw)
    if key is None:
        return Key(name=raw, known=False)
    if platform == "macos" and key.modifier and key.name == "win":
        return Key("command", modifier=True, side=key.side)
    return key


def differing_characters(
    layout: KeyboardLayout, other: KeyboardLayout, platform: str = ""
) -> frozenset[str]:
    """Characters that a key of `platform` types with `layout`, and not with the layout `other`."""
    return _differing(layout, other, _of_table(platform))


@cache
def _differing(layout: KeyboardLayout, other: KeyboardLayout, platform: str) -> frozenset[str]:
    others = _table(other, platform)
    pairs = [(key, others[raw]) for raw, key in _table(layout, platform).items()]
    return frozenset(
        mine
        for key, same in pairs
        for mine, theirs in ((key.char, same.char), (key.shifted, same.shifted))
        if mine != theirs
    )


def _of_table(platform: str) -> str:
    return platform if platform in _PLATFORMS else ""


@cache
def _table(layout: KeyboardLayout, platform: str) -> MappingProxyType[str, Key]:
    shifted = _US_SHIFTED
    if layout == "uk":
        shifted = _UK_MAC_SHIFTED if platform == "macos" else _UK_SHIFTED
    symbols = _SYMBOLS | _MOVED.get((layout, platform), {})
    table: dict[str, Key] = {"Space": Key("space", " ", " ")}
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[letter] = table[f"Key{letter}"] = Key(letter.lower(), letter.lower(), letter)
    for digit, word in enumerate(DIGIT_WORDS):
        key = Key(str(digit), str(digit), shifted[str(digit)])
        table[word] = table[f"Num{digit}"] = key
        pad = Key(str(digit), str(digit), str(digit), keypad=True)
        table[f"Kp{digit}"] = table[f"Numpad{digit}"] = pad
    for raw, char in symbols.items():
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
    tables = (_table(layout, platform) for layout in LAYOUTS for platform in _PLATFORMS)
    return frozenset({key.name for table in tables for key in table.values()} | {"clear"})
