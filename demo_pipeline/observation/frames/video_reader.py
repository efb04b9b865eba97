"""Decodes parts of a video in presentation order, and gives access to the pixels of the frames.

Colours are converted in an FFmpeg filter graph, because a graph reuses its memory. Without a graph,
page faults take three times as long as the conversion itself.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.filter import Graph
from av.video.frame import PictureType

from demo_pipeline.files.system_errors import raise_disk_trouble
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.tone_mapping import is_hdr, tone_mapped
from demo_pipeline.recording.video_probe import (
    VideoPackets,
    most_pixels,
    open_video,
    refuse_large_frame,
    require_size,
)

SAMPLE_STEP = 4  # pixels from one sample of `Frame.luma` to the next, in both directions
# Maximum luma (0 to 255) of a black frame. Black is encoded as 16 or 0. A pointer on a black screen
# has a luma of 100.
_BLACK_LEVEL = 24
HALF = 2  # divisor for width and height in `Frame.halved`
TIME_TOLERANCE_S = 1e-9  # seconds; allows for rounding errors, far below any video's time base
# Pixel formats whose first plane is the luma, with 8 bits for each pixel.
PLANAR = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuvj444p", "nv12", "gray"})

Luma = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Span:
    """A period of video time in seconds, including both ends."""

    start: float
    end: float


@dataclass(frozen=True)
class Frame:
    """A decoded frame, with its pixels as a player shows them (rotated if the file says so).

    Attributes:
        pts: presentation time in units of the video stream's time base.
        time: presentation time in seconds.
        decoded: the decoder's own frame (`av.VideoFrame`), not rotated.
    """

    pts: int
    time: float
    decoded: Any

    @property
    def is_key(self) -> bool:
        """Whether the frame is encoded without reference to other frames."""
        return bool(self.decoded.key_frame)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height after rotation, pixels."""
        size = (self.decoded.width, self.decoded.height)
        return size[::-1] if rotation(self.decoded) % 180 else size

    @cached_property
    def luma(self) -> Luma:
        """(rows, columns) uint8: the luma at every 4th row and every 4th column."""
        return self.samples(SAMPLE_STEP)

    @cached_property
    def is_black(self) -> bool:
        """Whether the whole frame is black; recorders black out private content."""
        return int(self.luma.max()) <= _BLACK_LEVEL

    @property
    def whole(self) -> Luma:
        """(rows, columns) uint8: a copy of the whole luma."""
        return upright(self._luma_in_memory.copy(), rotation(self.decoded))

    @cached_property
    def halved(self) -> Luma:
        """(rows, columns) uint8: the luma at half size; each sample is a mean of 2 x 2 pixels."""
        rows, columns = self._luma_in_memory.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        halved = cv2.resize(self._luma_in_memory, size, interpolation=cv2.INTER_AREA)
        return upright(halved, rotation(self.decoded))

    @cached_property
    def quartered(self) -> Luma:
        """(rows, columns) uint8: the luma at quarter size; a sample is a mean of 4 x 4 pixels."""
        rows, columns = self.halved.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        return np.asarray(cv2.resize(self.halved, size, interpolation=cv2.INTER_AREA), np.uint8)

    def samples(self, down: int) -> Luma:
        """(rows, columns) uint8: the luma at every `down`-th row and every 4th column."""
        planar = self._planar
        degrees = rotation(self.decoded)
        rows = plane_rows(planar.planes[0])[: planar.height]
        if not degrees and rows.shape[1] % SAMPLE_STEP == 0:
            # Taking the low byte of each 32-bit integer is twice as fast as copying with a stride.
            fours = rows.view(f"<u{SAMPLE_STEP}")
            return fours[::down, : -(-planar.width // SAMPLE_STEP)].astype(np.uint8)
        # After a rotation by 90 or 270 degrees, rows are columns of the decoder's frame.
        row_step, column_step = (SAMPLE_STEP, down) if degrees % 180 else (down, SAMPLE_STEP)
        return upright(rows[::row_step, : planar.width : column_step].copy(), degrees)

    @property
    def _luma_in_memory(self) -> Luma:
        """(rows, columns) uint8: the luma before rotation, as a view of the decoder's memory."""
        planar = self._planar
        return plane_rows(planar.planes[0])[: planar.height, : planar.width]

    @property
    def _planar(self) -> Any:
        """A frame whose first plane is the luma: the decoder's frame, or a grey version of it."""
        if self.decoded.format.name in PLANAR:
            return self.decoded
        return self.decoded.reformat(format="gray")


def plane_rows(plane: Any) -> Luma:
    """Returns a plane of a decoded frame as (rows, bytes), a view of the decoder's memory.

    Rows may end with padding.
    """
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)


def rotation(decoded: Any) -> int:
    """Returns the rotation that a player applies: degrees counter-clockwise, a multiple of 90."""
    return int(getattr(decoded, "rotation", 0) or 0) % 360


def upright(pixels: Luma, degrees: int) -> Luma:
    """Returns the pixels rotated counter-clockwise by a multiple of 90 degrees."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels


_TIME_BASE = "1/1000"  # required by every filter graph; the filters used here ignore times


class RgbConverter:
    """Converts frames to RGB; fastest if successive frames have the same size and colour format."""

    def __init__(self) -> None:
        self._form: tuple[Any, ...] = ()
        self._graph: Any = None

    def rgb(self, frame: Frame) -> Luma:
        """Returns the pixels as a player shows them, (height, width, 3) uint8, read-only.

        The next conversion may overwrite the pixels.
        """
        return upright(self.of_decoded(frame.decoded), rotation(frame.decoded))

    def of_decoded(self, source: Any) -> Luma:
        """Converts an `av.VideoFrame` as `rgb` does, but without rotation."""
        is_source_hdr = is_hdr(source)
        result = "rgb48le" if is_source_hdr else "rgb24"
        colours = (int(source.colorspace), int(source.color_range))
        form = (source.width, source.height, source.format.name, *colours, result)
        if form != self._form:
            self._form = form
            self._graph = _graph(*form)
        self._graph.push(source)
        converted = self._graph.pull()
        rows = plane_rows(converted.planes[0])[: converted.height]
        if is_source_hdr:
            codes = rows[:, : converted.width * 6].reshape(converted.height, -1, 6).view("<u2")
            return tone_mapped(codes, source)
        return rows[:, : converted.width * 3].reshape(converted.height, -1, 3)


def rgb_of(frame: Frame) -> Luma:
    """Converts a frame as `RgbConverter.rgb` does, but into memory that is not reused."""
    return RgbConverter().rgb(frame)


def _graph(  # noqa: PLR0917 - the size and the format of a frame
    width: int, height: int, pixels: str, colours: int, levels: int, result: str
) -> Any:
    """Returns a filter graph that converts frames with the scaler settings of PyAV's `reformat`.

    Args:
        width, height: size of the frames, pixels.
        colours, levels: colour space and colour range of the frames, as FFmpeg's numbers.
        pixels, result: pixel formats before and after the conversion.
    """
    graph = Graph()
    source = (
        f"video_size={width}x{height}:pix_fmt={pixels}:time_base={_TIME_BASE}"
        f":colorspace={colours}:range={levels}"
    )
    chain = [
        graph.add("buffer", source),
        graph.add("scale", "flags=bilinear"),
        graph.add("format", result),
        graph.add("buffersink"),
    ]
    for step, next_step in pairwise(chain):
        step.link_to(next_step)
    graph.configure()
    return graph


_B = int(PictureType.B)
PtsRange = tuple[int, int]
"""First and last presentation time of a part of a video, in units of the time base."""


def decode_spans(
    path: Path,
    packets: VideoPackets,
    spans: Sequence[Span],
    size: tuple[int, int] | None = None,
) -> Iterator[Frame]:
    """Yields the frames of a video that lie in `spans`, in presentation order.

    Damaged frames are left out without an error. Callers can detect missing frames by comparing
    with the times in `packets`.

    Args:
        spans: ascending and disjoint.
        size: width and height that every frame must have, pixels before rotation. None allows any
            size.

    Raises:
        DemonstrationError: a frame does not have the required size.
    """
    limit = {} if size is None else {"max_pixels": most_pixels(size)}
    wanted = list(_stretches(packets, spans))
    with open_video(path, **limit) as (container, stream):
        yield from _ForwardReader(container, stream, packets, wanted, size).frames()


def _stretches(packets: VideoPackets, spans: Sequence[Span]) -> Iterator[PtsRange]:
    """Yields the presentation times of the first and last frame of each span that has frames."""
    for span in spans:
        bounds = (span.start - TIME_TOLERANCE_S, span.end + TIME_TOLERANCE_S)
        inside = packets.pts[slice(*np.searchsorted(packets.times, bounds))]
        if len(inside):
            yield int(inside[0]), int(inside[-1])


class _ForwardReader:
    """Decodes the `wanted` parts of a video, and only reference frames in the gaps between them.

    No attribute holds a frame, because the decoder and the frame would then keep each other in
    memory.
    """

    def __init__(
        self,
        container: Any,
        stream: Any,
        packets: VideoPackets,
        wanted: Sequence[PtsRange],
        size: tuple[int, int] | None = None,
    ) -> None:
        self._container = container
        self._stream = stream
        self._packets = packets
        self._wanted = wanted
        self._size = size
        self._edges: list[int] = []
        for first, last in wanted:
            self._edges += [first, last + 1]
        self._low = math.inf
        self._high = -math.inf

    def frames(self) -> Iterator[Frame]:
        """Yields the frames of the wanted parts, in presentation order."""
        base = float(self._packets.time_base)
        position = -math.inf
        decoded_frames: Iterator[Any] = iter(())
        ahead = None
        for first, last in self._wanted:
            key = _key_before(self._packets, first)
            if key > position:
                decoded_frames = _intact(self._decoded(key))
                ahead = None
            while decoded := ahead or next(decoded_frames, None):
                ahead = decoded if decoded.pts > last else None
                if ahead is not None:
                    break
                if decoded.pts > position:
                    position = decoded.pts
                    if position >= first:
                        yield Frame(position, position * base, decoded)
                if decoded.pts == last:
                    break

    def _decoded(self, key: int) -> Iterator[Any]:
        """Yields the decoder's frames, starting at the key frame with presentation time `key`.

        After an error, decoding continues at the next key frame.
        """
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
                    for decoded in packet.decode():
                        if decoded.pts is not None:
                            if self._size is not None:
                                require_size(decoded, self._size, self._packets)
                            reached = max(reached, decoded.pts)
                            yield decoded
            except av.error.FFmpegError as error:
                raise_disk_trouble(error, Path(self._container.name))
                number = int(np.searchsorted(self._packets.pts, reached, side="right"))
                refuse_large_frame(self._stream, error, number)
                following = int(np.searchsorted(keys, reached, side="right"))
            else:
                return

    def _enter(self, pts: int | None) -> None:
        """Tells the decoder which frames it may skip, starting at the packet with time `pts`.

        A packet without a time is decoded, because it may belong to a wanted part.
        """
        edges = self._edges
        position = bisect_right(edges, pts) if pts is not None else 1
        self._low = edges[position - 1] if position else -math.inf
        self._high = edges[position] if position < len(edges) else math.inf
        self._stream.codec_context.skip_frame = "DEFAULT" if position % 2 else "NONREF"


def _intact(decoded_frames: Iterator[Any]) -> Iterator[Any]:
    """Leaves out corrupt frames, and all frames after them up to the next intact key frame.

    B-frames are held back until the next frame that is not a B-frame is known to be intact.
    """
    broken = False
    waiting: list[Any] = []
    for decoded in decoded_frames:
        corrupt = bool(decoded.is_corrupt)
        if decoded.pict_type == _B and not corrupt:
            waiting.append(decoded)
            continue
        damaged = broken or corrupt
        if waiting and not damaged:
            yield from waiting
        waiting = []
        broken = corrupt if decoded.key_frame else damaged
        if not broken:
            yield decoded
    if not broken:
        yield from waiting


def _key_before(packets: VideoPackets, pts: int) -> int:
    """Returns the time of the last key frame at or before `pts`, or of the first if there is none.

    Times are presentation times in units of the time base.
    """
    position = int(np.searchsorted(packets.key_pts, pts, side="right"))
    return int(packets.key_pts[max(0, position - 1)])


def number_at(times: Floats, time: float) -> int:
    """Returns the index of the frame that a player shows at `time`; -1 before the first frame.

    `times` are the presentation times of all frames, ascending seconds.
    """
    return int(times.searchsorted(time + TIME_TOLERANCE_S, "right")) - 1


HAS_SPARE_PROCESSOR = ContextVar("another processor is free for decoding", default=False)
# Maximum number of decoded frames that wait for the caller. Each takes 3 MB in 1080p.
_FRAMES_AHEAD = 4


def _decoded_ahead(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yields the frames, while a thread decodes the next few ahead of the caller."""
    with ThreadPoolExecutor(1) as thread:
        due = deque(thread.submit(next, frames, None) for _ in range(_FRAMES_AHEAD))
        while frame := due.popleft().result():
            due.append(thread.submit(next, frames, None))
            yield frame


LONE_FRAME_S = 0.1  # seconds; assumed interval between frames of a video with one frame


@dataclass(frozen=True)
class RecordedVideo:
    """A video file and the presentation times of its frames.

    Attributes:
        size: width and height that every frame must have, pixels before rotation. None allows any
            size.
    """

    path: Path
    packets: VideoPackets
    size: tuple[int, int] | None = None

    @cached_property
    def times(self) -> Floats:
        """(frames,) presentation times, ascending seconds."""
        return self.packets.times

    @cached_property
    def frame_s(self) -> float:
        """The mean interval between frames, seconds."""
        times = self.times
        return float((times[-1] - times[0]) / (len(times) - 1)) if len(times) > 1 else LONE_FRAME_S

    @cached_property
    def grab_s(self) -> float:
        """The interval between frames while the screen changes, seconds.

        This is the 10th percentile of all intervals. The mean would be too long if no frames are
        written while nothing changes.
        """
        distances = np.diff(self.times)
        return float(np.percentile(distances, 10)) if len(distances) else LONE_FRAME_S

    def frames(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Yields the frames in `spans` (ascending, disjoint), in presentation order.

        Raises:
            DemonstrationError: a frame does not have the required size.
        """
        frames = decode_spans(self.path, self.packets, spans, self.size)
        return _decoded_ahead(frames) if HAS_SPARE_PROCESSOR.get() else frames
