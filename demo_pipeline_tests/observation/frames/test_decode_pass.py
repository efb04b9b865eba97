"""Tests the decode pass on short videos in which something changes while the pointer moves."""

from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames import action_frames
from demo_pipeline.observation.frames.decode_pass import DecodeResult, run_decode_pass
from demo_pipeline.observation.frames.frame_choice import FrameChooser
from demo_pipeline.observation.frames.frame_requests import request_frames
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.screenshot_writer import Screenshot
from demo_pipeline.observation.frames.video_reader import Frame, RecordedVideo
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

WIDTH = 1280
HEIGHT = 720
FPS = 15
CANVAS = fit_canvas((WIDTH, HEIGHT), 1.0)
CALIBRATION = Calibration(Clock(0.0, "pixels", 5.0), CANVAS)
APPEARS_S = 3.4  # video seconds; the pointer moves from 3.0 s until the press at 4.5 s
PATH = PointerPath.through(
    [(500, 300.0, 600.0)]
    + [(3000 + 18 * step, 300.0 + 4 * step, 600.0 - 6 * step) for step in range(81)]
)
ACTIONS = [
    Action("click", 1000, 1100, [], 0, 300.0, 600.0),
    Action("click", 4500, 4600, [], 1, 620.0, 120.0),
]


def write_video(
    path: Path, appearing: tuple[int, int, int, int] | None, after_s: float = APPEARS_S
) -> None:
    """Writes six seconds of a grey screen, on which the light box `appearing` may appear.

    The box is (left, top, right, bottom) in pixels.
    """
    page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
    page[:HEIGHT] = 90
    changed_page = page.copy()
    if appearing:
        left, top, right, bottom = appearing
        changed_page[top:bottom, left:right] = 200
    images = []
    for number in range(6 * FPS):
        image = changed_page if number / FPS >= after_s else page
        images.append((number * TICKS // FPS, image))
    encode(path, images, (WIDTH, HEIGHT), VideoOptions(fps=FPS, gop=300, preset="ultrafast"))


def observe(
    path: Path, out: Path, actions: list[Action] = ACTIONS
) -> tuple[Screenshot, list[float]]:
    """Returns the screenshot of the second click, and the times of large changes in the video."""
    observed = run(path, out, actions)
    return observed.screenshots[1], list(observed.evidence.screen_changes_s)


def run(
    path: Path,
    out: Path,
    actions: list[Action],
) -> DecodeResult:
    out.mkdir()
    frame_s = 1 / FPS
    requests = request_frames(
        actions, {}, PATH, calibration=CALIBRATION, frame_s=frame_s, grab_s=frame_s
    )
    video = RecordedVideo(path, read_packets(path))
    return run_decode_pass(
        video,
        requests,
        lambda _: requests,
        calibration=CALIBRATION,
        path=PATH,
        actions=actions,
        folder=out,
        private=PrivateScreen(actions, [], "", CALIBRATION.clock, video.packets),
    )


class Noting(FrameChooser):
    """A chooser that records how many frames of all choosers were in memory at once."""

    kept: ClassVar[WeakSet[Frame]] = WeakSet()
    most: ClassVar[int] = 0

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        Noting.kept.add(frame)
        Noting.most = max(Noting.most, len(Noting.kept))
        super().add(frame, changed=changed, large=large)


def test_frames_that_a_variable_rate_leaves_out_lengthen_no_lead() -> None:
    """With a longer lead, the screenshot of a Ctrl+A lacked text typed until 150 ms before it."""
    (request, *_) = request_frames(
        ACTIONS, {}, PATH, calibration=CALIBRATION, frame_s=0.4, grab_s=0.1
    )
    assert request.press - request.limit == pytest.approx(0.1)


def test_the_frames_of_answered_requests_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_frames, "FrameChooser", Noting)
    write_video(tmp_path / "video.mp4", None)
    presses = range(600, 5800, 250)
    actions = [
        Action("click", press, press + 60, [], number, 300.0, 600.0)
        for number, press in enumerate(presses)
    ]
    observed = run(tmp_path / "video.mp4", tmp_path / "out", actions)
    assert len([shot for shot in observed.screenshots if shot.file]) == len(presses)
    assert 0 < Noting.most < len(presses) / 2


@pytest.mark.parametrize(
    "box",
    [
        pytest.param((400, 200, 800, 500), id="a dialog"),
        pytest.param((0, 55, WIDTH, 91), id="a bar across the screen"),
        pytest.param((0, 2, WIDTH, 16), id="a thin bar at the top"),
        pytest.param((1240, 0, WIDTH, HEIGHT), id="a panel at the side"),
    ],
)
def test_content_that_opens_while_the_pointer_moves_is_in_the_screenshot(
    tmp_path: Path, box: tuple[int, int, int, int]
) -> None:
    write_video(tmp_path / "video.mp4", box)
    screenshot, large = observe(tmp_path / "video.mp4", tmp_path / "out")
    assert large == [pytest.approx(APPEARS_S, abs=1 / FPS)]
    assert screenshot.reason_code == "settled"
    assert screenshot.pts == pytest.approx(APPEARS_S, abs=1 / FPS)


@pytest.mark.parametrize("box", [None, (600, 110, 660, 130)])
def test_highlights_on_the_pointers_way_are_not_in_the_screenshot(
    tmp_path: Path, box: tuple[int, int, int, int] | None
) -> None:
    write_video(tmp_path / "video.mp4", box)
    screenshot, large = observe(tmp_path / "video.mp4", tmp_path / "out")
    assert (large, screenshot.reason_code) == ([], "pre_move")
    assert screenshot.pts is not None
    assert screenshot.pts < 3.0


@pytest.mark.parametrize(
    ("rested_ms", "reason"),
    [
        pytest.param(650, "settled", id="what shows so soon may be the effect of the last click"),
        pytest.param(750, "pre_move", id="later, a small thing is lit by the hand itself"),
    ],
)
def test_a_small_change_on_the_way_is_an_effect_until_0_7_s_after_the_last_action(
    tmp_path: Path, rested_ms: int, reason: str
) -> None:
    """If the pointer starts more than 0.7 s later, small changes on its way are hover effects."""
    write_video(tmp_path / "video.mp4", (600, 110, 660, 130))
    ended = 3000 - rested_ms
    actions = [Action("click", ended - 100, ended, [], 0, 300.0, 600.0), ACTIONS[1]]
    screenshot, _ = observe(tmp_path / "video.mp4", tmp_path / "out", actions)
    assert screenshot.reason_code == reason


def test_a_small_change_before_the_pointer_moves_is_noted(tmp_path: Path) -> None:
    write_video(tmp_path / "video.mp4", (800, 300, 840, 340), after_s=43 / FPS)
    screenshot, _ = observe(tmp_path / "video.mp4", tmp_path / "out")
    assert screenshot.reason_code == "pre_move"
    assert screenshot.pts == pytest.approx(44 / FPS)
    assert screenshot.settle_ms == pytest.approx(1000 / FPS, abs=0.001)
