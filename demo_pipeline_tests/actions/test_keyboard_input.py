"""Typing in logs of newer recorders: formats of characters, dead keys, and unknown input."""

import json
from pathlib import Path

import pytest

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.actions.text_evidence import typing_language
from demo_pipeline.actions.typed_text import check_keyboard_layout, check_known_input
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.key_names import layout_of_locale
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    chord,
    click,
    down,
    lift,
    press,
    read,
    summaries,
    tap,
    text_of,
    typed,
    up,
    wheel,
)
from demo_pipeline_tests.recording.test_typed_characters import debug_print, rust_escaped, utf16


def printed(char: str, *, dead: bool = False) -> str:
    return debug_print(rust_escaped(char), utf16(char), dead=dead)


ACUTE = printed("\u00b4", dead=True)  # dead key of the acute accent

FORMS = {
    "character": lambda char: char,
    "print": printed,
    "option": lambda char: f"Some({printed(char)})",
    "object": lambda char: json.dumps({"name": char, "unicode": utf16(char), "is_dead": False}),
    "absent": lambda _: "",
    "unreadable": lambda char: printed(char)[:-3],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_text(form):
    keys = [("KeyC", "c"), ("KeyA", "a"), ("Space", " "), ("Quote", "'"), ("BackSlash", "\\")]
    lines = [tap(120 * n, key, FORMS[form](char)) for n, (key, char) in enumerate(keys)]
    assert summaries(*lines) == ["type ca '\\"]


def test_a_composed_character_includes_its_dead_key():
    accent = tap(0, "BackQuote", printed("`", dead=True))
    [action] = actions(tap(900, "KeyX", "x"), accent, tap(200, "KeyE", printed("è")))
    assert (action.text, action.flags, action.events) == ("èx", [], [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([tap(0, "KeyA", "a"), tap(200, "Quote", ACUTE), tap(400, "KeyE", "é"),
          tap(600, "Backspace")], ["type a"]),
        ([tap(0, "KeyA", "a"), tap(200, "Quote", ACUTE), tap(400, "Backspace"),
          tap(600, "KeyB", "b")], ["type ab"]),
        ([tap(0, "Quote", ACUTE), tap(200, "KeyS", "\u00b4s"), tap(400, "Backspace")],
         ["type \u00b4"]),
        ([tap(0, "Quote", ACUTE), click(300)], ["click left 1"]),
        ([down(0, "ControlLeft"), tap(50, "Quote", ACUTE),
          up(300, "ControlLeft")], ["ctrl+'"]),
    ],
    ids=["erased", "cancelled", "two characters", "alone", "in a shortcut"],
)  # fmt: skip
def test_dead_keys(lines, expected):
    assert summaries(*lines) == expected


def test_a_dead_key_alone_is_accounted_for():
    segmentation, _ = read(tap(0, "Quote", ACUTE), click(300))
    assert segmentation.reasons == {1: "dead_key", 2: "dead_key"}


def test_option_and_a_dead_key_compose_on_macos():
    lines = [down(0, "Alt"), tap(50, "KeyE", ACUTE), up(200, "Alt")]
    assert summaries(*lines, tap(300, "KeyE", "é"), platform="macos") == ["type é"]


# --- unknown keys and buttons


def test_typing_is_split_at_an_unknown_key_and_flagged():
    segmentation, _ = read(typed(0, "KeyC", "KeyA"), tap(300, "Unknown(95)"), typed(500, "KeyB"))
    assert [(a.text, a.flags) for a in segmentation.actions] == [
        ("ca", ["doubtful_text", "unknown_input"]),
        ("b", ["doubtful_text", "unknown_input"]),
    ]


def test_an_unknown_key_makes_no_other_typing_doubtful():
    lines = [*typed(0, "KeyC"), *tap(300, "Return"), *typed(600, "KeyA"), *tap(900, "Unknown(95)")]
    lines += [*click(2000), *typed(4000, "KeyB")]
    texts = [action for action in actions(lines) if action.action_type == "type"]
    assert [(a.text, "doubtful_text" in a.flags) for a in texts] == [
        ("c", False),
        ("a", True),
        ("b", False),
    ]


def test_a_key_that_types_nothing_leaves_the_text_certain():
    grouped = actions(typed(0, "KeyC"), tap(300, "BrowserBack"), typed(500, "KeyB"))
    assert not any("doubtful_text" in action.flags for action in grouped)


def test_a_backspace_after_an_unknown_key_is_a_key_of_its_own():
    lines = [tap(0, "KeyA"), tap(200, "Unknown(95)"), tap(400, "Backspace"), tap(600, "KeyB")]
    assert summaries(*lines) == ["type a", "backspace", "type b"]


def test_an_unknown_button_splits_typing():
    side = [press(200, 5, 5, "Unknown(8)"), lift(260, 5, 5, "Unknown(8)")]
    segmentation, _ = read(tap(0, "KeyA"), side, tap(400, "KeyB"))
    assert [(a.text, a.flags) for a in segmentation.actions] == [
        ("a", ["unknown_input"]),
        ("b", ["unknown_input"]),
    ]
    assert segmentation.reasons == {3: "other_button", 4: "other_button"}


def test_an_unknown_key_far_from_typing_flags_nothing():
    lines = [tap(0, "KeyA"), click(200), tap(400, "Unknown(95)"), click(900), tap(1800, "KeyB")]
    assert [a.flags for a in actions(*lines)] == [[], [], [], []]


def test_an_unknown_character_splits_typing_unless_it_was_erased():
    euro = chord(200, "AltGr", "KeyE")
    segmentation, _ = read(tap(0, "KeyA"), euro, tap(600, "KeyB"))
    assert [a.text for a in segmentation.actions] == ["a", "b"]
    assert all("unknown_input" in a.flags for a in segmentation.actions)
    assert segmentation.reasons == dict.fromkeys([3, 4, 5, 6], "unknown_character")
    assert summaries(tap(0, "KeyA"), euro, tap(600, "Backspace"), tap(900, "KeyB")) == ["type ab"]


def half(time: int, char: str, key: str = "Unknown(231)") -> list[Line]:
    """Returns the lines of a key that typed half of an emoji: one UTF-16 unit, as on Windows."""
    return tap(time, key, char, hold=4)


def test_the_halves_of_an_emoji_are_one_character():
    smile = [*half(200, "\ud83d"), *half(210, "\ude00")]
    segmentation, repairs = read(tap(0, "KeyA"), smile, tap(400, "KeyB"))
    assert [(a.text, a.flags) for a in segmentation.actions] == [("a😀b", [])]
    assert repairs.dropped == {5: "second_half"}
    names = [*half(200, "\ud83d", "KeyX"), *half(210, "\ude00", "KeyY")]
    assert summaries(tap(0, "KeyA"), names, tap(400, "Backspace")) == ["type a"]
    rdev = [debug_print("", [unit]) for unit in utf16("👍")]
    assert summaries(*(half(10 * n, unit) for n, unit in enumerate(rdev))) == ["type 👍"]
    many = (half(9 * n, chr(unit)) for n, unit in enumerate(utf16("😀👍🏽👍")))
    assert summaries(*many) == ["type 😀👍🏽👍"]


@pytest.mark.parametrize("code", [0xD83D, 0xDE00])
def test_a_lone_half_splits_typing_and_is_reported(code, tmp_path):
    lone = (half(200, chr(code), "KeyX"), half(600, chr(code)))
    lines = [*tap(0, "KeyA"), *lone[0], *tap(400, "KeyB"), *lone[1]]
    grouped = actions(*lines)
    assert [action.text for action in grouped] == ["a", "b"]
    assert all({"doubtful_text", "unknown_input"} <= set(action.flags) for action in grouped)
    built(tmp_path, lines)
    [problem] = check_known_input(tmp_path, tmp_path)
    assert (problem.code, problem.line) == ("unknown_character", 3)
    assert problem.message.startswith("half of an emoji, pressed 2 times")
    assert check_keyboard_layout(tmp_path)


# --- runs of a navigation key


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([50] * 6, ["down x7"]),
        ([399, 399], ["down x3"]),
        ([200, 400, 200], ["down x2", "down x2"]),
        ([1500], ["down", "down"]),
    ],
)
def test_quick_taps_of_a_navigation_key_are_one_action(gaps, expected):
    times = [sum(gaps[:n]) for n in range(len(gaps) + 1)]
    assert summaries(*(tap(time, "DownArrow", hold=20) for time in times)) == expected


@pytest.mark.parametrize(
    "key", ["UpArrow", "LeftArrow", "PageDown", "PageUp", "Home", "End", "Tab", "Delete",
            "Backspace", "RightArrow"]
)  # fmt: skip
def test_held_and_tapped_navigation_keys(key):
    held = [down(0, key), *(down(500 + 30 * n, key) for n in range(4)), up(700, key)]
    tapped = [tap(800 + 100 * n, key, hold=40) for n in range(2)]
    [action] = actions(held, *tapped)
    assert (action.presses, len(action.events), action.end_ms) == (7, 10, 940)


def test_a_long_hold_before_auto_repeat_does_not_divide_the_action():
    lines = [down(0, "DownArrow"), down(1000, "DownArrow"), up(1100, "DownArrow")]
    assert summaries(*lines) == ["down x2"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([tap(0, "DownArrow"), tap(200, "UpArrow"), tap(400, "DownArrow")], ["down", "up", "down"]),
        ([tap(0, "LeftArrow"), chord(100, "ShiftLeft", "LeftArrow")], ["left", "shift+left"]),
        ([down(0, "ControlLeft"), tap(40, "RightArrow"), tap(200, "RightArrow"),
          up(400, "ControlLeft")], ["ctrl+right x2"]),
        ([tap(0, "Return", hold=30), tap(100, "Return", hold=30)], ["enter", "enter"]),
        ([chord(0, "ControlLeft", "KeyZ"), chord(250, "ControlLeft", "KeyZ")],
         ["ctrl+z", "ctrl+z"]),
        ([tap(0, "DownArrow", hold=30), tap(100, "Unknown(3)", hold=30), tap(200, "DownArrow")],
         ["down", "down"]),
        ([tap(0, "DownArrow", hold=30), wheel(100, 120), tap(200, "DownArrow")],
         ["down", "scroll down 1", "down"]),
        ([tap(0, "DownArrow"), tap(401, "DownArrow")], ["down", "down"]),
        ([typed(0, "KeyA"), *(tap(200 + 100 * n, "Backspace", hold=30) for n in range(3))],
         ["backspace x2"]),
    ],
)  # fmt: skip
def test_what_makes_a_run(lines, expected):
    assert summaries(*lines) == expected


def test_only_hotkeys_have_presses():
    grouped = actions(click(0), tap(900, "Return"), tap(1200, "KeyA"))
    assert [action.presses for action in grouped] == [None, 1, None]


# --- checks


def built(
    folder: Path,
    lines: list[Line],
    platform: str = "linux",
    locale: str = "en-US",
    setting: str = "auto",
) -> dict[str, object]:
    (folder / "input_log.jsonl").write_bytes(text_of(lines))
    build_events(folder / "input_log.jsonl", folder)
    language = typing_language(setting, layout_of_locale(locale), locale)
    return build_actions(folder, folder, platform, ActionSettings(), language=language)


def test_unknown_input_is_a_warning_without_what_was_typed(tmp_path):
    lines = [*tap(0, "KeyA"), *tap(200, "Unknown(95)"), *tap(400, "hunter2"), *tap(600, "hunter2")]
    lines += [press(900, 5, 5, "Unknown(8)"), lift(960, 5, 5, "Unknown(8)")]
    lines += chord(1200, "AltGr", "KeyE")
    built(tmp_path, lines)
    problems = check_known_input(tmp_path, tmp_path)
    assert [(p.code, p.line, p.message.partition(":")[0]) for p in problems] == [
        ("unknown_key", 3, "Unknown(95), pressed once"),
        ("unknown_key", 5, "unknown key, 7 characters, pressed 2 times"),
        ("other_button", 9, "Unknown(8), pressed once"),
        ("unknown_character", 12, "a key with an unknown character, pressed once"),
    ]
    assert all(problem.remedy for problem in problems)
    assert "hunter" not in repr(problems)


_AT = {  # locale → key presses, and the text that they type on Windows
    "en-GB": ([("A",), ("Shift", "Two"), ("Shift", "Three"), ("Shift", "Apostrophe")], 'a"£@'),
    "de-DE": ([("Shift", "Eight"), ("LeftCtrl", "RightAlt", "Q"), ("Shift", "Zero")], "(@="),
    "fr-FR": ([("Two",), ("Shift", "Two"), ("RightAlt", "Zero"), ("M",)], "é2@m"),
    "es-ES": ([("Apostrophe",), ("RightAlt", "Two"), ("Shift", "Seven")], "ñ@/"),
    "it": ([("SemiColon",), ("RightAlt", "Apostrophe"), ("Shift", "RightAlt", "SemiColon")], "è@{"),
}


@pytest.mark.parametrize("locale", _AT)
def test_text_is_that_of_the_locales_keyboard(locale):
    keys, text = _AT[locale]
    lines = [chord(1000 * n, *key) for n, key in enumerate(keys)]
    for presses in lines:
        for line in presses:
            is_altgr_press = line["event"] == "keydown" and line["data"]["key"] == "RightAlt"
            if is_altgr_press and locale == "de-DE":
                line["time"] -= 48
    [action] = actions(*lines, platform="windows", locale=locale)
    assert (action.text, action.flags) == (text, [])


@pytest.mark.parametrize(
    ("locale", "keys", "text"),
    [
        ("de-DE", ["Equal", "KeyE"], "é"),
        ("de-DE", ["BackQuote", "BackQuote"], "^"),
        ("de-DE", ["BackQuote", "Space"], "^"),
        ("de-DE", ["Equal", "Backspace", "KeyE"], "e"),
        ("de-DE", ["KeyY", "KeyZ", "LeftBracket"], "zyü"),
        ("fr", ["LeftBracket", "KeyO", "KeyQ"], "ôa"),
        ("es-ES", ["Quote", "KeyA", "SemiColon"], "áñ"),
    ],
)
def test_keys_are_named_by_their_place_and_accents_join(locale, keys, text):
    [action] = actions(typed(0, *keys), platform="linux", locale=locale)
    assert action.text == text


@pytest.mark.parametrize(
    ("locale", "setting", "keys", "doubtful"),
    [
        ("en-US", "auto", ["Quote"], False),
        ("", "auto", ["Quote"], True),
        ("", "auto", ["KeyA", "Num2", "Comma", "Space"], False),
        ("", "us", ["Quote"], False),
        ("en", "auto", ["Quote"], True),
        ("sv-SE", "auto", ["Quote"], True),
        ("sv-SE", "auto", ["Quote", "Backspace", "KeyA"], False),
        ("es-MX", "auto", ["Quote"], True),
        ("ru-RU", "auto", ["KeyA"], True),
        ("zh-CN", "auto", ["Quote"], False),
        ("de_DE.UTF-8", "auto", ["Quote"], True),
        ("de_DE.UTF-8", "de", ["Quote"], False),
        ("de_DE.UTF-8", "auto", ["KeyA", "Num4", "Dot", "Space"], False),
        ("en-GB", "auto", ["KeyZ", "Num5"], False),
        ("zh-CN", "auto", ["KeyA"], True),
        ("zh-CN", "auto", ["Num4", "Space"], False),
        ("nl-NL", "auto", ["Quote", "KeyE"], True),
        ("nl-NL", "auto", ["KeyE"], False),
    ],
)
def test_text_is_doubtful_where_possible_keyboards_differ(
    tmp_path, locale, setting, keys, doubtful
):
    built(tmp_path, typed(0, *keys), locale=locale, setting=setting)
    [action] = read_actions(tmp_path)
    assert ("doubtful_text" in action.flags) == doubtful
    assert action.text_evidence == "unseen"
    codes = [problem.code for problem in check_keyboard_layout(tmp_path)]
    assert codes == ["keyboard_layout"] * doubtful


def test_unreadable_characters_are_counted(tmp_path):
    lines = [*tap(0, "KeyA", "UnicodeInfo { broken"), *tap(200, "KeyB", printed("b"))]
    summary = built(tmp_path, lines)
    assert summary["unreadable_characters"] == 1
    assert "broken" not in repr(summary)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["A", "LeftCtrl"], "windows"),
        (["KeyA", "Function"], "macos"),
        (["KeyA", "MetaLeft"], ""),
        (["A", "KeyA"], ""),
        (["Return", "Escape"], ""),
    ],
)
def test_key_names_give_the_platform_that_meta_lacks(tmp_path, keys, expected):
    lines = [line for n, key in enumerate(keys) for line in tap(200 * n, key)]
    assert built(tmp_path, lines, platform="")["platform"] == expected
    assert built(tmp_path, lines, platform="linux")["platform"] == "linux"
