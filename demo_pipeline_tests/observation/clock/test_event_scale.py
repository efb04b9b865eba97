"""Tests which scale of logged positions is assumed if the video does not show the scale."""

import numpy as np
import pytest

from demo_pipeline.observation.clock.canvas import RecordedScreen
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.meta import Meta


def positions(x: float, y: float) -> PointerPath:
    """Returns twenty positions from the upper left to the lower right corner of a screen."""
    spread = np.linspace(0, 1, 20)
    return PointerPath(spread * 1000, spread * x, spread * y)


@pytest.mark.parametrize(
    ("video", "monitor", "scale"),
    [
        ((1920, 1080), (1920, 1080), 1.0),
        ((2880, 1800), (1440, 900), 2.0),
        ((1280, 720), (2560, 1440), 0.5),
        ((1920, 1080), (1920, 1200), 1.0),
        ((1920, 1080), None, 1.0),
    ],
)
def test_the_documented_scale_is_used_if_the_positions_fit(
    video: tuple[int, int], monitor: tuple[int, int] | None, scale: float
) -> None:
    assert RecordedScreen(video, monitor).scale_from_documents(positions(900, 700)) == scale


@pytest.mark.parametrize(("platform", "scale"), [("macos", 2.0), ("windows", 1.0)])
def test_with_a_scale_factor_the_monitor_is_in_pixels(platform: str, scale: float) -> None:
    """With a scale factor in meta.json, positions in a macOS log are in points."""
    monitor = {"width": 2880, "height": 1800, "scale_factor": 2.0, "x": 0, "y": 0}
    meta = Meta.model_validate(
        {"timestamp": "2026-01-05T09:00:00Z", "platform": platform, "primary_monitor": monitor}
    )
    screen = RecordedScreen.of(meta, (2880, 1800))
    assert screen.scale_from_documents(positions(1439, 899)) == scale


def test_a_log_without_positions_needs_no_scale() -> None:
    nothing = PointerPath(np.zeros(0), np.zeros(0), np.zeros(0))
    assert RecordedScreen((640, 480), (1920, 1200)).scale_from_documents(nothing) == 1.0


@pytest.mark.parametrize("monitor", [(2560, 1600), None])
def test_positions_off_the_video_are_refused_with_numbers(monitor: tuple[int, int] | None) -> None:
    with pytest.raises(DemonstrationError) as caught:
        RecordedScreen((1280, 720), monitor).scale_from_documents(positions(2500, 1500))
    (problem,) = caught.value.problems
    assert problem.code == "ambiguous_scale"
    assert "1280x720" in problem.message
    assert problem.remedy


def test_a_second_display_beside_a_documented_one_contradicts_nothing() -> None:
    assert (
        RecordedScreen((1920, 1080), (1920, 1080)).scale_from_documents(positions(3800, 1000))
        == 1.0
    )


def test_a_monitor_that_the_positions_contradict_gives_way_to_the_one_scale_they_fit() -> None:
    """The size in meta.json is in logical pixels, the positions in the log in physical pixels."""
    assert (
        RecordedScreen((2560, 1440), (1707, 960)).scale_from_documents(positions(2559, 1439)) == 1.0
    )


def test_points_without_a_monitor_are_ambiguous_where_several_scales_fit() -> None:
    screen = RecordedScreen((2880, 1800), None, in_points=True)
    with pytest.raises(DemonstrationError, match="ambiguous"):
        screen.scale_from_documents(positions(1440, 900))
    assert screen.scale_from_documents(positions(2879, 1799)) == 1.0
    assert RecordedScreen((2880, 1800), (1440, 900), in_points=True).scale_from_documents(
        positions(1439, 899)
    ) == pytest.approx(2.0)
