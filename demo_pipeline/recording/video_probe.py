"""Opens untrusted videos safely, probes them, and reads the times of their frames.

observation/frames/ decodes the frames that steps need.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.files.system_errors import raise_disk_trouble
from demo_pipeline.problems import DemonstrationError, Problem, Severity, warning
from demo_pipeline.settings import RecordingSettings

# The frame rate is variable if intervals between frames differ by more than one PTS unit. PTS are
# rounded to integers, so the intervals of a constant frame rate can differ by 1.
_ROUNDING_PTS = 1
_MAX_PIXELS = RecordingSettings.max_video_pixels
_MIN_SIDE = 64  # pixels; a smaller video cannot show a screen
_MAX_SECONDS = RecordingSettings.max_video_seconds
# Maps the first bytes of a file to the demuxer. Other files are read as MP4 or MOV, which have no
# fixed first bytes.
_CONTAINERS = {b"\x1a\x45\xdf\xa3": "matroska", b"FLV\x01": "flv"}
_RE_RECORD = "upload the recording again; if this does not help, record the demonstration again"


class VideoProbe(BaseModel):
    """Properties of recording.mp4, read from all packets and from the first decoded frame."""

    model_config = ConfigDict(frozen=True)

    codec: str
    width: int = Field(description="pixels, before the rotation is applied")
    height: int = Field(description="pixels, before the rotation is applied")
    rotation: int = Field(description="degrees counter-clockwise by which players rotate frames")
    pixel_format: str
    frames: int = Field(description="number of frames that a player shows")
    declared_frames: int = Field(
        description="number that the container declares; 0 if it declares none"
    )
    key_frames: int
    time_base: str = Field(description="seconds per unit of a presentation time, as a fraction")
    first_pts_s: float = Field(description="presentation time of the first frame, seconds")
    last_pts_s: float = Field(description="presentation time of the last frame, seconds")
    variable_rate: bool = Field(
        description="whether the intervals between frames, without the last, differ by more than "
        "one unit of `time_base`"
    )
    mean_fps: float


@dataclass(frozen=True)
class VideoPackets:
    """The presentation times and packet sizes of a video's frames.

    Attributes:
        pts: (frames,) int64, strictly ascending presentation times in units of `time_base`.
        key_pts: (key frames,) int64, ascending presentation times of key frames, at which decoding
            can start. The first key frame may precede all of `pts`, because an edit list can hide
            frames.
        time_base: seconds per unit of `pts`.
        hidden: number of frames that an edit list hides.
        change_bytes: (frames,) int64, the size of each frame's packet in bytes, or 0 for key
            frames, whose size does not show whether the screen changed. None if unknown.
    """

    pts: np.ndarray[Any, np.dtype[np.int64]]
    key_pts: np.ndarray[Any, np.dtype[np.int64]]
    time_base: Fraction
    hidden: int = 0
    change_bytes: np.ndarray[Any, np.dtype[np.int64]] | None = None

    @property
    def times(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(frames,) presentation times in seconds."""
        return self.pts.astype(np.float64) * float(self.time_base)


@contextmanager
def open_video(path: Path, max_pixels: int = _MAX_PIXELS) -> Iterator[tuple[Any, Any]]:
    """Yields the container and the first video stream of a file, for decoding in a single thread.

    The file may be malicious. The demuxer is chosen by the first bytes and external references are
    disabled, so that a disguised playlist cannot read other files. A file of a few kB can decode to
    gigabytes of pixels, even if its header declares a small frame. Therefore, the decoder rejects
    frames of more than `max_pixels` before it allocates memory.

    Raises:
        DemonstrationError: the file cannot be opened or has no video.
    """
    kind = "mp4"
    options = {"protocol_whitelist": "file"}
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
        kind = _CONTAINERS.get(beginning, kind)
        if kind == "mp4":
            options |= {"enable_drefs": "0"}
        container = av.open(str(path), format=kind, options=options)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise_disk_trouble(error, path)
        if isinstance(error, av.error.EOFError):
            raise _unreadable("contains no frame: it ends after its header") from None
        name = kind.upper()
        if kind == "matroska":
            name = "Matroska"
        raise _unreadable(f"cannot be opened as {name}: {_reason(error)}") from None
    with container:
        if not container.streams.video:
            raise _unreadable("contains no video stream, and so no frame")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise _unreadable("its video codec is not supported by this installation")
        stream.thread_type = "NONE"
        stream.codec_context.options = {"max_pixels": str(max_pixels)}
        yield container, stream


def read_packets(path: Path) -> VideoPackets:
    """Reads the presentation time and the size of every packet, without decoding.

    Raises:
        DemonstrationError: the video has no frame.
    """
    presented: list[int] = []
    sizes: list[int] = []
    keys: list[int] = []
    hidden = 0
    with open_video(path) as (container, stream):
        time_base = Fraction(stream.time_base)
        try:
            for packet in container.demux(stream):
                if packet.pts is None or not packet.size:
                    continue
                if packet.is_keyframe:
                    keys.append(packet.pts)
                if packet.is_discard:
                    hidden += 1
                else:
                    presented.append(packet.pts)
                    sizes.append(0 if packet.is_keyframe else packet.size)
        except av.error.FFmpegError as error:
            raise_disk_trouble(error, path)
            if not presented:
                raise _unreadable(f"no frame can be read: {_reason(error)}") from None
    if not presented or not keys or min(keys) > max(presented):
        raise _unreadable("contains no frame")
    pts, places = np.unique(np.array(presented, np.int64), return_index=True)
    key_pts = np.unique(np.array(keys, np.int64))
    change_bytes = np.array(sizes, np.int64)[places]
    return VideoPackets(pts, key_pts[key_pts <= pts[-1]], time_base, hidden, change_bytes)


def probe_video(path: Path) -> tuple[VideoProbe, list[Problem]]:
    """Probes a video: reads all packets, and decodes the first frame and the last group of frames.

    Returns:
        The probe, and warnings.

    Raises:
        DemonstrationError: the first frame cannot be decoded, frames differ in size, the video is
            too long, or its frames are too large or too small.
    """
    with open_video(path) as (_, stream):
        size = (stream.codec_context.width, stream.codec_context.height)
        declared = stream.frames
    _check_size(*size)
    packets = read_packets(path)
    times = packets.times
    if times[-1] - times[0] > _MAX_SECONDS:
        raise _unreadable(f"is longer than {_MAX_SECONDS:g} s")
    first, problems = _decode_ends(path, packets)
    contained = len(packets.pts) + packets.hidden
    if declared and declared != contained:
        message = f"declares {declared} frames, contains {contained}"
        problems.append(warning("frames_missing", VIDEO_FILE, message))
    return _described(path, packets, first), problems


def describe_video(path: Path) -> VideoProbe:
    """Probes a video that `probe_video` has already accepted. Does not decode its end again."""
    with open_video(path) as (container, stream):
        return _described(path, read_packets(path), next(container.decode(stream)))


def _described(path: Path, packets: VideoPackets, first: Any) -> VideoProbe:
    """Returns the probe of a video, given its packets and its first frame."""
    with open_video(path) as (_, stream):
        codec = stream.codec_context.name
        declared = stream.frames
    times = packets.times
    intervals = np.diff(packets.pts)
    duration = float(times[-1] - times[0])
    return VideoProbe(
        codec=codec,
        width=first.width,
        height=first.height,
        rotation=int(getattr(first, "rotation", 0)),
        pixel_format=first.format.name,
        frames=len(packets.pts),
        declared_frames=declared,
        key_frames=len(packets.key_pts),
        time_base=str(packets.time_base),
        first_pts_s=float(times[0]),
        last_pts_s=float(times[-1]),
        variable_rate=bool(intervals[:-1].size and np.ptp(intervals[:-1]) > _ROUNDING_PTS),
        mean_fps=round((len(times) - 1) / duration, 3) if duration > 0 else 0.0,
    )


def _decode_ends(path: Path, packets: VideoPackets) -> tuple[Any, list[Problem]]:
    """Returns the first frame, and a warning if the last group of frames cannot be decoded."""
    with open_video(path) as (container, stream):
        try:
            first = next(iter(container.decode(stream)), None)
        except av.error.FFmpegError as error:
            raise_disk_trouble(error, path)
            refuse_large_frame(stream, error, 0)
            raise _unreadable(f"the first frame cannot be decoded: {_reason(error)}") from None
        if first is None:
            raise _unreadable("the first frame cannot be decoded")
        _check_size(first.width, first.height)
    reached = _last_decoded(path, packets, (first.width, first.height))
    if reached == packets.pts[-1]:
        return first, []
    last = len(packets.pts) - 1
    frame = int(np.searchsorted(packets.pts, reached)) if reached is not None else last
    message = f"the last frames cannot be decoded: decoding ends before frame {last}"
    return first, [
        Problem("video_damaged", VIDEO_FILE, message, frame=frame, severity=Severity.WARNING)
    ]


def _last_decoded(path: Path, packets: VideoPackets, size: tuple[int, int]) -> int | None:
    """Returns the PTS of the last frame that can be decoded after the last key frame, or None."""
    last: int | None = None
    with open_video(path, most_pixels(size)) as (container, stream):
        try:
            container.seek(int(packets.key_pts[-1]), stream=stream)
            for frame in container.decode(stream):
                require_size(frame, size, packets)
                last = frame.pts if last is None else max(last, frame.pts)
        except av.error.FFmpegError as error:
            raise_disk_trouble(error, path)
            refuse_large_frame(stream, error, _number(packets, last) + 1 if last is not None else 0)
            return last
    return last


def require_size(picture: Any, size: tuple[int, int], packets: VideoPackets) -> None:
    """Rejects a decoded frame whose size differs from the first frame's size.

    Args:
        size: width and height of the first frame, pixels.
        packets: packets of the video, used to find the frame's number.

    Raises:
        DemonstrationError: the size differs; states the frame's number.
    """
    width = picture.width
    height = picture.height
    if (width, height) != size:
        raise _wrong_size(f"is {width}×{height} pixels", size, _number(packets, picture.pts))  # noqa: RUF001


def refuse_large_frame(stream: Any, error: Exception, frame: int) -> None:
    """Raises a `DemonstrationError` if the decoder failed because the frame is too large.

    FFmpeg reports such a frame as an invalid argument, or as invalid data after setting the size of
    the codec context to the frame's size.

    Args:
        frame: number of the frame, for the message.

    Raises:
        DemonstrationError: the frame is too large.
    """
    context = stream.codec_context
    limit = int(context.options.get("max_pixels", _MAX_PIXELS))
    if isinstance(error, av.error.ArgumentError) or context.width * context.height > limit:
        raise _wrong_size("is larger than is accepted", None, frame) from None


def most_pixels(size: tuple[int, int]) -> int:
    """Returns the smallest safe `max_pixels` for frames of this size, including codec padding."""
    return 2 * (size[0] + 64) * (size[1] + 64)


def _wrong_size(message: str, size: tuple[int, int] | None, frame: int) -> DemonstrationError:
    if size is not None:
        message += f", the first is {size[0]}×{size[1]}"  # noqa: RUF001
    remedy = "record the demonstration again without changing the display during the recording"
    return DemonstrationError(
        Problem("frame_size", VIDEO_FILE, message, frame=frame, remedy=remedy)
    )


def _number(packets: VideoPackets, pts: int | None) -> int:
    """Returns the number of the frame with this presentation time, or 0 if the time is None."""
    if pts is None:
        return 0
    return int(np.searchsorted(packets.pts, pts))


def _check_size(width: int, height: int) -> None:
    if width * height > _MAX_PIXELS or min(width, height) < _MIN_SIDE:
        raise _unreadable(
            f"frames of {width}×{height} pixels are not accepted: at most "  # noqa: RUF001
            f"{_MAX_PIXELS} pixels, and no side below {_MIN_SIDE}"
        )


def _unreadable(message: str) -> DemonstrationError:
    return DemonstrationError(Problem("video_unreadable", VIDEO_FILE, message, remedy=_RE_RECORD))


def _reason(error: Exception) -> str:
    """Returns the reason of a library's error, without the file path that its text contains."""
    return str(getattr(error, "strerror", "") or type(error).__name__)
