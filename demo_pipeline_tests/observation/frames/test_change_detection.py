"""What counts as a change of the screen, on small made pictures."""

from typing import Any

import av
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.observation.frames.changes import (
    ChangeDetector,
    ChangeMap,
    Difference,
    flickering_cells,
    may_be_large,
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


def picture(grey: Any) -> Frame:
    return Frame(0, 0.0, av.VideoFrame.from_ndarray(grey, format="gray"))


def page(seed: int, area: PixelBox, line: int, size: tuple[int, int] = (1920, 1080)) -> Frame:
    """A white screen with letters in an area, in lines of so many pixels."""
    random = np.random.default_rng(seed)
    grey = np.full(size[::-1], 255, np.uint8)
    high = max(5, round(line * 0.45))
    left, right = int(area.x), int(area.x + area.width)
    for top in range(int(area.y), int(area.y + area.height) - high, line):
        part = grey[top : top + high, left:right]
        part[random.random(part.shape) < 0.25] = 40
    return picture(grey)


@st.composite
def areas(draw: st.DrawFn) -> PixelBox:
    """Of 1920x1080, at least 12 pixels each way: bars, panels, dialogs."""
    x, y = draw(st.integers(0, 1908)), draw(st.integers(0, 1068))
    return PixelBox(x, y, draw(st.integers(12, 1920 - x)), draw(st.integers(12, 1080 - y)))


@settings(max_examples=100, deadline=None)
@given(areas(), st.integers(11, 64))
@example(PixelBox(0, 22, 891, 83), 11)
@example(PixelBox(228, 389, 859, 289), 16)  # lines as far apart as the rows of a glance
@example(PixelBox(276, 302, 1290, 86), 11)
def test_text_that_changes_much_of_the_screen_shows_at_a_glance(area: PixelBox, line: int) -> None:
    before, after = page(1, area, line), page(2, area, line)
    if COMPARE.between(before.luma, after.luma, key_frame=False).is_large:
        assert may_be_large(before.glance, after.glance)


@settings(max_examples=100, deadline=None)
@given(areas())
def test_a_box_that_covers_much_of_the_screen_shows_at_a_glance(area: PixelBox) -> None:
    grey = np.full((1080, 1920), 200, np.uint8)
    before = picture(grey.copy())
    x, y = int(area.x), int(area.y)
    grey[y : y + int(area.height), x : x + int(area.width)] = 160
    after = picture(grey)
    if COMPARE.between(before.luma, after.luma, key_frame=False).is_large:
        assert may_be_large(before.glance, after.glance)


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("size", [(1920, 1080), (1280, 720), (640, 46)])
@pytest.mark.parametrize("height", [12, 13, 20, 36])
def test_no_bar_across_the_screen_lies_between_the_rows_of_a_glance(
    size: tuple[int, int], height: int
) -> None:
    grey = np.full(size[::-1], 200, np.uint8)
    before = picture(grey.copy())
    large = 0
    for top in range(size[1] - height + 1):
        grey[:] = 200
        grey[top : top + height] = 160
        after = picture(grey.copy())
        if COMPARE.between(before.luma, after.luma, key_frame=False).is_large:
            assert may_be_large(before.glance, after.glance), top
            large += 1
    assert large or (size, height) == ((1920, 1080), 12)  # which is less than 2 %


def test_a_pointer_is_not_large_at_a_glance() -> None:
    before, after = page(1, PixelBox(0, 0, 0, 0), 20), page(1, PixelBox(400, 300, 24, 24), 6)
    assert before.glance.size <= before.luma.size / 2
    assert not may_be_large(before.glance, after.glance)


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
