"""Clicks, drags and scrolls from button and wheel events."""

import pytest

from demo_pipeline_tests.actions.streams import (
    Line,
    actions,
    click,
    down,
    lift,
    move,
    press,
    read,
    summaries,
    tap,
    up,
    wheel,
)

STORIES: list[tuple[str, list[Line | list[Line]], list[str]]] = [
    ("one press and release", [click(0)], ["click left 1"]),
    ("two quick presses", [click(0), click(200)], ["double_click"]),
    ("three quick presses", [click(0), click(200), click(400)], ["click left 3"]),
    ("a fourth press begins anew", [click(0), click(200), click(400), click(600)],
     ["click left 3", "click left 1"]),
    ("slow presses", [click(0), click(501)], ["click left 1", "click left 1"]),
    ("at the limit of a double click", [click(0), click(500)], ["double_click"]),
    ("two places", [click(0, 10, 10), click(200, 16, 10)], ["click left 1", "click left 1"]),
    ("a trembling hand", [click(0, 10, 10), click(200, 15, 10)], ["double_click"]),
    ("right button", [click(0, button="Right")], ["right_click"]),
    ("two right presses are not a double click",
     [click(0, button="Right"), click(200, button="Right")], ["right_click", "right_click"]),
    ("middle button", [click(0, button="Middle")], ["click middle 1"]),
    ("a button is not another", [click(0), click(200, button="Middle")],
     ["click left 1", "click middle 1"]),
    ("held key", [down(0, "ControlLeft"), click(100), up(300, "ControlLeft")],
     ["ctrl+click left 1"]),
    (
        "two held keys",
        [down(0, "ControlLeft"), down(30, "ShiftLeft"), click(100), up(300, "ShiftLeft"),
         up(310, "ControlLeft")],
        ["ctrl+shift+click left 1"],
    ),
    ("modified and plain presses do not join",
     [down(0, "ControlLeft"), click(100), up(200, "ControlLeft"), click(300)],
     ["ctrl+click left 1", "click left 1"]),
    (
        "held key and drag",
        [down(0, "ShiftLeft"), press(100, 0, 0), move(150, 50, 0), lift(300, 50, 0),
         up(400, "ShiftLeft")],
        ["shift+drag left"],
    ),
    ("click, later drag from the same point",
     [click(0, 10, 10), press(700, 10, 10), move(750, 40, 10), lift(800, 40, 10)],
     ["click left 1", "drag left"]),
    ("keys part two presses", [click(0), tap(120, "Tab", hold=30), click(300)],
     ["click left 1", "tab", "click left 1"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"), [s[1:] for s in STORIES], ids=[s[0] for s in STORIES]
)
def test_presses(lines, expected):
    assert summaries(*lines) == expected


@pytest.mark.parametrize(("reach", "expected"), [(5, "click"), (5.1, "drag"), (300, "drag")])
def test_a_press_that_leaves_the_click_radius_is_a_drag(reach, expected):
    [action] = actions(press(0, 10, 10), move(40, 10 + reach, 10), lift(90, 10 + reach, 10))
    assert action.action_type == expected
    assert (action.x, action.y) == (10, 10)


def test_a_drag_out_and_back_is_a_drag():
    [action] = actions(press(0, 10, 10), move(50, 90, 10), move(90, 10, 10), lift(120, 10, 10))
    assert action.action_type == "drag"
    assert (action.end_x, action.end_y) == (10, 10)


def test_a_long_still_press_is_a_click_flagged_long():
    [short, long] = actions(click(0, hold=500), click(2000, hold=501), pause_ms=60_000)
    assert (short.action_type, short.flags) == ("click", [])
    assert (long.action_type, long.flags) == ("click", ["long"])


def test_a_drag_keeps_its_path_and_its_moves():
    lines = [press(0, 0, 0), *(move(10 * n, 5 * n, n) for n in range(1, 21)), lift(300, 100, 20)]
    [action] = actions(*lines)
    assert (action.end_x, action.end_y, action.press_ms, action.end_ms) == (100, 20, 0, 300)
    assert action.path == [{"x": 5.0 * n, "y": float(n), "time_ms": 10 * n} for n in range(1, 21)]
    assert action.events == list(range(1, 23))


def test_a_long_path_is_sampled_with_both_ends():
    moves = [move(5 * n, n, 0) for n in range(1, 1001)]
    [action] = actions(press(0, 0, 0), *moves, lift(5100, 1000, 0))
    assert len(action.path) == 64
    assert (action.path[0]["x"], action.path[-1]["x"]) == (1, 1000)


def test_moves_inside_a_click_belong_to_it_and_others_do_not():
    [action] = actions(
        move(0, 1, 1), press(10, 1, 1), move(20, 2, 1), lift(60, 2, 1), move(90, 5, 1)
    )
    assert action.events == [2, 3, 4]


def test_two_buttons_at_once_share_no_event():
    grouped = actions(
        press(0, 0, 0),
        press(50, 0, 0, "Right"),
        move(100, 90, 0),
        lift(150, 90, 0),
        move(160, 95, 0),
        lift(200, 95, 0, "Right"),
    )
    assert [(a.action_type, a.button) for a in grouped] == [("drag", "left"), ("drag", "right")]
    events = [index for action in grouped for index in action.events]
    assert sorted(events) == [1, 2, 3, 4, 5, 6]


def test_a_double_click_whose_second_press_is_dragged_is_one_drag():
    dragged = [press(200, 11, 10), move(250, 40, 10), lift(300, 40, 10)]
    [action] = actions(click(0, 10, 10), dragged)
    assert (action.action_type, action.clicks) == ("drag", 2)
    assert (action.press_ms, action.x, action.end_x) == (0, 11, 40)
    assert len(action.events) == 5
    elsewhere = actions(click(0, 90, 10), dragged)
    assert [(action.action_type, action.clicks) for action in elsewhere] == [
        ("click", 1),
        ("drag", None),
    ]


def test_a_press_without_a_release_is_a_flagged_click():
    grouped = actions(press(0, 5, 5), move(400, 300, 5), click(900, 300, 5))
    assert [(a.action_type, a.x, a.flags) for a in grouped] == [
        ("click", 5, ["never_released"]),
        ("click", 300, []),
    ]


def test_a_release_without_a_press_is_accounted_for():
    segmentation, _ = read(lift(0, 5, 5), click(900))
    assert [a.action_type for a in segmentation.actions] == ["click"]
    assert segmentation.reasons == {1: "release_without_press"}


def test_a_modifier_tapped_in_the_middle_of_a_drag_is_no_hotkey():
    [action] = actions(
        press(0, 0, 0), move(50, 80, 0), tap(100, "ControlLeft", hold=200), lift(400, 80, 0)
    )
    assert action.action_type == "drag"
    assert action.events == [1, 2, 3, 4, 5]
    assert action.flags == ["modified_midway"]


def test_a_drag_closely_followed_by_ctrl_c_is_two_actions():
    lines = [press(0, 0, 0), move(50, 80, 0), down(90, "ControlLeft"), lift(100, 80, 0),
             down(140, "KeyC"), up(200, "KeyC"), up(220, "ControlLeft")]  # fmt: skip
    assert summaries(*lines) == ["drag left", "ctrl+c"]


def test_a_held_modifier_belongs_to_every_click_it_modified():
    grouped = actions(
        down(0, "ControlLeft"), click(100, 0, 0), click(900, 90, 0), up(1100, "ControlLeft")
    )
    assert [a.modifiers for a in grouped] == [["ctrl"], ["ctrl"]]
    assert [a.events for a in grouped] == [[1, 2, 3], [4, 5, 6]]
    assert [(a.press_ms, a.end_ms) for a in grouped] == [(100, 180), (900, 980)]


def test_a_click_in_a_log_without_positions_has_no_position():
    [action] = actions(press(0), lift(80))
    assert (action.action_type, action.x, action.y) == ("click", None, None)


# --- the approach


def test_the_pre_move_begins_with_the_unbroken_run_of_moves():
    early = move(0, 0, 0)
    run = [move(1000 + 50 * n, 10 * n, 0) for n in range(5)]
    [action] = actions(early, *run, click(1400, 40, 0))
    assert action.pre_move_ms == 1000


def test_a_rest_before_the_press_leaves_no_pre_move():
    [action] = actions(move(0, 0, 0), click(300, 0, 0))
    assert action.pre_move_ms is None
    [action] = actions(move(0, 0, 0), click(299, 0, 0))
    assert action.pre_move_ms == 0


def test_a_pre_move_never_begins_before_the_last_pointer_action():
    first, second = actions(
        move(0, 0, 0),
        move(100, 20, 0),
        press(150, 20, 0),
        lift(200, 20, 0),
        move(250, 40, 0),
        move(350, 90, 0),
        click(400, 90, 0),
    )
    assert (first.pre_move_ms, second.pre_move_ms) == (0, 250)


# --- scrolls


def test_a_burst_is_one_scroll_at_its_beginning():
    [action] = actions(move(0, 7, 9), *(wheel(100 + 80 * n, 120) for n in range(4)))
    assert (action.action_type, action.direction, action.amount) == ("scroll", "down", 4)
    assert (action.x, action.y, action.press_ms, action.end_ms) == (7, 9, 100, 340)
    assert (action.wheel_sum, action.wheel_unit) == (480, "120")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([wheel(0, 120), wheel(1000, 120)], ["scroll down 2"]),
        ([wheel(0, 120), wheel(1001, 120)], ["scroll down 1", "scroll down 1"]),
        ([wheel(0, 120), wheel(100, -120)], ["scroll down 1", "scroll up 1"]),
        ([wheel(0, 120), wheel(50, 0), wheel(100, 120)], ["scroll down 2"]),
        ([move(0, 0, 0), wheel(10, 120), move(50, 5, 0), wheel(90, 120)], ["scroll down 2"]),
        (
            [move(0, 0, 0), wheel(10, 120), move(50, 6, 0), wheel(90, 120)],
            ["scroll down 1", "scroll down 1"],
        ),
        (
            [wheel(0, 120), tap(100, "Tab", hold=20), wheel(200, 120)],
            ["scroll down 1", "tab", "scroll down 1"],
        ),
        (
            [down(0, "ControlLeft"), wheel(90, -120), wheel(190, -120), up(300, "ControlLeft")],
            ["ctrl+scroll up 2"],
        ),
    ],
)
def test_what_ends_a_scroll(lines, expected):
    assert summaries(*lines) == expected
