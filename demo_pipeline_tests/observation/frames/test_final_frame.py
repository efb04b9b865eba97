"""Tests that the final screenshot shows the screen after the whole effect of the last action."""

from dataclasses import dataclass
from typing import Any

import pytest

from demo_pipeline.observation.frames.final_frame import FinalFrame

FPS = 10


@dataclass(frozen=True)
class _Frame:
    time: float


def chosen(seconds: float, changed: set[float], small: set[float]) -> float | None:
    """Returns the time of the final screenshot of a video whose last action ended at 0."""
    chooser = FinalFrame(0.0)
    for number in range(round(seconds * FPS)):
        time = number / FPS
        frame: Any = _Frame(time)
        chooser.add(frame, changed=time in changed, small=time in changed | small)
    frame_chosen = chooser.result()
    return frame_chosen.time if frame_chosen else None


def tenths(first: int, last: int, step: int = 1) -> set[float]:
    return {n / FPS for n in range(first, last, step)}


@pytest.mark.parametrize(
    ("seconds", "changed", "small", "expected"),
    [
        (5, set(), set(), 0.3),
        (5, {1.2, 2.0}, set(), 2.0),
        (9, set(), tenths(1, 70, 2), 6.9),  # a progress bar with small changes and no rest
        (9, {7.0}, tenths(1, 70, 2), 7.0),
        (9, set(), tenths(0, 90, 6), 0.3),  # a text cursor
        (0.4, set(), set(), 0.3),  # the video ends too early to prove that the screen is still
        (5, tenths(3, 50), set(), 4.9),
        (5, {4.6}, set(), 4.9),
        (0, set(), set(), None),
    ],
)
def test_the_first_frame_from_which_the_screen_stays(
    seconds: float, changed: set[float], small: set[float], expected: float | None
) -> None:
    assert chosen(seconds, changed, small) == expected
