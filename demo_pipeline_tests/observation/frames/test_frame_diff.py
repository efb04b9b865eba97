"""The comparison of successive frames: when a glance is enough, and what is not computed."""

from typing import Any

import av
import numpy as np

from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import ChangeDetector
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.video_pointer import FrameDiff, VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame

WIDTH, HEIGHT, FPS = 1280, 720, 15
CANVAS = fit_canvas((WIDTH, HEIGHT), 1.0)
SCREEN = ScreenParts.single(CANVAS)
POINTER = VideoPointer(PointerPath([]), Clock(0.0, "pixels", 5.0), SCREEN, 1 / FPS)


def still(time: float) -> Frame:
    grey = np.full((HEIGHT, WIDTH), 128, np.uint8)
    return Frame(0, time, av.VideoFrame.from_ndarray(grey, format="gray"))


def diff_of(before: Frame | None, frame: Frame) -> FrameDiff:
    times: Any = np.arange(60) / FPS
    return FrameDiff(before, frame, times, ChangeDetector(None), POINTER)


def test_a_glance_is_only_for_frames_that_follow_each_other() -> None:
    assert not diff_of(still(0), still(1 / FPS)).may_be_large
    assert diff_of(still(0), still(2 / FPS)).may_be_large
    assert diff_of(None, still(0)).may_be_large


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    before, frame = still(0), still(1 / FPS)
    diff = diff_of(before, frame)
    assert not diff.may_be_large
    assert "luma" not in vars(before)
    assert "luma" not in vars(frame)
    assert diff.difference is not None
    assert diff.difference.count == 0
    assert diff.pointers == []
    assert "luma" in vars(frame)
