"""Tests that a press at the border is kept unless the pointer left the video there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.repair import BORDER_RUN
from demo_pipeline.observation.clock.canvas import ScaleMethod, ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.border_presses import BorderPresses
from demo_pipeline.observation.frames.pointer_path import Point, PointerPath
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import RecordedVideo
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

WIDTH = 640
HEIGHT = 360
FPS = 10
SECONDS = 5
BEGIN = (320.0, 180.0)
Shown = Callable[[Point], bool]


def logged(second: float, place: Point) -> Point:
    """Returns the logged position at a time.

    The pointer moves to the border, along the border to the place, rests there, and returns.
    """
    beside = (place[0] or 0.0, place[1] + 80) if place[0] in {0, WIDTH - 1} else None
    first = beside or (place[0] + 80, place[1])
    stations = [(0.0, BEGIN), (1.5, BEGIN), (2.0, first), (2.3, place), (3.6, place), (4.1, BEGIN)]
    times = [time for time, _ in stations]
    x = np.interp(second, times, [point[0] for _, point in stations])
    y = np.interp(second, times, [point[1] for _, point in stations])
    return float(x), float(y)


def elsewhere(
    folder: Path,
    place: Point,
    is_drawn_at: Shown,
    *,
    several_displays: bool = False,
    others: tuple[Action, ...] = (),
    scale_method: ScaleMethod = "pixels",
) -> list[int]:
    """Returns the indexes of presses that are found to be on another display.

    `is_drawn_at` tells whether the video shows the pointer at a logged position.
    """

    def image(second: float) -> np.ndarray:
        page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        page[:HEIGHT] = 200
        point = logged(second, place)
        if is_drawn_at(point):
            x, y = map(int, point)
            page[y : min(HEIGHT, y + 20), x : x + 12] = 30
        return page

    video_path = folder / "video.mp4"
    images = ((n * TICKS // FPS, image(n / FPS)) for n in range(SECONDS * FPS))
    encode(video_path, images, (WIDTH, HEIGHT), VideoOptions(fps=FPS, preset="ultrafast"))
    video = RecordedVideo(video_path, read_packets(video_path))
    path = PointerPath.through((n * 20, *logged(n / 50, place)) for n in range(SECONDS * 50))
    canvas = replace(fit_canvas((WIDTH, HEIGHT), 1.0), scale_method=scale_method)
    screen = ScreenParts.single(canvas)
    pointer = VideoPointer(path, Clock(0.0, "pixels", 40.0), screen, video.frame_s)
    x, y = place
    press = Action("click", 3000, 3080, [], 7, x, y, flags=[BORDER_RUN])
    border = BorderPresses(
        [press, *others], pointer, video.times, several_displays=several_displays
    )
    for frame in video.frames(border.spans):
        border.see(frame)
    return border.elsewhere()


def everywhere(_point: Point) -> bool:
    return True


def inside(point: Point) -> bool:
    return 1 <= point[0] < WIDTH - 1 and 1 <= point[1] < HEIGHT - 1


@pytest.mark.parametrize("place", [(0, 100), (300, 0), (300, HEIGHT - 1), (WIDTH - 1, 100)])
def test_a_click_at_the_border_of_a_single_screen_is_kept(tmp_path: Path, place: Point) -> None:
    assert elsewhere(tmp_path, place, everywhere) == []


@pytest.mark.parametrize("place", [(0, 100), (300, 0)])
def test_a_click_before_which_the_pointer_left_the_video_is_elsewhere(
    tmp_path: Path, place: Point
) -> None:
    assert elsewhere(tmp_path, place, inside) == [7]


def test_no_pointer_is_visible_at_the_lower_border_of_a_single_screen(tmp_path: Path) -> None:
    assert elsewhere(tmp_path, (300, HEIGHT - 1), inside) == []


def test_with_another_display_the_video_has_to_show_the_pointer(tmp_path: Path) -> None:
    place = (300, HEIGHT - 1)
    outside = Action("click", 500, 580, [], 8, WIDTH + 200.0, 100.0)
    assert elsewhere(tmp_path, place, inside, several_displays=True) == [7]
    assert elsewhere(tmp_path, place, inside, others=(outside,)) == [7]
    assert elsewhere(tmp_path, (300, 0), everywhere, several_displays=True) == []


def test_a_video_without_a_pointer_proves_nothing(tmp_path: Path) -> None:
    assert elsewhere(tmp_path, (300, 0), inside, scale_method="monitor") == []
