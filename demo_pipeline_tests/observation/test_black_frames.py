"""Tests that no screenshot shows content that a recorder blacked out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth
from demo_pipeline_tests.simulator.script import Script, click, think
from demo_pipeline_tests.simulator.video import VideoOptions, encode

USUAL = VideoOptions(preset="ultrafast", fps=15)
BLACK = 16  # value of black in the luma plane
GREY = 128  # value of grey in the chroma planes


def blacked_out(root: Path, story: Script, ranges: list[tuple[int, int, int, int]]) -> Observed:
    """Records a video that is black in some ranges of time.

    A range is (action, milliseconds after its end, action, milliseconds after its press).
    """

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        acts = truth.actions
        spans = [(acts[a].end_ms + off, acts[b].press_ms + on) for a, off, b, on in ranges]

        def images() -> Iterator[tuple[int, videos.Picture]]:
            for frame in truth.frames:
                planes = painter.planes(truth.timeline.at(frame.wall_ms), frame.number).copy()
                if any(begin <= frame.wall_ms <= end for begin, end in spans):
                    planes[: truth.screen[1]] = BLACK
                    planes[truth.screen[1] :] = GREY
                yield frame.pts, planes

        encode(path, images(), truth.screen, USUAL)

    return videos.painted(root, replace(SMALL, video=USUAL), write, story)


def test_no_screenshot_is_black_or_older_than_what_was_blacked_out(tmp_path: Path) -> None:
    story = script(click("Agree"), think(4.0), click("Name"), think(4.0), click("Rows/b"))
    observed = blacked_out(tmp_path, story, [(0, 500, 1, 200), (1, 1000, 2, -1200)])
    clicks = [row for row in observed.rows if row["reason_code"] != "pause"]
    assert [row["reason_code"] for row in clicks] == ["pre_move", "missing", "pre_move"]
    assert observed.screenshot(clicks[2]["file"]).max() > 100
    shown_ms = observed.evidence.clock.event_time(clicks[2]["pts"])
    assert shown_ms > observed.truth.actions[2].press_ms - 1200
    assert observed.evidence.waits == ()
