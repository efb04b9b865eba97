"""Reads the video of a recording forwards: its frames in presentation order, and their pixels.

The reader seeks over gaps, skips frames that no other frame refers to, and leaves out damaged
frames. Colours are converted by FFmpeg's scaler in a filter graph, because a graph reuses its
memory. A frame converted without a graph takes 6 MB from the system each time, and the page faults
take three times as long as the conversion.
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

SAMPLE_STEP = 4  # pixels from one luma sample to the next, in both directions
_BLACK_LEVEL = 24  # of 255; black is encoded as 16 or 0, a pointer on a black screen has 100
HALF = 2  # each sample of `Frame.halved` is the mean of this many pixels in both directions
TIME_TOLERANCE_S = 1e-9  # seconds; for rounding; less than any unit of presentation times
PLANAR = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuvj444p", "nv12", "gray"})

Luma = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Span:
    """A stretch of video time, seconds, both ends included."""

    start: float
    end: float


@dataclass(frozen=True)
class Frame:
    """One decoded frame.

    Attributes:
        pts: presentation time in units of the video.
        time: presentation time in seconds.
        decoded: the decoder's own frame (`av.VideoFrame`), as it lies in the file.
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
        """Width and height of the upright frame, pixels."""
        size = (self.decoded.width, self.decoded.height)
        return size[::-1] if rotation(self.decoded) % 180 else size

    @cached_property
    def luma(self) -> Luma:
        """(rows, columns) uint8: every 4th row and column of the luma."""
        return self.samples(SAMPLE_STEP)

    @cached_property
    def is_black(self) -> bool:
        """Whether the frame is black, because recorders black out private content."""
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
        """(rows, columns) uint8: the luma at quarter size; each sample a mean of 4 x 4 pixels."""
        rows, columns = self.halved.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        return np.asarray(cv2.resize(self.halved, size, interpolation=cv2.INTER_AREA), np.uint8)

    def samples(self, down: int) -> Luma:
        """(rows, columns) uint8: every `down`-th row and every 4th column of the luma."""
        planar = self._planar
        degrees = rotation(self.decoded)
        rows = plane_rows(planar.planes[0])[: planar.height]
        if not degrees and rows.shape[1] % SAMPLE_STEP == 0:
            # Narrowing 32-bit integers to their low byte is twice as fast as copying with a stride.
            fours = rows.view(f"<u{SAMPLE_STEP}")
            return fours[::down, : -(-planar.width // SAMPLE_STEP)].astype(np.uint8)
        # Rows of the upright frame are columns in the file if the frame is turned by a quarter.
        row_step, column_step = (SAMPLE_STEP, down) if degrees % 180 else (down, SAMPLE_STEP)
        return upright(rows[::row_step, : planar.width : column_step].copy(), degrees)

    @property
    def _luma_in_memory(self) -> Luma:
        """(rows, columns) of the luma, without a copy and without rotation."""
        planar = self._planar
        return plane_rows(planar.planes[0])[: planar.height, : planar.width]

    @property
    def _planar(self) -> Any:
        """The decoder's frame, or a grey version of it; its first plane is the luma."""
        if self.decoded.format.name in PLANAR:
            return self.decoded
        return self.decoded.reformat(format="gray")


def plane_rows(plane: Any) -> Luma:
    """(rows, bytes) of a plane of a decoded frame, without a copy.

    The rows may be wider than the frame: padding follows each row in memory.
    """
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)


def rotation(decoded: Any) -> int:
    """Returns by how many degrees counter-clockwise a player turns the frame, a multiple of 90."""
    return int(getattr(decoded, "rotation", 0) or 0) % 360


def upright(pixels: Luma, degrees: int) -> Luma:
    """Returns the pixels turned as a player turns the frame."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels


_TIME_BASE = "1/1000"  # a graph must have one; this one makes no use of times


class RgbConverter:
    """Converts frames to RGB. It is fastest if successive frames have the same size and colours."""

    def __init__(self) -> None:
        self._form: tuple[Any, ...] = ()
        self._graph: Any = None

    def rgb(self, frame: Frame) -> Luma:
        """Returns (height, width, 3) uint8, upright and read-only.

        The next conversion may overwrite it.
        """
        return upright(self.of_decoded(frame.decoded), rotation(frame.decoded))

    def of_decoded(self, source: Any) -> Luma:
        """As `rgb`, from an `av.VideoFrame`, and without rotation."""
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
    """Converts a single frame as `RgbConverter.rgb` does; the result has memory of its own."""
    return RgbConverter().rgb(frame)


def _graph(  # noqa: PLR0917 - the form of a frame
    width: int, height: int, pixels: str, colours: int, levels: int, result: str
) -> Any:
    """Returns a graph from one form to another, with the scaler settings of PyAV's `reformat`."""
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
"""First and last presentation time of some frames, both included, in units of the video."""


def decode_spans(
    path: Path,
    packets: VideoPackets,
    spans: Sequence[Span],
    size: tuple[int, int] | None = None,
) -> Iterator[Frame]:
    """Yields the frames in `spans` (ascending, disjoint), in presentation order.

    Gaps that contain a key frame are skipped by a seek. In other gaps, only frames that later
    frames refer to are decoded. Frames that do not decode, or that the decoder made up to conceal
    damage, are left out without an error. A caller notices them by the times in `packets`.

    `size` is the width and height that every frame must have, in pixels before rotation.

    Raises:
        DemonstrationError: a frame has another size.
    """
    limit = {} if size is None else {"max_pixels": most_pixels(size)}
    wanted = list(_stretches(packets, spans))
    with open_video(path, **limit) as (container, stream):
        yield from _ForwardReader(container, stream, packets, wanted, size).frames()


def _stretches(packets: VideoPackets, spans: Sequence[Span]) -> Iterator[PtsRange]:
    """Yields the first and last presentation time in each span that holds a frame."""
    for span in spans:
        bounds = (span.start - TIME_TOLERANCE_S, span.end + TIME_TOLERANCE_S)
        inside = packets.pts[slice(*np.searchsorted(packets.times, bounds))]
        if len(inside):
            yield int(inside[0]), int(inside[-1])


class _ForwardReader:
    """Reads one of the `wanted` stretches after the other.

    Between them, frames that no other frame refers to are not decoded. The reader holds no frame,
    because the decoder and its frames would keep each other in memory.
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
        """Yields the frames of the stretches, in presentation order."""
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
        """Yields the decoder's frames from a key frame on; after an error, from the next one on."""
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
        """Tell the decoder which frames it may skip, from the packet of a presentation time on.

        It decodes all frames of a wanted stretch, and in a gap only those that others refer to. A
        packet without a time may belong to a wanted stretch.
        """
        edges = self._edges
        position = bisect_right(edges, pts) if pts is not None else 1
        self._low = edges[position - 1] if position else -math.inf
        self._high = edges[position] if position < len(edges) else math.inf
        self._stream.codec_context.skip_frame = "DEFAULT" if position % 2 else "NONREF"


def _intact(decoded_frames: Iterator[Any]) -> Iterator[Any]:
    """Leaves out corrupt frames, and the frames that refer to them, up to the next key frame.

    A B-frame refers to the next frame of another kind, so it is held back until that frame comes.
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
    """Returns the presentation time of the last key frame at or before `pts`, else of the first."""
    position = int(np.searchsorted(packets.key_pts, pts, side="right"))
    return int(packets.key_pts[max(0, position - 1)])


def number_at(times: Floats, time: float) -> int:
    """Returns the number of the frame that is shown at a time; -1 before the first frame.

    A frame is shown until the next one, however long that takes. `times` are the times of the
    video's frames, ascending seconds.
    """
    return int(times.searchsorted(time + TIME_TOLERANCE_S, "right")) - 1


HAS_SPARE_PROCESSOR = ContextVar("another processor is free for decoding", default=False)
_FRAMES_AHEAD = 4  # frames, each of 3 MB in 1080p


def _decoded_ahead(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yields the same frames; a thread decodes the next few while the caller compares one."""
    with ThreadPoolExecutor(1) as thread:
        due = deque(thread.submit(next, frames, None) for _ in range(_FRAMES_AHEAD))
        while frame := due.popleft().result():
            due.append(thread.submit(next, frames, None))
            yield frame


LONE_FRAME_S = 0.1  # seconds; stands for the distance of two frames in a video with a single frame


@dataclass(frozen=True)
class RecordedVideo:
    """A video file and the presentation times of its frames.

    `size` is the width and height that every frame must have, in pixels before rotation.
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
        """The mean distance of two frames, seconds."""
        times = self.times
        return float((times[-1] - times[0]) / (len(times) - 1)) if len(times) > 1 else LONE_FRAME_S

    @cached_property
    def grab_s(self) -> float:
        """The distance of two frames while the screen changes, seconds: the 10th percentile.

        The mean would be too long, because a variable rate writes no frames while nothing changes.
        """
        distances = np.diff(self.times)
        return float(np.percentile(distances, 10)) if len(distances) else LONE_FRAME_S

    def frames(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Yields the frames in ascending, disjoint spans, in presentation order.

        Raises:
            DemonstrationError: a frame has another size.
        """
        frames = decode_spans(self.path, self.packets, spans, self.size)
        return _decoded_ahead(frames) if HAS_SPARE_PROCESSOR.get() else frames
