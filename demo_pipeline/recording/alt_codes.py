"""Translates Windows Alt codes: a number typed on the keypad while Alt is held types a character.

Numbers with a leading zero belong to the Windows code page (1252 in the USA and Western Europe),
others to the console's code page (437 in the USA, 850 in Western Europe). The log does not say
which code pages the computer used.
"""

from demo_pipeline.recording.key_names import Keyboard

_CONSOLE_PAGES: tuple[str, ...] = ("cp437", "cp850")
# Windows code pages of the languages that people type with the supported keyboard layouts.
_WINDOWS_PAGES: tuple[str, ...] = (
    "cp1252",
    "cp1250",
    "cp1254",
)
_GLYPHS = "☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼"  # characters 1 to 31 of every console code page
_LAST_GLYPH = len(_GLYPHS)
_HOUSE = 127  # number of the character ⌂ in every console code page
_LARGEST = 255  # the last number of a code page; programs disagree about larger numbers
# Layouts that are usual only in countries with the code pages 850 and 1252.
_WESTERN_EUROPE = frozenset({"uk", "de", "es", "fr", "it"})


def alt_code_character(digits: str, keyboard: Keyboard) -> tuple[str, bool]:
    """Returns the character that an Alt code types, and whether the character is certain.

    The character is empty if it is unknown. It is uncertain if the possible code pages have
    different characters, or if the keyboard layout is uncertain.
    """
    number = int(digits)
    if not 0 < number <= _LARGEST:
        return "", False
    if not digits.startswith("0"):
        if number <= _LAST_GLYPH:
            return _GLYPHS[number - 1], True
        if number == _HOUSE:
            return "⌂", True
    is_western = keyboard.layout in _WESTERN_EUROPE and not keyboard.other
    if digits.startswith("0"):
        pages = _WINDOWS_PAGES[:1] if is_western else _WINDOWS_PAGES
    else:
        pages = _CONSOLE_PAGES[-1:] if is_western else _CONSOLE_PAGES
    chars = [bytes([number]).decode(page, "ignore") for page in pages]
    if not chars[0].isprintable():
        return "", False
    return chars[0], len(set(chars)) == 1 and not keyboard.other
