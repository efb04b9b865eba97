"""Tests that every screenshot is exactly the frame that `Rule` demands, in all kinds of videos."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.made import Observed, turn_video
from demo_pipeline_tests.observation.videos import Rule, every_frame
from demo_pipeline_tests.simulator.form import SMALL
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, RecordingOptions
from demo_pipeline_tests.simulator.video import VideoOptions

FRAME_MS = 1000 / 15
START_LINE = replace(SMALL, ffmpeg_start_line=True)
VIDEOS = {
    f"{rate}_gop_{gop}_{b_frames}_b_{first_pts}": VideoOptions(
        preset="ultrafast",
        variable=rate == "variable",
        gop=gop,
        b_frames=b_frames,
        first_pts=first_pts,
    )
    for rate, gop, b_frames, first_pts in product(
        ("constant", "variable"), (30, 300), (0, 2), (0, 45_000, -45_000)
    )
}


# The short tests run every fifth kind of video. Together, these kinds have each value of each
# option at least once.
SHORT_KINDS = sorted(VIDEOS)[::5]
LONG_KINDS = [kind for kind in sorted(VIDEOS) if kind not in SHORT_KINDS]


def check(observed: Observed, quarter_turns: int = 0) -> int:
    """Checks that screenshots, frames.parquet and the decoded video agree with `Rule`.

    Returns how many frames of the script are missing at the start of the video.
    """
    all_frames = every_frame(observed.folder / "recording.mp4", quarter_turns)
    clock = observed.evidence.clock
    first = all_frames[0]
    assert first.number is not None
    off = clock.event_time(first.time) - observed.truth.frames[first.number].wall_ms
    assert abs(off) < (1 if clock.method == "ffmpeg_start" else FRAME_MS)
    rule = Rule(all_frames, observed.truth, clock)
    assert [row["reason_code"] for row in observed.rows].count("missing") == 0
    assert len(observed.rows) == len(observed.truth.actions) == 5
    got = {}
    for position, row in enumerate(observed.rows):
        frame = all_frames[row["frame"]]
        assert row["pts"] == pytest.approx(frame.time, abs=1e-6)
        assert number_in(observed, row["file"]) == frame.number
        got[position] = frame
    assert got == {position: rule.names(position) for position in got}
    return first.number


def number_in(observed: Observed, name: str) -> int | None:
    """Returns the frame number that is drawn on the screen in a screenshot, without its bars."""
    canvas = observed.evidence.canvas
    width = canvas.video_width * canvas.scale
    height = canvas.video_height * canvas.scale
    image = observed.screenshot(name)[canvas.pad_y : canvas.pad_y + round(height)]
    return read_frame_number(image[:, canvas.pad_x : canvas.pad_x + round(width)])


def recorded(kind: str) -> RecordingOptions:
    """Returns the options for a kind of video.

    The log has ffmpeg's start time, unless the first frames are hidden.
    """
    return replace(SMALL, video=VIDEOS[kind], ffmpeg_start_line=VIDEOS[kind].first_pts >= 0)


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize(
    "kind",
    [
        *SHORT_KINDS,
        *(pytest.param(kind, marks=pytest.mark.minutes) for kind in LONG_KINDS),
    ],
)
def test_every_screenshot_is_the_frame_that_the_rule_names(kind: str, tmp_path: Path) -> None:
    """The videos differ in frame rate, key frames, B-frames and the first PTS."""
    options = recorded(kind)
    observed = videos.simulated(tmp_path, options)
    method = "ffmpeg_start" if options.ffmpeg_start_line else "pixels"
    assert observed.evidence.clock.method == method
    hidden = check(observed)
    assert (hidden > 2) == (options.video.first_pts < 0)


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_video_that_players_turn(quarters: int, tmp_path: Path) -> None:
    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        lying = tmp_path / "lying.mp4"
        videos.write_turned(lying, painter, truth, quarters)
        turn_video(lying, path, -quarters)

    observed = videos.painted(tmp_path, START_LINE, write)
    canvas = observed.evidence.canvas
    assert (canvas.video_width, canvas.video_height) == (640, 360)
    check(observed, quarters)


def test_a_video_whose_sides_are_no_multiples_of_sixteen(tmp_path: Path) -> None:
    observed = videos.simulated(tmp_path, replace(START_LINE, width=1366, height=768))
    check(observed)


def test_a_video_of_odd_sides(tmp_path: Path) -> None:
    odd = replace(START_LINE, width=641, height=361)
    observed = videos.painted(tmp_path, odd, videos.write_444)
    canvas = observed.evidence.canvas
    assert (canvas.video_width, canvas.video_height) == (641, 361)
    check(observed)


def test_a_last_frame_that_is_short_is_the_final_screenshot(tmp_path: Path) -> None:
    """The recorder was stopped immediately, so only the last frame shows the final screen."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        videos.write_plain(path, painter, videos.with_short_end(truth))

    story = replace(videos.STORY, tail_ms=100)
    observed = videos.painted(tmp_path, START_LINE, write, story)
    check(replace(observed, truth=videos.with_short_end(observed.truth)))
    last = every_frame(observed.folder / "recording.mp4")[-1]
    assert last.number == len(observed.truth.frames)
    assert number_in(observed, "final.png") == last.number
