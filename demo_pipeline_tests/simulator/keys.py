"""Finds the keys that type a character, and the names that each platform's recorder logs."""

from dataclasses import dataclass
from random import Random
from typing import Literal

Platform = Literal["windows", "macos", "linux"]

_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_SHIFTED_DIGITS = ")!@#$%^&*("
# Keys of the US layout: character, character with Shift, name on Windows, name in rdev.
_SYMBOLS = (
    ("`", "~", "BackTick", "BackQuote"),
    ("-", "_", "Minus", "Minus"),
    ("=", "+", "Plus", "Equal"),
    ("[", "{", "LeftSquareBracket", "LeftBracket"),
    ("]", "}", "RightSquareBracket", "RightBracket"),
    ("\\", "|", "BackSlash", "BackSlash"),
    (";", ":", "SemiColon", "SemiColon"),
    ("'", '"', "Apostrophe", "Quote"),
    (",", "<", "Comma", "Comma"),
    (".", ">", "FullStop", "Dot"),
    ("/", "?", "ForwardSlash", "Slash"),
)
# Canonical name, name on Windows, name in rdev. Windows has no name for `command`, and some Windows
# recorders do not log the Windows key.
_NAMED = (
    ("ctrl", "LeftCtrl", "ControlLeft"),
    ("shift", "Shift", "ShiftLeft"),
    ("alt", "LeftAlt", "Alt"),
    ("win", "LeftWindows", "MetaLeft"),
    ("command", "", "MetaLeft"),
    ("enter", "Return", "Return"),
    ("esc", "Escape", "Escape"),
    ("tab", "Tab", "Tab"),
    ("backspace", "Backspace", "Backspace"),
    ("delete", "Delete", "Delete"),
    ("space", "Space", "Space"),
    ("up", "Up", "UpArrow"),
    ("down", "Down", "DownArrow"),
    ("left", "Left", "LeftArrow"),
    ("right", "Right", "RightArrow"),
    ("home", "Home", "Home"),
    ("end", "End", "End"),
    ("pageup", "PageUp", "PageUp"),
    ("pagedown", "PageDown", "PageDown"),
)
_CONTROL = {" ": "space", "\b": "backspace", "\t": "tab", "\n": "enter"}


def key_name(canonical: str, platform: Platform) -> str:
    """Returns the name that recorders log for a key (`ctrl`, `enter`, `a`, `7`, `-`, `f5`).

    Raises:
        ValueError: the platform's recorder has no name for the key.
    """
    for name, windows, rdev in _NAMED:
        if name == canonical:
            if platform == "windows" and not windows:
                raise ValueError(f"Windows logs have no name for {canonical!r}")
            return windows if platform == "windows" else rdev
    if len(canonical) > 1 and canonical[0] == "f" and canonical[1:].isdigit():
        return canonical.upper()
    return stroke(canonical, platform)[0]


def stroke(character: str, platform: Platform) -> tuple[str, bool]:
    """Returns the logged name of the key that types a character, and whether Shift is held.

    Raises:
        ValueError: the keyboard has no such character.
    """
    windows = platform == "windows"
    if character in _CONTROL:
        return key_name(_CONTROL[character], platform), False
    if character.isascii() and character.isalpha():
        upper = character.upper()
        return (upper if windows else f"Key{upper}"), character == upper
    shifted = character in _SHIFTED_DIGITS
    if shifted or (character.isascii() and character.isdigit()):
        digit = _SHIFTED_DIGITS.index(character) if shifted else int(character)
        return (_DIGITS[digit] if windows else f"Num{digit}"), shifted
    for plain, upper, windows_name, rdev in _SYMBOLS:
        if character in {plain, upper}:
            return (windows_name if windows else rdev), character == upper
    raise ValueError(f"the keyboard has no {character!r}")


@dataclass(frozen=True, slots=True)
class Stroke:
    """A key event. `character` is set only if the event is the press that types the character."""

    ms: int
    event: Literal["keydown", "keyup"]
    key: str
    character: str = ""


def keystrokes(text: str, platform: Platform, random: Random, start_ms: int) -> list[Stroke]:
    """Returns the key events that type a text at human pace, in time order.

    A key is sometimes still down when the next one is pressed. Shift is released after each key.
    """
    shift_key = key_name("shift", platform)
    now = start_ms
    held_until = start_ms
    strokes: list[Stroke] = []
    for index, character in enumerate(text):
        key, shift = stroke(character, platform)
        if shift:
            now = max(now, held_until + 8)
            strokes.append(Stroke(now, "keydown", shift_key))
            now += random.randint(35, 70)
        strokes.append(Stroke(now, "keydown", key, character))
        gap = random.randint(85, 190)
        hold = random.randint(50, 80)
        follower = text[index + 1 : index + 2]
        rolls = follower and not shift and stroke(follower, platform)[0] != key
        if rolls and random.random() < 0.25:
            hold = gap + random.randint(8, 35)
        held_until = now + hold
        strokes.append(Stroke(held_until, "keyup", key))
        if shift:
            held_until += random.randint(4, 18)
            strokes.append(Stroke(held_until, "keyup", shift_key))
        now += max(gap, held_until + 5 - now) if shift else gap
    return sorted(strokes, key=lambda item: item.ms)
