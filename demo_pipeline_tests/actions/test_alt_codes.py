"""Tests Alt codes on Windows, the keypad, and AltGr if only the logged character reveals it."""

import pytest

from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    chord,
    down,
    summaries,
    tap,
    typed,
    up,
)


def alt_code(time: int, digits: str, alt: str = "LeftAlt") -> list[Line]:
    """Returns the lines of digits pressed on the keypad while Alt is held."""
    lines = [down(time, alt)]
    for number, digit in enumerate(digits, 1):
        lines += tap(time + 100 * number, f"Numpad{digit}")
    return [*lines, up(time + 100 + 100 * len(digits), alt)]


@pytest.mark.parametrize(
    ("digits", "locale", "char", "is_sure"),
    [
        ("0233", "en-US", "é", True),
        ("0233", "de-DE", "é", True),
        ("0241", "de-DE", "ñ", True),
        ("0241", "en-US", "ñ", False),  # code page 1250 has another letter there
        ("130", "en-US", "é", True),
        ("155", "en-US", "¢", False),  # code page 850 has another letter there
        ("155", "en-GB", "ø", True),
        ("1", "en-US", "☺", True),
        ("0128", "en-US", "€", True),
        ("0233", "ru-RU", "é", False),
    ],
)
def test_keypad_digits_typed_with_alt_are_one_character(digits, locale, char, is_sure):
    lines = [*typed(0, "C", "A", "F"), *alt_code(600, digits), *typed(1600, "Space")]
    [action] = actions(lines, platform="windows", locale=locale)
    assert action.text == f"caf{char} "
    assert is_sure == ("doubtful_text" not in action.flags)
    assert len(action.events) == len(lines)


def test_a_number_that_no_code_page_has_makes_the_text_doubtful():
    lines = [*typed(0, "A"), *alt_code(400, "8364"), *typed(1400, "B")]
    grouped = actions(lines, platform="windows")
    assert [action.text for action in grouped] == ["a", "b"]
    assert all("doubtful_text" in action.flags for action in grouped)


def test_a_digit_that_is_released_after_alt_belongs_to_the_character():
    lines = [down(0, "LeftAlt"), *tap(50, "Numpad1"), down(200, "Numpad3"), *tap(300, "Numpad0")]
    lines += [up(420, "LeftAlt"), up(440, "Numpad3")]
    lines.sort(key=lambda line: line["time"])
    [action] = actions(lines, platform="windows")
    assert (action.text, action.events) == ("é", list(range(1, 9)))


@pytest.mark.parametrize(
    ("lines", "platform"),
    [
        (alt_code(0, "2"), "linux"),
        (chord(0, "LeftAlt", "Two"), "windows"),
        (chord(0, "LeftCtrl", "LeftAlt", "Numpad2"), "windows"),
    ],
)
def test_other_digits_typed_with_alt_are_hotkeys(lines, platform):
    assert summaries(lines, platform=platform)[0].endswith("alt+2")


def test_a_hotkey_while_alt_is_still_held_is_no_alt_code():
    lines = [down(0, "LeftAlt"), *tap(50, "Numpad2"), *tap(200, "Tab"), up(400, "LeftAlt")]
    assert summaries(lines, platform="windows") == ["alt+2", "alt+tab"]


def altgr(time: int, key: str, char: str, gap: int = 7, alt: str = "RightAlt") -> list[Line]:
    """Returns the lines of a key press with LeftCtrl and an Alt key held.

    Alt is pressed `gap` ms after Ctrl.
    """
    return [
        down(time, "LeftCtrl"),
        down(time + gap, alt),
        *tap(time + 90, key, char),
        up(time + 200, "LeftCtrl"),
        up(time + 200 + gap, alt),
    ]


@pytest.mark.parametrize("alt", ["RightAlt", "LeftAlt"])
def test_a_logged_character_decides_over_ctrl_and_alt(alt):
    """AltGr is logged as LeftCtrl and RightAlt. LeftCtrl and LeftAlt type the same characters."""
    lines = [*typed(0, "A"), *altgr(400, "Two", "@", alt=alt), *typed(900, "B")]
    assert summaries(lines, platform="windows") == ["type a@b"]


@pytest.mark.parametrize(("char", "platform"), [("", "windows"), ("2", "windows"), ("@", "linux")])
def test_without_a_character_of_altgr_it_is_a_hotkey(char, platform):
    lines = altgr(400, "Two", char, alt="LeftAlt")
    assert summaries(lines, platform=platform) == ["ctrl+alt+2"]


@pytest.mark.parametrize(("locale", "text"), [("en-US", "12.5"), ("de-DE", "12,5")])
def test_the_decimal_key_of_the_keypad_depends_on_the_layout(locale, text):
    keys = typed(0, "Kp1", "Kp2", "KpDelete", "Kp5")
    assert summaries(keys, platform="linux", locale=locale) == [f"type {text}"]


def test_the_decimal_key_of_the_keypad_deletes_without_num_lock():
    lines = [*tap(0, "NumLock"), *tap(200, "KpDelete")]
    assert summaries(lines, platform="linux") == ["delete"]


@pytest.mark.parametrize(("locale", "is_sure"), [("en-US", True), ("sv-SE", False), ("", False)])
def test_the_decimal_key_of_the_keypad_is_doubtful_in_an_unknown_layout(locale, is_sure):
    [keypad] = actions(typed(0, "Kp1", "KpDelete"), platform="linux", locale=locale)
    [other] = actions(typed(0, "Num1", "Dot"), platform="linux", locale=locale)
    assert (keypad.text, "doubtful_text" not in keypad.flags) == ("1.", is_sure)
    assert "doubtful_text" not in other.flags
