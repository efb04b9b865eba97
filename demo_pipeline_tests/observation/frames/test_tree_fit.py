"""Tests that the frame at a scan shows in which units the scan's boxes are."""

import numpy as np
import pytest

from demo_pipeline.observation.clock.canvas import Boxes
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.tree_scales import TreeScales, fitting_scale
from demo_pipeline.observation.frames.video_reader import Luma


def form() -> tuple[Luma, Boxes]:
    """Returns a page of labels at half size, and the boxes of the labels in pixels."""
    image = np.full((540, 960), 240, np.uint8)
    random = np.random.default_rng(5)
    boxes = []
    for row in range(30, 480, 34):
        for left in range(60, 860, 190):
            width = int(random.integers(60, 150))
            image[row + 3 : row + 11, left + 2 : left + width - 2 : 3] = 40
            boxes.append((2 * left, 2 * row, 2 * width, 28))
    return image, np.array(boxes, float)


@pytest.mark.parametrize("scale", [1.0, 1.25, 1.5, 2.0, 1 / 1.5, 0.5])
def test_boxes_in_other_units_fit_at_their_own_scale_only(scale: float) -> None:
    image, boxes = form()
    assert fitting_scale(image, boxes / scale) == pytest.approx(scale)


def test_boxes_of_another_screen_are_in_doubt() -> None:
    image, boxes = form()
    assert fitting_scale(np.full_like(image, 240), boxes) is None
    assert fitting_scale(image, boxes + np.array((13, 17, 0, 0))) is None


def scales_of_parts(fits: dict[int, float | None]) -> dict[int, float | None]:
    scales = TreeScales()
    for line, fit in fits.items():
        scales.add(line, fit)
    return scales.parts()


def test_each_part_of_a_recording_has_its_scale() -> None:
    assert scales_of_parts({5: 1.0, 9: 1.0}) == {}
    assert scales_of_parts({5: 1.0, 9: 1.0, 20: 1.5, 30: 1.5, 40: 1.0}) == {20: 1.5, 40: 1.0}


def test_a_single_scan_that_differs_is_in_doubt() -> None:
    assert scales_of_parts({5: 1.0, 9: 1.5, 20: 1.0}) == {9: None, 20: 1.0}
    assert scales_of_parts({5: 1.0, 9: None, 20: 1.5, 30: 1.5}) == {9: None, 20: 1.5}


def test_a_window_of_the_same_box_tells_that_the_units_are_those_of_the_scan_before() -> None:
    """A dialog hides the page, so few boxes of the scan have content."""
    browser = PixelBox(0, 0, 1600, 900)
    scaled = PixelBox(0, 0, 1280, 720)
    for window, parts in ((browser, {}), (scaled, {9: None, 20: 1.0})):
        scales = TreeScales()
        scales.add(5, 1.0, frozenset({browser}))
        scales.add(9, None, frozenset({window, PixelBox(300, 200, 250, 230)}))
        scales.add(20, 1.0, frozenset({browser}))
        assert scales.parts() == parts
