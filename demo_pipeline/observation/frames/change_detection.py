"""Whether the screen changed: tolerant of codec noise, the pointer, and what always flickers.

Belongs here: turning two pictures into "changed" or "still", and the cells that never rest.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.changed_cells import (
    BLOCK,
    Cells,
    ChangeMap,
    changed_cells,
    with_neighbours,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.frames.video_frames import Luma

SIGNIFICANT_SHARE = 0.0005  # of all cells; a text cursor's blink and one typed letter are less
SMALL_CELLS = 2  # a tick in a small check box; noise seldom reaches two cells
REDRAWN_CELLS = 4  # of a change around a target that also touches the target
FLICKER_FRAMES = 8  # in a short video a share alone is soon reached
FLICKER_SHARE = 0.05  # a cell that changes in this share of frames tells nothing
LARGE_SHARE = 0.02  # a window or a dialog; hovering lights up less
GLANCE_SHARE = LARGE_SHARE / 8  # one sample of a cell's four, in half of the rows due
THRESHOLD = 24  # of 255; an encoder refines a still picture by less
KEY_FRAME_THRESHOLD = 48  # a key frame encodes the whole picture anew
POINTER_PX = 40  # the pointer's own picture, video pixels around its hot spot

Labels = np.ndarray[Any, np.dtype[np.int32]]


def flickering_cells(changes: ChangeMap) -> Cells | None:
    """(rows, columns): cells that changed in more than a share of all frames; None: no frames."""
    if not len(changes):
        return None
    busy: Cells = changes.counts() > max(FLICKER_FRAMES, FLICKER_SHARE * len(changes))
    return busy


@dataclass(frozen=True)
class Difference:
    """Where two pictures differ, and what that means.

    Points and boxes are in video pixels. `cells` is (rows, columns), `count` how many of them are
    set.
    """

    cells: Cells
    count: int

    @property
    def is_large(self) -> bool:
        """Too much of the screen for hovering to have caused it."""
        return self.count >= LARGE_SHARE * self.cells.size

    def is_significant(self, pointers: list[Point], target: PixelBox | None) -> bool:
        """More than noise, not counting the pointer, what it hovers over, and the target's box."""
        enough = max(4, SIGNIFICANT_SHARE * self.cells.size)
        if self.count < enough:
            return False
        rest = self._without(pointers)
        if target is not None:
            rest[_cells_of(target)] = False
        if _count(rest) < enough:
            return False
        return _count(_without_hovered(rest, self.cells, pointers)) >= enough

    def is_redrawn(self, box: PixelBox) -> bool:
        """What changed in `box` belongs to a change that reaches beyond it.

        A tick, a letter or a pressed look stays inside; a menu over it or a scrolled list does not.
        """
        rows, columns = _cells_of(box)
        changed = self.cells
        joined = with_neighbours(with_neighbours(changed))
        labels: Labels = np.asarray(cv2.connectedComponents(joined.astype(np.uint8))[1], np.int32)
        inside = np.unique(labels[rows, columns][changed[rows, columns]])
        reaching = np.isin(labels, inside) & changed
        margin = slice(max(0, rows.start - 1), rows.stop + 1)
        reaching[margin, max(0, columns.start - 1) : columns.stop + 1] = False
        return _count(reaching) >= REDRAWN_CELLS

    def count_away_from(self, pointers: list[Point]) -> int:
        """How many cells changed that are not around the pointer."""
        return _count(self._without(pointers)) if self.count else 0

    def shows_response(self, pointers: list[Point], box: PixelBox) -> bool:
        """Something in `box` changed that is not the pointer, be it as small as a tick."""
        if self.count < SMALL_CELLS:
            return False
        return _count(self._without(pointers)[_cells_of(box)]) >= SMALL_CELLS

    def _without(self, pointers: list[Point]) -> Cells:
        rest = self.cells.copy()
        for x, y in pointers:
            rest[_cells_of(_around(x, y))] = False
        return rest


class ChangeDetector:
    """Compares successive pictures of one recording."""

    def __init__(self, flickering: Cells | None) -> None:
        self._quiet = None if flickering is None else ~flickering

    def between(self, before: Luma, after: Luma, *, key_frame: bool) -> Difference:
        """What changed and does not flicker all the time."""
        return _difference(self._cells(before, after, key_frame=key_frame))

    def between_distant(self, before: Luma, after: Luma, pointers: list[Point]) -> Difference:
        """In what two pictures some time apart differ, the pointer apart."""
        changed = self._cells(before, after, key_frame=True)
        for x, y in pointers:
            changed[_cells_of(_around(x, y))] = False
        return _difference(changed)

    def _cells(self, before: Luma, after: Luma, *, key_frame: bool) -> Cells:
        changed = changed_cells(before, after, KEY_FRAME_THRESHOLD if key_frame else THRESHOLD)
        if self._quiet is not None and self._quiet.shape == changed.shape:
            changed &= self._quiet
        return changed


def may_be_large(before: Luma, after: Luma) -> bool:
    """False when glances at two successive frames tell that no large change lies between them."""
    if before.shape != after.shape:
        return True
    differing = np.count_nonzero(cv2.absdiff(before, after) > THRESHOLD)
    return bool(differing >= GLANCE_SHARE * after.size)


def _difference(cells: Cells) -> Difference:
    return Difference(cells, _count(cells))


def _count(cells: Cells) -> int:
    return int(np.count_nonzero(cells))


def _around(x: float, y: float) -> PixelBox:
    return PixelBox(x - POINTER_PX, y - POINTER_PX, 2 * POINTER_PX, 2 * POINTER_PX)


def _cells_of(box: PixelBox) -> tuple[slice, slice]:
    """Rows and columns of the cells that a box in video pixels touches."""
    top, left = max(0, int(box.y // BLOCK)), max(0, int(box.x // BLOCK))
    bottom = max(0, int((box.y + box.height) // BLOCK) + 1)
    right = max(0, int((box.x + box.width) // BLOCK) + 1)
    return slice(top, bottom), slice(left, right)


def _without_hovered(rest: Cells, changed: Cells, pointers: list[Point]) -> Cells:
    """Drop the connected regions that a pointer lies in: rows and buttons lit by hovering."""
    _, raw = cv2.connectedComponents(changed.astype(np.uint8), connectivity=8)
    labels: Labels = np.asarray(raw, np.int32)
    kept = rest.copy()
    for x, y in pointers:
        row, column = int(y // BLOCK), int(x // BLOCK)
        near = labels[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
        for label in np.unique(near):
            if label:
                kept &= labels != label
    return kept
