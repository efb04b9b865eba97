"""Key names of other tools, as the names that recorders log.

Belongs here: Windows' virtual-key codes, the names of Python's pynput, and the two vocabularies of
recording/key_names.py that they become: that of Windows recorders, and that of all others.
"""

import string
from typing import Any

_FIRST_FUNCTION_KEY, _FUNCTION_KEYS = 0x70, 24
_KEYPAD_ZERO = 0x60
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


def pynput_key(name: Any, platform: str, *, typed: bool = True) -> dict[str, Any]:
    """The data of a key line for pynput's name of a key, or the character that it stands for.

    Args:
        name: such as `ctrl_l`, `f5`, `a`, `%`; anything else is an unknown key.
        platform: windows, macos or linux.
        typed: a character is what the key typed, not only its label.
    """
    if not isinstance(name, str) or not name:
        return {"key": "Unknown(0)"}
    of = 0 if platform == "windows" else 1
    if name in _NAMED:
        return {"key": _NAMED[name][of]}
    if name[0] == "f" and name[1:].isdecimal() and len(name) <= 3:
        return {"key": name.upper()}
    if len(name) > 1:
        return {"key": name}
    if 0 < ord(name) < _CONTROL_CHARACTERS:
        name, typed = chr(ord(name) + ord("a") - 1), False
    if name.upper() in string.ascii_uppercase:
        key = name.upper() if platform == "windows" else f"Key{name.upper()}"
    else:
        key = _SYMBOLS[name][of] if name in _SYMBOLS else f"Unknown({ord(name)})"
    return {"key": key, "actual_char": name} if typed else {"key": key}
