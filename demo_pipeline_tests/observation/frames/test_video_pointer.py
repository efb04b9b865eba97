"""Tests which frames leak the action, because of their time or of the pointer in them.

Also tests which of these leaks are unavoidable.
"""

import pytest

from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import PointerPath, TargetArea
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Span

AREA = TargetArea(500.0, 300.0, 40.0)
REQUEST = FrameRequest(1, 5.0, 2.0, 4.9, 4.5, AREA, Span(2.0, 4.9))


def pointer(*moves: tuple[int, float]) -> VideoPointer:
    """Returns a pointer with these positions (epoch milliseconds, x), all at y = 300."""
    path = PointerPath.through((time, x, 300.0) for time, x in moves)
    clock = Clock(0.0, "pixels", 5.0)
    screen = ScreenParts.single(fit_canvas((1920, 1080), 1.0))
    return VideoPointer(path, clock, screen, 0.1)


@pytest.mark.parametrize(
    ("moves", "time", "expected"),
    [
        (((0, 10.0), (4600, 500.0)), 4.0, (False, False)),
        (((0, 10.0), (4600, 500.0)), 4.7, (True, False)),
        (((0, 500.0),), 4.0, (True, True)),
        (((0, 500.0),), 4.95, (True, False)),  # a frame after the limit may show the press
        (((0, 10.0),), 4.95, (True, False)),
    ],
)
def test_a_leak_is_unavoidable_only_in_a_frame_from_before_the_limit(
    moves: tuple[tuple[int, float], ...], time: float, expected: tuple[bool, bool]
) -> None:
    assert pointer(*moves).leak(REQUEST, time)[:2] == expected
