"""Which frames stand for the moments at which scans began."""

import av
import numpy as np

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.scan_frames import ScanFrames
from demo_pipeline.observation.frames.video_frames import Frame, Span


def wanted(*scans: float | None) -> list[FrameRequest]:
    return [
        FrameRequest(number, 9, 0, 9, 9, None, None, Span(8, 9), scan_time=scan)
        for number, scan in enumerate(scans)
    ]


def shown(scans: ScanFrames, times: list[float]) -> None:
    before = None
    for time in times:
        grey = np.full((64, 64), round(time * 10), np.uint8)
        frame = Frame(0, time, av.VideoFrame.from_ndarray(grey, format="gray"))
        scans.see(before, frame)
        before = frame


def test_a_scan_is_seen_by_the_last_frame_no_later_than_it() -> None:
    """The frame after it may show what opened in between."""
    scans = ScanFrames(wanted(1.05, 2.0), 0.1)
    shown(scans, [0.9, 1.0, 1.1, 1.9, 2.0, 2.1])
    for scan, time in ((1.05, 1.0), (2.0, 2.0)):
        seen = scans.frame_of(scan)
        assert seen is not None
        assert (seen.time, int(seen.luma[0, 0])) == (time, round(time * 10))


def test_a_frame_long_before_a_scan_says_nothing_about_it() -> None:
    scans = ScanFrames(wanted(3.0), 0.1)
    shown(scans, [1.0, 3.1])
    assert scans.frame_of(3.0) is None


def test_no_scan_no_picture() -> None:
    scans = ScanFrames(wanted(None), 0.1)
    assert scans.spans == []
    shown(scans, [1.0])
    assert scans.frame_of(None) is None


def test_steps_that_share_a_scan_share_its_picture() -> None:
    scans = ScanFrames(wanted(1.0, 1.0, 2.0), 0.1)
    assert len(scans.spans) == 2
    shown(scans, [1.0, 1.1, 2.0, 2.1])
    assert scans.frame_of(1.0) is scans.frame_of(1.0) is not None
    assert scans.frame_of(2.0) is not None
