"""Which cells of the picture changed from one frame to the next, and the map of all such changes.

Calibration aligns the log with this map; frame choice compares single frames with it.
"""

from functools import reduce
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.video_frames import SAMPLE_STEP, Frame, Luma

# One recording per process: OpenCV's own threads cost a quarter of the CPU time and save none.
cv2.setNumThreads(1)

BLOCK = 8  # video pixels to a side of the cells in which change is noted
CHANGED_LEVELS = 10  # of 255; codec noise in a still picture is mostly less

Cells = np.ndarray[Any, np.dtype[np.bool_]]


class ChangeMap:
    """The cells in which each frame differs from the previous one.

    Memory: one bit for each cell and frame, 4 kB for a 1080p frame.

    Attributes:
        times: of the frames, seconds.
        seconds: how much of the video they show.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.times: list[float] = []
        self._packed: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._last: Luma | None = None
        self._counts: np.ndarray[Any, np.dtype[np.int64]] = np.zeros((0, 0), np.int64)
        self._none = np.packbits(np.zeros(0, bool))

    def __len__(self) -> int:
        """Number of pairs of successive frames compared."""
        return len(self._packed)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the cells; (0, 0) before two frames were added."""
        return self._counts.shape[0], self._counts.shape[1]

    def add(self, frame: Frame) -> None:
        """Add the next frame in presentation order; a frame of another size is ignored."""
        luma = frame.luma
        if self._last is not None and luma.shape != self._last.shape:
            return
        self.times.append(frame.time)
        if self._last is not None:
            cells = changed_cells(self._last, luma)
            if not self._packed:
                self._counts = np.zeros(cells.shape, np.int64)
                self._none = np.packbits(np.zeros_like(cells))
            if cells.any():
                cells = with_neighbours(cells)
                self._counts += cells
                self._packed.append(np.packbits(cells))
            else:
                self._packed.append(self._none)
        self._last = luma

    def packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(frames - 1, bytes): eight cells per byte, set where a cell or its neighbour changed."""
        return np.stack(self._packed)

    def counts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(rows, columns): in how many frames a cell or its neighbour changed."""
        return self._counts


def with_neighbours(cells: Cells) -> Cells:
    """(rows, columns): the cells and their eight neighbours."""
    tall = cells.copy()
    tall[1:] |= cells[:-1]
    tall[:-1] |= cells[1:]
    wide = tall.copy()
    wide[:, 1:] |= tall[:, :-1]
    wide[:, :-1] |= tall[:, 1:]
    return wide


def filled(cells: Cells) -> Cells:
    """The cells with those two beside them, which closes the space between lines of text."""
    return with_neighbours(with_neighbours(cells))


def connected(cells: Cells, near: Cells) -> Cells:
    """Those of `cells` in the parts that reach `near`, across gaps as between lines of text."""
    return cells & parts_at(near, filled(cells))


def parts_at(near: Cells, cells: Cells) -> Cells:
    """The connected parts of `cells` that reach `near`."""
    count, labels = cv2.connectedComponents(cells.view(np.uint8), connectivity=8)
    reaching = np.zeros(count, bool)
    reaching[labels[near & cells]] = True
    found: Cells = reaching[labels]
    return found


def cells_of(box: PixelBox) -> tuple[slice, slice]:
    """Rows and columns of the cells that a box in video pixels touches."""
    top, left = max(0, int(box.y // BLOCK)), max(0, int(box.x // BLOCK))
    bottom = max(0, int((box.y + box.height) // BLOCK) + 1)
    right = max(0, int((box.x + box.width) // BLOCK) + 1)
    return slice(top, bottom), slice(left, right)


def changed_cells(before: Luma, after: Luma, threshold: int = CHANGED_LEVELS) -> Cells:
    """(rows, columns) of cells of BLOCK x BLOCK video pixels in which a sample changed.

    A strip at the right or lower edge that is narrower than a cell is ignored.
    """
    side = BLOCK // SAMPLE_STEP
    rows, columns = (samples // side for samples in before.shape)
    if before is after or not before.size:
        return np.zeros((rows, columns), bool)
    difference = cv2.absdiff(before, after)
    if cv2.norm(difference, cv2.NORM_INF) <= threshold:
        return np.zeros((rows, columns), bool)
    inside = difference[: rows * side, : columns * side]
    strips = reduce(np.maximum, (inside[first::side] for first in range(side)))
    cells: Cells = (strips > threshold).view(f"u{side}") != 0  # a cell's samples as one number
    return cells
