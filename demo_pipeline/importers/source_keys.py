"""Translates the key names of other tools to the names that recorders log.

The sources are Windows' virtual-key codes and the names of Python's pynput. The results are the
names in recording/key_names.py: those of Windows recorders, or those of all other recorders.
"""

import re
import string
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.recording.key_names import lookup
from demo_pipeline.recording.keyboard_layouts import COMBINING, accented

# The logged name of a key whose name and code are both unknown.
UNNAMED_SOURCE_KEY = "Unknown(0)"
_FIRST_FUNCTION_KEY = 0x70
_FUNCTION_KEYS = 24
_KEYPAD_ZERO = 0x60
_KEYPAD_CODES = range(_KEYPAD_ZERO, _FIRST_FUNCTION_KEY)
_CONTROL_CHARACTERS = 27  # Ctrl with a letter types a character with a code below 27

# Virtual-key code (hexadecimal, from winuser.h) = name in the logs of Windows recorders. The
# function `virtual_key` adds letters, digits, function keys and the digits of the keypad.
_CODES = """
    08=Backspace 09=Tab 0D=Return 10=Shift 11=LeftCtrl 12=LeftAlt 13=Pause 14=CapsLock
    15=Hangul 19=Hanja 1B=Escape 1C=Convert 1D=NonConvert 20=Space 21=PageUp 22=PageDown 23=End
    24=Home 25=Left 26=Up 27=Right 28=Down 2C=PrintScreen 2D=Insert 2E=Delete 5B=LeftWindows
    5C=RightWindows 5D=Apps 6A=Multiply 6B=Add 6C=Separator 6D=Subtract 6E=Decimal 6F=Divide
    90=Numlock 91=ScrollLock A0=LeftShift A1=RightShift A2=LeftCtrl A3=RightCtrl A4=LeftAlt
    A5=RightAlt AD=VolumeMute AE=VolumeDown AF=VolumeUp B0=NextTrack B1=PreviousTrack
    B3=PlayPause BA=SemiColon BB=Plus BC=Comma BD=Minus BE=FullStop BF=ForwardSlash C0=BackTick
    DB=LeftSquareBracket DC=BackSlash DD=RightSquareBracket DE=Apostrophe E2=IntlBackslash
"""
_VIRTUAL_KEYS = {int(pair[:2], 16): pair[3:] for pair in _CODES.split()}

# Name in pynput = name in logs from Windows = name in logs from other systems. The last name is
# missing where it is the same as the second.
_NAMES = """
    alt=LeftAlt=Alt alt_l=LeftAlt=Alt alt_r=RightAlt alt_gr=RightAlt=AltGr backspace=Backspace
    caps_lock=CapsLock cmd=LeftWindows=MetaLeft cmd_l=LeftWindows=MetaLeft
    cmd_r=RightWindows=MetaRight ctrl=LeftCtrl=ControlLeft ctrl_l=LeftCtrl=ControlLeft
    ctrl_r=RightCtrl=ControlRight delete=Delete down=Down=DownArrow end=End enter=Return esc=Escape
    home=Home insert=Insert left=Left=LeftArrow media_next=NextTrack media_play_pause=PlayPause
    media_previous=PreviousTrack media_volume_down=VolumeDown media_volume_mute=VolumeMute
    media_volume_up=VolumeUp menu=Apps=Menu num_lock=Numlock=NumLock page_down=PageDown
    page_up=PageUp pause=Pause print_screen=PrintScreen right=Right=RightArrow
    scroll_lock=ScrollLock shift=Shift=ShiftLeft shift_l=LeftShift=ShiftLeft
    shift_r=RightShift=ShiftRight space=Space tab=Tab up=Up=UpArrow
"""
_NAMED = {words[0]: (words[1], words[-1]) for words in (w.split("=") for w in _NAMES.split())}

# Maps key names of programs and of other recorders to pynput's names, where they differ.
_PYNPUT_NAMES = {
    "return": "enter",
    "escape": "esc",
    "control": "ctrl",
    "win": "cmd",
    "winleft": "cmd",
    "super": "cmd",
    "meta": "cmd",
    "command": "cmd",
    "pageup": "page_up",
    "pagedown": "page_down",
    "capslock": "caps_lock",
}

# Maps X11's keysyms (numbers of keysymdef.h) that have no name in pynput to names in the log. The
# key 5 of the keypad is 0xFF9D (KP_Begin) even with Num Lock on, because pynput requests keysyms
# without Num Lock.
_KEYSYMS = {
    0xFE03: "AltGr",
    0xFE20: "Tab",
    0xFF7E: "AltGr",
    0xFF9D: "Kp5",
    0xFFAC: "KpComma",
    0xFF21: "Kanji",
    0xFF22: "NonConvert",
    0xFF23: "Convert",
    0xFF27: "KanaMode",
    0xFF31: "Hangul",
    0xFF34: "Hanja",
}

# For each printable key of the US keyboard: its characters without and with Shift, its name in logs
# from Windows, and its name in logs from other systems.
_BOARD_KEYS = r"""
    `~ BackTick BackQuote   -_ Minus Minus   =+ Plus Equal   [{ LeftSquareBracket LeftBracket
    ]} RightSquareBracket RightBracket   \| BackSlash BackSlash   ;: SemiColon SemiColon
    '" Apostrophe Quote   ,< Comma Comma   .> FullStop Dot   /? ForwardSlash Slash
    0) Zero Num0   1! One Num1   2@ Two Num2   3# Three Num3   4$ Four Num4   5% Five Num5
    6^ Six Num6   7& Seven Num7   8* Eight Num8   9( Nine Num9
"""
_BOARD = _BOARD_KEYS.split()
_KEYS = zip(_BOARD[::3], _BOARD[1::3], _BOARD[2::3], strict=True)
_SYMBOLS = {char: (windows, other) for chars, windows, other in _KEYS for char in chars}
_SYMBOLS[" "] = ("Space", "Space")


def virtual_key(code: int) -> str:
    """Returns the name that Windows recorders log for a virtual-key code.

    Returns `Unknown(code)` if the code has no name.
    """
    if chr(code & 0xFF) in string.ascii_uppercase + string.digits and code < _KEYPAD_ZERO:
        return chr(code) if code >= ord("A") else _SYMBOLS[chr(code)][0]
    if _KEYPAD_ZERO <= code < _KEYPAD_ZERO + 10:
        return f"Numpad{code - _KEYPAD_ZERO}"
    if _FIRST_FUNCTION_KEY <= code < _FIRST_FUNCTION_KEY + _FUNCTION_KEYS:
        return f"F{code - _FIRST_FUNCTION_KEY + 1}"
    return _VIRTUAL_KEYS.get(code, f"Unknown({code})")


def pynput_name(name: str) -> str:
    """Returns pynput's name for a key name of another program; unknown names become lower case."""
    lower = name.lower()
    return _PYNPUT_NAMES.get(lower, lower)


def pynput_key(
    name: Any, platform: str, *, typed: bool = True, code: int | None = None
) -> dict[str, Any]:
    """Returns the data of a log line for a key that pynput reports by a name or a character.

    Args:
        name: a name such as `ctrl_l` or `f5`, or a character. For other values, the key is logged
            by its code, or as unknown.
        platform: windows, macos, linux, or empty.
        typed: whether the key typed the character `name`; if not, `name` is only the key's label.
        code: the virtual-key code on Windows, X11's keysym on Linux; None if not recorded.
    """
    system = 0 if platform == "windows" else 1  # index of the name in `_NAMED` and `_SYMBOLS`
    if isinstance(name, str) and name in _NAMED:
        return {"key": _NAMED[name][system]}
    if code is not None and platform == "windows" and code in _KEYPAD_CODES:
        return {"key": virtual_key(code)}
    if not isinstance(name, str) or not name or _NUMBERED.fullmatch(name):
        return {"key": _key_of_code(code, platform)}
    if name[0] == "f" and name[1:].isdecimal() and len(name) <= 3:
        return {"key": name.upper()}
    if len(name) > 1:
        return {"key": name}
    if 0 < ord(name) < _CONTROL_CHARACTERS:
        name = chr(ord(name) + ord("a") - 1)
        typed = False
    if name in _SYMBOLS:
        key = _SYMBOLS[name][system]
    elif name.upper() not in string.ascii_uppercase:
        key = f"Unknown({ord(name)})"
    elif platform == "windows":
        key = name.upper()
    else:
        key = f"Key{name.upper()}"
    return {"key": key, "actual_char": name} if typed else {"key": key}


_NUMBERED = re.compile(r"\$?Unknown \(\d+\)\$?")  # AgentNet's text for a key without a name


def _key_of_code(code: int | None, platform: str) -> str:
    """Returns the logged name for a key that pynput reports by its code only."""
    if code is None:
        return UNNAMED_SOURCE_KEY
    if platform == "windows":
        return virtual_key(code)
    unknown = f"Unknown({code})"
    if platform == "linux":
        return _KEYSYMS.get(code, unknown)
    return unknown


# The value of `actual_char` for a dead key in the log: the debug print of the Rust library rdev.
DEAD_KEY = "UnicodeInfo { name: None, unicode: [], is_dead: true }"
# Acute and diaeresis, which always come from a dead key: no keyboard types them with a single key.
_SURE_ACCENTS = frozenset("\u00b4\u00a8")
# Characters that are dead keys on some keyboards. The value is the virtual-key code of the key that
# types the character on the US keyboard, which has no dead keys.
_US_CODES = {"`": 0xC0, "~": 0xC0, "^": ord("6")}


@dataclass
class DeadKeys:
    """Computes the characters that are typed with dead keys.

    For a dead key, pynput reports the accent. For the next key, pynput reports the letter without
    the accent, except on macOS, where it reports the letter with the accent.

    Attributes:
        platform: windows, macos, linux, or empty.
    """

    platform: str
    _accent: str = ""  # the accent if the last key (ignoring modifiers) was dead, else empty
    _unknown: set[str] = field(default_factory=set)  # held keys whose character is unknown

    def pressed(self, data: dict[str, Any], accent: str = "") -> dict[str, Any]:
        """Returns the data of the log line for a press.

        Args:
            data: the data of this key alone, without regard to a preceding dead key.
            accent: the accent of a dead key; empty if the key is not dead.
        """
        if accent:
            self._accent = accent
            return {**data, "actual_char": DEAD_KEY}
        if lookup(data["key"], self.platform).modifier:
            return data
        before = self._accent
        self._accent = ""
        mark = COMBINING.get(before)
        char = data.get("actual_char") or {"Space": " "}.get(data["key"], "")
        if not before or not char:
            return data
        if mark is not None and mark in unicodedata.normalize("NFD", char):
            return data
        joined = accented(before, char, self.platform)
        if joined:
            return {**data, "actual_char": joined}
        return self.unknown(data)

    def unknown(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the data of the log line for a press whose character is unknown."""
        self._unknown.add(data["key"])
        return {"key": UNNAMED_SOURCE_KEY}

    def released(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the data of the log line for a release.

        The key has the same name as at its press, so that press and release can be paired.
        """
        if data["key"] not in self._unknown:
            return data
        self._unknown.remove(data["key"])
        return {"key": UNNAMED_SOURCE_KEY}


def dead_accent(
    char: str,
    code: int | None = None,
    following: str = "",
    following_code: int | None = None,
) -> str:
    """Returns the accent of a dead key, for recorders that do not log which keys are dead.

    Args:
        char: the character that is logged for the key.
        code: the virtual-key code on Windows, X11's keysym on Linux; None if not recorded.
        following: the character of the next press with a character; empty if there is none.
        following_code: the key code of that press; None if not recorded.

    Returns:
        The accent; empty if the key is not dead.
    """
    if char in _SURE_ACCENTS:
        return char
    if char not in COMBINING or not following:
        return ""
    parts = unicodedata.normalize("NFD", following)
    if parts[1:] == COMBINING[char] and following_code == ord(parts[0].upper()):
        return char
    if code is None or char not in _US_CODES or code in {_US_CODES[char], ord(char)}:
        return ""
    is_joined = len(unicodedata.normalize("NFC", following + COMBINING[char])) == 1
    return char if is_joined else ""
