"""Pauses between two actions, during which the pointer rests or only moves idly."""

from demo_pipeline_tests.actions.streams import (
    actions,
    click,
    down,
    lift,
    move,
    press,
    summaries,
    tap,
    up,
)


def test_two_seconds_without_input_are_a_pause():
    _, pause, _ = actions(click(0), click(2080))
    assert (pause.action_type, pause.press_ms, pause.end_ms) == ("pause", 80, 2080)
    assert (pause.seconds, pause.events) == (2.0, [])
    assert (pause.first_event, pause.last_event) == (2, 3)


def test_a_shorter_silence_is_no_pause():
    assert summaries(click(0), click(2079)) == ["click left 1"] * 2


def test_idle_moves_do_not_end_a_pause():
    lines = [click(0), move(900, 300, 300), move(1800, 600, 50), click(2900)]
    _, pause, _ = actions(*lines)
    assert (pause.action_type, pause.press_ms, pause.end_ms) == ("pause", 80, 2900)
    assert pause.flags == ["pointer_moved"]  # the pointer never rested for two seconds
    _, pause, _ = actions(click(0), move(900, 300, 300), click(2900))
    assert pause.flags == []


def test_the_approach_to_the_next_target_ends_a_pause():
    away = [move(2500 + 100 * step, 900 - 150 * step, 5) for step in range(6)]
    _, pause, _ = actions(click(0, 5, 5), *away, click(3100, 150, 5))
    assert (pause.press_ms, pause.end_ms) == (80, 2500)
    idle = [move(1500 + 100 * step, 400 + 50 * step, 5) for step in range(10)]
    _, pause, _ = actions(click(0, 5, 5), *idle, *away, click(3100, 150, 5))
    assert pause.end_ms == 2500  # when the pointer turned towards the target


def test_a_pointer_that_waits_at_the_target_does_not_end_the_pause():
    moved = [move(300 + 100 * step, 900 - 150 * step, 5) for step in range(6)]
    _, pause, _ = actions(click(0, 5, 5), *moved, click(3100, 150, 5))
    assert (pause.press_ms, pause.end_ms) == (80, 3100)


def test_a_key_without_an_action_ends_the_pause():
    grouped = summaries(click(0), tap(1500, "ShiftLeft"), tap(1700, "KeyA"), click(2900))
    assert not any(text.startswith("pause") for text in grouped)


def test_the_silence_before_the_first_and_after_the_last_action_is_no_pause():
    assert summaries(move(0, 1, 1), click(9000), move(19_000, 1, 1)) == ["click left 1"]


def test_a_silence_after_travel_counts_between_actions():
    lines = [click(0), move(500, 300, 300), move(3000, 310, 300), click(3200, 310, 300)]
    assert summaries(*lines) == ["click left 1", "pause 3.12", "click left 1"]


def test_no_pause_inside_an_action():
    assert summaries(tap(0, "KeyA"), tap(5000, "KeyB")) == ["type ab"]
    held = [press(0, 5, 5), move(20, 90, 90), move(4000, 95, 90), lift(4100, 95, 90)]
    assert summaries(*held) == ["drag left"]
    chord = [down(0, "ControlLeft"), tap(2500, "KeyC"), up(2700, "ControlLeft")]
    assert summaries(*chord) == ["ctrl+c"]


def test_every_pause_is_kept_and_numbered_in_order():
    grouped = actions(click(0), click(3000), tap(7000, "Return"))
    assert [a.action_type for a in grouped] == ["click", "pause", "click", "pause", "hotkey"]
    assert [a.action_index for a in grouped] == [0, 1, 2, 3, 4]


def test_the_length_is_a_setting():
    assert summaries(click(0), click(600), pause_ms=500)[1] == "pause 0.52"
