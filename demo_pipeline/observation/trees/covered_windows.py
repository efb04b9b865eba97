"""Detects whether a window that is missing in the tree covers a window of the tree.

No scan lists the windows of programs without accessibility. But in the screenshot, such a window
hides a part of the border of the listed window behind it. A window that lies entirely inside the
listed window hides no border and stays undetected.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.trees.focus_rings import Bounds, Grey

# A border is visible where neighbouring pixels differ by more than this many grey levels (of 255);
# the same value as in frames/window_order.py.
BORDER_LEVELS = 12
# Canvas pixels; a border is searched up to this far from a side, because trees leave out the frames
# of windows.
REACH_PX = 6
# Canvas pixels; length of the part of a side that is examined; wider than a few letters.
SEGMENT_PX = 48
# The side is visible if at least this share of the examined pixels shows a border. Chosen by hand
# on the recordings of benchmarks/truth.
SEEN_SHARE = 0.25


def is_covered_at(
    screenshot: Grey, window: Bounds, others: Sequence[Bounds], place: tuple[float, float]
) -> bool:
    """Returns whether a side of a window is invisible right, left, above or below a place.

    Sides at the edge of the screenshot prove nothing. Neither do sides that another listed window
    may hide there. Boxes and places are in canvas pixels.

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
    """Returns whether a horizontal side of a window is visible near a column of the screenshot.

    Args:
        screenshot: rows and columns of pixels.
        row: of the side.
        middle: the column.
        others: boxes of other windows; columns that they may hide are left out.

    Returns:
        True also if no column is left that could prove anything.
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
