"""Which window is in front."""

from collections.abc import Iterator, Sequence

import numpy as np

from demo_pipeline.observation.frames.changes import (
    DETAIL_STEP,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import Luma

BORDER_STEP = 12  # of 255 across a border; right in all pairs of windows of two recordings
BORDER_REACH = 2  # samples to either side of the logged border; trees leave out the frame
CORNER_SAMPLES = 3  # samples at either end of a border that its round corners cover
FRONT_SHARE = 0.8  # of a border inside another window; in front it was 0.83 to 1.00
FRONT_LEAD = 0.25  # by which it is more than that of the window behind, which was up to 0.71
GHOST_SHARE = 0.5  # of the whole border of a window that is not on the screen: up to 0.48


def front_of(detail: Luma, windows: Sequence[PixelBox]) -> int | None:
    """Number of the window in front of all others; None when the picture does not tell.

    Args:
        detail: (rows, columns), as `ScreenDetail.detail`.
        windows: those that overlap at a point, video pixels.
    """
    numbers = range(len(windows))
    front = (
        one
        for one in numbers
        if all(one == other or _covers(detail, windows[one], windows[other]) for other in numbers)
    )
    return next(front, None)


def _covers(detail: Luma, upper: PixelBox, lower: PixelBox) -> bool:
    """Whether a window is certainly in front of another one."""
    own = _border_share(detail, upper, lower)
    others = _border_share(detail, lower, upper)
    if own is None:
        return others is not None and others <= GHOST_SHARE
    return own >= FRONT_SHARE and own - (others or 0.0) >= FRONT_LEAD


def _border_share(detail: Luma, window: PixelBox, other: PixelBox) -> float | None:
    """The share of a window's border inside another one that is seen; None: there is none."""
    seen = [*_borders(detail, window, other), *_borders(detail.T, _turned(window), _turned(other))]
    return float(np.concatenate(seen).mean()) if seen else None


def _borders(detail: Luma, window: PixelBox, other: PixelBox) -> Iterator[np.ndarray]:
    """Yield for the upper and the lower border inside another window which samples are a step."""
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
    return PixelBox(box.y, box.x, box.height, box.width)
