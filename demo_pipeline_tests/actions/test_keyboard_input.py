"""Typing of newer logs: characters in every logged form, dead keys, and unknown input."""

import json
from itertools import count
from pathlib import Path

import pytest

from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.actions.typed_text import check_keyboard_layout, check_known_input
from demo_pipeline.recording.events import build_events
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


ACUTE = printed("\u00b4", dead=True)  # the dead key of accents

FORMS = {
    "character": lambda char: char,
    "print": printed,
    "option": lambda char: f"Some({printed(char)})",
    "object": lambda char: json.dumps({"name": char, "unicode": utf16(char), "is_dead": False}),
    "absent": lambda _: "",
    "unreadable": lambda char: printed(char)[:-3],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_text(form: str) -> None:
    keys = [("KeyC", "c"), ("KeyA", "a"), ("Space", " "), ("Quote", "'"), ("BackSlash", "\\")]
    lines = [tap(120 * n, key, FORMS[form](char)) for n, (key, char) in enumerate(keys)]
    assert summaries(*lines) == ["type ca '\\"]


def test_a_composed_character_includes_its_dead_key() -> None:
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
def test_dead_keys(lines: list[Line | list[Line]], expected: list[str]) -> None:
    assert summaries(*lines) == expected


def test_a_dead_key_alone_is_accounted_for() -> None:
    found, _ = read(tap(0, "Quote", ACUTE), click(300))
    assert found.reasons == {1: "dead_key", 2: "dead_key"}


def test_option_and_a_dead_key_compose_on_macos() -> None:
    lines = [down(0, "Alt"), tap(50, "KeyE", ACUTE), up(200, "Alt")]
    assert summaries(*lines, tap(300, "KeyE", "é"), platform="macos") == ["type é"]


def test_characters_with_shortcuts_are_no_text() -> None:
    lines = [down(0, "ControlLeft"), tap(50, "KeyC", printed("\x03")), up(200, "ControlLeft")]
    assert summaries(*lines) == ["ctrl+c"]


# --- unknown keys and buttons


def test_typing_is_split_at_an_unknown_key_and_flagged() -> None:
    found, _ = read(typed(0, "KeyC", "KeyA"), tap(300, "Unknown(95)"), typed(500, "KeyB"))
    assert [(a.text, a.flags) for a in found.actions] == [
        ("ca", ["unknown_input"]),
        ("b", ["unknown_input"]),
    ]


def test_a_backspace_after_an_unknown_key_is_a_key_of_its_own() -> None:
    lines = [tap(0, "KeyA"), tap(200, "Unknown(95)"), tap(400, "Backspace"), tap(600, "KeyB")]
    assert summaries(*lines) == ["type a", "backspace", "type b"]


def test_an_unknown_button_splits_typing() -> None:
    side = [press(200, 5, 5, "Unknown(8)"), lift(260, 5, 5, "Unknown(8)")]
    found, _ = read(tap(0, "KeyA"), side, tap(400, "KeyB"))
    assert [(a.text, a.flags) for a in found.actions] == [
        ("a", ["unknown_input"]),
        ("b", ["unknown_input"]),
    ]
    assert found.reasons == {3: "other_button", 4: "other_button"}


def test_an_unknown_key_far_from_typing_flags_nothing() -> None:
    lines = [tap(0, "KeyA"), click(200), tap(400, "Unknown(95)"), click(900), tap(1800, "KeyB")]
    assert [a.flags for a in actions(*lines)] == [[], [], [], []]


def test_an_unknown_character_splits_typing_unless_it_was_erased() -> None:
    euro = chord(200, "AltGr", "KeyE")
    found, _ = read(tap(0, "KeyA"), euro, tap(600, "KeyB"))
    assert [a.text for a in found.actions] == ["a", "b"]
    assert all("unknown_input" in a.flags for a in found.actions)
    assert found.reasons == dict.fromkeys([3, 4, 5, 6], "unknown_character")
    assert summaries(tap(0, "KeyA"), euro, tap(600, "Backspace"), tap(900, "KeyB")) == ["type ab"]


def test_a_modifier_of_an_unknown_key_is_no_tap() -> None:
    found, _ = read(down(0, "ControlLeft"), tap(50, "Unknown(7)"), up(200, "ControlLeft"))
    assert found.actions == []
    assert found.reasons == {
        1: "modifier_without_effect",
        2: "unknown_key",
        3: "keyboard_state",
        4: "modifier_without_effect",
    }


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
def test_quick_taps_of_a_navigation_key_are_one_action(
    gaps: list[int], expected: list[str]
) -> None:
    times = [sum(gaps[:n]) for n in range(len(gaps) + 1)]
    assert summaries(*(tap(time, "DownArrow", hold=20) for time in times)) == expected


@pytest.mark.parametrize(
    "key", ["UpArrow", "LeftArrow", "PageDown", "PageUp", "Home", "End", "Tab", "Delete",
            "Backspace", "RightArrow"]
)  # fmt: skip
def test_held_and_tapped_navigation_keys(key: str) -> None:
    held = [down(0, key), *(down(500 + 30 * n, key) for n in range(4)), up(700, key)]
    tapped = [tap(800 + 100 * n, key, hold=40) for n in range(2)]
    [action] = actions(held, *tapped)
    assert (action.presses, len(action.events), action.end_ms) == (7, 10, 940)


def test_a_long_hold_before_auto_repeat_parts_nothing() -> None:
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
def test_what_makes_a_run(lines: list[Line | list[Line]], expected: list[str]) -> None:
    assert summaries(*lines) == expected


def test_only_hotkeys_have_presses() -> None:
    found = actions(click(0), tap(900, "Return"), tap(1200, "KeyA"))
    assert [action.presses for action in found] == [None, 1, None]


# --- checks


def built(folder: Path, lines: list[Line], platform: str = "linux") -> dict[str, object]:
    (folder / "input_log.jsonl").write_bytes(text_of(lines))
    build_events(folder / "input_log.jsonl", folder)
    return build_actions(folder, folder, platform, ActionSettings())


def test_unknown_input_is_a_warning_without_what_was_typed(tmp_path: Path) -> None:
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


def test_known_input_gives_no_warning(tmp_path: Path) -> None:
    built(tmp_path, [*typed(0, "KeyA", "Return", "Numlock"), *click(900)])
    assert check_known_input(tmp_path, tmp_path) == []


QUOTE = chord(0, "ShiftLeft", "Quote")  # US: ", UK: @


@pytest.mark.parametrize(
    ("locale", "lines", "lines_with_doubt"),
    [
        ("en-US", QUOTE, []),
        ("en-GB", QUOTE, [2]),
        ("en_GB.UTF-8", QUOTE, [2]),
        ("en-GB", typed(0, "KeyA", "Num2", "Comma"), []),
        ("en-GB", tap(0, "Return"), []),
        ("de-DE", QUOTE, [2]),
        ("de", typed(0, "KeyA", "Num2"), []),
        ("fr-FR", typed(0, "KeyA"), [1]),
        ("ru-RU", typed(0, "KeyA"), [1]),
        ("zh-CN", QUOTE, []),
        ("xx-XX", QUOTE, []),
        ("", QUOTE, []),
        ("not a locale", QUOTE, []),
    ],
)
def test_a_layout_that_does_not_fit_the_locale(
    tmp_path: Path, locale: str, lines: list[Line], lines_with_doubt: list[int]
) -> None:
    numbers = count()
    built(tmp_path, [{**one, "time": 100 * next(numbers)} for one in lines])
    problems = check_keyboard_layout(tmp_path, tmp_path, locale, "us", "linux")
    assert len(problems) == len(lines_with_doubt)
    for problem in problems:
        assert (problem.code, problem.message[:17]) == ("keyboard_layout", "1 typed character")
        assert problem.remedy
        assert '"' not in problem.message


def test_a_setting_that_fits_the_locale_or_logged_characters_leave_no_doubt(tmp_path: Path) -> None:
    built(tmp_path, QUOTE)
    assert check_keyboard_layout(tmp_path, tmp_path, "en-GB", "uk", "linux") == []
    assert check_keyboard_layout(tmp_path, tmp_path, "en-US", "uk", "linux") != []
    built(tmp_path, [*QUOTE, *tap(900, "KeyA", printed("a"))])
    assert check_keyboard_layout(tmp_path, tmp_path, "en-GB", "us", "linux") == []


@pytest.mark.parametrize(
    ("keys", "doubtful_on"),
    [
        (("ShiftLeft", "Num3"), {"windows", "macos", "linux", ""}),  # US: #, UK: £
        (("ShiftLeft", "Num2"), {"windows", "linux", ""}),  # a Mac has @ there with both
        (("ShiftLeft", "Quote"), {"windows", "linux", ""}),
        (("ShiftLeft", "BackQuote"), {"windows", "linux", ""}),
        (("BackSlash",), {"linux"}),  # Linux names the place where a UK keyboard has the #
        (("Quote",), set()),
    ],
)
def test_a_layout_is_compared_on_the_recordings_platform(
    tmp_path: Path, keys: tuple[str, ...], doubtful_on: set[str]
) -> None:
    built(tmp_path, chord(0, *keys))
    for platform in ("windows", "macos", "linux", ""):
        problems = check_keyboard_layout(tmp_path, tmp_path, "en-GB", "us", platform)
        assert bool(problems) == (platform in doubtful_on), platform


def test_key_names_give_the_platform_to_compare_a_layout_on(tmp_path: Path) -> None:
    built(tmp_path, [*chord(0, "ShiftLeft", "Quote"), *tap(900, "Function")], "macos")
    assert check_keyboard_layout(tmp_path, tmp_path, "en-GB", "us", "") == []
    assert check_keyboard_layout(tmp_path, tmp_path, "en-GB", "us", "linux") != []


def test_unreadable_characters_are_counted(tmp_path: Path) -> None:
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
def test_key_names_give_the_platform_that_meta_lacks(
    tmp_path: Path, keys: list[str], expected: str
) -> None:
    lines = [one for n, key in enumerate(keys) for one in tap(200 * n, key)]
    assert built(tmp_path, lines, platform="")["platform"] == expected
    assert built(tmp_path, lines, platform="linux")["platform"] == "linux"
