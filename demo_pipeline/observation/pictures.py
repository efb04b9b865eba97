"""Frames as numbers: decoding in presentation order, a sparse luma for comparing, RGB for keeping.

Belongs here: what touches decoded frames. Not here: which frames are wanted (plan.py), what their
differences mean (clock.py, change.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from demo_pipeline.recording.video import PacketScan, open_video

ROW_STEP = 2
COLUMN_STEP = 4
_PLANAR = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuvj444p", "nv12", "gray"})

Luma = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Span:
    """A stretch of video time, seconds, both ends wanted."""

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
        """Encoded without reference to other frames."""
        return bool(self.picture.key_frame)

    def luma(self) -> Luma:
        """Every 2nd row and every 4th column of the brightness, (rows, columns) uint8."""
        picture = self.picture
        if picture.format.name not in _PLANAR:
            picture = picture.reformat(format="gray")
        plane = picture.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        turned = rotation(self.picture)
        down, across = ROW_STEP, COLUMN_STEP
        if turned % 180:  # the steps are those of the upright picture
            down, across = across, down
        return upright(rows[: picture.height : down, : picture.width : across].copy(), turned)

    def rgb(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(height, width, 3), upright."""
        return upright(self.picture.to_ndarray(format="rgb24"), rotation(self.picture))


def rotation(picture: Any) -> int:
    """Degrees counter-clockwise that a player turns the picture, a multiple of 90."""
    return int(getattr(picture, "rotation", 0) or 0) % 360


def upright(
    pixels: np.ndarray[Any, np.dtype[np.uint8]], degrees: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Turn an array as a player would."""
    return np.ascontiguousarray(np.rot90(pixels, degrees // 90)) if degrees else pixels


def decode_spans(path: Path, scan: PacketScan, spans: Sequence[Span]) -> Iterator[Frame]:
    """Frames whose PTS lie in `spans` (ascending, disjoint), in presentation order.

    Seeks only over gaps that hold a key frame. Ends early, without an error, where the decoder
    does: callers compare what came with `scan`.
    """
    with open_video(path) as (container, stream):
        position: int | None = None
        frames: Iterator[Any] | None = None
        for span in spans:
            start = _key_before(scan, span.start)
            if frames is None or position is None or start > position:
                try:
                    container.seek(start, stream=stream)
                except av.error.FFmpegError:
                    continue
                frames = container.decode(stream)
            last = _last_pts_in(scan, span)
            if last is None or (position is not None and position >= last):
                continue
            for frame in _until(frames, span, scan, last):
                position = frame.pts
                yield frame


def _until(frames: Iterator[Any], span: Span, scan: PacketScan, last: int) -> Iterator[Frame]:
    base = float(scan.time_base)
    while True:
        try:
            picture = next(frames, None)
        except av.error.FFmpegError:
            return
        if picture is None:
            return
        if picture.pts is None:
            continue
        time = picture.pts * base
        if span.start - 1e-9 <= time <= span.end + 1e-9:
            yield Frame(picture.pts, time, picture)
        if picture.pts >= last:
            return


def _last_pts_in(scan: PacketScan, span: Span) -> int | None:
    """The last frame of a span; None when it holds none."""
    position = int(np.searchsorted(scan.times, span.end + 1e-9, side="right")) - 1
    if position < 0 or scan.times[position] < span.start - 1e-9:
        return None
    return int(scan.pts[position])


def _key_before(scan: PacketScan, time: float) -> int:
    """PTS of the last key frame no later than `time`, of the first one before them all."""
    keys = scan.key_pts * float(scan.time_base)
    position = int(np.searchsorted(keys, time + 1e-9, side="right"))
    return int(scan.key_pts[max(0, position - 1)])
