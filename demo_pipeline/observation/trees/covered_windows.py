"""Detects windows that are missing from the accessibility tree but cover a window of the tree.

Such a window hides part of the border of a listed window behind it. A window that lies entirely
inside the listed window is not detected.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.trees.focus_rings import Bounds, Grey

# Grey levels (0 to 255), as in frames/window_order.py. A border is visible where neighbouring
# pixels differ by more than 12.
BORDER_LEVELS = 12
# Maximum distance from the logged side of a window to its visible border, in canvas pixels.
# The two differ because accessibility trees leave out the frames of windows.
REACH_PX = 6
# Length of the examined part of a side, in canvas pixels; a few letters are shorter.
SEGMENT_PX = 48
# Minimum share of the examined pixels that show a border if the side is visible. Chosen by hand on
# the recordings of benchmarks/truth.
SEEN_SHARE = 0.25


def is_covered_at(
    screenshot: Grey, window: Bounds, others: Sequence[Bounds], place: tuple[float, float]
) -> bool:
    """Returns whether an unlisted window may cover a window near a point.

    The window may be covered if at least one of its sides is invisible straight above, below, left
    or right of the point. Sides at the edge of the screenshot, or behind another listed window,
    are ignored. Positions are in canvas pixels.

    Args:
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

    Returns True if no column can be examined.

    Args:
        row: row of the side.
        middle: the column in the middle of the examined part.
        others: boxes of other windows. Columns that they may hide are left out.
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
