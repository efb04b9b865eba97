"""What changed from one frame to the next: which cells, what kind of change, the map of all.

Calibration aligns the log with this map; frame choice compares single frames with it.

Belongs here: the thresholds that tell a change from codec noise, from the pointer and its hover
effects, and from cells that flicker all the time.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import compress
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, Frame, Luma

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

    def only(self, chosen: Cells) -> "ChangeMap":
        """The chosen ones of the (frames - 1,) comparisons, with the frame before the first."""
        kept = ChangeMap()
        first = int(np.argmax(chosen)) if chosen.any() else 0
        kept.times = self.times[first : first + 1] + list(compress(self.times[1:], chosen))
        kept._packed = list(compress(self._packed, chosen))
        kept._counts = self._counts
        return kept

    def without_repeats(self) -> "ChangeMap":
        """Without the frames that show the same as the one before."""
        return self.only(np.array([bool(packed.any()) for packed in self._packed], bool))

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
