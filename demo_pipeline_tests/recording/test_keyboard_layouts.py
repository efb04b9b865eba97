"""Tests of countries' keyboard layouts: the characters of keys, and the accents of dead keys."""

# ruff: noqa: RUF001 - the tests contain other scripts on purpose

import pytest

from demo_pipeline.recording.key_names import lookup
from demo_pipeline.recording.keyboard_layouts import accented, is_dead

PLATFORMS = ("windows", "macos", "linux", "")
LETTER_NAMES = [f"Key{letter}" for letter in "QWERTYUIOPASDFGHJKLZXCVBNM"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_russian_keyboard_types_cyrillic_letters(platform):
    keys = [lookup(name, platform, "ru") for name in LETTER_NAMES]
    assert "".join(key.char for key in keys) == "йцукенгшщзфывапролдячсмить"
    assert "".join(key.shifted for key in keys) == "ЙЦУКЕНГШЩЗФЫВАПРОЛДЯЧСМИТЬ"


def test_a_windows_recorder_names_the_russian_keys_by_their_latin_letters():
    keys = [lookup(name, "windows", "ru") for name in "GHBDTN"]
    assert "".join(key.char for key in keys) == "привет"
    assert lookup("SemiColon", "windows", "ru").char == "ж"
    assert lookup("FullStop", "windows", "ru").char == "ю"
    assert lookup("ForwardSlash", "windows", "ru").char == "."


@pytest.mark.parametrize(("raw", "name"), [("KeyC", "c"), ("SemiColon", ";"), ("Num4", "4")])
def test_hotkeys_on_the_russian_keyboard_have_latin_names(raw, name):
    assert lookup(raw, "linux", "ru").name == name


@pytest.mark.parametrize(
    ("platform", "shifted_digits", "slash", "backslash"),
    [
        ("windows", '!"№;%:?*()', ".,", "\\/"),
        ("linux", '!"№;%:?*()', ".,", "\\/"),
        ("macos", '!"№%:,.;()', "/?", "ёЁ"),
    ],
)
def test_the_russian_keyboard_of_each_platform(platform, shifted_digits, slash, backslash):
    digits = [lookup(f"Num{digit}", platform, "ru") for digit in (1, 2, 3, 4, 5, 6, 7, 8, 9, 0)]
    assert "".join(key.shifted for key in digits) == shifted_digits
    key = lookup("Slash", platform, "ru")
    assert key.char + key.shifted == slash
    key = lookup("BackSlash", platform, "ru")
    assert key.char + key.shifted == backslash


@pytest.mark.parametrize("platform", PLATFORMS)
def test_us_international_has_the_us_characters(platform):
    names = [*LETTER_NAMES, "Quote", "BackQuote", "Num6", "BackSlash", "Slash", "Minus", "Equal"]
    for name in names:
        us = lookup(name, platform, "us")
        international = lookup(name, platform, "us-intl")
        assert (international.char, international.shifted) == (us.char, us.shifted)


@pytest.mark.parametrize("name", ["Apostrophe", "BackTick", "LeftSquareBracket", "FullStop"])
def test_us_international_has_the_us_names_of_windows_recorders(name):
    assert lookup(name, "windows", "us-intl").char == lookup(name, "windows", "us").char


@pytest.mark.parametrize(
    ("platform", "name", "altgr", "both"),
    [
        ("windows", "KeyQ", "ä", "Ä"),
        ("windows", "Num5", "€", ""),
        ("windows", "Apostrophe", "´", "¨"),
        ("linux", "Quote", "'", '"'),
        ("linux", "BackQuote", "`", "~"),
        ("linux", "KeyK", "œ", "Œ"),
        ("windows", "KeyK", "", ""),
    ],
)
def test_us_international_with_altgr(platform, name, altgr, both):
    key = lookup(name, platform, "us-intl")
    assert (key.altgr, key.both) == (altgr, both)


@pytest.mark.parametrize("char", list("'\"`~^"))
def test_dead_keys_of_us_international(char):
    assert is_dead("us-intl", char, altgr=False)
    assert not is_dead("us-intl", char, altgr=True)
    assert not is_dead("us", char, altgr=False)


@pytest.mark.parametrize(
    ("accent", "char", "windows", "linux"),
    [
        ("'", "e", "é", "é"),
        ('"', "i", "ï", "ï"),
        ("~", "n", "ñ", "ñ"),
        ("'", " ", "'", "'"),
        ('"', " ", '"', '"'),
        ("´", " ", "´", "'"),
        ("'", "s", "'s", "ś"),
        ("'", "t", "'t", ""),
        ("'", "c", "ç", ""),
        ("´", "n", "´n", "ń"),
        ("^", "x", "^x", ""),
        ("^", "^", "^^", "^"),
    ],
)
def test_a_dead_key_and_the_key_after_it(accent, char, windows, linux):
    """The source for Linux is libX11's Compose file for en_US.UTF-8.

    The result is unknown for pairs that are not in the file.
    """
    assert accented(accent, char, "windows") == windows
    assert accented(accent, char, "linux") == linux
