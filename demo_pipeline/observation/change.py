"""Whether the screen changed: tolerant of codec noise, the pointer, and what always flickers.

Belongs here: turning two pictures into "changed" or "still", and the cells that never rest.
"""

from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.approach import Box
from demo_pipeline.observation.clock import BLOCK, Cells, ChangeMap, changed_cells
from demo_pipeline.observation.pictures import Luma

SIGNIFICANT_SHARE = 0.0005  # of all cells; a text cursor's blink and one typed letter are less
FLICKER_FRAMES = 8  # in a short video a share alone is soon reached
FLICKER_SHARE = 0.05  # a cell that changes in this share of frames tells nothing
LARGE_SHARE = 0.02  # a window or a dialog; hovering lights up less
THRESHOLD = 24  # of 255; an encoder refines a still picture by less
KEY_FRAME_THRESHOLD = 48  # a key frame encodes the whole picture anew
POINTER_PX = 40  # the pointer's own picture, video pixels around its hot spot

Point = tuple[float, float]
Labels = np.ndarray[Any, np.dtype[np.int32]]


def flickering_cells(changes: ChangeMap) -> Cells | None:
    """(rows, columns): cells that changed in more than a share of all frames; None: no frames."""
    if not len(changes):
        return None
    busy: Cells = changes.counts() > max(FLICKER_FRAMES, FLICKER_SHARE * len(changes))
    return busy


class ScreenChange:
    """Compares successive pictures of one recording."""

    def __init__(self, flickering: Cells | None) -> None:
        self._flickering = flickering

    def cells(self, before: Luma, after: Luma, *, key_frame: bool) -> Cells:
        """(rows, columns) that changed and do not flicker all the time."""
        changed = changed_cells(before, after, KEY_FRAME_THRESHOLD if key_frame else THRESHOLD)
        if self._flickering is not None and self._flickering.shape == changed.shape:
            changed &= ~self._flickering
        return changed

    def is_significant(self, changed: Cells, pointers: list[Point], target: Box | None) -> bool:
        """More than noise, not counting the pointer, what it hovers over, and the target's box.

        Points and box are in video pixels.
        """
        enough = max(4, SIGNIFICANT_SHARE * changed.size)
        if changed.sum() < enough:
            return False
        rest = changed.copy()
        if target is not None:
            _clear(rest, target)
        for x, y in pointers:
            side = 2 * POINTER_PX
            _clear(rest, Box(x - POINTER_PX, y - POINTER_PX, side, side))
        if rest.sum() < enough:
            return False
        return bool(_without_hovered(rest, changed, pointers).sum() >= enough)


def is_large(changed: Cells) -> bool:
    """Too much of the screen for hovering to have caused it."""
    return bool(changed.mean() >= LARGE_SHARE)


def _clear(cells: Cells, box: Box) -> None:
    top, left = max(0, int(box.y // BLOCK)), max(0, int(box.x // BLOCK))
    bottom = max(0, int((box.y + box.height) // BLOCK) + 1)
    right = max(0, int((box.x + box.width) // BLOCK) + 1)
    cells[top:bottom, left:right] = False


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
