"""The simulated videos: frame numbers, widgets, the pointer, timestamps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline_tests.simulator.desktop import Box, Desktop, ScreenState, Widget
from demo_pipeline_tests.simulator.form import DESKTOP, SMALL, frames_of, script
from demo_pipeline_tests.simulator.frame_numbers import BITS, blocks, read_frame_number, stamp
from demo_pipeline_tests.simulator.long_recording import light_video, long_recording
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import perform, write_recording
from demo_pipeline_tests.simulator.script import Moment, Script, click, think
from demo_pipeline_tests.simulator.video import VideoOptions

# --- the frame numbers


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(0, 2**BITS - 1),
    size=st.sampled_from([(640, 360), (1920, 1080), (2560, 1440), (1366, 768)]),
)
def test_a_stamped_number_is_read_back(number: int, size: tuple[int, int]) -> None:
    luma = np.full((size[1], size[0]), 128, np.uint8)
    stamp(luma, number)
    assert read_frame_number(luma) == number
    assert read_frame_number(cv2.cvtColor(luma, cv2.COLOR_GRAY2BGR)) == number


@given(number=st.integers(0, 2**BITS - 2), flipped=st.integers(0, 23))
def test_one_wrong_block_is_noticed(number: int, flipped: int) -> None:
    luma = np.zeros((90, 160), np.uint8)
    for index, white in enumerate(blocks(number)):
        luma[-1, index] = 235 if white != (index == flipped) else 16
    assert read_frame_number(luma) is None


def test_a_picture_without_a_strip_has_no_number() -> None:
    assert read_frame_number(np.full((1080, 1920, 3), 128, np.uint8)) is None
    assert read_frame_number(np.zeros((1080, 1920), np.uint8)) is None


def test_only_two_blocks_change_between_frames() -> None:
    for number in range(300):
        changed = sum(a != b for a, b in zip(blocks(number), blocks(number + 1), strict=True))
        assert changed == 2


# --- the screen


def test_the_pointer_is_drawn_where_the_events_say() -> None:
    painter = Painter(DESKTOP.at(1920, 1080))
    state = painter.desktop.initial()
    here, there = (painter.draw(Moment(state, at)) for at in ((1500, 300), (1700, 950)))
    changed = np.argwhere(np.any(here != there, axis=2))
    near = changed[(changed[:, 1] < 1600)]
    assert tuple(near.min(axis=0)) in {(299, 1499), (300, 1499), (300, 1500), (299, 1500)}
    assert tuple(near.max(axis=0) < (330, 1520)) == (True, True)


def test_a_press_shows_at_once_and_its_effect_only_later() -> None:
    performance = perform(script(), SMALL)
    timeline = performance.timeline
    tick, load = performance.actions[0], performance.actions[4]
    assert timeline.at(tick.press_ms).state.pressed == "Agree"
    assert timeline.at(tick.end_ms).state.pressed == ""
    assert timeline.at(tick.end_ms + 60).state.checked == frozenset()
    assert timeline.at(tick.end_ms + 160).state.checked == {"Agree"}
    assert not timeline.at(load.end_ms + 60).state.progress
    assert timeline.at(load.end_ms + 300).state.progress
    wait = performance.pauses[0]
    assert timeline.at(wait.end_ms).state.windows == ("Form", "Done")
    thought = performance.pauses[1]
    assert timeline.at(thought.start_ms + 160) == timeline.at(thought.end_ms - 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"pressed": "Load"},
        {"checked": frozenset({"Agree"})},
        {"texts": {"Name": "new"}},
        {"scrolled": {"Rows": 3}},
        {"progress": {"Loading": 0.5}},
        {"windows": ("Form", "Done")},
        {"chosen": {"Rows": "b"}},
    ],
)
def test_every_change_of_state_can_be_seen(changed: dict[str, Any]) -> None:
    painter = Painter(DESKTOP.at(640, 360))
    before: ScreenState = painter.desktop.initial()
    plain = painter.draw(Moment(before, (5, 5)))
    assert np.any(painter.draw(Moment(replace(before, **changed), (5, 5))) != plain)


def test_a_covered_target_stops_the_script() -> None:
    cover = Widget("Cover", "window", Box(0, 0, 1920, 1000))
    hidden = Script(Desktop((*DESKTOP.widgets, cover)), (click("Agree"),))
    with pytest.raises(ValueError, match="covered"):
        perform(hidden, SMALL)
    with pytest.raises(LookupError, match="Nowhere"):
        perform(script(click("Nowhere")), SMALL)


# --- the video


@pytest.mark.parametrize(
    "video",
    [
        VideoOptions(preset="ultrafast", fps=15),
        VideoOptions(preset="veryfast", fps=12, variable=True, video_start_s=1.3),
        VideoOptions(preset="veryfast", fps=10, b_frames=2, gop=30),
        VideoOptions(preset="veryfast", fps=10, first_pts=45_000),
    ],
)
def test_every_frame_is_found_by_its_timestamp_and_number(
    tmp_path: Path, video: VideoOptions
) -> None:
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


def test_the_same_script_gives_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / "one" / "demo", tmp_path / "two" / "demo"]
    for folder in folders:
        write_recording(folder, script(click("Agree")), SMALL)
    for name in ("input_log.jsonl", "meta.json", "recording.mp4"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_long_recording_is_as_long_and_as_large_as_asked(tmp_path: Path) -> None:
    truth = long_recording(tmp_path / "demo", minutes=0.3, steps=6, video=light_video(5), log_mb=3)
    assert len(truth.actions) == 6
    assert (truth.end_ms - truth.timestamp_ms) / 1000 == pytest.approx(18, rel=0.15)
    size = (tmp_path / "demo" / "input_log.jsonl").stat().st_size
    assert size == pytest.approx(3e6, rel=0.1)
