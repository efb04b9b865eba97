"""Tests that the clock becomes less certain if the video falls behind."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_search import (
    LONGEST_PART_S,
    MAX_PARTS,
    ClockPart,
    ClockSearch,
    with_parts,
)
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span
from demo_pipeline.recording.video_probe import VideoPackets
from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth
from demo_pipeline_tests.simulator.script import click
from demo_pipeline_tests.simulator.video import Frame, VideoOptions

FPS = 15
START_MS = 1_767_603_600_000.0
CLOCK = Clock(START_MS, "pixels", 30.0)
NO_KEYS = np.zeros(0)
HAND = (click("Agree"), click("Rows/d"), click("Name"), click("Form/title bar"))


def behind(root: Path, late_ms: float, *, logged: bool = False) -> Observed:
    """Records 40 seconds of video whose second half is late by `late_ms`."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        half = (truth.frames[0].wall_ms + truth.frames[-1].wall_ms) / 2
        frames = [
            replace(frame, wall_ms=frame.wall_ms - late_ms * (frame.wall_ms > half))
            for frame in truth.frames
        ]
        videos.write_plain(path, painter, replace(truth, frames=tuple(frames)))

    options = replace(SMALL, ffmpeg_start_line=logged, scan_every_s=None)
    return videos.painted(root, options, write, replace(script(*HAND * 8), lead_in_ms=500))


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("late_ms", [0, 90, -90])
def test_the_uncertainty_covers_a_second_half_that_is_late(late_ms: int, tmp_path: Path) -> None:
    observed = behind(tmp_path, late_ms)
    clock = observed.evidence.clock
    assert clock.method == "pixels"
    assert clock.origin_ms == pytest.approx(observed.truth.timestamp_ms, abs=10)
    assert clock.uncertainty_ms >= abs(late_ms) - 5
    assert clock.uncertainty_ms < (100 if late_ms else 40)


def repeating(root: Path) -> Observed:
    """Records a video like an overloaded recorder, with repeated frames and a late pointer."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        random = np.random.default_rng(7)
        frames: list[Frame] = []
        while len(frames) < len(truth.frames):
            first = truth.frames[len(frames)]
            shown_ms = first.wall_ms + float(random.uniform(0, 40))
            same = truth.frames[len(frames) : len(frames) + int(random.integers(2, 10))]
            frames += [replace(first, pts=frame.pts, wall_ms=shown_ms) for frame in same]
        videos.write_plain(path, painter, replace(truth, frames=tuple(frames)))

    options = replace(SMALL, video=VideoOptions(fps=30), scan_every_s=None)
    return videos.painted(root, options, write, replace(script(*HAND * 8), lead_in_ms=500))


def test_a_video_that_repeats_frames_shows_its_clock(tmp_path: Path) -> None:
    observed = repeating(tmp_path)
    clock = observed.evidence.clock
    assert clock.method == "pixels"
    assert abs(clock.origin_ms - observed.truth.timestamp_ms) <= clock.uncertainty_ms < 300


def test_frames_keep_the_distance_that_a_later_part_asks_for(tmp_path: Path) -> None:
    observed = behind(tmp_path, 90)
    leads = [row["lead_ms"] for row in observed.rows if row["lead_ms"] is not None]
    assert leads
    assert min(leads) >= observed.evidence.clock.uncertainty_ms - 0.001


@pytest.mark.no_cover  # other tests run the same lines
def test_a_logged_start_that_later_frames_contradict_is_uncertain(tmp_path: Path) -> None:
    clock = behind(tmp_path, 120, logged=True).evidence.clock
    assert clock.method == "ffmpeg_start"
    assert clock.uncertainty_ms == pytest.approx(120, abs=10)


def part(apart_ms: float, uncertainty_ms: float = 40.0) -> ClockPart:
    clock = replace(CLOCK, origin_ms=CLOCK.origin_ms + apart_ms, uncertainty_ms=uncertainty_ms)
    return ClockPart(START_MS + 60_000, clock)


def test_parts_within_the_uncertainty_change_nothing() -> None:
    assert with_parts(CLOCK, []) == CLOCK
    assert with_parts(CLOCK, [part(29), part(-29)]) == CLOCK


def test_an_unsure_part_counts_when_the_least_lead_does_not_cover_it() -> None:
    assert with_parts(CLOCK, [part(45, 60)]) == CLOCK
    assert with_parts(CLOCK, [part(45, 40)]).uncertainty_ms == 45
    assert with_parts(CLOCK, [part(-55, 200)]).uncertainty_ms == 55


def test_the_part_that_is_furthest_off_counts() -> None:
    assert with_parts(CLOCK, [part(35), part(-90), part(10)]).uncertainty_ms == 90


def test_a_logged_start_outweighs_frames_that_are_as_unsure() -> None:
    logged = replace(CLOCK, method="ffmpeg_start", uncertainty_ms=20.0)
    assert with_parts(logged, [part(55)]) == logged
    assert with_parts(logged, [part(65)]).uncertainty_ms == 65


def test_parts_of_a_clock_that_drifts_are_compared_at_their_own_time() -> None:
    """A clock that is 0.1 % fast gains 60 ms in a minute, which its known drift explains."""
    drifting = replace(CLOCK, rate=1.001)
    assert with_parts(drifting, [part(-60)]) == drifting
    assert with_parts(drifting, [part(0)]).uncertainty_ms == pytest.approx(60)


def recorded(seconds: float, key_s: float, fps: int = FPS) -> RecordedVideo:
    """Returns a video without a file, at a constant frame rate, with a key frame every `key_s`."""
    count = round(seconds * fps)
    pts = np.arange(count, dtype=np.int64)
    keys = pts[:: round(key_s * fps)]
    return RecordedVideo(Path("none.mp4"), VideoPackets(pts, keys, Fraction(1, fps)))


def parts(video: RecordedVideo, track: PointerPath, end: float) -> list[Span]:
    """Returns the parts to check between second 10 and `end`."""
    return ClockSearch(video, track, NO_KEYS).parts_to_check(CLOCK, 10, end)


def moving(*stretches: tuple[float, float]) -> PointerPath:
    """Returns the path of a pointer that moves fast in these stretches and rests otherwise.

    Each stretch has a start and an end, in seconds.
    """
    seconds = np.concatenate([np.arange(first, last, 0.02) for first, last in stretches])
    x = np.cumsum(np.full(len(seconds), 7.0))
    return PointerPath(START_MS + seconds * 1000, x, np.zeros(len(x)))


def test_each_half_minute_with_movement_is_looked_at_as_videos_slip_late() -> None:
    always = moving((0, 110))
    spans = parts(recorded(110, 5), always, 110)
    assert [(span.start - 10) // 25 for span in spans] == [1, 2, 3]


def test_a_part_begins_at_the_key_frame_with_movement_soon_after() -> None:
    track = moving((0, 3), (26, 27), (51, 56), (81, 90), (105, 106))
    spans = parts(recorded(120, 5), track, 120)
    assert [span.start for span in spans] == [50, 75, 85]
    later = moving((0, 12), (150, 160), (230, 240))
    spans = parts(recorded(300, 5), later, 300)
    assert len(spans) == 2
    assert 150 <= spans[0].start < spans[0].end <= 160
    assert 230 <= spans[1].start < spans[1].end <= 240
    assert all(span.end - span.start < 4 for span in spans)


def test_a_part_of_a_slow_video_is_longer() -> None:
    """At 8 frames per second, and with movement in 2 of 10 seconds, 24 moves take 15 seconds."""
    track = moving(*((begin, begin + 2.0) for begin in np.arange(0, 120, 10).tolist()))
    spans = parts(recorded(120, 20, fps=8), track, 120)
    assert [span.start for span in spans] == [40, 60, 80, 100]
    assert all(LONGEST_PART_S < span.end - span.start < 20 for span in spans)


def test_few_seconds_are_decoded_and_none_where_the_pointer_rests() -> None:
    always = moving((0, 600))
    spans = parts(recorded(600, 5), always, 600)
    assert len(spans) == MAX_PARTS
    assert sum(span.end - span.start for span in spans) < 2 * MAX_PARTS
    now_and_then = moving(*((begin, begin + 0.9) for begin in np.arange(0, 600, 6).tolist()))
    for span in parts(recorded(600, 5), now_and_then, 600):
        assert span.end - span.start <= LONGEST_PART_S
    seldom = moving(*((begin, begin + 0.4) for begin in np.arange(0, 600, 20).tolist()))
    assert parts(recorded(600, 5), seldom, 600) == []
    assert parts(recorded(18, 5), always, 18) == []
