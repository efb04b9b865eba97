"""Tests whether an unlisted window is found to cover part of a window in a scan."""

from typing import Any

import numpy as np

from demo_pipeline.observation.trees.covered_windows import is_covered_at

FOLDER = (100, 100, 800, 600)
TERMINAL = (600, 400, 500, 400)  # covers the lower right corner of FOLDER


def screen(*windows: tuple[int, int, int, int], ground: int = 0) -> Any:
    """Returns a screenshot of white windows with frames; the last window is in front."""
    picture = np.full((1080, 1920), ground, np.uint8)
    for x, y, width, height in windows:
        picture[y : y + height, x : x + width] = 90
        picture[y + 2 : y + height - 2, x + 2 : x + width - 2] = 250
    return picture


def test_a_border_that_is_missing_beside_a_place_tells_that_something_covers_it() -> None:
    picture = screen(FOLDER, TERMINAL)
    assert is_covered_at(picture, FOLDER, [], (700, 500))
    assert not is_covered_at(picture, FOLDER, [], (300, 200))
    assert not is_covered_at(screen(FOLDER), FOLDER, [], (700, 500))


def test_a_listed_window_and_the_edge_of_the_screen_may_hide_a_border() -> None:
    assert not is_covered_at(screen(FOLDER, TERMINAL), FOLDER, [TERMINAL], (700, 500))
    whole = (0, 0, 1920, 1080)
    assert not is_covered_at(screen(whole), whole, [], (700, 500))
