"""Translates the key names of other tools to the names that recorders log.

The sources are Windows' virtual-key codes and the names of Python's pynput. The results are names
of recording/key_names.py, either of Windows recorders or of all others.
"""

import re
import string
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.recording.key_names import lookup
from demo_pipeline.recording.keyboard_layouts import COMBINING, accented

UNNAMED_SOURCE_KEY = "Unknown(0)"  # in the log, for a key of which nothing is recorded
_FIRST_FUNCTION_KEY = 0x70
_FUNCTION_KEYS = 24
_KEYPAD_ZERO = 0x60
_KEYPAD_CODES = range(_KEYPAD_ZERO, _FIRST_FUNCTION_KEY)
_CONTROL_CHARACTERS = 27  # Ctrl and a letter type the characters 1 to 26

# Virtual-key codes (winuser.h) of all keys but letters, digits and function keys.
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

# pynput's name=the name on Windows=the one elsewhere, where it is another.
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

# X11's keysyms that pynput gives no name, by their numbers (keysymdef.h). The keypad's 5 is
# KP_Begin, with Num Lock on, too: pynput looks for it without Num Lock only.
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

# The characters of each printable key of a US board, its name on Windows, and the one elsewhere.
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
    """The name that Windows recorders log for a virtual-key code; `Unknown(code)` for others."""
    if chr(code & 0xFF) in string.ascii_uppercase + string.digits and code < _KEYPAD_ZERO:
        return chr(code) if code >= ord("A") else _SYMBOLS[chr(code)][0]
    if _KEYPAD_ZERO <= code < _KEYPAD_ZERO + 10:
        return f"Numpad{code - _KEYPAD_ZERO}"
    if _FIRST_FUNCTION_KEY <= code < _FIRST_FUNCTION_KEY + _FUNCTION_KEYS:
        return f"F{code - _FIRST_FUNCTION_KEY + 1}"
    return _VIRTUAL_KEYS.get(code, f"Unknown({code})")


def pynput_key(
    name: Any, platform: str, *, typed: bool = True, code: int | None = None
) -> dict[str, Any]:
    """The data of a key line for pynput's name of a key, or the character that it stands for.

    Args:
        name: such as `ctrl_l`, `f5`, `a`, `%`; anything else is an unknown key.
        platform: windows, macos or linux.
        typed: a character is what the key typed, not only its label.
        code: of the key, as pynput has it: Windows' virtual key, X11's keysym; None: not recorded.
    """
    of = 0 if platform == "windows" else 1
    if isinstance(name, str) and name in _NAMED:
        return {"key": _NAMED[name][of]}
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
    if name.upper() in string.ascii_uppercase:
        key = name.upper() if platform == "windows" else f"Key{name.upper()}"
    else:
        key = _SYMBOLS[name][of] if name in _SYMBOLS else f"Unknown({ord(name)})"
    return {"key": key, "actual_char": name} if typed else {"key": key}


_NUMBERED = re.compile(r"\$?Unknown \(\d+\)\$?")  # AgentNet's name for a key without one


def _key_of_code(code: int | None, platform: str) -> str:
    """The name in the log of a key that pynput gives neither a name nor a character."""
    if code is None:
        return UNNAMED_SOURCE_KEY
    if platform == "windows":
        return virtual_key(code)
    return _KEYSYMS.get(code, f"Unknown({code})") if platform == "linux" else f"Unknown({code})"


DEAD_KEY = "UnicodeInfo { name: None, unicode: [], is_dead: true }"  # as recorders print it
_SURE_ACCENTS = frozenset(
    "\u00b4\u00a8"
)  # acute and diaeresis: no keyboard has a key that types one of them alone
# The virtual keys that have these characters on the US keyboard, where they are not dead.
_US_CODES = {"`": 0xC0, "~": 0xC0, "^": ord("6")}


@dataclass
class DeadKeys:
    """Joins dead keys with the keys after them, for recorders that log the keyboard's characters.

    pynput gives a dead key its accent and the next key the letter without it. macOS gives the
    letter with the accent.

    Attributes:
        platform: windows, macos or linux.
    """

    platform: str
    _accent: str = ""
    _unknown: set[str] = field(default_factory=set)  # keys whose character is not known, held

    def pressed(self, data: dict[str, Any], accent: str = "") -> dict[str, Any]:
        """The data of the line for a press; `accent`: of a dead key, empty for other keys."""
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
        """The data of the line for the press of a key that typed a character that is not known."""
        self._unknown.add(data["key"])
        return {"key": UNNAMED_SOURCE_KEY}

    def released(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of the line for a release, which has the name that its press got."""
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
    """The accent of a character that a dead key had; empty: the key typed the character.

    For recorders that do not say which keys are dead.

    Args:
        char: of the key.
        code: of the key, Windows' virtual key or X11's keysym; None: not recorded.
        following: the character of the next key that has one; empty: no key does.
        following_code: its code.
    """
    if char in _SURE_ACCENTS:
        return char
    if char not in COMBINING or not following:
        return ""
    parts = unicodedata.normalize("NFD", following)
    if parts[1:] == COMBINING[char] and following_code == ord(parts[0].upper()):
        return char
    is_plain = code is None or char not in _US_CODES or code in {_US_CODES[char], ord(char)}
    joins = len(unicodedata.normalize("NFC", following + COMBINING[char])) == 1
    return char if joins and not is_plain else ""
