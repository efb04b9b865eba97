"""Tests which frames show the screen at the start and the end of scans, and later changes."""

import av
import numpy as np
import pytest

from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.evidence import TargetEvidence
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import (
    ElementUnderAction,
    FrameRequest,
    ScannedTarget,
)
from demo_pipeline.observation.frames.kept_frames import KeptFrames
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath
from demo_pipeline.observation.frames.scan_comparisons import ScanComparison
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Span, number_at


def shown(moments: list[float], times: list[float]) -> list[int | None]:
    """Returns the grey value of the frame that is kept for each moment.

    The video has a frame at each of `times`; its grey value is ten times the time.
    """
    frame_times = np.array(times)
    numbers = [number_at(frame_times, moment) for moment in moments]
    kept = KeptFrames(
        frame_times,
        [number for number in numbers if number >= 0],
        lambda frame: int(frame.luma[0, 0]),
    )
    for time in times:
        grey = np.full((64, 64), round(time * 10), np.uint8)
        kept.see(Frame(0, time, av.VideoFrame.from_ndarray(grey, format="gray")))
    return [kept.get(number) for number in numbers]


@pytest.mark.parametrize(
    ("moments", "times", "levels"),
    [
        pytest.param(
            [1.05, 1.5, 2.0, 2.05],
            [0.9, 1.0, 1.1, 1.4, 1.9, 2.0, 2.1],
            [10, 14, 20, 20],
            id="the last frame no later: the next may show what opened",
        ),
        pytest.param([9.0, 9.5], [1.0, 12.0], [10, 10], id="a variable rate: until the next"),
        pytest.param([0.5, 0.8], [1.0, 2.0], [None, None], id="before the video"),
    ],
)
def test_the_frame_that_is_shown_at_a_moment(
    moments: list[float], times: list[float], levels: list[int | None]
) -> None:
    assert shown(moments, times) == levels


def test_frames_that_are_no_longer_asked_for_are_dropped() -> None:
    kept = KeptFrames(np.array([1.0, 2.0]), [0, 1], lambda frame: frame.time)
    for number, time in enumerate((1.0, 2.0)):
        kept.see(Frame(number, time, None))
    kept.forget_before(0)
    assert (kept.get(0), kept.get(1)) == (1.0, 2.0)
    kept.forget_before(1)
    assert (kept.get(0), kept.get(1)) == (None, 2.0)


ITEM = PixelBox(250, 200, 210, 40)  # an item of a menu, larger than a hundredth of the frame
BUTTON = PixelBox(330, 205, 40, 30)
ROW = PixelBox(100, 200, 600, 40)


def compared(
    element: PixelBox,
    *around: PixelBox,
    lit: PixelBox,
    scanned_ms: tuple[int, int] = (500, 600),
    lit_from: float = 2.0,
    level: int = 120,
    before_ms: tuple[int, int] | None = None,
) -> TargetEvidence:
    """Compares an element before and after the box `lit` changes its brightness."""
    moves = [(100, 50.0, 50.0)] + [(2700 + 10 * n, 316.0 + 3 * n, 220.0) for n in range(21)]
    path = PointerPath.through(moves)
    screen = ScreenParts.single(fit_canvas((800, 600), 1.0))
    pointer = VideoPointer(path, Clock(0.0, "pixels", 5.0), screen, 0.1)
    aimed = FrameRequest(
        *(0, 3.0, 0.0, 2.95, 2.0, None, Span(0, 3)),
        scan=ScannedTarget(
            1, *scanned_ms, ElementUnderAction(element, (element, *around)), before_ms=before_ms
        ),
        point=(350.0, 220.0),
    )
    frames = []
    for number, time in enumerate((0.5, 1.0, 1.5, 2.9)):
        page = np.full((600, 800), 230, np.uint8)
        page[210:230, 335:365:3] = 30  # the content of the element
        if time >= lit_from:
            left = int(lit.x)
            top = int(lit.y)
            page[top : top + int(lit.height), left : left + int(lit.width)] = level
        frames.append(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    times = np.array([frame.time for frame in frames])
    comparison = ScanComparison([aimed], times, ChangeDetector(), pointer)
    for before, frame in zip([None, *frames], frames, strict=False):
        comparison.see(FrameDiff(before, frame, times, ChangeDetector(), pointer))
    comparison.compare(aimed, comparison.screens(aimed, frames[2], frames[3]))
    return comparison.targets[0]


@pytest.mark.parametrize(
    ("lit", "redrawn"),
    [
        pytest.param(ITEM, False, id="the item itself, parted by the pointer in front of it"),
        pytest.param(PixelBox(270, 205, 60, 30), True, id="a small item of what opened over it"),
        pytest.param(PixelBox(250, 200, 210, 90), True, id="what reaches beyond it"),
    ],
)
def test_a_highlight_under_the_pointer_is_the_element_or_something_in_front(
    lit: PixelBox, redrawn: bool
) -> None:
    assert compared(ITEM, lit=lit).began == redrawn


def test_a_menu_item_lights_up_over_a_button_that_the_pointer_hides() -> None:
    assert compared(BUTTON, lit=ITEM).began
    assert not compared(BUTTON, lit=BUTTON).began


def test_a_row_that_lights_up_with_its_cell_is_a_highlight() -> None:
    assert not compared(BUTTON, ROW, lit=ROW).began
    assert compared(BUTTON, ROW, lit=PixelBox(100, 200, 600, 90)).began


def test_an_element_that_appeared_during_the_scan_is_unchanged_since_its_end() -> None:
    panel = PixelBox(200, 150, 400, 200)
    seen = compared(BUTTON, lit=panel, scanned_ms=(500, 1100), lit_from=1.0)
    assert (seen.began, seen.ended) == (True, False)
    seen = compared(BUTTON, lit=panel, scanned_ms=(500, 600), lit_from=1.0)
    assert (seen.began, seen.ended) == (True, True)


def test_the_frames_of_the_scan_before_tell_when_the_target_was_redrawn() -> None:
    panel = PixelBox(200, 150, 400, 200)
    seen = compared(BUTTON, lit=panel, scanned_ms=(1000, 1600), lit_from=1.5, before_ms=(500, 600))
    assert (seen.began, seen.ended) == (True, False)
    assert (seen.before_began, seen.before) == (False, True)
    seen = compared(BUTTON, lit=panel, scanned_ms=(1000, 1600), lit_from=1.5)
    assert (seen.before_began, seen.before) == (None, None)
