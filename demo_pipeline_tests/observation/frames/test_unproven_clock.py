"""Tests a clock that is uncertain by seconds.

A frame must be correct for every offset within the uncertainty, or be marked as unproven.
"""

from math import inf

import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import fit_canvas
from demo_pipeline.observation.clock.clock import Clock, ClockMethod
from demo_pipeline.observation.frames.frame_requests import FrameRequest, request_frames
from demo_pipeline.observation.frames.pointer_path import PointerPath

STILL = PointerPath.through([])


def requests(
    presses_s: list[float], uncertainty_ms: float, method: ClockMethod = "meta_timestamp"
) -> list[FrameRequest]:
    """Returns the frame requests for shortcuts that are pressed at these seconds."""
    actions = [
        Action("hotkey", round(press * 1000), round(press * 1000) + 100, [], number, keys=["f5"])
        for number, press in enumerate(presses_s)
    ]
    calibration = Calibration(Clock(0.0, method, uncertainty_ms), fit_canvas((640, 360), 1.0))
    return request_frames(actions, {}, STILL, calibration=calibration, frame_s=0.1, grab_s=0.1)


def test_actions_that_are_far_apart_have_a_frame_between_them_for_every_offset() -> None:
    first, second = requests([10.0, 20.0], 2500.0)
    assert first.limit == first.proven_until == 7.5
    assert (second.limit, second.proven_until) == (17.5, 17.5)
    assert second.since == pytest.approx(10.1 + 2.5 + 0.7)


def test_no_frame_is_proven_between_actions_that_are_closer_than_the_clock_is_unsure() -> None:
    _, second = requests([10.0, 14.0], 2500.0)
    assert second.proven_until == -inf
    assert second.limit == 13.0


def test_every_frame_before_the_limit_of_a_sure_clock_is_proven() -> None:
    for request in requests([10.0, 10.8], 60.0, "inputs"):
        assert request.proven_until == inf
