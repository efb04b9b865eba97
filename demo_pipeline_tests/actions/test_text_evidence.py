"""Compares typed texts with accessibility scans, to choose the layout and to find doubtful texts.

Each log records a window with two text fields. The scans contain the texts of both fields.
"""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACCOUNTING_SCHEMA,
    Action,
    read_actions,
)
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.actions.field_texts import edit_between
from demo_pipeline.actions.pinyin import may_be_pinyin
from demo_pipeline.actions.text_evidence import contradicts, typing_language
from demo_pipeline.files.parquet import read_table
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.key_names import layout_of_locale
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import (
    Line,
    Part,
    chord,
    click,
    flattened,
    line,
    tap,
    text_of,
    typed,
)

NAME = (100, 100, 300, 40)
CITY = (100, 200, 300, 40)
MARTA_AT_HARBOR = (
    *("KeyM", "KeyA", "KeyR", "KeyT", "KeyA", "shift Num2", "KeyH", "KeyA", "KeyR"),
    *("KeyB", "KeyO", "KeyR", "Dot", "KeyO", "KeyR", "KeyG"),
)


def node(role: str, box: tuple[int, ...], value: str = "", **more: Any) -> dict[str, Any]:
    sides = dict(zip(("x", "y", "width", "height"), box, strict=True))
    return {"role": role, "name": "", "bbox": sides, "value": value, "children": [], **more}


def scan(time: int, name: str = "", city: str = "", **more: Any) -> Line:
    """Returns an accessibility scan that takes 50 ms.

    `more` contains further JSON members of the field for the name.
    """
    fields = [node("entry", NAME, name, **more), node("entry", CITY, city)]
    window = node("frame", (0, 0, 800, 600), children=fields)
    return line(time, "axtree", duration=50, tree=[window], focused_element=fields[0], queries={})


def keys(time: int, *names: str) -> list[Line]:
    """Returns the lines of key presses. `shift KeyA` stands for the key A with Shift."""
    lines: list[Line] = []
    for number, name in enumerate(names):
        at = time + 250 * number
        if name.startswith("shift "):
            lines += chord(at, "ShiftLeft", name.removeprefix("shift "))
        else:
            lines += tap(at, name)
    return lines


def read(
    folder: Path,
    *parts: Part,
    locale: str = "en-US",
    platform: str = "linux",
    setting: str = "auto",
) -> list[Action]:
    """Returns the actions of a log without pauses."""
    log = folder / "input_log.jsonl"
    log.write_bytes(text_of(sorted(flattened(parts), key=lambda line: int(line["time"]))))
    build_events(log, folder)
    language = typing_language(setting, layout_of_locale(locale), locale)
    build_actions(folder, folder, platform, ActionSettings(), language=language, log=log)
    return [action for action in read_actions(folder) if action.action_type != "pause"]


def texts(actions: list[Action]) -> list[tuple[str | None, str | None, bool]]:
    """Returns the text, its evidence and whether it is doubtful, for each typing action."""
    return [
        (action.text, action.text_evidence, "doubtful_text" in action.flags)
        for action in actions
        if action.action_type == "type"
    ]


# --- the layout


def test_the_layout_that_the_scans_confirm_wins_over_the_locale(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, *MARTA_AT_HARBOR),
        scan(6000, "marta@harbor.org"),
        locale="en-GB",
    )
    assert texts(actions) == [("marta@harbor.org", "confirmed", False)]
    assert actions[0].keyboard_layout == "us"
    assert actions[0].text_scan_event is not None


def test_what_the_locale_says_stays_when_the_scans_confirm_it(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, "KeyA", "shift Num3", "Num5"),
        scan(3000, "a£5"),
        locale="en-GB",
    )
    assert texts(actions) == [("a£5", "confirmed", False)]


def test_without_a_scan_a_character_that_two_layouts_differ_in_is_doubtful(tmp_path):
    actions = read(
        tmp_path,
        keys(1000, "KeyT", "KeyO"),
        tap(2000, "Tab"),
        keys(3000, *MARTA_AT_HARBOR),
        locale="en-GB",
    )
    assert texts(actions) == [("to", "unseen", False), ('marta"harbor.org', "unseen", True)]


def test_evidence_carries_to_the_other_texts_of_a_recording(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, *MARTA_AT_HARBOR),
        scan(6000, "marta@harbor.org"),
        tap(7000, "Tab"),
        keys(8000, "KeyL", "KeyS", "BackQuote", "shift BackSlash"),
        locale="en-GB",
    )
    assert texts(actions)[1] == ("ls`|", "unseen", False)


def test_a_chosen_layout_is_not_compared_with_others(tmp_path):
    actions = read(tmp_path, keys(1000, "KeyA", "shift Num2"), locale="en-GB", setting="uk")
    assert texts(actions) == [('a"', "unseen", False)]


@pytest.mark.parametrize("locale", ["nl-NL", "en-US"])
def test_dead_keys_of_us_international_are_read_when_a_scan_shows_it(tmp_path, locale):
    typing = keys(1000, "KeyC", "KeyA", "KeyF", "Quote", "KeyE")
    actions = read(tmp_path, scan(0), typing, scan(3000, "café"), locale=locale)
    assert texts(actions) == [("café", "confirmed", False)]
    assert actions[0].keyboard_layout == "us-intl"


def test_altgr_is_read_where_the_scans_show_another_keyboard(tmp_path):
    typing = keys(1000, "KeyA", "KeyN", "KeyN", "KeyA")
    altgr = chord(2000, "AltGr", "KeyQ")
    more = keys(2250, "KeyW", "KeyE", "KeyB")
    actions = read(tmp_path, scan(0), typing, altgr, more, scan(4000, "anna@web"))
    assert texts(actions) == [("anna@web", "confirmed", False)]
    assert actions[0].keyboard_layout == "de"


# --- switching


def test_after_a_switch_another_layout_is_confirmed(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, "KeyI", "KeyD", "Space"),
        chord(2000, "Alt", "ShiftLeft"),
        keys(2400, "KeyG", "KeyH", "KeyB", "KeyD", "KeyT", "KeyN"),
        scan(5000, "id привет"),
    )
    assert texts(actions) == [("id ", "unseen", False), ("привет", "confirmed", False)]


@pytest.mark.parametrize(
    "switch", [chord(1600, "Alt", "ShiftLeft"), chord(1600, "MetaLeft", "Space")]
)
def test_after_a_switch_unseen_text_is_doubtful(tmp_path, switch):
    actions = read(
        tmp_path,
        keys(1000, "KeyI", "KeyD"),
        switch,
        keys(2500, "KeyG", "KeyH", "KeyB"),
    )
    assert texts(actions) == [("id", "unseen", False), ("ghb", "unseen", True)]


def test_a_hotkey_with_the_keys_of_a_switch_and_another_is_no_switch(tmp_path):
    parts = (chord(1000, "Alt", "ShiftLeft", "Tab"), keys(2500, "KeyG", "KeyH", "KeyB"))
    assert texts(read(tmp_path, *parts)) == [("ghb", "unseen", False)]


# --- locks that were on before the recording began


def test_caps_lock_before_the_recording_is_known_by_a_scan(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, "KeyH", "KeyE", "KeyL", "KeyL", "KeyO"),
        scan(3000, "HELLO"),
        tap(4000, "Tab"),
        keys(5000, "KeyB", "KeyO", "KeyB"),
    )
    assert texts(actions) == [("HELLO", "confirmed", False), ("BOB", "unseen", True)]


def test_num_lock_off_before_the_recording_is_known_by_a_scan(tmp_path):
    typing = keys(1000, "KeyT", "KeyE", "KeyL", "Space", "Kp2", "Kp8")
    actions = read(tmp_path, scan(0), typing, scan(3000, "tel "))
    assert texts(actions) == [("tel ", "confirmed", False)]
    assert [action.keys for action in actions[1:]] == [["down"], ["up"]]


# --- input methods


def test_the_field_says_what_an_input_method_wrote(tmp_path):
    beijing = keys(2000, "KeyB", "KeyE", "KeyI", "KeyJ", "KeyI", "KeyN", "KeyG", "Space")
    parts = (scan(0), click(1000, 120, 120), beijing, scan(5000, "北京"))
    actions = read(tmp_path, *parts, locale="zh-CN")
    assert texts(actions) == [("北京", "confirmed", False)]
    assert actions[1].text_source == "field"


def test_the_enter_that_ends_a_composition_is_no_step(tmp_path):
    tokyo = keys(2000, "KeyT", "KeyO", "KeyU", "KeyK", "KeyY", "KeyO", "KeyU", "Space")
    parts = (scan(0), tokyo, tap(4200, "Return"), scan(5000, "東京"), tap(6000, "Return"))
    actions = read(tmp_path, *parts, locale="ja-JP")
    assert [action.action_type for action in actions] == ["type", "hotkey"]
    accounting = read_table(tmp_path / ACCOUNTING_FILE, ACCOUNTING_SCHEMA).to_pylist()
    assert [row["reason"] for row in accounting].count("composition") == 2


def test_the_enter_after_chosen_chinese_characters_is_a_step(tmp_path):
    typing = keys(2000, "KeyN", "KeyI", "Space")
    parts = (scan(0), typing, tap(3200, "Return"), scan(4000, "你"))
    actions = read(tmp_path, *parts, locale="zh-CN")
    assert [action.action_type for action in actions] == ["type", "hotkey"]


def test_unseen_letters_of_an_input_method_and_the_enter_after_them_are_doubtful(tmp_path):
    parts = (keys(1000, "KeyT", "KeyO"), tap(1500, "Return"), tap(3000, "Return"))
    first, enter, second = read(tmp_path, *parts, locale="ja-JP")
    assert "doubtful_text" in first.flags
    assert "doubtful_text" in enter.flags
    assert "doubtful_text" not in second.flags


def test_without_a_locale_syllables_of_pinyin_are_doubtful(tmp_path):
    beijing = [f"Key{letter}" for letter in "BEIJING"] + ["Space"]
    university = [f"Key{letter}" for letter in "DAXUE"] + ["Space"]
    typing = keys(1000, *beijing, *university)
    assert texts(read(tmp_path, typing, locale="")) == [("beijing daxue ", "unseen", True)]
    assert texts(read(tmp_path, typing, locale="en-US")) == [("beijing daxue ", "unseen", False)]


@pytest.mark.parametrize(
    ("text", "pinyin"),
    [
        ("beijing daxue ", True),
        ("zhongguo renmin", True),
        ("ni hao shi jie ", True),
        ("nihao", False),
        ("banana", False),
        ("please send the code", False),
        ("open the door", False),
        ("marta and anna", False),
        ("sleep 3; ls archive", False),
        ("Beijing daxue", False),
    ],
)
def test_english_is_not_taken_for_pinyin(text, pinyin):
    assert may_be_pinyin(text) == pinyin


def test_digits_are_typed_with_every_input_method(tmp_path):
    assert texts(read(tmp_path, keys(1000, "Num4", "Num2"), locale="zh-CN")) == [
        ("42", "unseen", False)
    ]


def test_latin_letters_seen_in_one_field_decide_for_the_next_field(tmp_path):
    actions = read(
        tmp_path,
        scan(0),
        keys(1000, "KeyA", "KeyN", "KeyN", "KeyA"),
        scan(3000, "anna"),
        tap(4000, "Tab"),
        keys(5000, "KeyB", "KeyO", "KeyB"),
        locale="zh-CN",
    )
    assert texts(actions) == [("anna", "confirmed", False), ("bob", "unseen", False)]


def test_the_key_that_switches_to_hangul_does_not_make_the_text_incomplete(tmp_path):
    typing = keys(1500, "KeyD", "KeyK", "KeyS")
    parts = (scan(0), tap(1000, "Unknown(21)"), typing, scan(4000, "안"))
    actions = read(tmp_path, *parts, locale="ko-KR", platform="windows")
    assert texts(actions) == [("안", "confirmed", False)]


def test_a_text_that_a_click_may_have_inserted_is_not_used(tmp_path):
    """A click on a suggestion fills the field, too."""
    typing = keys(1000, "KeyB", "KeyE", "KeyI")
    parts = (scan(0), typing, click(2000, 400, 500), scan(4000, "北京西站"))
    assert texts(read(tmp_path, *parts, locale="zh-CN")) == [("bei", "unseen", True)]


# --- texts that a scan contradicts, and texts that it does not contradict


def test_a_text_that_the_field_contradicts_is_doubtful(tmp_path):
    actions = read(tmp_path, scan(0), keys(1000, "KeyT", "KeyE", "KeyH"), scan(3000, "the"))
    assert texts(actions) == [("teh", "contradicted", True)]


@pytest.mark.parametrize(
    ("gained", "typed_text", "contradicted"),
    [
        ("1,234", "1234", False),
        ("29/11/2026", "29112026", False),
        ("Hello", "hello", False),
        ("example.com", "exam", False),
        ("abc", "abcdef", False),
        ("marta@harbor", 'marta"harbor', True),
        ("the", "teh", True),
        ("@", '"', True),
    ],
)
def test_formatting_completion_and_case_do_not_contradict(gained, typed_text, contradicted):
    assert contradicts(gained, typed_text) == contradicted


def test_fields_for_passwords_are_not_read(tmp_path):
    typing = keys(1000, "KeyA", "KeyN", "KeyN", "KeyA")
    secret = {"role": "password text"}
    later = scan(3000, "anna")
    later["data"]["tree"][0]["children"][0] |= secret
    later["data"]["focused_element"] |= secret
    assert texts(read(tmp_path, scan(0), typing, later)) == [("anna", "unseen", False)]


def test_a_row_of_dots_is_no_text(tmp_path):
    typing = keys(1000, "KeyA", "KeyN", "KeyN", "KeyA")
    assert texts(read(tmp_path, scan(0), typing, scan(3000, "••••"))) == [("anna", "unseen", False)]


def test_a_short_text_must_be_the_whole_change_of_the_field(tmp_path):
    """A short text may appear in a field by chance, for example if the field shows a clock."""
    actions = read(tmp_path, scan(0, "12:03"), keys(1000, "Num4"), scan(3000, "12:04"))
    assert texts(actions) == [("4", "confirmed", False)]
    actions = read(tmp_path, scan(0, "12:03"), keys(1000, "Num4"), scan(3000, "14:14"))
    assert texts(actions)[0][1] == "unseen"


def test_a_damaged_scan_does_not_affect_texts(tmp_path):
    broken = line(3000, "axtree", duration=50, tree="none", focused_element=None, queries={})
    parts = (scan(0), keys(1000, "KeyA", "KeyB", "KeyC"), broken, scan(4000, "abc"))
    assert texts(read(tmp_path, *parts)) == [("abc", "confirmed", False)]


def test_typed_keys_without_scans_are_read_as_before(tmp_path):
    assert texts(read(tmp_path, typed(1000, "KeyA", "KeyB"))) == [("ab", "unseen", False)]


def test_one_edit_is_found_between_two_texts():
    edit = edit_between("see you there", "see you all there")
    assert (edit.gained, edit.removed, edit.whole) == ("all ", "", False)
    edit = edit_between("Search", "tent")
    assert (edit.removed, edit.whole) == ("Search", True)
