"""In which units a scan's boxes are: by how many times they fit what the picture shows.

Belongs here: the fit of a scan, and the parts of a recording that follow from the fits. After a
change of display scaling some recorders log trees in other units than the pointer.
"""

from collections.abc import Mapping

import numpy as np

from demo_pipeline.observation.frames.screen_picture import DETAIL_STEP
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
