"""Tests of simulated videos: frame numbers, widgets, the pointer and timestamps."""

from dataclasses import replace

import cv2
import pytest

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.form import DESKTOP, SMALL, frames_of, script
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.recording import perform, write_recording
from demo_pipeline_tests.simulator.script import Script, click, think
from demo_pipeline_tests.simulator.video import VideoOptions


def test_a_covered_target_stops_the_script():
    cover = Widget("Cover", "window", Box(0, 0, 1920, 1000))
    hidden = Script(Desktop((*DESKTOP.widgets, cover)), (click("Agree"),))
    with pytest.raises(ValueError, match="covered"):
        perform(hidden, SMALL)
    with pytest.raises(LookupError, match="Nowhere"):
        perform(script(click("Nowhere")), SMALL)


@pytest.mark.parametrize(
    "video",
    [
        VideoOptions(preset="ultrafast", fps=15),
        VideoOptions(preset="veryfast", fps=12, variable=True, video_start_s=1.3),
        VideoOptions(preset="veryfast", fps=10, b_frames=2, gop=30),
        VideoOptions(preset="veryfast", fps=10, first_pts=45_000),
    ],
)
def test_every_frame_is_found_by_its_timestamp_and_number(tmp_path, video):
    options = replace(SMALL, video=video)
    truth = write_recording(tmp_path / "demo", script(click("Agree"), think(2.1)), options)
    decoded = list(frames_of(tmp_path / "demo" / "recording.mp4"))
    assert [pts for pts, _ in decoded] == [frame.pts for frame in truth.frames]
    large = [cv2.resize(luma, (1920, 1080)) for _, luma in decoded]
    assert [read_frame_number(image) for image in large] == list(range(len(truth.frames)))
    assert truth.frames[0].wall_ms == truth.timestamp_ms + 1000 * video.video_start_s
    for frame in truth.frames:
        since_first = frame.wall_ms - truth.frames[0].wall_ms
        assert (frame.pts - video.first_pts) / 90 == pytest.approx(since_first, abs=0.001)
