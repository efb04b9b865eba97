"""Reading the video of a recording forwards: its frames in presentation order, and their pixels.

Belongs here: seeking over gaps, skipping frames that no other refers to, leaving out damage, and
FFmpeg's scaler in a filter graph, which keeps the memory of its pictures: a picture that is
converted by itself takes 6 MB from the system each time, and the page faults of one take three
times as long as its colours. Which frames are wanted is in frame_requests.py, what their
differences mean in changes.py.
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

SAMPLE_STEP = 4  # pixels from one luma sample to the next, both ways
_BLACK_LEVEL = 24  # of 255; black is encoded as 16 or 0, a pointer on a black screen has 100
HALF = 2  # pixels of which each sample of `Frame.halved` is the mean, both ways
TIME_TOLERANCE_S = 1e-9  # seconds; less than any PTS unit: rounding of a time
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

    @cached_property
    def luma(self) -> Luma:
        """(rows, columns) uint8: every 4th row and column of the luma; computed once."""
        return self.samples(SAMPLE_STEP)

    @cached_property
    def is_black(self) -> bool:
        """Whether nothing of the screen is shown: recorders black out what people keep private."""
        return int(self.luma.max()) <= _BLACK_LEVEL

    @property
    def whole(self) -> Luma:
        """(rows, columns) uint8: a copy of the luma."""
        return upright(self._inside.copy(), rotation(self.picture))

    @cached_property
    def halved(self) -> Luma:
        """(rows, columns) uint8: the luma at half size; each sample the mean of 2 x 2 pixels."""
        rows, columns = self._inside.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        halved = cv2.resize(self._inside, size, interpolation=cv2.INTER_AREA)
        return upright(halved, rotation(self.picture))

    @cached_property
    def quartered(self) -> Luma:
        """(rows, columns) uint8: the luma at a quarter of the size; means of 4 x 4 pixels."""
        rows, columns = self.halved.shape
        size = (max(1, columns // HALF), max(1, rows // HALF))
        return np.asarray(cv2.resize(self.halved, size, interpolation=cv2.INTER_AREA), np.uint8)

    def samples(self, down: int) -> Luma:
        """(rows, columns) uint8: every `down`-th row and every 4th column of the luma."""
        picture = self._planar
        turned = rotation(self.picture)
        rows = plane_rows(picture.planes[0])[: picture.height]
        if not turned and rows.shape[1] % SAMPLE_STEP == 0:
            # The low byte of four: narrowing integers is twice as fast as a copy with a stride.
            fours = rows.view(f"<u{SAMPLE_STEP}")
            return fours[::down, : -(-picture.width // SAMPLE_STEP)].astype(np.uint8)
        # The steps are those of the upright picture.
        steps = (SAMPLE_STEP, down) if turned % 180 else (down, SAMPLE_STEP)
        return upright(rows[:: steps[0], : picture.width : steps[1]].copy(), turned)

    @property
    def _inside(self) -> Luma:
        """(rows, columns) of the luma as it lies in memory; not a copy."""
        picture = self._planar
        return plane_rows(picture.planes[0])[: picture.height, : picture.width]

    @property
    def _planar(self) -> Any:
        """The picture, or a grey one, so that the first plane is the luma."""
        picture = self.picture
        return picture if picture.format.name in PLANAR else picture.reformat(format="gray")


def plane_rows(plane: Any) -> Luma:
    """(rows, bytes) of a plane of a picture, with what follows each row in memory; not a copy."""
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)


def rotation(picture: Any) -> int:
    """Degrees counter-clockwise by which a player turns the picture, a multiple of 90."""
    return int(getattr(picture, "rotation", 0) or 0) % 360


def upright(pixels: Luma, degrees: int) -> Luma:
    """An array turned as a player turns the picture."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels


_TIME_BASE = "1/1000"  # the graph asks for one; times pass it unread


class RgbConverter:
    """Converts frames; those of another size or other colours than the one before take longer."""

    def __init__(self) -> None:
        self._form: tuple[Any, ...] = ()
        self._graph: Any = None

    def rgb(self, frame: Frame) -> Luma:
        """(height, width, 3) uint8, upright, read-only; let go of it before the next one."""
        return upright(self.of_picture(frame.picture), rotation(frame.picture))

    def of_picture(self, source: Any) -> Luma:
        """As `rgb`, of a picture that is not of a video; as it lies in memory."""
        colours = (int(source.colorspace), int(source.color_range))
        result = "rgb48le" if is_hdr(source) else "rgb24"
        form = (source.width, source.height, source.format.name, *colours, result)
        if form != self._form:
            self._form, self._graph = form, _graph(*form)
        self._graph.push(source)
        picture = self._graph.pull()
        if is_hdr(source):
            rows = plane_rows(picture.planes[0])[: picture.height, : picture.width * 6]
            codes = rows.reshape(picture.height, -1, 6).view("<u2")
            return tone_mapped(codes, source)
        inside = plane_rows(picture.planes[0])[: picture.height, : picture.width * 3]
        return inside.reshape(*inside.shape[:1], -1, 3)


def rgb_of(frame: Frame) -> Luma:
    """One frame, in memory of its own; as `RgbConverter.rgb`."""
    return RgbConverter().rgb(frame)


def _graph(  # noqa: PLR0917 - of a picture
    width: int, height: int, pixels: str, colours: int, levels: int, result: str
) -> Any:
    """From pictures of one form to another; the scaler is set as for `VideoFrame.reformat`."""
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
    for one, following in pairwise(chain):
        one.link_to(following)
    graph.configure()
    return graph


_B = int(PictureType.B)
PtsRange = tuple[int, int]
"""First and last PTS of frames, both included."""


def decode_spans(
    path: Path,
    packets: VideoPackets,
    spans: Sequence[Span],
    size: tuple[int, int] | None = None,
) -> Iterator[Frame]:
    """Frames whose PTS are in `spans` (ascending, disjoint), in presentation order.

    Seeks only over gaps that contain a key frame; in other gaps, frames that no other frame refers
    to are not decoded. Frames that do not decode, or that the decoder made up to conceal damage,
    are left out without an error: callers compare the frames with `packets`, which has their times.
    `size` is the width and height that every frame must have, in pixels before rotation.

    Raises:
        DemonstrationError: a frame has another size; it was not converted.
    """
    limit = {} if size is None else {"max_pixels": most_pixels(size)}
    wanted = list(_stretches(packets, spans))
    with open_video(path, **limit) as (container, stream):
        yield from _ForwardReader(container, stream, packets, wanted, size).frames()


def _stretches(packets: VideoPackets, spans: Sequence[Span]) -> Iterator[PtsRange]:
    """The first and last PTS in each span that holds a frame, whatever the rounding of its ends."""
    for span in spans:
        bounds = (span.start - TIME_TOLERANCE_S, span.end + TIME_TOLERANCE_S)
        inside = packets.pts[slice(*np.searchsorted(packets.times, bounds))]
        if len(inside):
            yield int(inside[0]), int(inside[-1])


class _ForwardReader:
    """A video that is read forwards, one of the `wanted` stretches after the other.

    Between them, frames that no other frame refers to are not decoded. It holds no frame: the
    decoder and its frames would else keep each other.
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
        self._edges = [edge for first, last in wanted for edge in (first, last + 1)]
        self._low = math.inf
        self._high = -math.inf

    def frames(self) -> Iterator[Frame]:
        """Frames of the stretches, in presentation order."""
        base = float(self._packets.time_base)
        position = -math.inf
        pictures: Iterator[Any] = iter(())
        ahead = None
        for first, last in self._wanted:
            key = _key_before(self._packets, first)
            if key > position:
                pictures = _intact(self._decoded(key))
                ahead = None
            while picture := ahead or next(pictures, None):
                ahead = picture if picture.pts > last else None
                if ahead is not None:
                    break
                if picture.pts > position:
                    position = picture.pts
                    if position >= first:
                        yield Frame(position, position * base, picture)
                if picture.pts == last:
                    break

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


def _key_before(packets: VideoPackets, pts: int) -> int:
    """PTS of the last key frame no later than `pts`; of the first one when there is none."""
    position = int(np.searchsorted(packets.key_pts, pts, side="right"))
    return int(packets.key_pts[max(0, position - 1)])


def number_at(times: Floats, time: float) -> int:
    """Number of the frame shown at a time, the last one no later; -1 before the first.

    `times`: of the video's frames, ascending seconds.
    """
    return int(times.searchsorted(time + TIME_TOLERANCE_S, "right")) - 1


HAS_SPARE_PROCESSOR = ContextVar("another processor is free for decoding", default=False)
_FRAMES_AHEAD = 4  # of 3 MB in 1080p


def _decoded_ahead(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The same frames, of which a thread decodes some while those before them are looked at."""
    with ThreadPoolExecutor(1) as thread:
        due = deque(thread.submit(next, frames, None) for _ in range(_FRAMES_AHEAD))
        while frame := due.popleft().result():
            due.append(thread.submit(next, frames, None))
            yield frame


LONE_FRAME_S = 0.1  # seconds; taken as the distance of two frames in a video with a single one


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
        frames = decode_spans(self.path, self.packets, spans, self.size)
        return _decoded_ahead(frames) if HAS_SPARE_PROCESSOR.get() else frames
