"""Writes the video of another tool as recording.mp4, without encoding it again.

Sound and subtitles are left out. Frames keep their times, unless the recording contains capture
times. The files are untrusted.
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
from demo_pipeline.importers.source_recording import VideoPart
from demo_pipeline.importers.source_values import UnreadableSourceError

# Codecs that MP4 can hold and that FFmpeg and browsers can play.
_CODECS = frozenset({"h264", "hevc", "av1", "vp9", "mpeg4"})
_OPTIONS = {
    # Without these options, a playlist or a reference in a video could make FFmpeg read any file.
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,mpegts",
    "protocol_whitelist": "file",
    "enable_drefs": "0",
}
# Types of units in HEVC (H.265, table 7-1).
_FIRST_OTHER_UNIT = 32  # units of type 32 and above are not slices
_KEYFRAME_UNITS = range(16, 24)  # slices that need no earlier frame
_TIME_BASE = Fraction(1, 90_000)  # seconds; the unit of time in MPEG
# Times that differ by at most 1.5 ms count as equal, because Matroska rounds to milliseconds.
_ROUNDING_S = 0.0015


class VideoFacts(NamedTuple):
    """Facts about a written video: size in pixels, times of the first and last frame in seconds."""

    width: int
    height: int
    first_s: float
    last_s: float
    codec: str


def video_shape(path: Path) -> tuple[int, int, float]:
    """Returns width and height in pixels, and the stated duration in seconds.

    The duration is 0 if the file states none. Raises `UnreadableSourceError` if the file contains
    no readable video.
    """
    with _opened(path) as (container, stream):
        context = stream.codec_context
        length = (container.duration or 0) / av.time_base
        return context.width, context.height, float(length)


def first_frame(path: Path) -> Pixels:
    """Decodes the first frame of a video, as RGB of shape (height, width, 3).

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
    """Writes the parts as one MP4 file.

    Raises:
        UnreadableSourceError: a part cannot be read, or cannot continue the part before it.
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
                    if seconds >= 0:  # players do not show frames with times below 0
                        first_s = min(first_s, seconds)
                        last_s = max(last_s, seconds)
                    _write(target, packet, part.path)
    if last_s < first_s:
        raise UnreadableSourceError(f"{parts[0].path}: the video has no frame")
    return VideoFacts(*size, first_s, last_s, codec)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Opens a video whose codec is in `_CODECS`; yields its container and its video stream."""
    try:
        container = av.open(str(path), options=_OPTIONS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise_disk_trouble(error, path)
        reason = getattr(error, "strerror", "") or type(error).__name__
        raise UnreadableSourceError(f"{path}: the video cannot be opened: {reason}") from None
    with container:
        if not container.streams.video:
            raise UnreadableSourceError(f"{path}: has no video")
        stream = container.streams.video[0]
        context = stream.codec_context
        codec = context.name if context is not None else "unknown"
        if codec not in _CODECS:
            raise UnreadableSourceError(
                f"{path}: the video's codec is {codec}, which MP4 cannot hold; convert it first: "
                f"ffmpeg -i VIDEO -c:v libx264 -crf 18 -fps_mode passthrough NEW.mp4"
            )
        if not (context.width and context.height):
            raise UnreadableSourceError(f"{path}: the video has no size: its beginning is damaged")
        yield container, stream


def _require_same(path: Path, stream: Any, first: Any) -> None:
    """Raises `UnreadableSourceError` unless a part has the codec and the size of the first part."""
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
    except av.error.ArgumentError:  # the times of the packets do not increase
        message = "its times go back, or it begins before the end of the part before it"
        raise UnreadableSourceError(f"{path}: the video cannot be copied: {message}") from None


def _placed(container: Any, stream: Any, part: VideoPart) -> Iterator[Any]:
    """Yields the packets of a part with their times in the whole video.

    Damage in the file ends the part. Packets before the start of a trimmed video, which are only
    needed to decode later frames, get times below 0, so that players do not show them. Packets
    after the end of a trimmed video are left out, unless a shown frame follows them.
    """
    times = _CaptureTimes(part.times_s)
    last = None
    has_shown_frame = False
    not_shown: list[Any] = []  # packets that are copied only if a shown frame follows
    try:
        for packet in container.demux(stream):
            if packet.pts is None or not packet.size:
                continue
            seconds = float(packet.pts * packet.time_base)
            ahead = 0 if packet.dts is None else float((packet.pts - packet.dts) * packet.time_base)
            placed = times.captured(seconds) + part.begins_s
            if not packet.is_discard:
                placed = max(placed, part.begins_s)
            elif placed >= 0 and not has_shown_frame:
                raise UnreadableSourceError(
                    f"{part.path}: the start of the video is trimmed, and it is not the first "
                    f"part; encode it again first: "
                    f"ffmpeg -i VIDEO -c:v libx264 -crf 18 -fps_mode passthrough NEW.mp4"
                )
            packet.pts = round(placed / _TIME_BASE)
            packet.dts = round((placed - ahead) / _TIME_BASE)
            packet.time_base = _TIME_BASE
            if last is not None and packet.dts <= last:
                continue  # a repeated packet, which MP4 cannot hold
            last = packet.dts
            if packet.is_keyframe and _needs_earlier_frames(stream, packet):
                packet.is_keyframe = False  # players would seek to it and could not decode it
            if packet.is_discard and placed >= 0:
                not_shown.append(packet)
                continue
            has_shown_frame |= not packet.is_discard
            yield from not_shown
            not_shown.clear()
            yield packet
    except av.error.FFmpegError as error:
        raise_disk_trouble(error, part.path)


class _CaptureTimes:
    """Converts times in a file to capture times, both in seconds.

    A frame without a capture time keeps its distance from the previous frame with a capture time.
    """

    def __init__(self, captured_by_time: Mapping[float, float]) -> None:
        self._times = sorted(captured_by_time)
        self._captured = [captured_by_time[time] for time in self._times]

    def captured(self, time: float) -> float:
        """Returns the capture time of the frame at `time` in the file."""
        if not self._times:
            return time
        before = max(bisect_right(self._times, time + _ROUNDING_S) - 1, 0)
        captured = self._captured[before] + time - self._times[before]
        if abs(time - self._times[before]) <= _ROUNDING_S:
            captured = self._captured[before]
        if before + 1 < len(self._captured):  # at most the capture time of the next frame
            captured = min(captured, self._captured[before + 1])
        return captured


def _needs_earlier_frames(stream: Any, packet: Any) -> bool:
    """Whether a packet that is marked as a keyframe cannot be decoded alone.

    Older versions of ocap mark every packet of a HEVC video as a keyframe; only the type of the
    packet's first slice is reliable. Each unit in a packet begins with its length in four bytes.
    """
    if stream.codec_context.name != "hevc":
        return False
    data = memoryview(packet)
    offset = 0
    while offset + 5 <= len(data):
        kind = data[offset + 4] >> 1 & 0x3F
        if kind < _FIRST_OTHER_UNIT:
            return kind not in _KEYFRAME_UNITS
        offset += 4 + int.from_bytes(data[offset : offset + 4], "big")
    return False
