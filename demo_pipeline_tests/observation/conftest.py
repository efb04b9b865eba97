"""Records and observes each simulated recording once for all tests of this folder."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline_tests.made_once import made_once
from demo_pipeline_tests.observation.made import Observed, read_observed, take_to_screenshots
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import (
    click,
    drag,
    hotkey,
    right_click,
    think,
    type_text,
    wait_for_screen,
)
from demo_pipeline_tests.simulator.video import VideoOptions

ACTS = (
    click("Agree"),
    click("Name"),
    type_text("Ab, c!"),
    hotkey("ctrl", "a"),
    click("Load"),
    wait_for_screen(),
    right_click("Done/title bar"),
    think(2.5),
    drag("Form/title bar", 60, 40),
    click("Agree"),
)
VIDEOS = {
    "starts_early": VideoOptions(preset="ultrafast", video_start_s=-1.0),
    "plain": VideoOptions(preset="ultrafast", gop=250),
    "variable": VideoOptions(preset="veryfast", variable=True, video_start_s=0.7, gop=30),
    "late_first_pts": VideoOptions(preset="ultrafast", video_start_s=0.7, first_pts=45_000),
    "b_frames": VideoOptions(preset="veryfast", b_frames=2, gop=30, video_start_s=2.1),
}


@pytest.fixture(scope="session", params=sorted(VIDEOS))
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """A recording of the test script; each kind of video is one parameter."""
    return _observe(tmp_path_factory, request.param)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """A recording for tests that need no special video."""
    return _observe(tmp_path_factory, "plain")


def _observe(factory: pytest.TempPathFactory, kind: str) -> Observed:
    def make(root: Path) -> None:
        demonstration = replace(script(*ACTS), lead_in_ms=2800)
        options = replace(SMALL, video=VIDEOS[kind])
        truth = write_recording(root / "uploads/demo", demonstration, options)
        take_to_screenshots(root / "uploads/demo", root / "store")
        (root / "truth").write_bytes(pickle.dumps(truth))

    root = made_once(factory, f"video-{kind}", make)
    truth = pickle.loads((root / "truth").read_bytes())  # noqa: S301 - our own
    return read_observed(root / "uploads/demo", root / "store", truth)
