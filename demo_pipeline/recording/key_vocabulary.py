"""The vocabularies of key names: whose they are, and which names may be shown to people.

A key name in a log may be anything, also typed text. Belongs here: recognising names that are not.
What a name means is in key_names.py.
"""

import re
import string
from collections.abc import Iterable

from demo_pipeline.formats.demonstration.event_types import shape_of
from demo_pipeline.recording.key_names import DIGIT_WORDS, lookup, output_key_names

# How recorders name a key or button without a name of its own: by a number.
_NUMBERED = re.compile(
    r"(?:Unknown|RawKey|Key|Button|Other)\((?:\d{1,10}|[A-Z][A-Za-z]{2,20}\(\d{1,10}\))\)", re.ASCII
)
# Names that only recorders on Windows log (the multiinput library), and only others (rdev).
_ONLY_WINDOWS = frozenset(
    {
        *string.ascii_uppercase,
        *DIGIT_WORDS,
        *{"LeftCtrl", "RightCtrl", "LeftAlt", "RightAlt", "Numlock", "Left", "Right", "Up", "Down"},
        *{"Add", "Subtract", "Multiply", "Divide", "Decimal", "Separator", "BackTick", "Hash"},
        *{"ForwardSlash", "Plus", "FullStop", "LeftSquareBracket", "RightSquareBracket"},
        "Apostrophe",
    }
)
_ONLY_RDEV = frozenset(
    {
        *(f"Key{letter}" for letter in string.ascii_uppercase),
        *(f"Num{digit}" for digit in range(10)),
        *(f"Kp{digit}" for digit in range(10)),
        *{"Alt", "AltGr", "ControlLeft", "ControlRight", "ShiftLeft", "ShiftRight", "MetaLeft"},
        *{"MetaRight", "Function", "NumLock", "LeftArrow", "RightArrow", "UpArrow", "DownArrow"},
        *{"BackQuote", "Equal", "LeftBracket", "RightBracket", "Quote", "Dot", "Slash"},
    }
)
# Names that recorders' libraries have for keys and buttons that this module gives no meaning.
_UNUSED_NAMES = frozenset(
    {
        *{"BrowserBack", "BrowserFavorites", "BrowserForward", "BrowserHome", "BrowserRefresh"},
        *{"BrowserSearch", "BrowserStop", "LaunchApp1", "LaunchApp2", "LaunchMail"},
        *{"LaunchMediaSelect", "MediaNextTrack", "MediaPlayPause", "MediaPreviousTrack"},
        *{"MediaStop", "Eject", "Power", "Sleep", "WakeUp", "FnLock", "Zoom"},
        *{"Convert", "NonConvert", "ModeChange", "Hangul", "Hanja", "Junja", "Kana", "Kanji"},
        *{"Lang1", "Lang2", "Lang3", "Lang4", "Lang5"},
        *{"Back", "Forward", "Side", "Extra", "X1", "X2", "XButton1", "XButton2"},
    }
)


def platform_of_keys(names: Iterable[str]) -> str:
    """The platform whose recorder logs these names; empty unless they leave no doubt.

    Recorders on Windows use names of their own. Those of macOS and Linux share one library; only a
    Mac has the key `Function`.
    """
    seen = set(names)
    windows, rdev = seen & _ONLY_WINDOWS, seen & _ONLY_RDEV
    if windows and not rdev:
        return "windows"
    return "macos" if "Function" in rdev and not windows else ""


def public_name(raw: str, kind: str = "key") -> str:
    """The logged name of an unknown key or button (`kind`), if it is in a known vocabulary.

    Otherwise only its length: it might be what somebody typed.
    """
    if raw in _UNUSED_NAMES or lookup(raw).known or _NUMBERED.fullmatch(raw):
        return raw
    return shape_of(kind, raw)


def public_key(name: str) -> str:
    """The name of a hotkey's key as logs and metadata may show it: of a table, or one character."""
    return name if len(name) <= 1 or name in output_key_names() else shape_of("key", name)
