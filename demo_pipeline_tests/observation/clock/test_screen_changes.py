"""Tests changes of resolution during a recording, after which positions have another scale."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.screen_changes import (
    DesktopSize,
    ScreenWatch,
    find_parts_by_scans,
)
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.decode_pass import show_frames
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

WIDTH = 1280
HEIGHT = 720
FPS = 10
SECONDS = 14
CHANGES_S = 7.0
BASE = fit_canvas((WIDTH, HEIGHT), 1.0)


def place(second: float) -> tuple[float, float]:
    """Returns the pointer's position in the video at a time, in video pixels."""
    return 200 + 700 * abs(np.sin(second)), 100 + 450 * abs(np.cos(second / 2))


class WholeVideo:
    """An observer that needs every frame."""

    spans = (Span(0.0, SECONDS),)

    def see(self, diff: FrameDiff) -> None:
        """Ignores the frame."""


def parts_found(
    folder: Path,
    across: float,
    down: float,
    left: float = 0.0,
    *,
    shows_pointer: bool = True,
    moves: Callable[[float], tuple[float, float]] = place,
    follower_above: int = 0,
    desktops: tuple[DesktopSize, ...] = (),
) -> ScreenParts | None:
    """Returns the parts that are found in a video whose resolution changes at `CHANGES_S`.

    Args:
        folder: the folder for the video.
        across: video pixels per logged unit after the change, horizontally.
        down: video pixels per logged unit after the change, vertically.
        left: width of the left bar after the change, video pixels.
        shows_pointer: whether the video shows the pointer.
        moves: returns the pointer's position at a time, video pixels.
        follower_above: distance in video pixels from the pointer at the lower border to a box above
            it that moves with it; 0 without a box.
        desktops: sizes of the desktop in scans.
    """

    def image(second: float) -> np.ndarray:
        page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        page[:HEIGHT] = 60 if second < CHANGES_S else 110
        if shows_pointer:
            x, y = map(int, moves(second))
            page[y : min(HEIGHT, y + 20), x : x + 14] = 235
            if follower_above and y == HEIGHT - 1:
                page[y - follower_above : y - follower_above + 16, x : x + 40] = 200
        return page

    images = ((n * TICKS // FPS, image(n / FPS)) for n in range(SECONDS * FPS))
    video_path = folder / "video.mp4"
    encode(video_path, images, (WIDTH, HEIGHT), VideoOptions(fps=FPS, gop=100, preset="ultrafast"))
    places = []
    for number in range(SECONDS * 50):
        second = number / 50
        x, y = moves(second)
        if second >= CHANGES_S:
            x = (x - left) / across
            y = y / down
        places.append((number * 20, x, y))
    path = PointerPath.through(places)
    method: Literal["pixels", "assumed"] = "pixels" if shows_pointer else "assumed"
    canvas = replace(BASE, scale_method=method)
    calibration = Calibration(Clock(0.0, "pixels", 20.0), canvas)
    video = RecordedVideo(video_path, read_packets(video_path))
    screen = calibration.screen
    find_parts_by_scans(video, calibration, path, desktops)
    if len(screen) > 1:
        return screen
    pointer = VideoPointer(path, calibration.clock, screen, video.frame_s)
    watch = ScreenWatch(calibration, ())
    show_frames(video, [WholeVideo(), watch], ChangeDetector(), pointer)
    watch.finish()
    return screen if len(screen) > 1 else None


@pytest.mark.parametrize("scale", [1.25, 2.0])
def test_the_pointer_tells_the_scale_after_the_screen_was_redrawn(tmp_path, scale):
    parts = parts_found(tmp_path, scale, scale)
    assert parts is not None
    first, redraw, last = parts
    assert (first.canvas, redraw.canvas) == (parts.at(0).canvas, None)
    assert redraw.from_ms < CHANGES_S * 1000 < last.from_ms
    assert last.from_ms - redraw.from_ms < 300
    assert last.canvas is not None
    assert (last.canvas.event_scale, last.canvas.scale_method) == (scale, "pixels")
    assert last.canvas.to_canvas(100, 100) == BASE.to_canvas(100 * scale, 100 * scale)


def test_a_screen_that_keeps_its_resolution_is_one_part(tmp_path: Path) -> None:
    assert parts_found(tmp_path, 1.0, 1.0) is None


def test_a_pointer_that_slides_along_the_lower_border_is_no_change(tmp_path: Path) -> None:
    """The screen is redrawn, and the pointer is pushed against the taskbar until the end.

    The video does not show the pointer at the lower border, but a tooltip that follows it.
    """

    def along(second: float) -> tuple[float, float]:
        x, y = place(second)
        return (x, HEIGHT - 1.0) if second > CHANGES_S - 1 else (x, y)

    assert parts_found(tmp_path, 1.0, 1.0, moves=along, follower_above=39) is None


@pytest.mark.parametrize(("across", "left"), [(0.9375, 160.0), (1.25, 0.0)])
def test_a_screen_of_another_shape_has_bars_or_is_stretched(tmp_path, across, left):
    """A screen of 1024x768 is recorded with bars, or stretched, which the canvas must undo."""
    parts = parts_found(tmp_path, across, 0.9375, left)
    assert parts is not None
    canvas = parts.at(12_000).canvas
    assert canvas is not None
    place = (400 * across + left, 300 * 0.9375)
    assert canvas.to_video(400, 300) == place
    assert (canvas.to_canvas(400, 300) == BASE.to_canvas(*place)) == (left > 0)
    assert canvas.stretch == pytest.approx(1.0 if left else 4 / 3)


def test_without_a_pointer_in_the_video_the_scans_tell(tmp_path: Path) -> None:
    sizes = [(float(WIDTH), float(HEIGHT)), (1024.0, 576.0)]
    desktops = tuple(
        DesktopSize(second * 1000.0, sizes[second > CHANGES_S]) for second in range(1, SECONDS)
    )
    parts = parts_found(tmp_path, 1.25, 1.25, shows_pointer=False, desktops=desktops)
    assert parts is not None
    canvas = parts.at(12_000).canvas
    assert canvas is not None
    assert (canvas.event_scale, canvas.scale_method) == (1.25, "assumed")
