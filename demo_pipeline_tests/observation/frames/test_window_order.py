"""Tests that the borders in a frame show which of several overlapping windows is in front."""

import numpy as np
import pytest

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import Luma
from demo_pipeline.observation.frames.window_order import front_of

NOTES = (100, 80, 400, 300)
FILES = (300, 200, 420, 320)
NOTE = (350, 240, 100, 80)


def screen(*boxes: tuple[int, int, int, int]) -> Luma:
    """Draws overlapping white windows at half size, with a thin grey border and lines of text."""
    image = np.full((300, 400), 60, np.uint8)
    for number, box in enumerate(boxes):
        x, y, width, height = (side // 2 for side in box)
        image[y : y + height, x : x + width] = 150
        image[y + 1 : y + height - 1, x + 1 : x + width - 1] = 250
        image[y + 20 : y + height - 20 : 27 + number, x + 10 : x + width - 10] = 90
    return image


def front(image: Luma, *boxes: tuple[int, int, int, int]) -> int | None:
    return front_of(image, [PixelBox(*box) for box in boxes])


@pytest.mark.parametrize("listed", [(NOTES, FILES), (FILES, NOTES)])
def test_the_window_with_the_whole_border_is_in_front(listed: tuple[tuple[int, ...], ...]) -> None:
    for upper in (NOTES, FILES):
        lower = FILES if upper is NOTES else NOTES
        assert listed[front(screen(lower, upper), *listed) or 0] == upper  # type: ignore[arg-type]


def test_of_three_windows_the_uppermost_is_in_front() -> None:
    assert front(screen(NOTES, FILES, NOTE), NOTES, FILES, NOTE) == 2
    assert front(screen(NOTE, NOTES, FILES), NOTES, FILES, NOTE) == 1


def test_a_window_that_is_not_on_the_screen_is_behind() -> None:
    """Accessibility trees list windows that are closed or on another desktop."""
    assert front(screen(FILES), FILES, NOTE) == 0


def test_without_a_visible_border_the_frame_does_not_show_the_order() -> None:
    blank = np.full((300, 400), 250, np.uint8)
    assert front(blank, NOTES, FILES) is None
    assert front(blank) is None
