"""The video of another tool as recording.mp4: packets copied, never encoded again.

Videos are untrusted and come in any container; parts of one are joined. Sound and subtitles are
left out. Frames keep their times, unless the recording says when they were taken.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np

from demo_pipeline.files.image_files import Pixels
from demo_pipeline.files.system_errors import raise_disk_trouble
from demo_pipeline.importers.source_recording import UnreadableSourceError, VideoPart

# Codecs that MP4 holds, and that browsers, FFmpeg and the review page show.
_SOUND_CODECS = frozenset({"h264", "hevc", "av1", "vp9", "mpeg4"})
_OPTIONS = {
    # Else a playlist with the name of a video could read any file.
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,mpegts",
    "protocol_whitelist": "file",
    "enable_drefs": "0",
}
_FIRST_OTHER_UNIT = 32  # of HEVC: from here on units are no slices
_BEGINNINGS = range(16, 24)  # of HEVC: slices that need no earlier frame
_TIME_BASE = Fraction(1, 90_000)  # seconds; MPEG's own
_ROUNDING_S = 0.0015  # Matroska has whole milliseconds


class VideoFacts(NamedTuple):
    """Of a written video: pixels, time of the first picture and of the last, seconds, codec."""

    width: int
    height: int
    first_s: float
    last_s: float
    codec: str


def video_shape(path: Path) -> tuple[int, int, float]:
    """Width and height in pixels, and the seconds that the file says it has, 0 if it does not.

    Raises `UnreadableSourceError`.
    """
    with _opened(path) as (container, stream):
        context = stream.codec_context
        length = (container.duration or 0) / av.time_base
        return context.width, context.height, float(length)


def first_frame(path: Path) -> Pixels:
    """The first frame of a video, as RGB of shape (height, width, 3).

    Raises ValueError with the reason if no frame can be decoded.
    """
    try:
        with _opened(path) as (container, stream):
            for frame in container.decode(stream):
                return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    except UnreadableSourceError as error:
        raise ValueError(str(error).removeprefix(f"{path}: ")) from None
    except av.error.FFmpegError as error:
        raise_disk_trouble(error, path)
    raise ValueError("the video has no frame that can be decoded")


def copy_video(parts: Sequence[VideoPart], out: Path) -> VideoFacts:
    """Write the parts as one MP4 file; return what it holds.

    Raises:
        UnreadableSourceError: a part cannot be read, or does not continue the one before it.
    """
    with av.open(str(out), "w", format="mp4") as target, _opened(parts[0].path) as (_, first):
        size = (first.codec_context.width, first.codec_context.height)
        codec = first.codec_context.name
        copied = target.add_stream_from_template(first)
        copied.time_base = _TIME_BASE
        first_s = inf
        last_s = -inf
        for part in parts:
            with _opened(part.path) as (container, stream):
                _require_same(part.path, stream, first)
                for packet in _placed(container, stream, part):
                    packet.stream = copied
                    seconds = float(packet.pts * packet.time_base)
                    if seconds >= 0:  # players hide earlier frames
                        first_s = min(first_s, seconds)
                        last_s = max(last_s, seconds)
                    _write(target, packet, part.path)
    if last_s < first_s:
        raise UnreadableSourceError(f"{parts[0].path}: the video has no frame")
    return VideoFacts(*size, first_s, last_s, codec)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield (container, its first video), which MP4 can hold."""
    try:
        container = av.open(str(path), options=_OPTIONS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise_disk_trouble(error, path)
        reason = getattr(error, "strerror", "") or type(error).__name__
        raise UnreadableSourceError(f"{path}: the video cannot be opened: {reason}") from None
    with container:
        if not container.streams.video:
            raise UnreadableSourceError(f"{path}: holds no video")
        stream = container.streams.video[0]
        context = stream.codec_context
        codec = context.name if context is not None else "unknown"
        if codec not in _SOUND_CODECS:
            raise UnreadableSourceError(
                f"{path}: the video's codec is {codec}, which MP4 cannot hold; convert it first: "
                f"ffmpeg -i VIDEO -c:v libx264 -crf 18 -fps_mode passthrough NEW.mp4"
            )
        if not (context.width and context.height):
            raise UnreadableSourceError(f"{path}: the video has no size: its beginning is damaged")
        yield container, stream


def _require_same(path: Path, stream: Any, first: Any) -> None:
    """Refuse a part that cannot follow the first one in one video."""
    mine = stream.codec_context
    others = first.codec_context
    same_codec = (mine.name, mine.extradata) == (others.name, others.extradata)
    if (mine.width, mine.height) != (others.width, others.height) or not same_codec:
        raise UnreadableSourceError(
            f"{path}: {mine.name} {mine.width}x{mine.height} cannot continue the video before it, "
            f"{others.name} {others.width}x{others.height}; import the parts one by one"
        )


def _write(target: Any, packet: Any, path: Path) -> None:
    try:
        target.mux(packet)
    except av.error.ArgumentError:  # times that do not rise
        message = "its times go back, or begin before the video before it ends"
        raise UnreadableSourceError(f"{path}: the video cannot be copied: {message}") from None


def _placed(container: Any, stream: Any, part: VideoPart) -> Iterator[Any]:
    """Yield the packets of a part with their times in the whole, up to where it is damaged.

    A trimmed video begins with packets that are no pictures but that later ones refer to. They get
    times below 0, for which the copy has an edit list as well. Packets behind the end are left out,
    but for those that pictures refer to.
    """
    times = _TakenTimes(part.times_s)
    last = None
    is_seconds = False
    behind: list[Any] = []
    try:
        for packet in container.demux(stream):
            if packet.pts is None or not packet.size:
                continue
            seconds = float(packet.pts * packet.time_base)
            ahead = 0 if packet.dts is None else float((packet.pts - packet.dts) * packet.time_base)
            placed = times.of(seconds) + part.begins_s
            if not packet.is_discard:
                placed = max(placed, part.begins_s)
            elif placed >= 0 and not is_seconds:
                raise UnreadableSourceError(
                    f"{part.path}: the video is trimmed, and does not begin the recording; write "
                    f"it again first: ffmpeg -i VIDEO -c:v libx264 -crf 18 -fps_mode passthrough "
                    f"NEW.mp4"
                )
            packet.pts, packet.dts = (round(t / _TIME_BASE) for t in (placed, placed - ahead))
            packet.time_base = _TIME_BASE
            if last is not None and packet.dts <= last:
                continue  # a packet twice: MP4 cannot hold it
            last = packet.dts
            if packet.is_keyframe and _continues(stream, packet):
                packet.is_keyframe = False  # else players seek to where they cannot begin
            if packet.is_discard and placed >= 0:
                behind.append(packet)
                continue
            is_seconds |= not packet.is_discard
            yield from behind
            behind.clear()
            yield packet
    except av.error.FFmpegError as error:
        raise_disk_trouble(error, part.path)


class _TakenTimes:
    """When pictures were taken, by their seconds in a file; what is between keeps its distance."""

    def __init__(self, taken_by_place: Mapping[float, float]) -> None:
        self._places = sorted(taken_by_place)
        self._taken = [taken_by_place[place] for place in self._places]

    def of(self, place: float) -> float:
        """Seconds at which the picture at `place` in the file was taken."""
        if not self._places:
            return place
        before = max(bisect_right(self._places, place + _ROUNDING_S) - 1, 0)
        taken = self._taken[before] + place - self._places[before]
        if abs(place - self._places[before]) <= _ROUNDING_S:
            taken = self._taken[before]
        if before + 1 < len(self._taken):  # never after the next one
            taken = min(taken, self._taken[before + 1])
        return taken


def _continues(stream: Any, packet: Any) -> bool:
    """Whether a picture needs the ones before it although its packet says that it does not.

    An older ocap marks every picture of its HEVC videos so. Told by the type of the packet's first
    slice (H.265, table 7-1), each unit having its length in four bytes before it.
    """
    if stream.codec_context.name != "hevc":
        return False
    data = memoryview(packet)
    place = 0
    while place + 5 <= len(data):
        kind = data[place + 4] >> 1 & 0x3F
        if kind < _FIRST_OTHER_UNIT:
            return kind not in _BEGINNINGS
        place += 4 + int.from_bytes(data[place : place + 4], "big")
    return False
