"""Plans frame times and encodes videos. The same frames always give the same MP4 bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

TICKS = 90_000  # time units of the video track per second


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """How the screen is encoded as a video.

    Attributes:
        fps: frame rate in frames per second; approximate if `variable` is set.
        variable: whether frame intervals are irregular and frames are sometimes dropped.
        gop: largest number of frames between key frames.
        b_frames: largest number of consecutive B-frames.
        first_pts: presentation timestamp of the first frame, in 1/90000 s.
        video_start_s: seconds from meta.timestamp to the first frame.
        frame_numbers: whether to draw the frame number into every frame.
    """

    fps: int = 15
    variable: bool = False
    gop: int = 60
    b_frames: int = 0
    first_pts: int = 0
    video_start_s: float = 0.0
    frame_numbers: bool = True
    preset: str = "veryfast"
    tune: str = ""
    crf: int = 27


@dataclass(frozen=True, slots=True)
class Frame:
    """A planned frame. `pts` is in 1/90000 s, and `wall_ms` in epoch milliseconds."""

    number: int
    pts: int
    wall_ms: float


def frame_schedule(
    options: VideoOptions, start_ms: int, end_ms: int, seed: int = 0
) -> Iterator[Frame]:
    """Yields the frames of a video, from `video_start_s` after `start_ms` to `end_ms`.

    There is at least one frame.
    """
    first_ms = start_ms + options.video_start_s * 1000
    random = Random(f"frames {seed}")
    even = TICKS // options.fps
    number = 0
    ticks = 0
    while number == 0 or first_ms + ticks * 1000 / TICKS <= end_ms:
        yield Frame(number, options.first_pts + ticks, first_ms + ticks * 1000 / TICKS)
        number += 1
        ticks += _irregular(random, even) if options.variable else even


def _irregular(random: Random, even: int) -> int:
    """Returns a frame interval of 0.5 to 1.6 times `even`, but 4 to 7 times for one in forty."""
    part = random.uniform(4.0, 7.0) if random.random() < 0.025 else random.uniform(0.5, 1.6)
    return max(90, round(even * part / 90) * 90)  # a whole number of milliseconds


def encode(
    path: Path,
    pictures: Iterable[tuple[int, NDArray[np.uint8]]],
    size: tuple[int, int],
    options: VideoOptions,
) -> None:
    """Encodes pictures, which are pairs of a pts and planar YUV 4:2:0 of shape (H * 3 / 2, W).

    Width and height must be even. The encoder uses one thread and writes no dates, so that the
    same version of the library writes the same bytes.
    """
    container = {"video_track_timescale": str(TICKS), "fflags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options=container) as output:
        stream: Any = output.add_stream("libx264", rate=options.fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, TICKS)
        stream.codec_context.gop_size = options.gop
        stream.codec_context.max_b_frames = options.b_frames
        stream.options = _x264(options)
        for pts, planes in pictures:
            frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            frame.pts = pts
            frame.time_base = Fraction(1, TICKS)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


def _x264(options: VideoOptions) -> dict[str, str]:
    x264 = f"threads=1:lookahead-threads=1:bframes={options.b_frames}:keyint={options.gop}"
    chosen = {"preset": options.preset, "crf": str(options.crf), "x264-params": x264}
    if options.tune:
        chosen["tune"] = options.tune
    return chosen
