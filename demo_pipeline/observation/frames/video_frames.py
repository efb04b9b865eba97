"""Decoding frames in presentation order, and their pixels: a sparse luma to compare, RGB to keep.

Not here: which frames are wanted (frame_requests.py), what their differences mean
(change_detection.py).
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import PictureType

from demo_pipeline.common.system_errors import raise_disk_trouble
from demo_pipeline.recording.video_probe import (
    PacketScan,
    most_pixels,
    open_video,
    refuse_large_frame,
    require_size,
)

PATCH_PX = 24  # pixels; holds most of a pointer, and the error of its place in a frame
SAMPLE_STEP = 4  # pixels from one luma sample to the next, both ways
TIME_TOLERANCE_S = 1e-9  # seconds; less than any PTS unit: rounding of a time
GLANCE_ROWS, GLANCE_PERIOD = (0, 12, 20, 24), 32  # no 12 rows, and no line of text, in between
_B = int(PictureType.B)
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
        plane = self.picture.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        right, bottom = min(right, self.picture.width), min(bottom, self.picture.height)
        return rows[top:bottom, left:right].copy()

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

    def samples(self, down: int) -> Luma:
        """(rows, columns) uint8: every `down`-th row and every 4th column of the luma."""
        if self._is_plain:
            return self._narrowed(0, down)
        picture = self.picture
        if picture.format.name not in PLANAR:
            picture = picture.reformat(format="gray")
        plane = picture.planes[0]
        turned = rotation(self.picture)
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        steps = (down, SAMPLE_STEP)
        if turned % 180:  # the steps are those of the upright picture
            steps = (SAMPLE_STEP, down)
        samples = rows[: picture.height : steps[0], : picture.width : steps[1]].copy()
        return upright(samples, turned)

    @property
    def _is_plain(self) -> bool:
        """Whether it is upright and its rows begin at multiples of the sample step."""
        picture = self.picture
        if picture.format.name not in PLANAR or rotation(picture):
            return False
        return bool(picture.planes[0].line_size % SAMPLE_STEP == 0)

    def _narrowed(self, first: int, step: int) -> Luma:
        """The low byte of four: narrowing integers is twice as fast as a copy with a stride."""
        plane = self.picture.planes[0]
        fours = np.frombuffer(plane, f"<u{SAMPLE_STEP}")
        fours = fours.reshape(-1, plane.line_size // SAMPLE_STEP)
        columns = -(-self.picture.width // SAMPLE_STEP)
        return fours[first : self.picture.height : step, :columns].astype(np.uint8)

    def rgb(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(height, width, 3) uint8, upright, read-only."""
        picture = self.picture.reformat(format="rgb24")
        plane = picture.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        inside = rows[: picture.height, : picture.width * 3]
        return upright(inside.reshape(*inside.shape[:1], -1, 3), rotation(self.picture))


def rotation(picture: Any) -> int:
    """Degrees counter-clockwise by which a player turns the picture, a multiple of 90."""
    return int(getattr(picture, "rotation", 0) or 0) % 360


def upright(
    pixels: np.ndarray[Any, np.dtype[np.uint8]], degrees: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array turned as a player turns the picture."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels


def decode_spans(
    path: Path,
    packets: PacketScan,
    spans: Sequence[Span],
    size: tuple[int, int] | None = None,
) -> Iterator[Frame]:
    """Frames whose PTS are in `spans` (ascending, disjoint), in presentation order.

    Seeks only over gaps that contain a key frame; in other gaps, frames that no other frame refers
    to are not decoded. Frames that do not decode, or that the decoder made up to conceal damage,
    are left out without an error: callers compare the frames with `packets`.

    Args:
        path: of the video.
        packets: its frames' times.
        spans: see above.
        size: width and height that every frame must have, pixels before rotation; None: any.

    Raises:
        DemonstrationError: a frame has another size; it was not converted.
    """
    wanted = list(_wanted(packets, spans))
    limit = {} if size is None else {"max_pixels": most_pixels(size)}
    with open_video(path, **limit) as (container, stream):
        reader = _ForwardReader(container, stream, packets, wanted, size)
        for first, last in wanted:
            yield from reader.frames(first, last)


def _wanted(packets: PacketScan, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Yield the first and last PTS in each span, whatever the rounding of its ends."""
    for span in spans:
        bounds = (span.start - TIME_TOLERANCE_S, span.end + TIME_TOLERANCE_S)
        inside = packets.pts[slice(*np.searchsorted(packets.times, bounds))]
        if len(inside):
            yield int(inside[0]), int(inside[-1])


class _ForwardReader:
    """A video that is read forwards; `frames` is called for one stretch after the other."""

    def __init__(
        self,
        container: Any,
        stream: Any,
        packets: PacketScan,
        wanted: Sequence[tuple[int, int]],
        size: tuple[int, int] | None = None,
    ) -> None:
        self._size = size
        self._container = container
        self._stream = stream
        self._packets = packets
        self._pictures: Iterator[Any] = iter(())
        self._position: int | None = None
        self._ahead: Any = None
        self._edges = [edge for first, last in wanted for edge in (first, last + 1)]
        self._low, self._high = math.inf, -math.inf

    def frames(self, first: int, last: int) -> Iterator[Frame]:
        """Frames of first <= PTS <= last after those that were returned before."""
        key = _key_before(self._packets, first)
        if self._position is None or key > self._position:
            self._pictures = _intact(self._decoded(key))
            self._ahead = None
        base = float(self._packets.time_base)
        while True:
            picture, self._ahead = self._ahead or next(self._pictures, None), None
            if picture is None:
                return
            pts = picture.pts
            if pts > last:
                self._ahead = picture
                return
            if self._position is None or pts > self._position:
                self._position = pts
                if pts >= first:
                    yield Frame(pts, pts * base, picture)
            if pts == last:
                return

    def _decoded(self, key: int) -> Iterator[Any]:
        """Pictures from a key frame on; after a decoder error, from the next key frame on."""
        keys = self._packets.key_pts
        following = int(np.searchsorted(keys, key))
        while following < len(keys):
            reached = int(keys[following])
            try:
                self._container.seek(reached, stream=self._stream)
                for packet in self._container.demux(self._stream):
                    pts = packet.pts
                    if pts is None or not self._low <= pts < self._high:
                        self._enter(pts)
                    for picture in packet.decode():
                        if picture.pts is not None:
                            if self._size is not None:
                                require_size(picture, self._size, self._packets)
                            reached = max(reached, picture.pts)
                            yield picture
            except av.error.FFmpegError as error:
                raise_disk_trouble(error, Path(self._container.name))
                number = int(np.searchsorted(self._packets.pts, reached, side="right"))
                refuse_large_frame(self._stream, error, number)
                following = int(np.searchsorted(keys, reached, side="right"))
            else:
                return

    def _enter(self, pts: int | None) -> None:
        """Decode all frames of a wanted stretch, and between two only those that others refer to.

        A packet without a time may belong to a wanted stretch.
        """
        edges = self._edges
        position = bisect_right(edges, pts) if pts is not None else 1
        self._low = edges[position - 1] if position else -math.inf
        self._high = edges[position] if position < len(edges) else math.inf
        self._stream.codec_context.skip_frame = "DEFAULT" if position % 2 else "NONREF"


def _intact(pictures: Iterator[Any]) -> Iterator[Any]:
    """Leave out corrupt pictures, and those that refer to them up to the next key frame.

    A B-frame refers to the next frame of another kind, so it is held back until that one.
    """
    broken = False
    waiting: list[Any] = []
    for picture in pictures:
        corrupt = bool(picture.is_corrupt)
        if picture.pict_type == _B and not corrupt:
            waiting.append(picture)
            continue
        damaged = broken or corrupt
        if waiting and not damaged:
            yield from waiting
        waiting = []
        broken = corrupt if picture.key_frame else damaged
        if not broken:
            yield picture
    if not broken:
        yield from waiting


def _key_before(packets: PacketScan, pts: int) -> int:
    """PTS of the last key frame no later than `pts`; of the first one when there is none."""
    position = int(np.searchsorted(packets.key_pts, pts, side="right"))
    return int(packets.key_pts[max(0, position - 1)])
