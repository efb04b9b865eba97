"""Decoded frames kept without loss: of each, what differs from the frame before.

Belongs here: the patches, their limit, and the frames made of them. A picture on a screen mostly
stays as it is, so that a frame takes a hundredth of its memory and a part of the time of decoding.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import finalize

import av
import cv2
import numpy as np
from isal import isal_zlib

from demo_pipeline.observation.frames.video_frames import Frame, Luma, plane_rows, rotation

KEPT_FORMAT = "yuv420p"
_BAND = 16  # rows of a plane that are compared together
_WORD = 8  # bytes that are compared as one number
_LEAST_PACKED = 2048  # bytes; deflating fewer saves nothing
_TRIAL = 64  # frames after which their mean size tells whether it is worth going on

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

Plane = np.ndarray[Any, np.dtype[np.uint8]]


class _Patch(NamedTuple):
    """A rectangle of one plane, and where its pixels are; `packed`: they are deflated."""

    plane: int
    top: int
    left: int
    rows: int
    columns: int
    start: int
    stop: int
    packed: bool


class _Kept(NamedTuple):
    pts: int
    time: float
    is_key: bool
    patches: list[_Patch]


class _Content:
    """What frames out of an archive share; when all are gone its picture is used again."""

    __slots__ = ("__weakref__", "frame")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame


@dataclass(frozen=True)
class KeptFrame(Frame):
    """A frame out of an archive; its picture no longer tells whether it was a key frame.

    The picture is only valid as long as the frame is: its memory is used again.
    """

    was_key: bool = False
    content: _Content | None = None

    @property
    def is_key(self) -> bool:
        """Whether it was encoded without reference to other frames."""
        return self.was_key

    @cached_property
    def luma(self) -> Luma:
        """As of `Frame`; computed once for all frames that look the same."""
        return super().luma if self.content is None else self.content.frame.luma

    @cached_property
    def glance(self) -> Luma:
        """As of `Frame`; computed once for all frames that look the same."""
        return super().glance if self.content is None else self.content.frame.glance

    @cached_property
    def halved(self) -> Luma:
        """As of `Frame`; computed once for all frames that look the same."""
        return super().halved if self.content is None else self.content.frame.halved


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
        # One block: thousands of small ones would scatter the memory of the decoder's pictures.
        self._store: Plane = np.empty(limit, np.uint8)
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
        patches: list[_Patch] = []
        for number, (old, new) in enumerate(zip(before, planes, strict=True)):
            for top, left, pixels in _changes(old, new):
                if (patch := self._stored(number, top, left, pixels)) is None:
                    self.drop()
                    return
                patches.append(patch)
        if len(self) >= _TRIAL and self._bytes > self._most_bytes * len(self):
            self.drop()
            return
        self._last = planes  # views that keep the decoder's picture
        self._example = picture
        self._kept.append(_Kept(frame.pts, frame.time, frame.is_key, patches))

    def _stored(self, plane: int, top: int, left: int, pixels: Plane) -> _Patch | None:
        """Store a rectangle; None when there is no room."""
        data, packed = pixels.tobytes(), False
        if len(data) >= _LEAST_PACKED:
            data, packed = isal_zlib.compress(data, 0), True
        start, stop = self._bytes, self._bytes + len(data)
        if stop > self._limit:
            return None
        self._store[start:stop] = np.frombuffer(data, np.uint8)
        self._bytes = stop
        rows, columns = pixels.shape
        return _Patch(plane, top, left, rows, columns, start, stop, packed)

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
        self._store = np.empty(0, np.uint8)

    def take(self, is_wanted: Callable[[int], bool]) -> Iterator[Frame]:
        """Yield the frames whose PTS are wanted; none of them can be taken again."""
        example, planes = self._example, [np.empty_like(plane) for plane in self._last]
        self.is_open, self._last = False, []
        content: _Content | None = None
        pictures: list[_Reused] = []
        spare: list[_Reused] = []  # new memory for each picture would take longer than filling it
        while self._kept:
            kept = self._kept.popleft()
            for patch in kept.patches:
                _apply(patch, self._store, planes)
                content = None
            for one in pictures:
                one.outdate(kept.patches)
            if is_wanted(kept.pts):
                if content is None:  # frames that look the same share it
                    if not spare:
                        spare.append(_Reused(_empty_like(example)))
                        pictures.append(spare[-1])
                    reused = spare.pop()
                    content = _Content(Frame(kept.pts, kept.time, reused.updated(planes)))
                    finalize(content, spare.append, reused)
                yield KeptFrame(kept.pts, kept.time, content.frame.picture, kept.is_key, content)
        self.drop()


class _Reused:
    """A picture that is filled again and again, and the rows of its planes that are out of date."""

    def __init__(self, picture: Any) -> None:
        self._picture = picture
        self._outdated = [(0, plane.height) for plane in picture.planes]

    def outdate(self, patches: Sequence[_Patch]) -> None:
        """Note where newer frames differ."""
        for patch in patches:
            first, last = self._outdated[patch.plane]
            bottom = patch.top + patch.rows
            rows = (
                (patch.top, bottom) if first == last else (min(first, patch.top), max(last, bottom))
            )
            self._outdated[patch.plane] = rows

    def updated(self, planes: Sequence[Plane]) -> Any:
        """The picture, with the content of planes."""
        for number, (source, plane) in enumerate(zip(planes, self._picture.planes, strict=True)):
            first, last = self._outdated[number]
            self._outdated[number] = (0, 0)
            width = min(plane.line_size, source.shape[1])
            plane_rows(plane)[first:last, :width] = source[first:last, :width]
        return self._picture


def _rows(plane: Any) -> Plane:
    return plane_rows(plane)[: plane.height]


def _changes(old: Plane | None, new: Plane) -> Iterator[tuple[int, int, Plane]]:
    """Yield what differs from one plane to the next: top, left, and the pixels of a rectangle."""
    rows, columns = new.shape
    if old is None:
        for top in range(0, rows, _BAND):
            yield top, 0, new[top : top + _BAND]
        return
    if _are_same(old, new):
        return
    words = (old.view(np.uint64) != new.view(np.uint64)).view(np.uint8)
    _, top, _, height = cv2.boundingRect(words)
    for first in range(top - top % _BAND, top + height, _BAND):
        left, _, width, _ = cv2.boundingRect(words[first : first + _BAND])
        if width:
            right = min((left + width) * _WORD, columns)
            yield first, left * _WORD, new[first : first + _BAND, left * _WORD : right]


def _are_same(one: Plane, other: Plane) -> bool:
    """Whether two planes of a size hold the same bytes; a third of the time of NumPy's ways."""
    return bool(_memcmp(one.ctypes.data, other.ctypes.data, one.nbytes) == 0)


def _apply(patch: _Patch, store: Plane, planes: list[Plane]) -> None:
    data = store[patch.start : patch.stop].tobytes()
    if patch.packed:
        data = isal_zlib.decompress(data)
    pixels = np.frombuffer(data, np.uint8).reshape(patch.rows, patch.columns)
    place = planes[patch.plane][patch.top : patch.top + patch.rows]
    place[:, patch.left : patch.left + patch.columns] = pixels


def _empty_like(example: Any) -> Any:
    """A picture with the size and the colours of another."""
    picture = av.VideoFrame(example.width, example.height, KEPT_FORMAT)
    for name in ("colorspace", "color_range", "color_primaries", "color_trc"):
        setattr(picture, name, getattr(example, name))
    return picture
