"""Tests the search for the clock of a video on simulated recordings with a known offset."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.observation.clock.clock import Clock, documented_clock, ffmpeg_clock
from demo_pipeline.observation.clock.clock_evidence import clock_from_pointer
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline_tests.observation.made import Observed, cut_video, observe
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import GroundTruth, write_recording
from demo_pipeline_tests.simulator.script import click, hotkey, think
from demo_pipeline_tests.simulator.video import VideoOptions

FRAME_MS = 1000 / 15
MOVES = (click("Agree"), click("Rows/d"), click("Agree"), click("Form/title bar"))


def error_ms(clock: Clock, truth: GroundTruth) -> float:
    """Returns the error of the clock at the first frame, milliseconds."""
    first = truth.frames[0]
    return abs(clock.event_time(first.pts / 90_000) - first.wall_ms)


def test_the_offset_is_found_within_a_frame(observed: Observed) -> None:
    clock = observed.evidence.clock
    assert clock.method == "pixels"
    assert error_ms(clock, observed.truth) < FRAME_MS
    assert error_ms(clock, observed.truth) <= clock.uncertainty_ms + 1
    assert clock.uncertainty_ms < 2 * FRAME_MS


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("lag", [-3.0, -0.4, 1.7, 3.0])
def test_events_shifted_against_the_video_are_found(
    plain: Observed, tmp_path: Path, lag: float
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("meta.json", "recording.mp4"):
        (folder / name).write_bytes((plain.folder / name).read_bytes())
    lines = (plain.folder / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    moved = [json.dumps({**event, "time": event["time"] + round(lag * 1000)}) for event in events]
    (folder / "input_log.jsonl").write_text("\n".join(moved), encoding="utf-8")
    clock = observe(folder, tmp_path / "store", plain.truth).evidence.clock
    assert clock.method == "pixels"
    before = plain.evidence.clock.documented_offset_ms
    assert clock.documented_offset_ms - before == pytest.approx(lag * 1000, abs=FRAME_MS)


def test_a_still_video_leaves_the_documented_clock_and_says_how_unsure(tmp_path: Path) -> None:
    video_options = VideoOptions(preset="ultrafast", frame_numbers=False, fps=5)
    keys = (hotkey("ctrl", "c"), think(2.5), hotkey("ctrl", "c"))
    folder = tmp_path / "demo"
    truth = write_recording(folder, script(*keys), replace(SMALL, video=video_options))
    clock = observe(folder, tmp_path / "store", truth).evidence.clock
    assert clock.method == "meta_timestamp"
    assert clock.documented_offset_ms == 0
    assert clock.uncertainty_ms >= 2000


@pytest.mark.parametrize("first_pts", [0, 45_000])
def test_the_recorders_own_start_line_wins(tmp_path: Path, first_pts: int) -> None:
    video_options = VideoOptions(preset="ultrafast", video_start_s=0.7, first_pts=first_pts)
    options = replace(SMALL, video=video_options, ffmpeg_start_line=True)
    folder = tmp_path / "demo"
    truth = write_recording(folder, script(*MOVES), options)
    clock = observe(folder, tmp_path / "store", truth).evidence.clock
    assert clock.method == "ffmpeg_start"
    assert error_ms(clock, truth) < 1


@pytest.mark.parametrize("frames", [1, 2])
def test_a_video_with_almost_no_frames_is_no_evidence(tmp_path: Path, frames: int) -> None:
    """A recorder whose video encoder crashed at once leaves one frame and a complete log."""
    folder = tmp_path / "demo"
    options = replace(SMALL, video=VideoOptions(preset="ultrafast", fps=1))
    truth = write_recording(folder, replace(script(*MOVES), tail_ms=200), options)
    cut_video(folder / "recording.mp4", tmp_path / "cut.mp4", frames - 0.5)
    (tmp_path / "cut.mp4").replace(folder / "recording.mp4")
    seen = observe(folder, tmp_path / "store", truth)
    assert seen.evidence.clock.method == "meta_timestamp"
    assert {row["reason_code"] for row in seen.rows} <= {"missing", "first_frame", "backoff"}
    assert seen.screenshot("final.png") is not None


def test_ffmpeg_lines_that_are_no_dates_are_passed_over() -> None:
    lines = ["start: 0.000000, bitrate", "start: 99999999999999999999.5", "frame= 10", ""]
    assert ffmpeg_clock(lines, 0.0) is None
    clock = ffmpeg_clock([*lines, "Input #0, start: 1767603600.250000, bitrate"], 1767603600000.0)
    assert clock is not None
    assert clock.origin_ms == 1767603600250.0
    assert clock.documented_offset_ms == 250.0


def test_the_two_directions_of_a_clock_are_inverse() -> None:
    clock = documented_clock(1_767_603_600_000.0)
    assert clock.event_time(clock.video_time(1_767_603_612_345.0)) == pytest.approx(
        1_767_603_612_345.0, abs=1e-3
    )


class _ImageOfFrame:
    """A frame that has only a luma plane."""

    def __init__(self, time: float, luma: np.ndarray) -> None:
        self.time = time
        self.luma = luma


def test_points_far_outside_the_video_are_no_evidence_and_no_trouble() -> None:
    """A log may contain positions on other displays, and damaged numbers."""
    changes: Any = ChangeMap()
    random = np.random.default_rng(1)
    for number in range(60):
        luma = random.integers(0, 255, (51, 63)).astype(np.uint8)
        changes.add(_ImageOfFrame(number / 10, luma))
    far = np.array([1e300, -1e300] * 30)
    track = PointerPath(np.arange(60).astype(np.float64) * 100.0, far, far[::-1])
    assert clock_from_pointer(changes, track, documented_clock(0.0), [1.0], 3.5) is None
    assert len(changes) == 59
