"""Tests whether the last action had an effect, on simulated videos of changed cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import Cells, Difference
from demo_pipeline.observation.frames.stop_effect import StopEffect

FPS = 10
ROWS = 135
COLUMNS = 240
SHORTCUT = Action("hotkey", 10_000, 10_200, [], keys=["ctrl", "shift", "f9"])
CLICK = Action("click", 10_000, 10_080, [], x=800.0, y=400.0, button="left", clicks=1)
CARET = (slice(20, 23), slice(50, 51))
UNDER_POINTER = (slice(50, 51), slice(100, 102))


@dataclass(frozen=True)
class _Frame:
    time: float


@dataclass(frozen=True)
class _Diff:
    frame: _Frame
    difference: Difference | None
    pointers: list[tuple[float, float]]
    before: _Frame | None = None


def stopped(
    action: Action,
    changes: Mapping[float, tuple[slice, slice]],
    *,
    end: float = 11.5,
    uncertainty_ms: float = 20.0,
    first: float = 5.0,
) -> bool:
    """Returns whether the action is found to have stopped the recorder.

    `changes` maps seconds of the video to the cells that change at that time.
    """
    effect = StopEffect(action, Clock(0.0, "pixels", uncertainty_ms), end)
    for number in range(round(first * FPS), round(end * FPS) + 1):
        time = number / FPS
        cells: Cells = np.zeros((ROWS, COLUMNS), bool)
        if time in changes:
            cells[changes[time]] = True
        difference = Difference(cells)
        diff: Any = _Diff(_Frame(time), difference, [(800.0, 400.0)], _Frame(time - 1 / FPS))
        effect.see(diff)
    return effect.result()


@pytest.mark.parametrize("action", [SHORTCUT, CLICK])
def test_a_video_without_changes_was_stopped_and_one_with_a_small_change_was_not(
    action: Action,
) -> None:
    assert stopped(action, {})
    assert not stopped(action, {10.3: (slice(5, 6), slice(5, 7))})
    assert not stopped(action, {11.5: (slice(5, 6), slice(5, 7))})


def test_the_smallest_change_is_an_effect_of_a_click() -> None:
    """A check mark on a small screen fills a single cell. After a shortcut, a cell may be noise."""
    tick = {10.3: (slice(5, 6), slice(5, 6))}
    assert not stopped(CLICK, tick)
    assert stopped(SHORTCUT, tick)


def test_a_text_cursor_that_blinked_before_is_no_effect() -> None:
    blinks = {8.9: CARET, 9.5: CARET, 10.1: CARET, 10.7: CARET}
    assert stopped(SHORTCUT, blinks)
    assert stopped(CLICK, blinks)
    pasted = (slice(20, 23), slice(50, 60))
    assert not stopped(SHORTCUT, {**blinks, 10.2: pasted})


def test_a_change_long_before_the_press_is_not_ignored() -> None:
    assert not stopped(SHORTCUT, {7.0: CARET, 10.2: CARET})


def test_a_screen_that_changed_all_over_right_before_proves_nothing() -> None:
    everything = (slice(0, ROWS), slice(0, COLUMNS))
    assert not stopped(SHORTCUT, {9.6: everything, 10.2: CARET})


def test_a_change_under_the_pointer_is_an_effect_of_a_click_only() -> None:
    assert stopped(SHORTCUT, {10.2: UNDER_POINTER})
    assert not stopped(CLICK, {10.2: UNDER_POINTER})


def test_an_uncertain_clock_widens_what_counts_as_after_the_press() -> None:
    early = {9.8: CARET, 10.4: CARET}
    assert stopped(SHORTCUT, early)
    assert not stopped(SHORTCUT, early, uncertainty_ms=400)


def test_a_video_that_goes_on_was_not_stopped() -> None:
    assert stopped(CLICK, {}, end=12.0)
    assert not stopped(CLICK, {}, end=12.3)
    assert stopped(SHORTCUT, {}, end=24.0)
    assert not stopped(SHORTCUT, {}, end=26.0)


@pytest.mark.parametrize("end", [9.8, 10.2])
def test_a_video_that_ends_with_the_press(end: float) -> None:
    """A video with a variable frame rate ends at the last change, even if recording continues."""
    assert stopped(SHORTCUT, {}, end=end)
    assert not stopped(CLICK, {10.1: CARET}, end=end)
    assert not stopped(CLICK, {}, end=end, uncertainty_ms=2500, first=end + 1)


def test_a_video_that_ended_long_before_or_shows_nothing_proves_nothing() -> None:
    assert not stopped(SHORTCUT, {}, end=9.0)
    assert not stopped(SHORTCUT, {}, first=11.6)
    nothing = StopEffect(None, Clock(0.0, "pixels", 20.0), 11.5)
    assert (nothing.result(), list(nothing.spans)) == (False, [])
