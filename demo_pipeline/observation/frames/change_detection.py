"""Whether the screen changed between two frames, and what kind of change it is.

Belongs here: the thresholds that tell a change from codec noise, from the pointer and its hover
effects, and from cells that flicker all the time.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from demo_pipeline.observation.frames.changed_cells import (
    BLOCK,
    Cells,
    ChangeMap,
    cells_of,
    changed_cells,
    parts_at,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.frames.video_frames import Luma

SIGNIFICANT_SHARE = 0.0005  # of all cells; a text cursor's blink and one typed letter are less
MIN_SIGNIFICANT_CELLS = 4  # cells; in a small video the share alone is less than noise
SMALL_CELLS = 2  # cells, as a tick in a small check box; noise seldom reaches two
FLICKER_FRAMES = 8  # frames; in a short video the share alone is soon reached
FLICKER_SHARE = 0.05  # of the time; a cell that changes in more of it shows nothing
LARGE_SHARE = 0.02  # of all cells, as for a window or a dialog; hover effects are smaller
GLANCE_SHARE = LARGE_SHARE / 16  # of a glance: half of one of a cell's four samples, for thin text
THRESHOLD = 24  # of 255; an encoder refines a still picture by less
KEY_FRAME_THRESHOLD = 48  # of 255; a key frame encodes the whole picture again
POINTER_PX = 40  # video pixels around the pointer's hot spot that its own picture covers


def flickering_cells(changes: ChangeMap, grab_s: float) -> Cells | None:
    """(rows, columns): cells that change in too much of the time; None without two frames.

    `grab_s`: seconds that a frame stands for. Those between which nothing changes may be left out.
    """
    if not len(changes):
        return None
    grabbed = max(len(changes), changes.seconds / grab_s)
    flickering: Cells = changes.counts() > max(FLICKER_FRAMES, FLICKER_SHARE * grabbed)
    return flickering


@dataclass(frozen=True)
class Difference:
    """Where two frames differ, and what kind of change that is. Points, boxes: video pixels.

    Attributes:
        cells: (rows, columns), set where the frames differ.
        count: how many of them are set.
    """

    cells: Cells
    count: int

    @property
    def is_large(self) -> bool:
        """Whether it covers more of the screen than hover effects do."""
        return self.count >= LARGE_SHARE * self.cells.size

    def is_significant(self, pointers: list[Point], target: PixelBox | None) -> bool:
        """Whether more than noise changed outside the pointer, its hover effects and the target."""
        enough = max(MIN_SIGNIFICANT_CELLS, SIGNIFICANT_SHARE * self.cells.size)
        if self.count < enough:
            return False
        rest = self.without_pointers(pointers)
        if target is not None:
            rest[cells_of(target)] = False
        if _count(rest) < enough:
            return False
        return _count(_without_hover_effects(rest, self.cells, pointers)) >= enough

    def count_away_from(self, pointers: list[Point]) -> int:
        """How many cells changed that are not around the pointer."""
        return _count(self.without_pointers(pointers)) if self.count else 0

    def shows_response(self, pointers: list[Point], box: PixelBox) -> bool:
        """Whether anything but the pointer changed in `box`, even as little as a tick."""
        if self.count < SMALL_CELLS:
            return False
        return _count(self.without_pointers(pointers)[cells_of(box)]) >= SMALL_CELLS

    def without_pointers(self, pointers: list[Point]) -> Cells:
        """The cells that changed away from the pointer."""
        rest = self.cells.copy()
        for x, y in pointers:
            side = 2 * POINTER_PX
            rest[cells_of(PixelBox(x - POINTER_PX, y - POINTER_PX, side, side))] = False
        return rest


class ChangeDetector:
    """Compares frames of one recording; `flickering` are the cells that never count."""

    def __init__(self, flickering: Cells | None) -> None:
        self.flickering = flickering
        self._steady = None if flickering is None else ~flickering

    def between(self, before: Luma, after: Luma, *, key_frame: bool) -> Difference:
        """What changed from a frame to the next one; `key_frame`: the next one is a key frame."""
        return _difference(self._changed(before, after, key_frame=key_frame))

    def between_distant(self, before: Luma, after: Luma, pointers: list[Point]) -> Difference:
        """What changed between two frames some time apart, except around the pointers."""
        changed = _difference(self._changed(before, after, key_frame=True))
        return _difference(changed.without_pointers(pointers))

    def _changed(self, before: Luma, after: Luma, *, key_frame: bool) -> Cells:
        changed = changed_cells(before, after, KEY_FRAME_THRESHOLD if key_frame else THRESHOLD)
        if self._steady is not None and self._steady.shape == changed.shape:
            changed &= self._steady
        return changed


def may_be_large(before: Luma, after: Luma) -> bool:
    """False when the glances at two successive frames rule out a large change between them."""
    if before.shape != after.shape:
        return True
    differing = np.count_nonzero(cv2.absdiff(before, after) > THRESHOLD)
    return bool(differing >= GLANCE_SHARE * after.size)


def _difference(cells: Cells) -> Difference:
    return Difference(cells, _count(cells))


def _count(cells: Cells) -> int:
    return int(np.count_nonzero(cells))


def _without_hover_effects(rest: Cells, changed: Cells, pointers: list[Point]) -> Cells:
    """`rest` without the connected regions around a pointer, such as a highlighted row."""
    near = np.zeros_like(changed)
    for x, y in pointers:
        row, column = int(y // BLOCK), int(x // BLOCK)
        near[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
    return rest & ~parts_at(near, changed)
