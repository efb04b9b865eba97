"""Tests that actions without a frame between them get their frames from the same decode pass."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.decode_pass import RecorderFacts, run_decode_pass
from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline.observation.frames.frame_requests import request_frames
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.screenshot_writer import Screenshot
from demo_pipeline.observation.frames.video_reader import RecordedVideo
from demo_pipeline.recording.video_probe import open_video, read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

FRAMES = "demo_pipeline.observation.frames"
WIDTH = 640
HEIGHT = 368
FPS = 10
SECONDS = 12
CALIBRATION = Calibration(Clock(0.0, "pixels", 5.0), fit_canvas((WIDTH, HEIGHT), 1.0))
# Times of quick presses of keys, milliseconds. Most of them have no frame between them.
PRESSES = [3000, 3030, 3060, 3090, 6010, 6040, 9000, 9030]
ACTIONS = [
    Action("hotkey", press, press + 15, [], number + (number >= 6), keys=["down"])
    for number, press in enumerate(PRESSES)
]
PAUSE = Action("pause", 6055, 9000, [], 6, seconds=2.945)  # between the sixth and the seventh


def write_video(path: Path, times: list[float]) -> None:
    """Writes a video in which the brightness of the screen rises by 1 with each frame."""
    images = (
        (round(time * TICKS), np.full((HEIGHT * 3 // 2, WIDTH), 40 + number, np.uint8))
        for number, time in enumerate(times)
    )
    encode(path, images, (WIDTH, HEIGHT), VideoOptions(fps=FPS, gop=1000, preset="ultrafast"))


def observe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_ms: int | None = None
) -> tuple[list[Screenshot], int]:
    """Returns the screenshots of all actions, and how often the video was opened."""
    opened = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal opened
        opened += 1
        return open_video(*args, **options)

    monkeypatch.setattr(f"{FRAMES}.video_reader.open_video", counted)
    actions = sorted([*ACTIONS, PAUSE], key=lambda action: action.press_ms)
    path = PointerPath.through([(500, 300.0, 300.0)])
    video = RecordedVideo(tmp_path / "video.mp4", read_packets(tmp_path / "video.mp4"))
    requests = request_frames(
        actions,
        {},
        path,
        calibration=CALIBRATION,
        frame_s=video.frame_s,
        grab_s=video.grab_s,
    )
    (tmp_path / "out").mkdir()
    observed = run_decode_pass(
        video,
        requests,
        lambda _: requests,
        calibration=CALIBRATION,
        path=path,
        actions=actions,
        folder=tmp_path / "out",
        private=PrivateScreen(actions, [], "", CALIBRATION.clock, video.packets),
        recorder=RecorderFacts(stopped_ms=stopped_ms),
    )
    return list(observed.screenshots), opened


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([number / FPS for number in range(SECONDS * FPS)], id="constant rate"),
        pytest.param([0.0, 0.4, 2.1, 2.2, 5.3, 8.8, 11.5], id="variable rate"),
        pytest.param(
            [*np.arange(0, 3, 0.1), 3.5, 6.5, 9.5, *np.arange(10, 12, 0.1)],
            id="still for seconds before a press",
        ),
    ],
)
def test_the_video_is_opened_once_and_the_frame_is_the_last_before_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[float]
) -> None:
    write_video(tmp_path / "video.mp4", times)
    screenshots, opened = observe(tmp_path, monkeypatch)
    assert opened == 1
    acting = [shot for shot in screenshots if shot.reason_code != "pause"]
    assert len(acting) == len(PRESSES)
    for shot, press in zip(acting, sorted(PRESSES), strict=True):
        assert shot.pts is not None
        assert shot.pts < press / 1000
        if shot.reason_code == "backoff":
            assert [time for time in times if shot.pts + 1e-3 < time <= press / 1000 - 1] == []
    assert [shot.reason_code for shot in acting].count(Reason.BACKOFF) >= len(PRESSES) / 2
    assert sorted(path.name for path in (tmp_path / "out").glob("0*.png")) == sorted(
        shot.file for shot in screenshots if shot.file is not None
    )


def test_the_final_screenshot_is_no_later_than_the_recorders_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The video has no frame between the last action and the stop, because nothing changes."""
    write_video(tmp_path / "video.mp4", [0.0, 2.1, 11.5])
    screenshots, opened = observe(tmp_path, monkeypatch, stopped_ms=10_000)
    assert opened == 1
    assert screenshots[-1].pts == pytest.approx(2.1)
    last_screenshot = (tmp_path / "out" / str(screenshots[-1].file)).read_bytes()
    assert (tmp_path / "out" / "final.png").read_bytes() == last_screenshot
