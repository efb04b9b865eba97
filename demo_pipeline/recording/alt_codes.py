"""Alt codes of Windows: a character by its number, typed on the keypad while Alt is held.

Without a leading zero the number counts in the code page of the console (437 in the USA, 850 in
Western Europe), with one in that of Windows (1252 there). The log has neither.
"""

from demo_pipeline.recording.key_names import Keyboard

_CONSOLE_PAGES: tuple[str, ...] = ("cp437", "cp850")
_WINDOWS_PAGES: tuple[str, ...] = (
    "cp1252",
    "cp1250",
    "cp1254",
)  # of languages that are typed on these keyboards
_GLYPHS = "☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼"  # 1 to 31 of the console's pages
_LAST_GLYPH = len(_GLYPHS)
_HOUSE = 127
_LARGEST = 255  # of a page; for larger numbers, programs differ
# Layouts that are usual only where the code pages are 850 and 1252.
_WESTERN_EUROPE = frozenset({"uk", "de", "es", "fr", "it"})


def alt_code_character(digits: str, keyboard: Keyboard) -> tuple[str, bool]:
    """The character, empty where none is known; and whether it is sure which one it is."""
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
