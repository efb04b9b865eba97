"""Tests what counts as a change of the screen, on small drawn frames."""

from itertools import pairwise
from typing import Any

import av
import numpy as np
import pytest

from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import ChangeMap, Difference
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, Frame, Span

ROW = PixelBox(200, 200, 300, 32)
COMPARE = ChangeDetector()


def screen(*boxes: PixelBox) -> Any:
    """Returns the luma of a grey screen of 1280x720 with dark boxes."""
    luma = np.full((720 // SAMPLE_STEP, 1280 // SAMPLE_STEP), 200, np.uint8)
    for box in boxes:
        top = int(box.y) // SAMPLE_STEP
        left = int(box.x) // SAMPLE_STEP
        down = int(box.height) // SAMPLE_STEP
        across = int(box.width) // SAMPLE_STEP
        luma[top : top + down, left : left + across] = 40
    return luma


def between(*boxes: PixelBox, pointers: tuple[tuple[float, float], ...] = ()) -> Difference:
    return COMPARE.between_distant(screen(), screen(*boxes), list(pointers))


def test_a_tick_answers_a_click_but_is_no_change_of_the_screen() -> None:
    changed = between(PixelBox(208, 208, 16, 16))
    assert changed.shows_response([], ROW)
    assert not changed.is_significant([], None)
    assert not changed.shows_response([], PixelBox(600, 200, 100, 40))
    assert not changed.shows_response([(216, 216)], ROW)


def blinking(acting, every_s, *, seen):
    """Returns whether a box that appears in every other frame is found to flicker."""
    changes = ChangeMap()
    frames = []
    for number in range(20):
        grey = np.full((64, 64), 230, np.uint8)
        grey[16:48, 16:48] = 40 if number % 2 else 230
        frame = Frame(number, number * every_s, av.VideoFrame.from_ndarray(grey, format="gray"))
        changes.add(frame)
        frames.append(frame)
    detector = ChangeDetector(acting, 0.1, changes if seen else None)
    for before, after in pairwise(frames):
        detector.between(before, after)
    return detector.flickering is not None and bool(detector.flickering.any())


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(
    ("every_s", "acting", "flickers"),
    [
        pytest.param(0.1, (), True, id="a clip plays"),
        pytest.param(0.1, (Span(0.0, 1.5),), False, id="a page is scrolled"),
        pytest.param(4.0, (), False, id="a menu, ten times, with a variable rate"),
    ],
)
def test_a_place_that_keeps_changing_while_nobody_acts_flickers(every_s, acting, flickers, seen):
    assert blinking(acting, every_s, seen=seen) == flickers
