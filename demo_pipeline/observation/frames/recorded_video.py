"""The video of a recording: one forward decode for calibration and the decode pass.

Belongs here: how far calibration reads on in the same decode, and how the decode pass goes on from
there (without it the beginning of each video would be decoded twice); and the archive of frames in
between. A picture on a screen mostly stays as it is, so that a frame takes a hundredth of its
memory and a part of the time of decoding.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import finalize

import av
import cv2
import numpy as np
from isal import isal_zlib

from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_reader import (
    ForwardReader,
    Frame,
    Luma,
    PtsRange,
    Span,
    decode_spans,
    decode_stretches,
    open_forward_reader,
    plane_rows,
    rotation,
    wanted_stretches,
)
from demo_pipeline.recording.video_probe import PacketScan

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


KEPT_BYTES = 32 * 2**20  # of all kept frames; minutes of a usual screen, a second of a film
FRAME_BYTES = 96 * 2**10  # of a kept frame in the mean; more than that is a film
GAP_S = 10.0  # seconds that are read on to a later stretch; over a longer gap it is sought


class Lookback:
    """Reads a video forwards and keeps what was read; a context manager, which closes the video.

    `look` is called first, any number of times, then `resume` once. A stretch that cannot be
    reached in the same decode, or whose frames take too much memory, is decoded by itself.

    Args:
        path: of the video.
        packets: its frames' times.
        size: width and height that every frame must have, pixels before rotation; None: any.
    """

    def __init__(self, path: Path, packets: PacketScan, size: tuple[int, int] | None) -> None:
        self._path, self._packets, self._size = path, packets, size
        self._archive = FrameArchive(KEPT_BYTES, FRAME_BYTES)
        self._reader: ForwardReader | None = None
        self._first: int | None = None
        self._last = 0
        self._latest: Frame | None = None
        self._spent = False
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._archive.drop()
        self._reader = self._latest = None
        self._open.close()

    @property
    def is_spent(self) -> bool:
        """Whether `resume` was called."""
        return self._spent

    def look(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans, as `decode_spans` gives them."""
        if self._latest is not None and spans and self._is_at(spans[0], self._latest):
            yield self._latest  # the last frame of one look may be the first of the next
        for span in spans:
            for stretch in wanted_stretches(self._packets, [span]):
                if self._archive.is_open and self._is_next(stretch):
                    yield from self._read_on(stretch)
                else:
                    yield from decode_spans(self._path, self._packets, [span], self._size)

    def _is_next(self, stretch: PtsRange) -> bool:
        """Whether a stretch comes soon enough after what was read."""
        if self._first is None:
            return True
        gap = (stretch[0] - self._last) * float(self._packets.time_base)
        return 0 <= gap <= GAP_S and stretch[1] > self._last

    def _is_at(self, span: Span, frame: Frame) -> bool:
        """Whether a span that can be read on to begins with a frame."""
        stretch = wanted_stretches(self._packets, [span])
        return bool(stretch) and self._is_next(stretch[0]) and stretch[0][0] == frame.pts

    def _read_on(self, stretch: PtsRange) -> Iterator[Frame]:
        """Read up to the end of a stretch, and keep everything on the way."""
        if self._reader is None:
            forward = open_forward_reader(self._path, self._packets, self._size)
            self._reader = self._open.enter_context(forward)
        first, last = stretch
        begin = first if self._first is None else self._last + 1
        self._first = begin if self._first is None else self._first
        self._last = last
        for frame in self._reader.read_on((begin, last)):
            self._archive.add(frame)
            self._latest = frame
            if frame.pts >= first:
                yield frame

    def resume(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans: kept ones first, then those read on."""
        self._spent, self._latest = True, None
        wanted = wanted_stretches(self._packets, spans)
        if self._reader is None or self._first is None or not len(self._archive):
            self._archive.drop()
            self._reader = None
            self._open.close()  # a second decoder beside it would take 20 MB more
            yield from decode_stretches(self._path, self._packets, wanted, self._size)
            return
        first, last = self._first, self._last
        before = _between(wanted, None, first - 1)
        if before:
            yield from decode_stretches(self._path, self._packets, before, self._size)
        inside = _Membership(_between(wanted, first, last))
        yield from self._archive.take(inside.has)
        yield from self._reader.stretches(_between(wanted, last + 1, None))


class _Membership:
    """Whether PTS, asked for in ascending order, are in ascending stretches."""

    def __init__(self, stretches: Sequence[PtsRange]) -> None:
        self._ahead = list(reversed(stretches))

    def has(self, pts: int) -> bool:
        while self._ahead and self._ahead[-1][1] < pts:
            self._ahead.pop()
        return bool(self._ahead) and self._ahead[-1][0] <= pts


def _between(stretches: Sequence[PtsRange], first: int | None, last: int | None) -> list[PtsRange]:
    """The parts of stretches from one PTS to another; None: without a bound."""
    clipped = [
        (low if first is None else max(low, first), high if last is None else min(high, last))
        for low, high in stretches
    ]
    return [(low, high) for low, high in clipped if low <= high]


LONE_FRAME_S = 0.1  # seconds; taken as the distance of two frames in a video with a single one


@dataclass(frozen=True)
class RecordedVideo:
    """A video file and the presentation times of its frames.

    `size` is the width and height that every frame must have, in pixels before rotation.
    `lookback` keeps what calibration reads for the decode pass; without it each decodes for itself.
    """

    path: Path
    packets: PacketScan
    size: tuple[int, int] | None = None
    lookback: Lookback | None = None

    @cached_property
    def times(self) -> Floats:
        """(frames,) presentation times, ascending seconds."""
        return self.packets.times

    @cached_property
    def frame_s(self) -> float:
        """The mean distance of two frames, seconds."""
        times = self.times
        if len(times) < 2:
            return LONE_FRAME_S
        return float((times[-1] - times[0]) / (len(times) - 1))

    @cached_property
    def grab_s(self) -> float:
        """The distance of two frames while the screen changes, seconds.

        A tenth of the frames are nearer: with a variable rate, no frames show that nothing changes.
        """
        distances = np.diff(self.times)
        return float(np.percentile(distances, 10)) if len(distances) else LONE_FRAME_S

    def frames(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans, in presentation order.

        Raises:
            DemonstrationError: a frame has another size.
        """
        return decode_spans(self.path, self.packets, spans, self.size)

    def look(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """As `frames`, before the decode pass, which will not decode these frames again."""
        if self.lookback is None:
            return self.frames(spans)
        return self.lookback.look(spans)

    def resume(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """As `frames`, for the decode pass."""
        if self.lookback is None or self.lookback.is_spent:
            return self.frames(spans)
        return self.lookback.resume(spans)

    def frame_at(self, position: int) -> Frame | None:
        """The frame of a 0-based number; None when it does not decode."""
        time = float(self.times[position])
        return next(self.frames([Span(time, time)]), None)
