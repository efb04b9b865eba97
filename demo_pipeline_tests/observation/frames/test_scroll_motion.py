"""Tests that moving content shows the sign of the wheel's deltas, and that scrolls use the sign."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import av
import cv2
import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import documented_clock
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.scroll_motion import (
    COLUMN_STEP,
    ROW_STEP,
    ScrollMotion,
    content_moved,
)
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame
from demo_pipeline.trajectories.provenance import read_provenance
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.form import SMALL
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import Script, click, scroll

HEIGHT = 720
WIDTH = 1280
MIDDLE = (640.0, 360.0)
CANVAS = fit_canvas((WIDTH, HEIGHT), 1.0)
SCREEN = ScreenParts.single(CANVAS)
POINTER = VideoPointer(PointerPath.through([]), documented_clock(0.0), SCREEN, 0.1)


def page(seed: int = 1) -> np.ndarray:
    """Returns a page with a text-like texture, far longer and wider than the screen."""
    coarse = np.random.default_rng(seed).integers(0, 255, (300, 400)).astype(np.uint8)
    return cv2.resize(coarse, (3200, 2400), interpolation=cv2.INTER_LINEAR)


def view(image: np.ndarray, down: int = 0, right: int = 0) -> np.ndarray:
    """Returns the visible part of the page after scrolling `down` and `right` pixels."""
    top = 800 + down
    left = 900 + right
    return image[top : top + HEIGHT, left : left + WIDTH].copy()


def screen(image: np.ndarray, down: int = 0, right: int = 0) -> np.ndarray:
    """Returns the sampled luma of the visible part of the page."""
    return view(image, down, right)[::ROW_STEP, ::COLUMN_STEP].copy()


@pytest.mark.parametrize("pixels", [4, 16, 52, 120])
def test_content_is_seen_to_move_either_way(pixels: int) -> None:
    video = page()
    assert content_moved(screen(video), screen(video, down=pixels), MIDDLE) == ("up", pixels)
    assert content_moved(screen(video, down=pixels), screen(video), MIDDLE) == ("down", pixels)
    assert content_moved(screen(video), screen(video, right=pixels), MIDDLE) == ("left", pixels)
    assert content_moved(screen(video, right=pixels), screen(video), MIDDLE) == ("right", pixels)


def test_content_that_does_not_move_or_repeats_is_no_evidence() -> None:
    video = page()
    assert content_moved(screen(video), screen(video), MIDDLE) is None
    assert content_moved(screen(video), screen(page(2)), MIDDLE) is None
    rows = np.tile(np.repeat([0, 255], 10).astype(np.uint8), 60)[:, None].repeat(3200, axis=1)
    striped = cv2.resize(rows, (3200, 2400))
    assert content_moved(screen(striped), screen(striped, down=21), MIDDLE) is None
    assert content_moved(screen(video), screen(video, down=16), (-900.0, 5000.0)) is None


def test_a_button_that_lights_up_is_no_movement() -> None:
    before = screen(page())
    after = before.copy()
    after[170:190, 150:170] = 255
    assert content_moved(before, after, MIDDLE) is None


def scrolls(*deltas: float) -> list[Action]:
    return [
        Action(
            "scroll", 1000 * n, 1000 * n + 200, [n], x=640, y=360, wheel_sum=delta, action_index=n
        )
        for n, delta in enumerate(deltas, 1)
    ]


def watched(actions: list[Action], *views: tuple[float, int, int]) -> ScrollMotion:
    """Returns the observer after it has seen the views.

    A view is the time in seconds, and how many pixels the page is scrolled down and right.
    """
    motion = ScrollMotion(actions, documented_clock(0.0), SCREEN)
    video = page()
    before = None
    times = np.array([time for time, _, _ in views])
    for time, down, right in views:
        image = av.VideoFrame.from_ndarray(view(video, down, right), format="gray")
        frame = Frame(round(time * 1000), time, image)
        motion.see(FrameDiff(before, frame, times, ChangeDetector(), POINTER))
        before = frame
    return motion


def test_the_sign_is_what_most_scrolls_show() -> None:
    """Positive deltas move the content down, so a positive delta means scrolling up."""
    moving = [(1.0, 400, 0), (1.1, 380, 0), (2.0, 380, 0), (2.1, 410, 0), (3.0, 410, 0)]
    vote = watched(scrolls(1, -1, 1), *moving, (3.2, 390, 0)).result()
    assert (vote.positive, vote.votes, vote.agreeing) == ("up", 3, 3)
    documented = watched(scrolls(-120, 120), *moving[:4]).result()
    assert documented.positive == "down"


def test_scrolls_that_contradict_each_other_decide_nothing() -> None:
    vote = watched(scrolls(1, 1), (1.0, 0, 0), (1.1, 20, 0), (2.0, 20, 0), (2.1, 0, 0)).result()
    assert (vote.positive, vote.votes) == (None, 2)
    assert watched(scrolls(1, 1), (1.0, 0, 0), (1.1, 0, 0)).result().votes == 0


def test_content_that_moves_before_the_scroll_is_not_its_doing() -> None:
    assert (
        watched(scrolls(1), (0.1, 0, 0), (0.2, 40, 0), (0.9, 40, 0), (1.1, 40, 0)).result().votes
        == 0
    )


def test_content_that_moves_across_was_scrolled_sideways() -> None:
    vote = watched(scrolls(1), (1.0, 0, 0), (1.1, 0, 30), (1.2, 0, 60)).result()
    assert vote.positive is None
    assert dict(vote.sideways) == {1: "right"}


def test_of_many_scrolls_some_all_over_the_recording_are_looked_at() -> None:
    many = scrolls(*[1] * 200)
    motion = ScrollMotion(many, documented_clock(0.0), SCREEN)
    starts = [span.start for span in motion.spans]
    assert len(starts) == 12
    assert (starts[0], starts[-1]) == (1.0, 200.0)


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("sign", [1, -1])
def test_a_recorder_that_counts_the_other_way_is_seen_through(sign: int, tmp_path: Path) -> None:
    """The deltas are multiples of 120, whose documented rule is that positive scrolls down."""
    folder = tmp_path / "uploads" / "demo"
    random = Random(7)
    rows = tuple("".join(random.choices("abcdehimnorstuw    ", k=36)) for _ in range(40))
    desktop = Desktop(
        (
            Widget("Form", "window", Box(200, 100, 1200, 800)),
            Widget("Agree", "check_box", Box(240, 200, 300, 50), "Form"),
            Widget("Rows", "list", Box(240, 300, 900, 500), "Form", rows=rows),
        )
    )
    acts = (
        *(click("Agree"), scroll("Rows", 3)),
        *(click("Agree"), scroll("Rows", -2)),
        *(click("Agree"), scroll("Rows", 4)),
        *(click("Agree"), scroll("Rows", -2)),
        click("Agree"),
    )
    write_recording(folder, Script(desktop, acts, seed=3), replace(SMALL, width=1280, height=720))
    log = folder / "input_log.jsonl"
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for event in events:
        if event["event"] == "mousewheel":
            event["data"]["delta"] *= sign
    log.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    pipeline = open_workspace(tmp_path)
    assert set(run_all_stages(pipeline, "demo").values()) == {"made"}
    out = pipeline.store.open("trajectories/demo")[0]
    written = [json.loads(path.read_bytes()) for path in sorted(out.glob("steps/*/action.json"))]
    kept = read_provenance(out / "provenance.parquet", ["action_type", "wheel_method"])
    directions = [
        step["parameters"]["direction"] for step in written if step["action_type"] == "scroll"
    ]
    assert directions == ["down", "up", "down", "up"]
    assert [row["wheel_method"] for row in kept if row["action_type"] == "scroll"] == [
        "evidence"
    ] * 4
