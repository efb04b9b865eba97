"""Frames of a recording's video by time, decoded in one pass, and what differs between them."""

from collections.abc import Iterable
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.truth.truth_list import Box

GreyFrame = npt.NDArray[np.uint8]
_CHANGED_GREY = 40  # of 255: well above what the encoder changes in a screen at rest
_WINDOW = 16  # pixels
_CHANGED_PIXELS = 40  # of a window; a blinking text cursor has at most 34 in it
_SAME_SHARE = 0.02  # of a widget's pixels that may differ: a text cursor, the encoder's noise
_POINTER_BEFORE = 20  # pixels around the pointer's tip that its picture may cover
_POINTER_AFTER = 40


class VideoFrames:
    """Grey frames for wanted times, in milliseconds of the log's clock.

    Times are announced by `want`; the first `frame` decodes the video once.
    """

    def __init__(self, path: Path, start_ms: float) -> None:
        self._path = path
        self._start_ms = start_ms
        self._wanted: set[int] = set()
        self._frames: dict[int, GreyFrame] | None = None
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            packets = container.demux(stream)
            times = [
                float(packet.pts * stream.time_base) for packet in packets if packet.pts is not None
            ]
        self._times = np.array(sorted(times))

    def want(self, times_ms: Iterable[float]) -> None:
        """Announces times whose frames will be asked for."""
        self._wanted.update(self._index(time_ms) for time_ms in times_ms)

    def frame(self, time_ms: float) -> GreyFrame | None:
        """The frame that was shown at a time; None before the first one."""
        if self._frames is None:
            self._frames = self._decode()
        return self._frames.get(self._index(time_ms))

    def _index(self, time_ms: float) -> int:
        seconds = (time_ms - self._start_ms) / 1000
        return int(np.searchsorted(self._times, seconds + 1e-6, side="right")) - 1

    def _decode(self) -> dict[int, GreyFrame]:
        frames = {}
        with av.open(str(self._path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for index, frame in enumerate(container.decode(stream)):
                if index in self._wanted:
                    frames[index] = frame.to_ndarray(format="gray")
        return frames


def has_changed(before: GreyFrame, after: GreyFrame) -> bool:
    """Whether the screen differs; the pointer must be at the same place in both."""
    changed = (cv2.absdiff(before, after) > _CHANGED_GREY).astype(np.float32)
    counts = cv2.boxFilter(changed, -1, (_WINDOW, _WINDOW), normalize=False)
    return bool(counts.max() >= _CHANGED_PIXELS)


def is_same_at(
    first: GreyFrame, second: GreyFrame, box: Box, pointers: Iterable[tuple[float, float]]
) -> bool:
    """Whether a widget looks the same in two frames; `box` and `pointers` in video pixels."""
    changed = cv2.absdiff(first, second) > _CHANGED_GREY
    for x, y in pointers:
        top = max(0, int(y) - _POINTER_BEFORE)
        left = max(0, int(x) - _POINTER_BEFORE)
        changed[top : int(y) + _POINTER_AFTER, left : int(x) + _POINTER_AFTER] = False
    top = max(0, int(box.y))
    left = max(0, int(box.x))
    part = changed[top : int(box.y + box.height), left : int(box.x + box.width)]
    return bool(part.size) and float(part.mean()) <= _SAME_SHARE
