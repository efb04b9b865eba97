"""Which frames stand for the moments at which scans began and ended."""

import av
import numpy as np

from demo_pipeline.observation.frames.frame_requests import FrameRequest, ScanTimes
from demo_pipeline.observation.frames.scan_frames import ScanFrames
from demo_pipeline.observation.frames.video_frames import Frame, Span


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
