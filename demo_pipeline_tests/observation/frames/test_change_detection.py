"""What counts as a change of the screen, on small made pictures."""

from typing import Any

import av
import numpy as np

from demo_pipeline.observation.frames.changes import (
    ChangeDetector,
    ChangeMap,
    Difference,
    flickering_cells,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, Frame

ROW = PixelBox(200, 200, 300, 32)
COMPARE = ChangeDetector(None)


def screen(*boxes: PixelBox) -> Any:
    """The luma of a grey screen of 1280x720 with dark boxes."""
    luma = np.full((720 // SAMPLE_STEP, 1280 // SAMPLE_STEP), 200, np.uint8)
    for box in boxes:
        top, left = int(box.y) // SAMPLE_STEP, int(box.x) // SAMPLE_STEP
        down, across = int(box.height) // SAMPLE_STEP, int(box.width) // SAMPLE_STEP
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


def test_a_menu_in_a_film_without_still_frames_is_no_flicker() -> None:
    """With a variable rate, ten openings are most of the frames and little of the time."""
    for every_s, flickers in ((4.0, False), (0.1, True)):
        changes = ChangeMap()
        for number in range(20):
            grey = np.full((64, 64), 230, np.uint8)
            grey[16:48, 16:48] = 40 if number % 2 else 230
            frame = av.VideoFrame.from_ndarray(grey, format="gray")
            changes.add(Frame(number, number * every_s, frame))
        changes.seconds = 20 * every_s
        cells = flickering_cells(changes, 0.1)
        assert cells is not None
        assert cells.any() == flickers
