"""Finds the scale of the boxes in each accessibility scan by comparing the boxes with the screen.

After a change of display scaling, some recorders log accessibility trees in other units than the
pointer's positions. A box fits the screen if there is content inside the box, and if its edges cut
through no content.
"""

from bisect import bisect_right, insort
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.clock.canvas import Boxes
from demo_pipeline.observation.frames.changes import DETAIL_STEP
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_reader import Luma

_Counts = np.ndarray[Any, np.dtype[np.int32]]

USUAL_SCALES = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # scale settings that systems offer for displays
_SCALES = (*USUAL_SCALES, *(1 / scale for scale in USUAL_SCALES))
LEAST_MARKS = 6  # minimum number of elements for a comparison; fewer may fit by chance
INK_LEVELS = 48  # brightness levels (0 to 255); minimum contrast of the content in a fitting box
# Brightness levels (0 to 255). Where the brightness changes by more than 24 levels along the edge
# of a box, the edge cuts through content.
CUT_LEVELS = 24
CUT_SHARE = 0.06  # maximum share of a fitting box's edges that cuts through content
# Minimum share of boxes that fit the screen if the scale is correct. Correct scales had shares of
# 0.48 to 1.00, wrong scales at most 0.47. The limit keeps a distance from the wrong scales, and
# rejects the lowest correct share.
FIT_SHARE = 0.5
# If less than 35 % of the unscaled boxes fit the screen, the tree is probably in other units than
# the pointer. In trees with other units, the share was at most 0.34.
MISFIT_SHARE = 0.35


def fitting_scale(detail: Luma, marks: Boxes) -> float | None:
    """Returns the factor by which the boxes of a scan must be multiplied to fit the screen.

    The factor is 1 if at least `FIT_SHARE` of the unscaled boxes fit. Another factor is accepted if
    at least `FIT_SHARE` of the scaled boxes fit, and at least twice as many as without scaling. If
    no factor is accepted, the result is 1, or None if fewer than `MISFIT_SHARE` of the unscaled
    boxes fit.

    Args:
        detail: the screen at the time of the scan, as in `ScreenDetail.detail`.
        marks: (elements, 4) x, y, width, height of small named elements, video pixels.
    """
    steps = (
        _sums(cv2.absdiff(detail[:, 1:], detail[:, :-1])),
        _sums(cv2.absdiff(detail[1:], detail[:-1])),
    )
    unscaled_share = _fit(detail, steps, marks)
    if unscaled_share >= FIT_SHARE:
        return 1.0
    least_share = max(FIT_SHARE, 2 * unscaled_share)
    shares = {scale: _fit(detail, steps, marks * scale, least_share) for scale in _SCALES}
    best = max(_SCALES, key=lambda scale: shares[scale])
    if shares[best] >= least_share:
        return best
    return None if unscaled_share < MISFIT_SHARE else 1.0


def _sums(differences: Luma) -> _Counts:
    """Returns the integral image (rows + 1, columns + 1) of differences above `CUT_LEVELS`."""
    steps = cv2.threshold(differences, CUT_LEVELS, 1, cv2.THRESH_BINARY)[1]
    return np.asarray(cv2.integral(steps), np.int32)


def _fit(detail: Luma, steps: tuple[_Counts, _Counts], marks: Boxes, least: float = 0.0) -> float:
    """Returns the share of the boxes that fit the screen, or 0 if the share is below `least`.

    Args:
        detail: the screen, as in `ScreenDetail.detail`.
        steps: results of `_sums` for the differences between neighbouring columns, and between
            neighbouring rows.
        marks: (elements, 4) boxes, video pixels.
    """
    rows, columns = detail.shape
    corners = np.rint(np.hstack([marks[:, :2], marks[:, :2] + marks[:, 2:]]) / DETAIL_STEP)
    inside = (corners[:, :2] >= 0) & (corners[:, 2:] < (columns, rows))
    corners = corners[inside.all(axis=1)]
    left, top, right, bottom = corners.astype(int).T
    inner = np.maximum(right - 1, left)
    lower = np.maximum(bottom - 1, top)
    across, down = steps
    cuts = sum(_within(across, row, row + 1, left, inner) for row in (top, bottom))
    cuts += sum(_within(down, top, lower, column, column + 1) for column in (left, right))
    whole = corners[(cuts <= CUT_SHARE * 2 * (right - left + bottom - top)) & (right > left)]
    if len(whole) / len(marks) < least:
        return 0.0
    fits = 0
    for x, y, end, below in whole.astype(int).tolist():
        if y < below:
            low, high, *_ = cv2.minMaxLoc(detail[y:below, x:end])
            fits += high - low > INK_LEVELS
    return fits / len(marks)


def _within(sums: _Counts, top: Any, bottom: Any, left: Any, right: Any) -> Any:
    """Returns the sum inside each box from an integral image. `bottom`, `right` are exclusive."""
    return sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]


class TreeScales:
    """Decides the scale of each scan: the factor that maps its boxes to the units of input events.

    A scale other than 1 is accepted if it fits two successive scans; otherwise the scale is
    unknown. If `fitting_scale` returns None for a scan, the scale is unknown, too, unless a window
    has the same box as in the last scan that fitted without scaling; the scale is then 1. A scan
    that was not tested gets the scale of the last tested scan before it, or 1 if there is none.

    Attributes:
        fits: maps the log line of each tested scan to the result of `fitting_scale`.
    """

    def __init__(self) -> None:
        self.fits: dict[int, float | None] = {}
        self._lines: list[int] = []
        # Boxes of the windows in the last scan that fitted without scaling.
        self._fitting_windows: frozenset[PixelBox] = frozenset()

    def add(self, line: int, fit: float | None, windows: frozenset[PixelBox] = frozenset()) -> None:
        """Records the result of `fitting_scale` for the scan in this line of the log.

        `windows` are the boxes of the scan's windows, unscaled.
        """
        if fit is None and windows & self._fitting_windows:
            fit = 1.0
        if fit == 1.0:
            self._fitting_windows = windows
        self.fits[line] = fit
        insort(self._lines, line)

    def at(self, line: int) -> float | None:
        """Returns the scale of the scan in this line of the log; None if the scale is unknown."""
        position = bisect_right(self._lines, line) - 1
        return self._scale(position) if position >= 0 else 1.0

    def is_open(self, line: int) -> bool:
        """Whether the next scan may still confirm the scale of the scan in this line of the log."""
        newest = self._lines[-1] if self._lines else line + 1
        return newest <= line and self.fits[newest] is not None and self.at(newest) is None

    def give_up(self) -> None:
        """Sets the scale of the newest scan to unknown, without waiting for the next scan."""
        self.fits[self._lines[-1]] = None

    def parts(self) -> dict[int, float | None]:
        """Returns the new scale for each line of the log at which the scale changes.

        Before the first of these lines, the scale is 1.
        """
        changes: dict[int, float | None] = {}
        scale: float | None = 1.0
        for position, line in enumerate(self._lines):
            new_scale = self._scale(position)
            if new_scale != scale:
                changes[line] = new_scale
                scale = new_scale
        return changes

    def _scale(self, position: int) -> float | None:
        fit = self.fits[self._lines[position]]
        before = self._lines[max(0, position - 1) : position]
        after = self._lines[position + 1 : position + 2]
        confirming = {1.0, *(self.fits[line] for line in (*before, *after))}
        return fit if fit in confirming else None
