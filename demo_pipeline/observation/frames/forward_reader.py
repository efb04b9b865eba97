"""Reading a video forwards: the frames of some stretches, decoded in presentation order.

Belongs here: seeking over gaps, skipping frames that no other refers to, and leaving out damage.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import PictureType

from demo_pipeline.common.system_errors import raise_disk_trouble
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Span
from demo_pipeline.recording.video_probe import (
    PacketScan,
    most_pixels,
    open_video,
    refuse_large_frame,
    require_size,
)

_B = int(PictureType.B)
_LATEST = 2**62  # PTS; no frame is later
PtsRange = tuple[int, int]
"""First and last PTS of frames, both included."""


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
    yield from decode_stretches(path, packets, wanted_stretches(packets, spans), size)


def decode_stretches(
    path: Path,
    packets: PacketScan,
    wanted: Sequence[PtsRange],
    size: tuple[int, int] | None = None,
) -> Iterator[Frame]:
    """As `decode_spans`, for stretches of PTS."""
    with open_forward_reader(path, packets, size) as reader:
        yield from reader.stretches(wanted)


@contextmanager
def open_forward_reader(
    path: Path, packets: PacketScan, size: tuple[int, int] | None
) -> Iterator["ForwardReader"]:
    """Open a video for reading forwards, and close it. Arguments as of `decode_spans`."""
    limit = {} if size is None else {"max_pixels": most_pixels(size)}
    with open_video(path, **limit) as (container, stream):
        reader = ForwardReader(container, stream, packets, size)
        try:
            yield reader
        finally:
            reader.close()


def wanted_stretches(packets: PacketScan, spans: Sequence[Span]) -> list[PtsRange]:
    """The first and last PTS in each span that holds a frame, whatever the rounding of its ends."""
    found = []
    for span in spans:
        bounds = (span.start - TIME_TOLERANCE_S, span.end + TIME_TOLERANCE_S)
        inside = packets.pts[slice(*np.searchsorted(packets.times, bounds))]
        if len(inside):
            found.append((int(inside[0]), int(inside[-1])))
    return found


class ForwardReader:
    """A video that is read forwards, one stretch after the other."""

    def __init__(
        self,
        container: Any,
        stream: Any,
        packets: PacketScan,
        size: tuple[int, int] | None = None,
    ) -> None:
        self._size = size
        self._container = container
        self._stream = stream
        self._packets = packets
        self._pictures: Iterator[Any] = iter(())
        self._position: int | None = None
        self._ahead: Any = None
        self._edges: list[int] = []
        self._low, self._high = math.inf, -math.inf

    def close(self) -> None:
        """Let go of the decoder; it and this reader would else keep each other, and its frames."""
        self._pictures, self._ahead = iter(()), None
        self._container = self._stream = None

    def stretches(self, wanted: Sequence[PtsRange]) -> Iterator[Frame]:
        """Frames of ascending, disjoint stretches after those that were read before."""
        self._decode_in(wanted)
        for first, last in wanted:
            yield from self.frames(first, last)

    def read_on(self, stretch: PtsRange) -> Iterator[Frame]:
        """Frames of a stretch, of which any frame may follow later.

        Those after it that the decoder has already taken in are not skipped.
        """
        self._decode_in([(stretch[0], _LATEST)])
        yield from self.frames(*stretch)

    def _decode_in(self, wanted: Sequence[PtsRange]) -> None:
        """Skip frames outside of these stretches that no other frame refers to."""
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
