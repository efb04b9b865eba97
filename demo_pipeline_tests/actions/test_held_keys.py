"""Tests that a printable key types nothing if it is held while a mouse button is held."""

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
    typed,
    up,
)

REPEAT_AFTER = 500  # milliseconds from a press to its first auto-repeat
REPEAT_EVERY = 33  # milliseconds between two auto-repeats


def held(at: int, key: str, until: int) -> list[Line]:
    """Returns the lines of a key held from `at` to `until`, with auto-repeat."""
    repeats = range(at + REPEAT_AFTER, until, REPEAT_EVERY)
    return [down(at, key), *(down(time, key) for time in repeats), up(until, key)]


def dragged(at: int, until: int) -> list[Line]:
    """Returns the lines of a left-button drag from `at` to `until`, with a move every 50 ms."""
    moves = (move(time, (time - at) / 4, 0) for time in range(at + 20, until, 50))
    return [press(at, 0, 0), *moves, lift(until, (until - at) / 4, 0)]


@pytest.mark.parametrize(
    ("key", "drag"),
    [
        pytest.param((0, 2000), (300, 1900), id="around the drag"),
        pytest.param((0, 400), (100, 350), id="around a short drag, without auto-repeat"),
        pytest.param((0, 1900), (300, 2000), id="released first"),
        pytest.param((100, 2000), (0, 1900), id="pressed last"),
        pytest.param((0, 2600), (1500, 1900), id="auto-repeating long before the button"),
        pytest.param((0, 3000), (300, 400), id="auto-repeating only after the drag"),
    ],
)
def test_a_key_held_for_a_drag_types_nothing(key, drag):
    segmentation, _ = read(held(key[0], "Space", key[1]), dragged(*drag))
    assert [a.action_type for a in segmentation.actions] == ["drag"]
    assert segmentation.actions[0].flags == ["key_held"]
    assert set(segmentation.reasons.values()) == {"held_with_button"}


def test_one_hold_for_several_drags_types_nothing():
    drags = [*dragged(300, 700), *dragged(1000, 1500), *dragged(1700, 2200)]
    grouped = actions(held(0, "Space", 2500), drags)
    assert [(a.action_type, a.flags) for a in grouped] == [("drag", ["key_held"])] * 3


def test_typing_before_and_after_a_held_key_stays():
    lines = [typed(0, "KeyA", "KeyB"), held(1000, "Space", 3000), dragged(1300, 2900)]
    assert summaries(lines[0], *lines[1:], typed(3300, "KeyC")) == [
        "type ab",
        "drag left",
        "type c",
    ]


def test_a_key_let_go_just_after_the_button_was_pressed_was_typed():
    """During fast work, one hand may still hold the key when the other presses the button."""
    assert summaries(tap(0, "KeyA", hold=120), dragged(100, 500)) == ["type a", "drag left"]


def test_a_key_tapped_during_a_drag_is_typed():
    assert summaries(dragged(0, 500), tap(200, "KeyX")) == ["drag left", "type x"]


def test_a_key_without_a_release_before_a_drag_was_typed():
    assert summaries(down(0, "KeyA"), dragged(300, 900)) == ["type a", "drag left"]


def test_a_key_held_for_a_click_is_typed_once():
    lines = [held(0, "KeyW", 900), click(450, hold=500)]
    segmentation, _ = read(*lines)
    assert [a.text or a.action_type for a in segmentation.actions] == ["w", "click"]
    assert set(segmentation.reasons.values()) == {"held_with_button"}


def test_a_button_without_a_release_holds_nothing():
    grouped = actions(press(0, 5, 5), held(2000, "KeyA", 2600))
    assert [a.text or a.action_type for a in grouped if a.action_type != "pause"] == [
        "click",
        "aaaaa",
    ]


def test_navigation_keys_held_for_a_drag_stay():
    grouped = summaries(held(0, "Down", 1000), dragged(100, 900))
    assert [text.split()[0] for text in grouped] == ["down", "drag", "down"]
