"""What a screenshot shows of a window of the tree: whether something without a tree hides a part.

Programs without accessibility have windows that no scan lists. Such a window at a place hides the
border of a listed one beside, above or below that place, unless it lies inside it altogether.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.trees.focus_look import Bounds, Grey

BORDER_LEVELS = 12  # of 255 across a border, as between windows in frames/scan_comparisons.py
REACH_PX = 6  # pixels to either side of the logged border; trees leave out the frame
SEGMENT_PX = 48  # pixels along a side, around the place; more than a few letters
SEEN_SHARE = 0.25  # of a segment; chosen by hand on the recordings of benchmarks/truth


def is_covered_at(
    picture: Grey, window: Bounds, others: Sequence[Bounds], place: tuple[float, float]
) -> bool:
    """Whether a border of a window is missing in a picture, beside or above or below a place.

    A side at the edge of the picture tells nothing, nor does one that another listed window may
    hide there. All boxes are on the canvas.

    Args:
        picture: the screenshot.
        window: box of the window.
        others: boxes of the other windows of the tree.
        place: x and y of a point inside the window.
    """
    x, y, width, height = window
    turned = [_turned(other) for other in others]
    is_seen = (
        _is_side_seen(picture, y, place[0], others)
        and _is_side_seen(picture, y + height, place[0], others)
        and _is_side_seen(picture.T, x, place[1], turned)
        and _is_side_seen(picture.T, x + width, place[1], turned)
    )
    return not is_seen


def _is_side_seen(picture: Grey, row: float, middle: float, others: Sequence[Bounds]) -> bool:
    """Whether a horizontal side of a window is seen around a column; True when nothing tells."""
    top = round(row) - REACH_PX
    bottom = round(row) + REACH_PX + 1
    if top < 0 or bottom > picture.shape[0]:
        return True
    first = max(round(middle) - SEGMENT_PX // 2, 0)
    columns = np.arange(first, min(first + SEGMENT_PX, picture.shape[1]))
    for x, y, width, height in others:
        if y - REACH_PX <= row <= y + height + REACH_PX:
            columns = columns[(columns < x - REACH_PX) | (columns > x + width + REACH_PX)]
    if not columns.size:
        return True
    strip = picture[top:bottom, columns].astype(np.int16)
    steps = (np.abs(np.diff(strip, axis=0)) > BORDER_LEVELS).any(axis=0)
    return bool(steps.mean() >= SEEN_SHARE)


def _turned(box: Bounds) -> Bounds:
    x, y, width, height = box
    return y, x, height, width
