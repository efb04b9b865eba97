"""Tests the clock of keyboard work, with one movement of the pointer and some shortcuts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.clock import documented_clock
from demo_pipeline.observation.clock.clock_evidence import clock_from_keys, clock_from_pointer
from demo_pipeline.observation.clock.clock_votes import answered_inputs, clock_from_inputs
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerPath

START_MS = 1_767_603_600_000.0
SCALES = [1.0, 2.0]
ANSWER_S = 0.14  # reaction time of a slow application, seconds
FPS = 10
SECONDS = 20
SHORTCUTS = np.array([4.1, 5.45, 6.7, 8.0, 9.2, 10.9, 12.0, 13.8, 15.1, 17.3])
MOVED_S = (2.0, 2.4)  # start and end of the only movement of the pointer, seconds


@dataclass(frozen=True)
class _ImageOfFrame:
    time: float
    luma: Any


def pointer_x(second: float) -> float:
    """Returns the x coordinate, at a time, of a pointer that moves 400 pixels to the right."""
    return float(np.interp(second, MOVED_S, (100.0, 500.0)))


def simulated(shortcuts: Floats, *, shows_pointer: bool = True) -> tuple[ChangeMap, Floats]:
    """Returns the changes and the frame times of a video in which each shortcut rewrites a line."""
    changes = ChangeMap()
    for number in range(SECONDS * FPS):
        time = number / FPS
        luma = np.full((90, 160), 200, np.uint8)
        answered = int((shortcuts + ANSWER_S <= time).sum())
        line = np.random.default_rng(answered).integers(0, 2, (4, 60)) * 150
        luma[70:74, 10:70] = line
        if shows_pointer:
            column = int(pointer_x(time)) // 4
            luma[25:30, column : column + 3] = 20
        image: Any = _ImageOfFrame(time, luma)
        changes.add(image)
    return changes, np.array(changes.times)


def logged(lag_s: float) -> tuple[PointerPath, Floats]:
    """Returns the pointer's path and the shortcuts of a log whose times are later by `lag_s`."""
    zero = START_MS + lag_s * 1000
    seconds = np.arange(*MOVED_S, 0.02)
    track = PointerPath.through((zero + s * 1000, pointer_x(s), 100.0) for s in seconds.tolist())
    return track, zero + SHORTCUTS * 1000


@pytest.mark.parametrize("lag_s", [0.0, 1.2, -8.0, 30.0])
def test_a_movement_and_shortcuts_tell_the_clock_however_far_the_log_is_off(lag_s: float) -> None:
    changes, frames = simulated(SHORTCUTS)
    track, inputs = logged(lag_s)
    documented = documented_clock(START_MS)
    clock = clock_from_inputs(changes, frames, track, inputs, documented, SCALES)
    assert clock is not None
    assert (clock.method, clock.event_scale) == ("inputs", 1.0)
    assert clock.documented_offset_ms == pytest.approx(lag_s * 1000, abs=50)
    assert clock.uncertainty_ms <= 100
    if abs(lag_s) < 2:  # the other searches try this lag, too, but find too little evidence
        assert clock_from_pointer(changes, track, documented, SCALES, 3.5) is None
        assert clock_from_keys(changes, frames, inputs, documented, 3.5) is None


def test_shortcuts_alone_tell_it_as_exactly_as_answers_are_quick() -> None:
    changes, frames = simulated(SHORTCUTS, shows_pointer=False)
    _, inputs = logged(5.0)
    still = PointerPath.through([])
    clock = clock_from_inputs(changes, frames, still, inputs, documented_clock(START_MS), SCALES)
    assert clock is not None
    assert abs(clock.documented_offset_ms - 5000) <= clock.uncertainty_ms <= 250


@pytest.mark.parametrize("seed", range(4))
def test_the_log_of_another_recording_tells_nothing(seed: int) -> None:
    others = np.sort(np.random.default_rng(seed).uniform(3, SECONDS - 1, len(SHORTCUTS)))
    changes, frames = simulated(others, shows_pointer=False)
    track, inputs = logged(0.0)
    documented = documented_clock(START_MS)
    assert clock_from_inputs(changes, frames, track, inputs, documented, SCALES) is None


def test_a_still_video_tells_nothing() -> None:
    changes, frames = simulated(np.array([]), shows_pointer=False)
    track, inputs = logged(0.0)
    clock = clock_from_inputs(changes, frames, track, inputs, documented_clock(START_MS), SCALES)
    assert clock is None


def test_modifiers_and_repetition_are_no_inputs_that_the_video_answers() -> None:
    lines = [
        ("keydown", "LeftCtrl"),
        ("keydown", "S"),
        ("keydown", "S"),
        ("keyup", "S"),
        ("keyup", "LeftCtrl"),
        ("mousemove", ""),
        ("mousedown", "Left"),
        ("mousewheel", ""),
    ]
    inputs = [
        Input(number, 10 * number, kind, 1.0, 1.0, name)
        for number, (kind, name) in enumerate(lines)
    ]
    assert answered_inputs(inputs).tolist() == [10.0, 60.0, 70.0]
