"""Tests which events each repair of a log drops or adds, and how the repairs are reported."""

import pytest

from demo_pipeline.actions.repair import Repairs, drop_phantom_modifiers
from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    chord,
    click,
    down,
    flattened,
    inputs,
    lift,
    move,
    press,
    read,
    summaries,
    tap,
    typed,
    up,
    wheel,
)


def copied(lines: list[Line], copies: int, lag: int = 1) -> list[Line]:
    """Returns a log in which `copies` hooks logged each line, in time order.

    `lag` is the delay of each further hook in milliseconds.
    """
    log: list[Line] = []
    for copy in range(copies):
        log += [{**line, "time": line["time"] + lag * copy} for line in lines]
    return sorted(log, key=lambda line: line["time"])


# --- order


def test_lines_out_of_time_order_are_sorted():
    lines = [tap(400, "KeyC"), tap(200, "KeyB"), tap(0, "KeyA")]
    assert summaries(*lines) == ["type abc"]


# --- events that several hooks logged


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("lag", [0, 1])
def test_duplicates_are_dropped_and_counted(copies, lag):
    hand = [move(n * 20, n, n) for n in range(5)] + click(200) + typed(500, "KeyA", "KeyB", "KeyA")
    segmentation, repairs = read(copied(hand, copies, lag))
    assert [a.action_type for a in segmentation.actions] == ["click", "type"]
    assert segmentation.actions[1].text == "aba"
    assert repairs.duplicate_factors["keydown"] == repairs.duplicate_factors["mousemove"] == copies
    assert len(repairs.dropped) == len(hand) * (copies - 1)
    assert set(repairs.dropped.values()) == {"hook_copy"}


def test_nothing_is_dropped_from_a_clean_log():
    hand = [*typed(0, "KeyL", "KeyL", "KeyA"), *click(900), *click(1100)]
    _, repairs = read(hand, [move(1300 + n, 50, 60) for n in range(0, 90, 10)])
    assert (repairs.dropped, repairs.duplicate_factors) == ({}, {})


def test_only_keys_are_duplicated():
    lines = [*copied(typed(0, "KeyA", "KeyB", "KeyC"), 2), *click(900), *click(2900)]
    segmentation, repairs = read(lines, pause_ms=60_000)
    assert [a.action_type for a in segmentation.actions] == ["type", "click", "click"]
    assert repairs.duplicate_factors == {"keydown": 2, "keyup": 2}


def test_one_duplicated_press_among_single_ones_is_one_press():
    lines = [*typed(0, "KeyA", "KeyB", "KeyC", "KeyD"), *copied(tap(900, "KeyE"), 2)]
    assert summaries(lines) == ["type abcde"]


def test_late_duplicates_are_dropped():
    lines = copied(typed(0, *(f"Key{letter}" for letter in "ABCDEFGHIJ")), 2)
    late = copied(tap(1800, "KeyK"), 2, lag=5)
    assert summaries(lines, late) == ["type abcdefghijk"]


def test_fast_wheel_events_of_one_hook_are_all_kept():
    turns = [wheel(40 * n, 120) for n in range(5)] + [wheel(161, 120)]
    [action] = actions(turns)
    assert action.amount == 6


def test_duplicated_wheel_events_count_once():
    [action] = actions(copied([wheel(60 * n, 120) for n in range(5)], 2))
    assert action.amount == 5


def test_letters_typed_by_software_at_once_are_all_kept():
    assert summaries(tap(0, "KeyL", hold=1), tap(2, "KeyL", hold=1)) == ["type ll"]


def test_auto_repeat_of_a_duplicated_log_stays_auto_repeat():
    downs = [down(0, "KeyA"), *(down(500 + 33 * n, "KeyA") for n in range(4)), up(700, "KeyA")]
    assert summaries(copied(downs, 2)) == ["type aaaaa"]


def stalled(time: int, key: str, times: int) -> list[Line]:
    """Returns the lines of a held key whose presses have the same time after a recorder stall."""
    return [*(down(time, key) for _ in range(times)), up(time + 700, key)]


HAND = [*(move(n * 20, n, n) for n in range(5)), *typed(300, "KeyX", "KeyY", "KeyZ")]


def test_auto_repeat_of_a_stalled_recorder_is_no_copy():
    segmentation, repairs = read(HAND, stalled(2000, "KeyA", 4))
    assert [action.text for action in segmentation.actions] == ["xyzaaaa"]
    assert (repairs.dropped, repairs.duplicate_factors) == ({}, {})


@pytest.mark.parametrize("holds", [1, 3, 5])
def test_holds_alone_do_not_prove_hooks(holds):
    """Each press is in the log four times, but each release only once."""
    lines = flattened(stalled(2000 * number, "Backspace", 4) for number in range(holds))
    segmentation, repairs = read(lines, pause_ms=60_000)
    assert [(a.keys, a.presses) for a in segmentation.actions] == [(["backspace"], 4)] * holds
    assert repairs.dropped == {}


def test_copies_are_dropped_when_the_releases_are_doubled():
    assert summaries(copied(HAND, 2), copied(stalled(2000, "KeyA", 1), 2)) == ["type xyza"]
    assert summaries(HAND, copied(stalled(2000, "KeyA", 1), 2)) == ["type xyza"]


def test_a_stall_in_a_duplicated_log_repeats_nothing():
    """If every line is duplicated, auto-repeats cannot be counted, so the key counts once."""
    assert summaries(copied(HAND, 2), copied(stalled(2000, "KeyA", 2), 2)) == ["type xyza"]


# --- phantom modifiers


def test_a_modifier_released_and_pressed_in_one_instant_is_released():
    lines = [down(0, "ShiftLeft"), tap(50, "KeyA"), up(150, "ShiftLeft"), down(150, "ShiftLeft")]
    segmentation, repairs = read(*lines, typed(400, "KeyB", "KeyC"))
    assert [a.text for a in segmentation.actions] == ["Abc"]
    assert repairs.dropped == {5: "phantom_modifier"}


def test_a_modifier_pressed_again_by_hand_stays():
    repairs = Repairs()
    lines = [*tap(0, "ShiftLeft"), *tap(100, "ShiftLeft")]
    assert len(drop_phantom_modifiers(inputs(lines), repairs, 3)) == 4
    assert repairs.dropped == {}


def test_phantom_modifiers_among_duplicates():
    lines: list[Line] = []
    for at in (0, 1000, 2000):
        for line in chord(at, "MetaLeft", "KeyC"):
            again = {**line, "event": "keydown"} if line["data"]["key"] == "MetaLeft" else line
            lines += [line, again]
    assert summaries(lines, platform="macos", pause_ms=60_000) == ["command+c"] * 3


def alternate_shifts(at: int, gap: int) -> list[Line]:
    """Returns a press of right Shift `gap` ms after a release of left Shift, with the same name."""
    second = at + 150 + gap
    return [
        down(at, "Shift"),
        *tap(at + 50, "P"),
        up(at + 150, "Shift"),
        down(second, "Shift"),
        *tap(second + 70, "Q"),
        *tap(second + 180, "A"),
        up(second + 270, "Shift"),
    ]


@pytest.mark.parametrize("gap", [0, 1, 2, 3])
def test_a_second_shift_pressed_at_once_is_no_phantom(gap):
    segmentation, repairs = read(alternate_shifts(0, gap), tap(600, "C"), platform="windows")
    assert [a.text for a in segmentation.actions] == ["PQAc"]
    assert repairs.dropped == {}


@pytest.mark.parametrize("lag", [0, 1, 2])
@pytest.mark.parametrize("gap", [1, 2])
def test_a_second_shift_among_duplicates_is_no_phantom(gap, lag):
    lines = flattened(alternate_shifts(at, gap) for at in (0, 1000, 2000))
    assert summaries(copied(lines, 2, lag), platform="windows") == ["type PQAPQAPQA"]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_modifier_that_a_program_pressed_again_is_no_phantom(copies):
    """A program types Ctrl+C and Ctrl+V within milliseconds."""
    keys = ("KeyC", "KeyV")
    lines: list[Line] = []
    for n, key in enumerate(keys):
        lines += [
            down(2 * n, "ControlLeft"),
            *tap(2 * n, key, hold=1),
            up(2 * n + 1, "ControlLeft"),
        ]
    assert summaries(copied(lines, copies, lag=0)) == ["ctrl+c", "ctrl+v"]


@pytest.mark.parametrize("wrong", [("keydown",), ("keydown", "keydown"), ("keydown", "keyup")])
def test_every_wrong_duplicate_of_a_release_is_a_phantom(wrong):
    """Two or three hooks log the release. A tap of the same modifier and a click follow."""
    lines: list[Line] = []
    for at in (0, 1000, 2000):
        for line in chord(at, "MetaLeft", "KeyC"):
            kinds = wrong if line["data"]["key"] == "MetaLeft" and line["event"] == "keyup" else ()
            lines += [line, *({**line, "event": kind} for kind in kinds)]
    lines += [*click(2600), *tap(4000, "MetaLeft")]
    assert summaries(lines, platform="macos", pause_ms=60_000) == [
        *["command+c"] * 3,
        "click left 1",
        "command",
    ]


# --- positions


def test_a_press_has_the_position_of_the_last_move():
    segmentation, repairs = read(move(0, 7, 8), press(50), lift(100), move(200, 90, 90))
    assert [(a.action_type, a.x, a.y) for a in segmentation.actions] == [("click", 7, 8)]
    assert repairs.filled_positions == 2


def test_before_any_move_the_next_one_gives_the_position():
    [action] = actions(press(0), lift(60), move(90, 7, 8))
    assert (action.x, action.y) == (7, 8)


@pytest.mark.parametrize(
    ("platform", "expected"), [("macos", "drag"), ("linux", "click"), ("windows", "click")]
)
def test_macos_shows_a_drag_by_its_end_points(platform, expected):
    lines = [move(0, 10, 10), press(50), lift(700), move(900, 210, 40)]
    [action] = actions(*lines, platform=platform)
    assert action.action_type == expected
    if expected == "drag":
        assert (action.end_x, action.end_y, action.path) == (210, 40, [])
        assert action.flags == ["end_points_only"]


def test_on_macos_the_first_step_after_a_click_is_no_drag():
    lines = [move(0, 10, 10), press(50), lift(130), move(500, 17, 10), move(520, 90, 10)]
    assert summaries(*lines, platform="macos") == ["click left 1"]


def test_on_macos_a_long_way_is_a_drag_however_quick():
    [action] = actions(move(0, 10, 10), press(50), lift(130), move(500, 90, 10), platform="macos")
    assert (action.action_type, action.end_x) == ("drag", 90)


def test_on_macos_logged_moves_within_a_press_decide():
    lines = [move(0, 10, 10), press(50), move(90, 11, 10), lift(700), move(900, 210, 40)]
    assert summaries(*lines, platform="macos") == ["click left 1"]


def test_repairs_are_reported():
    lines = [move(500, 5, 5), move(400, 4, 4), move(300, 3, 3), move(600, 6, 6)]
    assert read(*lines)[1].late_lines == 2
    both = [down(0, "Shift"), down(90, "Shift"), up(200, "Shift"), up(300, "Shift")]
    assert read(*both, platform="windows")[1].second_shifts == 1
    first = [down(0, "Shift"), down(90, "Shift"), up(200, "Shift"), tap(900, "Shift")]
    assert read(*first, platform="windows")[1].second_shifts == 0
