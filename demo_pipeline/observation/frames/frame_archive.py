"""Decoded frames kept without loss: of each, what differs from the frame before.

Belongs here: the patches, their limit, and the frames made of them. A picture on a screen mostly
stays as it is, so that a frame takes a hundredth of its memory and a part of the time of decoding.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import av
import numpy as np
from isal import isal_zlib

from demo_pipeline.observation.frames.video_frames import Frame, rotation

KEPT_FORMAT = "yuv420p"
_BAND = 16  # rows of a plane that are compared together
_WORD = 8  # bytes that are compared as one number
_LEAST_PACKED = 2048  # bytes; deflating fewer saves nothing
_TRIAL = 64  # frames after which their mean size tells whether it is worth going on

Plane = np.ndarray[Any, np.dtype[np.uint8]]


class _Patch(NamedTuple):
    """A rectangle of one plane; `packed`: the bytes are deflated."""

    plane: int
    top: int
    left: int
    rows: int
    columns: int
    data: bytes
    packed: bool


class _Kept(NamedTuple):
    pts: int
    time: float
    is_key: bool
    patches: list[_Patch]


@dataclass(frozen=True)
class KeptFrame(Frame):
    """A frame out of an archive; its picture no longer tells whether it was a key frame."""

    was_key: bool = False

    @property
    def is_key(self) -> bool:
        """Whether it was encoded without reference to other frames."""
        return self.was_key


class FrameArchive:
    """Takes frames in presentation order and gives them back once, in the same order.

    Attributes:
        is_open: False once a frame could not be kept: a limit is reached, or it has another form.

    Args:
        limit: bytes of all patches together.
        most_bytes: of a frame, in the mean.
    """

    def __init__(self, limit: int, most_bytes: int) -> None:
        self.is_open = True
        self._limit, self._most_bytes = limit, most_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._last: list[Plane] = []
        self._example: Any = None

    def __len__(self) -> int:
        """Number of frames."""
        return len(self._kept)

    def add(self, frame: Frame) -> None:
        """Keep a frame; when that is not possible, drop all and keep none any more."""
        if not self.is_open:
            return
        picture = frame.picture
        if not self._fits(picture):
            self.drop()
            return
        planes = [_rows(plane) for plane in picture.planes]
        before: Sequence[Plane | None] = self._last or [None] * len(planes)
        patches = [
            patch
            for number, (old, new) in enumerate(zip(before, planes, strict=True))
            for patch in _patches(number, old, new)
        ]
        self._bytes += sum(len(patch.data) for patch in patches)
        is_costly = len(self) >= _TRIAL and self._bytes > self._most_bytes * len(self)
        if self._bytes > self._limit or is_costly:
            self.drop()
            return
        self._last = planes  # views that keep the decoder's picture
        self._example = picture
        self._kept.append(_Kept(frame.pts, frame.time, frame.is_key, patches))

    def _fits(self, picture: Any) -> bool:
        if picture.format.name != KEPT_FORMAT or rotation(picture):
            return False
        sides = [(plane.line_size, plane.height) for plane in picture.planes]
        if any(side % _WORD for side, _ in sides):
            return False
        return not self._last or [(old.shape[1], old.shape[0]) for old in self._last] == sides

    def drop(self) -> None:
        """Forget every frame; no further ones are kept."""
        self.is_open = False
        self._kept.clear()
        self._last, self._example = [], None

    def take(self, is_wanted: Callable[[int], bool]) -> Iterator[Frame]:
        """Yield the frames whose PTS are wanted; none of them can be taken again."""
        example, planes = self._example, [np.empty_like(plane) for plane in self._last]
        self.is_open, self._last = False, []
        picture: Any = None
        while self._kept:
            kept = self._kept.popleft()
            for patch in kept.patches:
                _apply(patch, planes)
                picture = None
            if is_wanted(kept.pts):
                picture = picture or _picture(planes, example)  # frames that look the same share it
                yield KeptFrame(kept.pts, kept.time, picture, kept.is_key)
        self._example = None


def _rows(plane: Any) -> Plane:
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height]


def _patches(number: int, old: Plane | None, new: Plane) -> Iterator[_Patch]:
    """Yield what differs from one plane to the next, a rectangle for each band of rows."""
    rows, columns = new.shape
    if old is None:
        for top in range(0, rows, _BAND):
            yield _patch(number, top, 0, new[top : top + _BAND])
        return
    words: Any = old.view(np.uint64) != new.view(np.uint64)
    if not words.any():
        return
    for top in np.flatnonzero(
        np.logical_or.reduceat(words.any(axis=1), np.arange(0, rows, _BAND))
    ).tolist():
        first = top * _BAND
        changed = np.flatnonzero(words[first : first + _BAND].any(axis=0))
        left, right = int(changed[0]) * _WORD, (int(changed[-1]) + 1) * _WORD
        yield _patch(number, first, left, new[first : first + _BAND, left : min(right, columns)])


def _patch(number: int, top: int, left: int, pixels: Plane) -> _Patch:
    data, packed = pixels.tobytes(), False
    if len(data) >= _LEAST_PACKED:
        data, packed = isal_zlib.compress(data, 0), True
    rows, columns = pixels.shape
    return _Patch(number, top, left, rows, columns, data, packed)


def _apply(patch: _Patch, planes: list[Plane]) -> None:
    data = isal_zlib.decompress(patch.data) if patch.packed else patch.data
    pixels = np.frombuffer(data, np.uint8).reshape(patch.rows, patch.columns)
    place = planes[patch.plane][patch.top : patch.top + patch.rows]
    place[:, patch.left : patch.left + patch.columns] = pixels


def _picture(planes: list[Plane], example: Any) -> Any:
    """A picture of the decoder's kind with these planes and the colours of another."""
    picture = av.VideoFrame(example.width, example.height, KEPT_FORMAT)
    for source, plane in zip(planes, picture.planes, strict=True):
        rows: Plane = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        width = min(plane.line_size, source.shape[1])
        rows[: plane.height, :width] = source[:, :width]
    for name in ("colorspace", "color_range", "color_primaries", "color_trc"):
        setattr(picture, name, getattr(example, name))
    return picture
