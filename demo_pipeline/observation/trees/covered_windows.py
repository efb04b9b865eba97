"""Detects that something without an accessibility tree covers a window of the tree.

Programs without accessibility have windows that no scan lists. The screenshot gives them away: such
a window hides the border of the listed window behind it. Only a window that lies entirely inside
the listed one stays undetected.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.trees.focus_rings import Bounds, Grey

BORDER_LEVELS = 12  # of 255 across a border, as between windows in frames/scan_comparisons.py
REACH_PX = 6  # pixels to either side of the logged border; trees leave out the frame
SEGMENT_PX = 48  # pixels along a side, around the place; more than a few letters
SEEN_SHARE = 0.25  # of a segment; chosen by hand on the recordings of benchmarks/truth


def is_covered_at(
    screenshot: Grey, window: Bounds, others: Sequence[Bounds], place: tuple[float, float]
) -> bool:
    """Returns whether a border of a window is missing next to, above or below a place.

    A side at the edge of the screenshot proves nothing. Neither does a side that another listed
    window may hide there. All boxes are on the canvas.

    Args:
        screenshot: of the step.
        window: box of the window.
        others: boxes of the other windows of the tree.
        place: x and y of a point inside the window.
    """
    x, y, width, height = window
    transposed_others = [(top, left, down, across) for left, top, across, down in others]
    all_sides_visible = (
        _is_side_visible(screenshot, y, place[0], others)
        and _is_side_visible(screenshot, y + height, place[0], others)
        and _is_side_visible(screenshot.T, x, place[1], transposed_others)
        and _is_side_visible(screenshot.T, x + width, place[1], transposed_others)
    )
    return not all_sides_visible


def _is_side_visible(screenshot: Grey, row: float, middle: float, others: Sequence[Bounds]) -> bool:
    """Returns whether a horizontal side of a window is visible around a column.

    True also when the screenshot proves nothing.
    """
    top = round(row) - REACH_PX
    bottom = round(row) + REACH_PX + 1
    if top < 0 or bottom > screenshot.shape[0]:
        return True
    first = max(round(middle) - SEGMENT_PX // 2, 0)
    columns = np.arange(first, min(first + SEGMENT_PX, screenshot.shape[1]))
    for x, y, width, height in others:
        if y - REACH_PX <= row <= y + height + REACH_PX:
            columns = columns[(columns < x - REACH_PX) | (columns > x + width + REACH_PX)]
    if not columns.size:
        return True
    strip = screenshot[top:bottom, columns].astype(np.int16)
    has_border = (np.abs(np.diff(strip, axis=0)) > BORDER_LEVELS).any(axis=0)
    return bool(has_border.mean() >= SEEN_SHARE)
