"""Tests the detection of focus rings and highlighted choices in screenshots."""

from typing import Any

import numpy as np

from demo_pipeline.observation.trees.focus_rings import (
    are_unlit,
    has_same_background,
    has_same_content,
    has_same_sides,
    lit_choice,
)
from demo_pipeline.observation.trees.focus_rings import ringed as ringed_by_kind

# Two buttons with a gap of 4 pixels, and a radio button.
BUTTONS = [(100, 100, 80, 36), (184, 100, 80, 36), (100, 200, 14, 14)]
ROWS = [(100, 300 + 26 * row, 200, 26) for row in range(4)]


def drawn(ring: int | None = None, ground: int = 240, missing: int | None = None) -> Any:
    """Returns a grey page of buttons with frames and labels, one of which may have a ring."""
    picture = np.full((500, 500), ground, np.uint8)
    for number, (x, y, width, height) in enumerate(BUTTONS):
        if number != missing:
            wide, level = (2, 16) if number == ring else (1, 118)
            picture[y : y + height, x : x + width] = level
            picture[y + wide : y + height - wide, x + wide : x + width - wide] = 250
            picture[y + 14 : y + height - 14, x + 20 : x + width - 20] = 0
    return picture


def ringed(before: Any, after: Any, boxes: Any, *, new: bool = False) -> int | None:
    return ringed_by_kind(before, after, boxes, [new] * len(boxes))


def test_the_element_whose_frame_grew_is_the_one_with_the_ring() -> None:
    for before in (None, 0, 1, 2):
        for ring in {0, 1, 2} - {before}:
            assert ringed(drawn(before), drawn(ring), BUTTONS) == ring
    assert ringed(drawn(1), drawn(1), BUTTONS) is None
    assert ringed(drawn(1), drawn(), BUTTONS) is None


def test_an_element_that_appeared_or_was_redrawn_with_all_others_has_no_ring() -> None:
    assert ringed(drawn(missing=1), drawn(), BUTTONS) is None
    assert ringed(drawn(missing=1), drawn(), BUTTONS, new=True) == 1
    assert ringed(drawn(ground=120), drawn(), BUTTONS) is None
    assert ringed(drawn(), drawn(0)[:400], BUTTONS) is None
    assert ringed(drawn(), drawn(0), [(-2, 100, 80, 36), (480, 100, 80, 36)]) is None


def test_two_boxes_at_one_place_are_not_two_elements() -> None:
    cell = (99, 99, 82, 38)
    assert ringed(drawn(), drawn(0), [*BUTTONS, cell]) in {0, 3}


def test_one_row_with_another_ground_is_lit() -> None:
    picture = np.full((500, 500), 240, np.uint8)
    picture[305:320:3, 110:180] = 20  # letters of the first row
    assert lit_choice(picture, ROWS) is None
    picture[326:352, 100:300] = 100
    assert lit_choice(picture, ROWS) == 1
    assert lit_choice(picture, ROWS[:2]) is None  # either of two rows may be lit
    picture[352:378, 100:300] = 180
    assert lit_choice(picture, ROWS) is None


def test_a_ring_that_stays_and_a_label_that_was_there() -> None:
    assert has_same_sides(drawn(1), drawn(1), BUTTONS[1])
    assert not has_same_sides(drawn(1), drawn(0), BUTTONS[1])
    assert has_same_content(drawn(), drawn(1), BUTTONS[1])
    uncovered = drawn(missing=1)
    uncovered[114:124, 190:250:9] = 90  # other text was there
    assert not has_same_content(uncovered, drawn(), BUTTONS[1])


def test_rows_of_one_ground_are_unlit() -> None:
    picture = np.full((500, 500), 240, np.uint8)
    assert are_unlit(picture, ROWS)
    assert not are_unlit(picture, ROWS[:1])  # a single row may be lit
    picture[326:352, 100:300] = 100
    assert not are_unlit(picture, ROWS)


def test_a_cell_that_is_lit_with_its_row_has_another_ground() -> None:
    picture = np.full((500, 500), 240, np.uint8)
    lit_row = picture.copy()
    lit_row[326:352, 100:300] = 100
    assert has_same_background(picture, lit_row, ROWS[0])
    assert not has_same_background(picture, lit_row, (100, 326, 26, 26))
