"""Frame to frame: when a glance will do, and what comes of it while a hand travels."""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.calibration.canvas import fit_canvas
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.change_detection import ChangeDetector
from demo_pipeline.observation.frames.decode_pass import run_decode_pass
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import request_frames
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.screenshot_writer import Screenshot
from demo_pipeline.observation.frames.video_frames import Frame
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.recording.video_probe import scan_packets
from demo_pipeline.settings import ObservationSettings
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

WIDTH, HEIGHT, FPS = 1280, 720, 15
CANVAS = fit_canvas((WIDTH, HEIGHT), 1.0)
CALIBRATION = Calibration(Clock(0.0, "pixels", 5.0), CANVAS, "pixels", None)
APPEARS_S = 3.4  # while the hand travels, from 3.0 s until it presses at 4.5 s
PATH = PointerPath(
    [Input(0, 500, "mouse_move", 300.0, 600.0)]
    + [
        Input(1 + step, 3000 + 18 * step, "mouse_move", 300.0 + 4 * step, 600.0 - 6 * step)
        for step in range(81)
    ]
)
ACTIONS = [
    Action("click", 1000, 1100, [], 0, 300.0, 600.0),
    Action("click", 4500, 4600, [], 1, 620.0, 120.0),
]


def film(
    path: Path, appearing: tuple[int, int, int, int] | None, after_s: float = APPEARS_S
) -> None:
    """Six seconds of a grey screen; a light box (left, top, right, bottom) appears on the way."""
    page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
    page[:HEIGHT] = 90
    shown = page.copy()
    if appearing:
        left, top, right, bottom = appearing
        shown[top:bottom, left:right] = 200
    pictures = (
        (number * TICKS // FPS, shown if number / FPS >= after_s else page)
        for number in range(6 * FPS)
    )
    encode(path, pictures, (WIDTH, HEIGHT), VideoOptions(fps=FPS, gop=300, preset="ultrafast"))


def looked(path: Path, out: Path) -> tuple[Screenshot, list[float]]:
    """What the film says of the second click, and when much of it changed."""
    out.mkdir()
    settings = ObservationSettings()
    requests = request_frames(
        ACTIONS, {}, PATH, calibration=CALIBRATION, frame_s=1 / FPS, settings=settings
    )
    video = RecordedVideo(path, scan_packets(path))
    observed = run_decode_pass(
        video, requests, calibration=CALIBRATION, path=PATH, actions=ACTIONS, folder=out
    )
    return observed.screenshots[1], list(observed.large_changes)


@pytest.mark.parametrize(
    "box",
    [
        pytest.param((400, 200, 800, 500), id="a dialog"),
        pytest.param((0, 55, WIDTH, 91), id="a bar across the screen"),
        pytest.param((0, 2, WIDTH, 16), id="a thin bar at the top"),
        pytest.param((1240, 0, WIDTH, HEIGHT), id="a panel at the side"),
    ],
)
def test_what_opens_while_the_hand_travels_is_in_the_picture(
    tmp_path: Path, box: tuple[int, int, int, int]
) -> None:
    film(tmp_path / "film.mp4", box)
    answer, large = looked(tmp_path / "film.mp4", tmp_path / "out")
    assert large == [pytest.approx(APPEARS_S, abs=1 / FPS)]
    assert answer.reason == "settled"
    assert answer.time == pytest.approx(APPEARS_S, abs=1 / FPS)


@pytest.mark.parametrize("box", [None, (600, 110, 660, 130)])
def test_what_lights_up_on_the_way_is_not(
    tmp_path: Path, box: tuple[int, int, int, int] | None
) -> None:
    film(tmp_path / "film.mp4", box)
    answer, large = looked(tmp_path / "film.mp4", tmp_path / "out")
    assert (large, answer.reason) == ([], "pre_move")
    assert answer.time is not None
    assert answer.time < 3.0


def test_a_small_change_before_the_hand_sets_out_is_noted(tmp_path: Path) -> None:
    film(tmp_path / "film.mp4", (800, 300, 840, 340), after_s=43 / FPS)
    answer, _ = looked(tmp_path / "film.mp4", tmp_path / "out")
    assert answer.reason == "pre_move"
    assert answer.time == pytest.approx(44 / FPS)
    assert answer.settle_ms == pytest.approx(1000 / FPS)


def still(time: float) -> Frame:
    grey = np.full((HEIGHT, WIDTH), 128, np.uint8)
    return Frame(0, time, av.VideoFrame.from_ndarray(grey, format="gray"))


def moved_on(before: Frame | None, frame: Frame) -> FrameDiff:
    times: Any = np.arange(60) / FPS
    pointer = VideoPointer(PATH, CALIBRATION.clock, CALIBRATION.canvas, 1 / FPS)
    return FrameDiff(before, frame, times, ChangeDetector(None), pointer)


def test_a_glance_is_only_for_frames_that_follow_each_other() -> None:
    assert not moved_on(still(0), still(1 / FPS)).may_be_large
    assert moved_on(still(0), still(2 / FPS)).may_be_large
    assert moved_on(None, still(0)).may_be_large


def test_nothing_is_worked_out_before_it_is_asked_for() -> None:
    before, frame = still(0), still(1 / FPS)
    transition = moved_on(before, frame)
    assert not transition.may_be_large
    assert "luma" not in vars(before)
    assert "luma" not in vars(frame)
    assert transition.difference is not None
    assert transition.difference.count == 0
    assert transition.pointers == []
    assert "luma" in vars(frame)
