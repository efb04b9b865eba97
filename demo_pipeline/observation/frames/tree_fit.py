"""What the picture shows of the boxes of a scan: in which units they are, which window is in front.

Belongs here: the fit of a scan and the parts of a recording that follow from the fits (after a
change of display scaling some recorders log trees in other units than the pointer), and the border
test. What a tree says of the order of windows is in trees/hit_test.py.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from demo_pipeline.observation.frames.picture_changes import DETAIL_STEP
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_frames import Luma
from demo_pipeline.observation.trees.raw_tree import Boxes

USUAL_SCALES = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # that systems offer for their displays
_SCALES = (*USUAL_SCALES, *(1 / scale for scale in USUAL_SCALES))
LEAST_MARKS = 6  # elements; fewer fit by chance
INK_LEVELS = 48  # of 255; the contrast of what a named element shows
CUT_LEVELS = 24  # of 255; a step along the edge of a box, which cuts something there
CUT_SHARE = 0.06  # of the samples along the edge; a box around its element cuts nothing
FIT_SHARE = 0.5  # of the marks; right scales fit 0.48 to 1.00 of them, wrong ones up to 0.47
MISFIT_SHARE = 0.35  # of the marks; trees in other units fit up to 0.34 as they are
BORDER_STEP = 12  # of 255; from one sample to the next across a border
BORDER_REACH = 2  # samples to either side of the logged border; trees leave out the frame
CORNER_SAMPLES = 3  # samples at either end of a border that its round corners cover
FRONT_SHARE = 0.8  # of a border inside another window; in front it was 0.83 to 1.00
FRONT_LEAD = 0.25  # by which it is more than that of the window behind, which was up to 0.71
GHOST_SHARE = 0.5  # of the whole border of a window that is not on the screen: up to 0.48


def fitting_scale(detail: Luma, marks: Boxes) -> float | None:
    """By how much the boxes of a scan are too small: 1.0 when they fit; None: in doubt.

    Args:
        detail: the screen at the scan, as `ScreenPicture.detail`.
        marks: (elements, 4) x, y, width, height of small named elements, video pixels.
    """
    own = _fit(detail, marks)
    if own >= FIT_SHARE:
        return 1.0
    best = max(_SCALES, key=lambda scale: _fit(detail, marks * scale))
    if _fit(detail, marks * best) >= max(FIT_SHARE, 2 * own):
        return best
    return None if own < MISFIT_SHARE else 1.0


def _fit(detail: Luma, marks: Boxes) -> float:
    """The share of boxes that hold something and cut nothing."""
    rows, columns = detail.shape
    corners = np.rint(np.hstack([marks[:, :2], marks[:, :2] + marks[:, 2:]]) / DETAIL_STEP)
    fits = 0
    for left, top, right, bottom in corners.astype(int).tolist():
        if left < 0 or top < 0 or right >= columns or bottom >= rows:
            continue
        inside = detail[top:bottom, left:right]
        edges = (detail[top, left:right], detail[bottom, left:right])
        sides = (detail[top:bottom, left], detail[top:bottom, right])
        cuts = sum(
            int(np.count_nonzero(np.abs(np.diff(edge.astype(np.int16))) > CUT_LEVELS))
            for edge in (*edges, *sides)
        )
        has_ink = inside.size and int(inside.max()) - int(inside.min()) > INK_LEVELS
        fits += bool(has_ink) and cuts <= CUT_SHARE * 2 * (right - left + bottom - top)
    return fits / len(marks)


def scales_of_parts(fits: Mapping[int, float | None]) -> dict[int, float | None]:
    """The scale from each scan on at which it changes, by the line of the scan; None: in doubt.

    A part has the scale of two scans in a row; where a single scan differs, it is in doubt.
    """
    changes: dict[int, float | None] = {}
    lines = sorted(fits)
    scale: float | None = 1.0
    for number, line in enumerate(lines):
        found = fits[line]
        neighbours = {fits[other] for other in (*lines[:number][-1:], *lines[number + 1 :][:1])}
        now = found if found == 1.0 or found in neighbours else None
        if now != scale:
            changes[line] = scale = now
    return changes


def front_of(detail: Luma, windows: Sequence[PixelBox]) -> int | None:
    """Number of the window in front of all others; None when the picture does not tell.

    Args:
        detail: (rows, columns), as `ScreenPicture.detail`.
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
    own, others = _border_share(detail, upper, lower), _border_share(detail, lower, upper)
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
    last = min(window.x + window.width, other.x + other.width) / DETAIL_STEP - CORNER_SAMPLES
    across = slice(int(first), max(int(first), min(int(last), columns)))
    inside = range(
        int(other.y / DETAIL_STEP) + CORNER_SAMPLES,
        int((other.y + other.height) / DETAIL_STEP) - CORNER_SAMPLES,
    )
    for side in (window.y, window.y + window.height):
        row = round(side / DETAIL_STEP)
        near = slice(row - BORDER_REACH - 1, row + BORDER_REACH + 2)
        if row in inside and near.start >= 0 and near.stop <= rows and across.start < across.stop:
            strip = detail[near, across].astype(np.int16)
            yield np.abs(np.diff(strip, axis=0)).max(axis=0) > BORDER_STEP


def _turned(box: PixelBox) -> PixelBox:
    return PixelBox(box.y, box.x, box.height, box.width)
