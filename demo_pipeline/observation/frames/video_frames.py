"""A decoded frame and its pixels: a sparse luma to compare, RGB to keep.

Not here: decoding (forward_reader.py), which frames are wanted (frame_requests.py), what their
differences mean (change_detection.py).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np

PATCH_PX = 24  # pixels; holds most of a pointer, and the error of its place in a frame
SAMPLE_STEP = 4  # pixels from one luma sample to the next, both ways
HALF = 2  # pixels of which each sample of `Frame.halved` is the mean, both ways
TIME_TOLERANCE_S = 1e-9  # seconds; less than any PTS unit: rounding of a time
GLANCE_ROWS, GLANCE_PERIOD = (0, 12, 20, 24), 32  # no 12 rows, and no line of text, in between
PLANAR = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuvj444p", "nv12", "gray"})

Luma = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Span:
    """A stretch of video time, seconds, both ends included."""

    start: float
    end: float


@dataclass(frozen=True)
class Frame:
    """One decoded frame: its PTS in seconds and the decoder's own picture."""

    pts: int
    time: float
    picture: Any

    @property
    def is_key(self) -> bool:
        """Whether it is encoded without reference to other frames."""
        return bool(self.picture.key_frame)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture, pixels."""
        size = (self.picture.width, self.picture.height)
        return size[::-1] if rotation(self.picture) % 180 else size

    def patch(self, point: tuple[float, float]) -> Luma:
        """The luma in a square of PATCH_PX around a point in pixels, where it is in the picture.

        Sparse, as `luma` is, where reading single rows is not cheap.
        """
        left, top = (max(0, int(side) - PATCH_PX // 2) for side in point)
        right, bottom = (max(0, int(side) + PATCH_PX // 2) for side in point)
        if not self._is_plain:
            step = SAMPLE_STEP
            return self.luma[top // step : bottom // step + 1, left // step : right // step + 1]
        return self._luma_rows[top:bottom, left:right].copy()

    @cached_property
    def luma(self) -> Luma:
        """(rows, columns) uint8: every 4th row and column of the luma; computed once."""
        return self.samples(SAMPLE_STEP)

    @cached_property
    def glance(self) -> Luma:
        """Half of the rows of `luma`; all rows when reading single rows is not cheap."""
        if not self._is_plain:
            return self.luma
        return np.concatenate([self._narrowed(first, GLANCE_PERIOD) for first in GLANCE_ROWS])

    @cached_property
    def halved(self) -> Luma:
        """(rows, columns) uint8: the luma at half size; each sample the mean of 2 x 2 pixels."""
        picture = self.picture
        if picture.format.name not in PLANAR:
            picture = picture.reformat(format="gray")
        inside = plane_rows(picture.planes[0])[: picture.height, : picture.width]
        size = (max(1, picture.width // HALF), max(1, picture.height // HALF))
        halved = cv2.resize(inside, size, interpolation=cv2.INTER_AREA)
        return upright(halved, rotation(self.picture))

    @cached_property
    def quartered(self) -> Luma:
        """(rows, columns) uint8: the luma at a quarter of the size; means of 4 x 4 pixels."""
        rows, columns = self.halved.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        return np.asarray(cv2.resize(self.halved, size, interpolation=cv2.INTER_AREA), np.uint8)

    def samples(self, down: int) -> Luma:
        """(rows, columns) uint8: every `down`-th row and every 4th column of the luma."""
        if self._is_plain:
            return self._narrowed(0, down)
        picture = self.picture
        if picture.format.name not in PLANAR:
            picture = picture.reformat(format="gray")
        turned = rotation(self.picture)
        rows = plane_rows(picture.planes[0])
        steps = (down, SAMPLE_STEP)
        if turned % 180:  # the steps are those of the upright picture
            steps = (SAMPLE_STEP, down)
        samples = rows[: picture.height : steps[0], : picture.width : steps[1]].copy()
        return upright(samples, turned)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether it is upright and its rows begin at multiples of the sample step."""
        picture = self.picture
        if picture.format.name not in PLANAR or rotation(picture):
            return False
        return bool(self._plane.shape[1] % SAMPLE_STEP == 0)

    @cached_property
    def _plane(self) -> Luma:
        """(rows, bytes) of the luma with what follows each row in memory; not a copy."""
        return plane_rows(self.picture.planes[0])[: self.picture.height]

    @property
    def _luma_rows(self) -> Luma:
        """(height, width) of the luma; not a copy."""
        return self._plane[:, : self.picture.width]

    def _narrowed(self, first: int, step: int) -> Luma:
        """The low byte of four: narrowing integers is twice as fast as a copy with a stride."""
        columns = -(-self.picture.width // SAMPLE_STEP)
        fours = self._plane.view(f"<u{SAMPLE_STEP}")
        return fours[first::step, :columns].astype(np.uint8)


def plane_rows(plane: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(rows, bytes) of a plane of a picture, with what follows each row in memory; not a copy."""
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)


def rotation(picture: Any) -> int:
    """Degrees counter-clockwise by which a player turns the picture, a multiple of 90."""
    return int(getattr(picture, "rotation", 0) or 0) % 360


def upright(
    pixels: np.ndarray[Any, np.dtype[np.uint8]], degrees: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array turned as a player turns the picture."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels
