"""Tests waits in videos of a page that never rests, with and without awaited content."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.observation.videos import painted
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, RecordingOptions
from demo_pipeline_tests.simulator.script import Script, click, think
from demo_pipeline_tests.simulator.video import VideoOptions, encode

CAROUSEL = Box(500, 60, 380, 200)
SPINNER = Box(40, 460, 32, 32)
CARD = Box(40, 120, 380, 240)
SLIDE_MS = 1600
TURN_MS = 100
# Times at which skeleton and content appear, milliseconds after the press of the button Load.
SKELETON_MS = 150
CONTENT_MS = 2900
DESKTOP = Desktop(  # for a screen twice as wide and high as the video, whose boxes are above
    (
        Widget("More", "button", Box(1100, 800, 200, 60)),
        Widget("Load", "button", Box(1400, 800, 200, 60)),
        Widget("News", "pane", Box(1300, 250, 160, 60)),
        Widget("Card", "pane", Box(200, 380, 240, 100)),
    )
)
STORY = Script(
    DESKTOP,
    (
        *(click("More"), think(2.3), click("News"), think(2.3), click("More"), think(2.3)),
        *(click("News"), think(2.3), click("Load"), think(3.6), click("Card"), think(2.3)),
        click("More"),
    ),
    seed=5,
)
VIDEOS = {
    "15 frames a second": VideoOptions(preset="ultrafast", fps=15, frame_numbers=False),
    "8 frames a second, variable": VideoOptions(
        preset="ultrafast", fps=8, variable=True, frame_numbers=False
    ),
}

Picture = NDArray[np.uint8]


def write_page(path: Path, painter: Painter, truth: GroundTruth, video: VideoOptions) -> None:
    """Writes a video of a page with a carousel, a spinner and a card.

    After a click on Load, the card shows a skeleton screen and then content.
    """
    (load,) = (action.press_ms for action in truth.actions if action.target_name == "Load")
    height = truth.screen[1]

    def images() -> Iterable[tuple[int, Picture]]:
        for frame in truth.frames:
            planes = painter.planes(truth.timeline.at(frame.wall_ms), None).copy()
            luma = planes[:height]
            still = planes[:height].copy()
            _draw(luma, CAROUSEL, _slide(int(frame.wall_ms) // SLIDE_MS))
            turn = int(frame.wall_ms) // TURN_MS * 40
            x = SPINNER.x + 16
            y = SPINNER.y + 16
            cv2.ellipse(luma, (x, y), (12, 12), turn, 0, 120, 30, 4)
            since = frame.wall_ms - load
            if since >= SKELETON_MS:
                _draw(luma, CARD, _slide(7) if since >= CONTENT_MS else _skeleton())
            _keep_pointer(luma, still, truth.timeline.at(frame.wall_ms).pointer)
            yield frame.pts, planes

    encode(path, images(), truth.screen, video)


def _draw(luma: Any, box: Box, level: Any) -> None:
    rows = slice(box.y, box.y + box.height)
    columns = slice(box.x, box.x + box.width)
    luma[rows, columns] = level[: box.height, : box.width]


def _slide(number: int) -> Picture:
    """Draws a picture of coarse squares."""
    squares = np.random.default_rng(number).integers(40, 220, (20, 32), np.uint8)
    return np.kron(squares, np.ones((12, 12), np.uint8))


def _skeleton() -> Picture:
    bars = np.full((240, 384), 245, np.uint8)
    for top in range(20, 220, 40):
        bars[top : top + 20, 20:340] = 205
    return bars


def _keep_pointer(luma: Any, still: Any, pointer: tuple[int, int]) -> None:
    """Draws the pointer in front of everything."""
    x, y = pointer
    luma[y : y + 12, x : x + 8] = still[y : y + 12, x : x + 8]


@pytest.fixture(scope="module", params=sorted(VIDEOS))
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    video = VIDEOS[request.param]
    options = RecordingOptions(width=960, height=540, video=video, scan_every_s=None)

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        write_page(path, painter, truth, video)

    return painted(tmp_path_factory.mktemp("page"), options, write, STORY)


def test_of_the_pauses_beside_moving_things_only_the_awaited_content_is_a_wait(
    page: Observed,
) -> None:
    pauses = [action for action in page.actions if action.action_type == "pause"]
    assert len(pauses) == len(page.truth.pauses)
    (wait,) = page.evidence.waits
    (load,) = (action for action in page.truth.actions if action.target_name == "Load")
    assert page.actions[wait.action_index].press_ms == pytest.approx(load.end_ms, abs=20)


def test_the_screenshot_of_a_wait_shows_what_was_waited_at(page: Observed) -> None:
    """The screenshot shows the skeleton, not the screen before the click or the content."""
    (wait,) = page.evidence.waits
    row = page.rows[wait.action_index]
    assert row["reason_code"] == "waiting"
    luma = cv2.cvtColor(page.screenshot(row["file"]), cv2.COLOR_BGR2GRAY)
    # CARD is in video pixels, and the canvas has twice as many pixels per side.
    x = 2 * (CARD.x + 100)
    bars = [int(luma[2 * (CARD.y + y), x]) for y in range(30, 220, 40)]
    gaps = [int(luma[2 * (CARD.y + y), x]) for y in range(50, 220, 40)]
    assert max(bars) - min(bars) < 5
    assert min(gaps) - max(bars) > 20
