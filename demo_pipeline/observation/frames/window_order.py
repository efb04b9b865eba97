"""Finds the frontmost of several overlapping windows by the window borders that a frame shows."""

from collections.abc import Iterator, Sequence

import numpy as np

from demo_pipeline.observation.frames.changes import (
    DETAIL_STEP,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import Luma

# Minimum step of brightness (0 to 255) at a visible border. With this value, all pairs of windows
# in two recordings were ordered correctly.
BORDER_STEP = 12
# Maximum distance from the logged border to the real one, in samples of 2 x 2 pixels. The
# borders differ because accessibility trees leave out the window's frame.
BORDER_REACH = 2
CORNER_SAMPLES = 3  # samples that are ignored at each end of a border, because of round corners
# Only the part of a window's border inside the other window is compared. The visible share of this
# part was 0.83 to 1.00 for the window in front, and up to 0.71 for the window behind.
FRONT_SHARE = 0.8  # minimum share for the window in front
FRONT_LEAD = 0.25  # minimum difference between the shares of the two windows
# Maximum visible share of the border of a window that is in the tree but not on the screen.
# Measured: up to 0.48.
GHOST_SHARE = 0.5


def front_of(detail: Luma, windows: Sequence[PixelBox]) -> int | None:
    """Returns the index of the window that is in front of all others.

    Returns None if the frame does not show which window is in front.

    Args:
        detail: the screen (rows, columns), as in `ScreenDetail.detail`.
        windows: boxes that overlap at a point, video pixels.
    """
    for number, window in enumerate(windows):
        others = [*windows[:number], *windows[number + 1 :]]
        if all(_covers(detail, window, other) for other in others):
            return number
    return None


def _covers(detail: Luma, upper: PixelBox, lower: PixelBox) -> bool:
    """Whether the frame shows that `upper` is in front of `lower`."""
    upper_share = _border_share(detail, upper, lower)
    lower_share = _border_share(detail, lower, upper)
    if upper_share is None:
        return lower_share is not None and lower_share <= GHOST_SHARE
    return upper_share >= FRONT_SHARE and upper_share - (lower_share or 0.0) >= FRONT_LEAD


def _border_share(detail: Luma, window: PixelBox, other: PixelBox) -> float | None:
    """Returns the visible share of the part of a window's border that is inside another window.

    Returns None if no part of the border is inside the other window.
    """
    steps = [*_borders(detail, window, other), *_borders(detail.T, _turned(window), _turned(other))]
    return float(np.concatenate(steps).mean()) if steps else None


def _borders(detail: Luma, window: PixelBox, other: PixelBox) -> Iterator[np.ndarray]:
    """Yields a mask of the visible samples for the upper and the lower border of a window.

    Only the part of each border that is inside the other window is examined.
    """
    rows, columns = detail.shape
    first = max(window.x, other.x, 0) / DETAIL_STEP + CORNER_SAMPLES
    last = min(window.right, other.right) / DETAIL_STEP - CORNER_SAMPLES
    across = slice(int(first), max(int(first), min(int(last), columns)))
    inside = range(
        int(other.y / DETAIL_STEP) + CORNER_SAMPLES,
        int(other.bottom / DETAIL_STEP) - CORNER_SAMPLES,
    )
    for side in (window.y, window.bottom):
        row = round(side / DETAIL_STEP)
        near = slice(row - BORDER_REACH - 1, row + BORDER_REACH + 2)
        if row in inside and near.start >= 0 and near.stop <= rows and across.start < across.stop:
            strip = detail[near, across].astype(np.int16)
            yield np.abs(np.diff(strip, axis=0)).max(axis=0) > BORDER_STEP


def _turned(box: PixelBox) -> PixelBox:
    """Returns the box with rows and columns exchanged."""
    return PixelBox(box.y, box.x, box.height, box.width)
