"""Typed text: the resulting text, and where typing is divided into several texts."""

import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.grouping import segment
from demo_pipeline.actions.keyboard_stretches import Keyboards
from demo_pipeline.recording.key_names import Keyboard
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    chord,
    click,
    down,
    flattened,
    inputs,
    move,
    read,
    summaries,
    summary_of,
    tap,
    typed,
    up,
    wheel,
)

C, O, U = "KeyC", "KeyO", "KeyU"  # noqa: E741 - each key has the name of its letter

TEXTS: list[tuple[str, list[Line | list[Line]], list[str]]] = [
    ("coucou", [typed(0, C, O, U, C, O, U)], ["type coucou"]),
    ("the next key goes down before the last is up",
     [down(0, C), down(90, O), up(110, C), down(170, U), up(180, O), up(260, U)], ["type cou"]),
    ("order is that of the presses", [down(0, C), down(50, O), up(80, O), up(300, C)], ["type co"]),
    ("left Shift", [down(0, "ShiftLeft"), tap(50, C), up(130, "ShiftLeft")], ["type C"]),
    ("right Shift", [down(0, "ShiftRight"), tap(50, C), up(130, "ShiftRight")], ["type C"]),
    ("Shift let go before its letter",
     [down(0, "ShiftLeft"), down(50, C), up(70, "ShiftLeft"), up(130, C), tap(200, O)],
     ["type Co"]),
    ("Shift over several letters",
     [down(0, "ShiftLeft"), typed(50, C, O, U), up(500, "ShiftLeft"), tap(600, "Num1")],
     ["type COU1"]),
    ("shifted digits", [down(0, "ShiftLeft"), tap(50, "Num4"), up(150, "ShiftLeft")], ["type $"]),
    ("space", [typed(0, C, "Space", O)], ["type c o"]),
    ("correction", [typed(0, C, U, "Backspace", O)], ["type co"]),
    ("correction with Shift", [tap(0, C), chord(200, "ShiftLeft", "Backspace"), tap(500, O)],
     ["type o"]),
    ("everything erased and typed anew", [typed(0, C, "Backspace", O)], ["type o"]),
    ("everything erased", [typed(0, C, "Backspace")], []),
    ("erasing more than was typed", [typed(0, C, "Backspace", "Backspace", O)],
     ["backspace", "type o"]),
    ("Backspace alone", [tap(0, "Backspace")], ["backspace"]),
    ("Backspace after a click", [typed(0, C), click(400), tap(700, "Backspace")],
     ["type c", "click left 1", "backspace"]),
    ("a click parts", [tap(0, C), click(200), tap(400, O)], ["type c", "click left 1", "type o"]),
    ("a scroll parts", [tap(0, C), wheel(200, 120), tap(400, O)],
     ["type c", "scroll down 1", "type o"]),
    ("a hotkey parts", [tap(0, C), tap(200, "Return"), tap(400, O)],
     ["type c", "enter", "type o"]),
    ("a pointer on its way does not part", [tap(0, C), move(90, 5, 5), tap(200, O)], ["type co"]),
    ("a long thought does not part", [tap(0, C), tap(9000, O)], ["type co"]),
    ("a fumbled Shift does not part", [tap(0, C), tap(200, "ShiftLeft"), tap(400, O)], ["type co"]),
    ("a pause does not split", [tap(0, C), tap(2001, O), tap(4001, U)], ["type cou"]),
    ("Windows names", [typed(0, "A", "One", "Plus", "FullStop", "Hash")], ["type a1=.#"]),
    ("keypad", [typed(0, "Kp7", "KpPlus", "KpDecimal")], ["type 7+."]),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), [t[1:] for t in TEXTS], ids=[t[0] for t in TEXTS])
def test_typing(lines, expected):
    assert summaries(*lines) == expected


def test_typing_includes_all_its_key_events():
    lines = [down(0, "ShiftLeft"), tap(50, C), up(130, "ShiftLeft"), tap(200, "Backspace")]
    [action] = actions(*lines, tap(400, O))
    assert action.events == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (action.press_ms, action.end_ms) == (0, 460)
    assert (action.keys, action.modifiers) == ([], [])


def test_erased_text_is_accounted_for():
    segmentation, _ = read(typed(0, C, "Backspace"))
    assert set(segmentation.reasons.values()) == {"typed_and_erased"}
    assert sorted(segmentation.reasons) == [1, 2, 3, 4]


# --- auto-repeat


def repeat(time: int, key: str, times: int, first: int = 500, then: int = 33) -> list[Line]:
    downs = [down(time, key), *(down(time + first + then * n, key) for n in range(times - 1))]
    return [*downs, up(time + first + then * times, key)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([repeat(0, C, 5)], ["type ccccc"]),
        ([repeat(0, C, 3, first=1000, then=400)], ["type ccc"]),
        ([typed(0, C, O, U), repeat(400, "Backspace", 2)], ["type c"]),
        ([repeat(0, "DownArrow", 3)], ["down x3"]),
        ([repeat(0, "Delete", 2)], ["delete x2"]),
        ([repeat(0, "Return", 4)], ["enter"]),
        ([repeat(0, "Escape", 4)], ["esc"]),
        ([repeat(0, "F5", 4)], ["f5"]),
        ([down(0, "ControlLeft"), repeat(60, "KeyV", 4), up(900, "ControlLeft")], ["ctrl+v"]),
        ([down(0, "ShiftLeft"), repeat(60, C, 3), up(900, "ShiftLeft")], ["type CCC"]),
    ],
)
def test_auto_repeat(lines, expected):
    assert summaries(*lines) == expected


def test_a_held_special_key_is_flagged():
    [action] = actions(repeat(0, "Return", 4))
    assert action.flags == ["held"]
    assert action.events == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("platform", ["windows", "linux"])
def test_a_held_modifier_with_auto_repeat_is_one_press(platform):
    shift = [down(t, "ShiftLeft") for t in (0, 500, 533, 566)]
    lines = [*shift, typed(700, C, O), up(1200, "ShiftLeft"), tap(1400, U)]
    assert summaries(*lines, platform=platform) == ["type COu"]
    [action] = actions(*lines, platform=platform)
    assert action.flags == []


# --- keyboard state


def test_caps_lock_changes_letters_and_nothing_else():
    lines = [tap(0, "CapsLock"), typed(200, C, "Num1"), tap(600, "CapsLock"), tap(800, O)]
    assert summaries(*lines) == ["type C1o"]


def test_shift_undoes_caps_lock():
    lines = [tap(0, "CapsLock"), down(200, "ShiftLeft"), tap(260, C), up(400, "ShiftLeft")]
    assert summaries(*lines, tap(500, O)) == ["type cO"]


def test_caps_lock_as_macos_logs_it():
    lines = [tap(0, C), down(200, "CapsLock"), typed(300, O, U), up(700, "CapsLock"), tap(900, C)]
    assert summaries(*lines, platform="macos") == ["type cOUc"]


@pytest.mark.parametrize(
    ("hold", "expected"), [(60, "type AB"), (500, "type AB"), (501, "type ab"), (900, "type ab")]
)
def test_on_macos_two_distant_events_of_caps_lock_are_two_taps(hold, expected):
    lines = [tap(0, "CapsLock", hold=hold), click(200), typed(1000, "KeyA", "KeyB")]
    assert summaries(*lines, platform="macos") == ["click left 1", expected]


def test_unused_caps_lock_does_not_invert_later_text():
    later = [down(2000, "CapsLock"), typed(2100, C, O), up(2400, "CapsLock"), tap(2500, U)]
    lines = [tap(0, "CapsLock", hold=900), tap(1000, C), *later]
    assert summaries(*lines, platform="macos") == ["type cCOu"]


def test_elsewhere_a_long_press_of_caps_lock_is_one_tap():
    assert summaries(tap(0, "CapsLock", hold=900), typed(1000, "KeyA")) == ["type A"]


def test_locks_are_state_and_no_action():
    segmentation, _ = read(tap(0, "NumLock"), tap(200, "ScrollLock"), tap(400, "CapsLock"))
    assert segmentation.actions == []
    assert set(segmentation.reasons.values()) == {"keyboard_state"}
    assert len(segmentation.reasons) == 6


def test_without_num_lock_the_keypad_navigates():
    assert summaries(tap(0, "NumLock"), typed(200, "Kp7", "Kp2", "KpPlus")) == [
        "home",
        "down",
        "type +",
    ]


# --- other layouts, dead keys, unknown keys


def test_a_logged_character_takes_precedence_over_the_table():
    lines = [tap(0, "KeyQ", char="a"), tap(200, "KeyA", char="é"), tap(400, "KeyB", char="ß")]
    assert summaries(*lines) == ["type aéß"]


def test_logged_control_characters_are_not_text():
    lines = [tap(0, "Return", char="\r"), tap(200, "Backspace", char="\b"), tap(400, "Tab", "\t")]
    assert summaries(*lines) == ["enter", "backspace", "tab"]


def test_the_uk_layout():
    shifted = chord(0, "ShiftLeft", "Num3")
    assert summaries(shifted) == ["type #"]
    assert summaries(shifted, keyboard_layout="uk") == ["type £"]


@pytest.mark.parametrize(
    ("platform", "expected"), [("macos", 'type @"\\'), ("linux", 'type "@#'), ("", 'type "@\\')]
)
def test_the_uk_layout_is_that_of_the_platform(platform, expected):
    lines = [chord(0, "ShiftLeft", "Num2"), chord(300, "ShiftLeft", "Quote"), tap(600, "BackSlash")]
    assert summaries(*lines, platform=platform, keyboard_layout="uk") == [expected]


@pytest.mark.parametrize(
    ("lines", "platform"),
    [
        ([chord(0, "AltGr", "KeyQ")], "linux"),
        ([down(0, "LeftCtrl"), down(0, "RightAlt"), tap(60, "Q"), up(200, "LeftCtrl"),
          up(200, "RightAlt")], "windows"),
        ([chord(0, "AltGr", "KeyQ")], "macos"),
    ],
)  # fmt: skip
def test_altgr_is_no_hotkey(lines, platform):
    segmentation, _ = read(*lines, platform=platform)
    assert segmentation.actions == []
    assert "unknown_character" in segmentation.reasons.values()
    [action] = actions(*lines, tap(600, C), platform=platform)
    assert (action.action_type, action.text) == ("type", "c")
    assert "unknown_character" in action.flags


def test_altgr_types_the_logged_character():
    lines = [down(0, "LeftCtrl"), down(1, "RightAlt"), down(60, "Q", "@"), up(120, "Q"),
             up(200, "LeftCtrl"), up(200, "RightAlt")]  # fmt: skip
    assert summaries(*lines, platform="windows") == ["type @"]


def test_option_types_the_logged_character():
    lines = [down(0, "Alt"), down(60, "KeyS", "ß"), up(120, "KeyS"), up(200, "Alt")]
    assert summaries(*lines, platform="macos") == ["type ß"]
    assert summaries(*lines, platform="linux") == ["alt+s"]


def test_an_unknown_key_is_never_text():
    segmentation, _ = read(tap(0, C), tap(200, "Unknown(95)"), tap(400, O))
    assert [action.text for action in segmentation.actions] == ["c", "o"]
    assert segmentation.unknown_keys == {"Unknown(95)"}
    assert segmentation.reasons[3] == "unknown_key"


def test_an_unknown_key_with_a_known_character_is_text():
    assert summaries(tap(0, "RawKey(86)", char="<")) == ["type <"]


SHIFT = "Shift"  # name that Windows recorders log for both Shift keys


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [down(0, SHIFT), tap(50, "A"), down(200, SHIFT), up(250, SHIFT), tap(300, "B"),
             up(400, SHIFT), tap(600, "C")],
            "type ABc",
        ),
        ([down(0, SHIFT), down(100, SHIFT), up(200, SHIFT), tap(300, "B"), up(400, SHIFT)],
         "type B"),
        (
            [down(0, SHIFT), tap(50, "A"), down(200, SHIFT), tap(250, "D"), up(350, SHIFT),
             tap(400, "B"), up(500, SHIFT), tap(600, "C")],
            "type ADBc",
        ),
        ([down(0, SHIFT), tap(50, "A"), up(150, SHIFT), down(200, SHIFT), tap(250, "B"),
          up(350, SHIFT), tap(400, "C")], "type ABc"),
    ],
    ids=["rolled over", "both at once", "letters under both", "one after the other"],
)  # fmt: skip
def test_two_shift_keys_of_one_name(lines, expected):
    segmentation, repairs = read(*lines, platform="windows")
    assert [summary_of(action) for action in segmentation.actions] == [expected]
    assert repairs.dropped == {}
    assert "release_without_press" not in segmentation.reasons.values()


def test_typing_is_divided_at_a_break_after_a_few_characters():
    """The characters may be a command that opened another screen, such as q in a pager."""
    parted = parts(typed(0, "KeyQ"), typed(500, C, O))
    assert [(action.text, action.flags) for action in parted] == [("q", []), ("co", ["continued"])]
    assert [a.text for a in parts(typed(0, "KeyQ"), typed(200, C, O))] == ["qco"]
    assert [a.text for a in parts(typed(0, C, O, U, C, O), typed(1400, C))] == ["coucoc"]
    corrected = parts(typed(0, C), tap(500, "Backspace"), typed(600, O))
    assert [action.text for action in corrected] == ["o"]


def test_longer_typing_is_divided_at_a_long_break():
    """The parts stay separate only if the video shows a dark or locked screen during the rest."""
    first, second = parts(typed(0, C, O, U, C, O), typed(2000, C))
    assert (first.text, first.flags) == ("couco", [])
    assert (second.text, second.flags) == ("c", ["after_long_rest", "continued"])


def parts(*lines: Line | list[Line]) -> list[Action]:
    """Returns the actions of a log, without joining typing that was divided at breaks."""
    keyboards = Keyboards.of(Keyboard("us"))
    return segment(inputs(flattened(lines)), "linux", ActionSettings(), keyboards).actions
