"""Which frames stand for the moments at which scans began and ended."""

import av
import numpy as np
import pytest

from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.evidence import TargetEvidence
from demo_pipeline.observation.frames.frame_changes import ChangeDetector
from demo_pipeline.observation.frames.frame_requests import Aim, FrameRequest, ScanTimes
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath
from demo_pipeline.observation.frames.scan_frames import ScanComparison, ScanFrames
from demo_pipeline.observation.frames.video_pointer import FrameDiff, VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Span


def wanted(*scans: tuple[float, float] | None) -> list[FrameRequest]:
    return [
        FrameRequest(
            number, 9, 0, 9, 9, None, None, Span(8, 9), scan=scan and ScanTimes(number, *scan)
        )
        for number, scan in enumerate(scans)
    ]


def shown(requests: list[FrameRequest], times: list[float]) -> ScanFrames:
    """The frames of a video that has these times, after all of them were seen."""
    scans = ScanFrames(requests, np.array(times))
    for time in times:
        grey = np.full((64, 64), round(time * 10), np.uint8)
        scans.see(Frame(0, time, av.VideoFrame.from_ndarray(grey, format="gray")))
    return scans


def level(scans: ScanFrames, moment: float) -> int | None:
    frame = scans.frame_at(moment)
    return None if frame is None else int(frame.detail[0, 0])


def test_a_scan_is_seen_by_the_last_frames_no_later_than_its_beginning_and_its_end() -> None:
    """The frame after it may show what opened in between."""
    scans = shown(wanted((1.05, 1.5), (2.0, 2.05)), [0.9, 1.0, 1.1, 1.4, 1.9, 2.0, 2.1])
    assert [level(scans, moment) for moment in (1.05, 1.5, 2.0, 2.05)] == [10, 14, 20, 20]


def test_a_frame_is_shown_until_the_next_however_long_that_takes() -> None:
    """A video with a variable frame rate has no frame while nothing changes."""
    scans = shown(wanted((9.0, 9.5)), [1.0, 12.0])
    assert level(scans, 9.0) == level(scans, 9.5) == 10
    assert scans.spans == [Span(1.0, 1.0)]


def test_before_the_video_there_is_nothing_to_compare() -> None:
    scans = shown(wanted((0.5, 0.8)), [1.0, 2.0])
    assert scans.spans == []
    assert level(scans, 0.5) is None


def test_no_scan_no_picture() -> None:
    assert shown(wanted(None), [1.0]).spans == []


def test_frames_that_are_no_longer_asked_for_are_dropped() -> None:
    scans = shown(wanted((1.0, 1.0), (1.0, 1.0), (2.0, 2.0)), [1.0, 1.1, 2.0])
    assert len(scans.spans) == 2
    scans.forget(1.0)
    assert level(scans, 1.0) == 10
    scans.forget(2.0)
    assert (level(scans, 1.0), level(scans, 2.0)) == (None, 20)


ITEM = PixelBox(250, 200, 210, 40)  # of a menu; with more than a hundredth of the picture
BUTTON = PixelBox(330, 205, 40, 30)
ROW = PixelBox(100, 200, 600, 40)


def compared(
    element: PixelBox,
    *around: PixelBox,
    lit: PixelBox,
    scanned: tuple[float, float] = (0.5, 0.6),
    lit_from: float = 2.0,
    level: int = 120,
) -> TargetEvidence:
    """What is seen of an element, and of a box that changes its brightness as the hand comes."""
    moves = [(100, 50.0, 50.0)] + [(2700 + 10 * n, 316.0 + 3 * n, 220.0) for n in range(21)]
    path = PointerPath([Input(n, time, "mousemove", x, y) for n, (time, x, y) in enumerate(moves)])
    screen = ScreenParts.single(fit_canvas((800, 600), 1.0))
    pointer = VideoPointer(path, Clock(0.0, "pixels", 5.0), screen, 0.1)
    aimed = FrameRequest(
        *(0, 3.0, 0.0, 2.95, 2.0, None, None, Span(0, 3)),
        scan=ScanTimes(1, *scanned),
        aim=Aim(element, (element, *around)),
        point=(350.0, 220.0),
    )
    frames = []
    for number, time in enumerate((0.5, 1.0, 1.5, 2.9)):
        page = np.full((600, 800), 230, np.uint8)
        page[210:230, 335:365:3] = 30  # what the element shows
        if time >= lit_from:
            left, top = int(lit.x), int(lit.y)
            page[top : top + int(lit.height), left : left + int(lit.width)] = level
        frames.append(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    times = np.array([frame.time for frame in frames])
    comparison = ScanComparison([aimed], times, ChangeDetector(None), pointer, enabled=True)
    for before, frame in zip([None, *frames], frames, strict=False):
        comparison.see(FrameDiff(before, frame, times, ChangeDetector(None), pointer))
    comparison.compare(aimed, comparison.pictures(aimed, frames[2], frames[3]))
    return comparison.result().targets[0]


@pytest.mark.parametrize(
    ("lit", "redrawn"),
    [
        pytest.param(ITEM, False, id="the item itself, parted by the pointer in front of it"),
        pytest.param(PixelBox(270, 205, 60, 30), True, id="a small item of what opened over it"),
        pytest.param(PixelBox(250, 200, 210, 90), True, id="what reaches beyond it"),
    ],
)
def test_what_lights_up_under_the_pointer_is_the_element_or_something_in_front(
    lit: PixelBox, redrawn: bool
) -> None:
    assert compared(ITEM, lit=lit).began == redrawn


def test_a_menu_item_lights_up_over_a_button_that_the_pointer_hides() -> None:
    assert compared(BUTTON, lit=ITEM).began
    assert not compared(BUTTON, lit=BUTTON).began


def test_a_row_that_lights_up_with_its_cell_is_a_highlight() -> None:
    assert not compared(BUTTON, ROW, lit=ROW).began
    assert compared(BUTTON, ROW, lit=PixelBox(100, 200, 600, 90)).began


def test_what_appeared_while_the_scan_ran_is_unmoved_since_its_end() -> None:
    panel = PixelBox(200, 150, 400, 200)
    seen = compared(BUTTON, lit=panel, scanned=(0.5, 1.1), lit_from=1.0)
    assert (seen.began, seen.ended) == (True, False)
    seen = compared(BUTTON, lit=panel, scanned=(0.5, 0.6), lit_from=1.0)
    assert (seen.began, seen.ended) == (True, True)
