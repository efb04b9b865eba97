"""Hotkeys: chords, keys alone, modifiers alone, and modifiers without a release."""

import pytest

from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    chord,
    click,
    down,
    read,
    summaries,
    summary_of,
    tap,
    typed,
    up,
)

HOTKEYS: list[tuple[str, list[Line | list[Line]], list[str]]] = [
    ("copy", [chord(0, "ControlLeft", "KeyC")], ["ctrl+c"]),
    ("right Ctrl", [chord(0, "ControlRight", "KeyC")], ["ctrl+c"]),
    ("Windows names", [chord(0, "LeftCtrl", "C")], ["ctrl+c"]),
    ("three keys", [chord(0, "ControlLeft", "ShiftLeft", "KeyX")], ["ctrl+shift+x"]),
    ("in the order pressed", [chord(0, "ShiftLeft", "ControlLeft", "KeyX")], ["shift+ctrl+x"]),
    ("both Ctrl keys count once", [chord(0, "ControlLeft", "ControlRight", "KeyX")], ["ctrl+x"]),
    ("Shift and navigation", [chord(0, "ShiftLeft", "Home")], ["shift+home"]),
    ("Shift and Tab", [chord(0, "ShiftLeft", "Tab")], ["shift+tab"]),
    ("switch windows", [chord(0, "Alt", "Tab")], ["alt+tab"]),
    ("Alt held over Tab and Tab",
     [down(0, "Alt"), tap(60, "Tab"), tap(300, "Tab"), up(500, "Alt")], ["alt+tab x2"]),
    ("right Alt of a US board", [chord(0, "RightAlt", "F4")], ["alt+f4"]),
    ("a symbol", [chord(0, "ControlLeft", "Equal")], ["ctrl+="]),
    ("a shifted symbol", [chord(0, "ControlLeft", "ShiftLeft", "Equal")], ["ctrl+shift+="]),
    ("Ctrl+Space", [chord(0, "ControlLeft", "Space")], ["ctrl+space"]),
    ("word erased", [typed(0, "KeyA"), chord(300, "ControlLeft", "Backspace")],
     ["type a", "ctrl+backspace"]),
    ("Windows key", [tap(0, "MetaLeft")], ["win"]),
    ("run dialog", [chord(0, "MetaLeft", "KeyR")], ["win+r"]),
    ("switch input language", [chord(0, "Alt", "ShiftLeft")], ["alt+shift"]),
    ("keys alone", [typed(0, "Return", "Tab", "Escape", "UpArrow", "F5", "Delete", "PageDown")],
     ["enter", "tab", "esc", "up", "f5", "delete", "pagedown"]),
    ("Insert, Print Screen, Pause", [typed(0, "Insert", "PrintScreen", "Pause")],
     ["insert", "printscreen", "pause"]),
    ("Fn chose the key", [chord(0, "Function", "Home")], ["home"]),
    ("Enter of the keypad", [tap(0, "KpReturn")], ["enter"]),
    ("a modified key after a click", [click(0), chord(300, "ControlLeft", "KeyA")],
     ["click left 1", "ctrl+a"]),
    ("Shift held long for nothing", [tap(0, "ShiftLeft", hold=3000)], []),
    ("Shift added to a chord for nothing",
     [down(0, "ControlLeft"), tap(50, "ShiftLeft"), tap(200, "KeyC"), up(400, "ControlLeft")],
     ["ctrl+c"]),
    (
        "two chords overlap",
        [down(0, "ControlLeft"), down(50, "KeyC"), up(100, "ControlLeft"), up(120, "KeyC"),
         down(200, "ControlLeft"), tap(250, "KeyV"), up(400, "ControlLeft")],
        ["ctrl+c", "ctrl+v"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"), [t[1:] for t in HOTKEYS], ids=[t[0] for t in HOTKEYS]
)
def test_hotkeys(lines, expected):
    assert summaries(*lines) == expected


@pytest.mark.parametrize("key", ["MetaLeft", "MetaRight", "LeftCommand"])
def test_command_is_the_macs_name(key):
    assert summaries(chord(0, key, "KeyV"), platform="macos") == ["command+v"]


def test_a_hotkey_includes_its_modifiers_from_first_press_to_last_release():
    copy, paste = actions(
        down(0, "ControlLeft"), tap(90, "KeyC"), tap(300, "KeyV"), up(500, "ControlLeft")
    )
    assert (copy.events, copy.press_ms, copy.end_ms) == ([1, 2, 3], 0, 150)
    assert (paste.events, paste.press_ms, paste.end_ms) == ([4, 5, 6], 300, 500)
    assert (copy.modifiers, copy.keys, paste.keys) == ([], ["ctrl", "c"], ["ctrl", "v"])


# --- modifiers whose release is missing


def test_a_lost_release_does_not_turn_typing_into_hotkeys():
    lines = [down(0, "ControlLeft"), tap(60, "KeyC"), typed(900, "KeyA", "KeyB")]
    grouped = actions(*lines)
    assert [(a.keys, a.text) for a in grouped] == [(["ctrl", "c"], None), ([], "ab")]
    assert grouped[0].flags == ["modifier_never_released"]


@pytest.mark.parametrize("platform", ["windows", "linux", "macos"])
def test_a_lost_shift_ends_with_the_next_press(platform):
    lines = [down(0, "ShiftLeft"), tap(60, "KeyK"), typed(300, "KeyA", "KeyB")]
    again = [down(700, "ShiftLeft"), tap(760, "KeyL"), up(900, "ShiftLeft"), tap(1000, "KeyO")]
    assert summaries(*lines, *again, platform=platform) == ["type KabLo"]


def test_a_modifier_without_release_and_effect_is_accounted_for():
    segmentation, _ = read(down(0, "ControlLeft"), tap(1500, "KeyC"))
    assert [a.text for a in segmentation.actions] == ["c"]
    assert segmentation.reasons == {1: "modifier_never_released"}


def test_a_log_that_ends_within_a_chord():
    assert summaries(down(0, "ControlLeft"), down(60, "KeyS")) == ["ctrl+s"]


def test_a_key_without_a_release_can_be_pressed_again():
    assert summaries(down(0, "KeyA"), tap(3000, "KeyA")) == ["type aa"]
    assert summaries(down(0, "Return"), tap(3000, "Return"), pause_ms=9000) == ["enter", "enter"]


def test_a_release_without_a_press_is_accounted_for():
    segmentation, _ = read(up(0, "KeyA"), up(5, "ShiftLeft"))
    assert segmentation.reasons == {1: "release_without_press", 2: "release_without_press"}


# --- keys that stop the recorder


def test_the_stop_shortcut_is_left_out_at_the_end_only():
    lines = [chord(0, "ControlLeft", "F9"), tap(600, "KeyA"), chord(900, "ControlLeft", "F9")]
    segmentation, _ = read(*lines, stop_shortcut=("ctrl", "f9"))
    assert [a.action_type for a in segmentation.actions] == ["hotkey", "type"]
    assert set(segmentation.reasons.values()) == {"stop_shortcut"}
    assert summaries(*lines) == ["ctrl+f9", "type a", "ctrl+f9"]


def test_a_log_cut_off_by_its_stop_shortcut():
    lines = [tap(0, "KeyA"), down(900, "ControlLeft"), down(960, "F9")]
    assert summaries(*lines, stop_shortcut=("ctrl", "f9")) == ["type a"]


@pytest.mark.parametrize("platform", ["macos", "linux"])
def test_a_second_press_of_a_modifier_is_its_release(platform):
    lines = [down(0, "MetaRight"), tap(80, "KeyC"), down(200, "MetaRight")]
    typing = [down(900, "ShiftLeft"), tap(960, "KeyM"), up(1050, "ShiftLeft"), tap(1200, "KeyY")]
    segmentation, repairs = read(*lines, *typing, platform=platform)
    name = "command" if platform == "macos" else "win"
    assert [summary_of(action) for action in segmentation.actions] == [f"{name}+c", "type My"]
    assert repairs.second_presses == 1


def test_a_second_press_with_a_release_of_its_own_is_a_press():
    lost_release = [down(0, "ControlLeft"), tap(80, "KeyC"), tap(900, "KeyA")]
    again = [down(2000, "ControlLeft"), tap(2080, "KeyV"), up(2200, "ControlLeft")]
    assert summaries(*lost_release, *again) == ["ctrl+c", "type a", "ctrl+v"]


def test_alt_held_with_tab_twice_is_one_step():
    held = [down(0, "Alt"), tap(100, "Tab"), tap(900, "Tab"), up(1500, "Alt")]
    assert summaries(*held) == ["alt+tab x2"]
    assert summaries(chord(0, "Alt", "Tab"), chord(900, "Alt", "Tab")) == ["alt+tab", "alt+tab"]
    control = [down(0, "ControlLeft"), tap(100, "Tab"), tap(900, "Tab"), up(1500, "ControlLeft")]
    assert summaries(*control) == ["ctrl+tab", "ctrl+tab"]
