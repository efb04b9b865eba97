"""The observer that notices when the pointer is no longer where the log has it.

Belongs here: the suspicion that the screen was given another resolution or scale in mid-recording,
from frames that are decoded anyway. Whether it was is decided in calibration/screen_search.py.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.frames.changed_cells import CHANGED_LEVELS, changed_cells
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.pointer_path import Point
from demo_pipeline.observation.frames.video_frames import Frame, Span
from demo_pipeline.observation.frames.video_pointer import VideoPointer

SUSPICIOUS_MISSES = 5  # moves in a row without a change where the log has the pointer


class PointerWitness:
    """Compares, for each move of the pointer between two frames, the places it was logged at.

    A move counts as missed when no such place changed, but another one did: grabbers stall, and
    then write the same picture again.

    Args:
        pointer: its path, as the calibration maps it to the video.
        canvas: of the whole recording, so far as is known.
        seen_before: whether the video showed the pointer there when it was calibrated; if not, its
            absence proves nothing.
    """

    spans: Sequence[Span] = ()

    def __init__(self, pointer: VideoPointer, canvas: Canvas, *, seen_before: bool) -> None:
        self._pointer = pointer
        self._canvas = canvas
        self._enabled = seen_before
        self._misses = 0
        self._suspicious = False

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
        before, frame = diff.before, diff.frame
        size = self._canvas.video_width, self._canvas.video_height
        if frame.size != size:
            self._suspicious = True
        if self._suspicious or not self._enabled or before is None or before.size != size:
            return
        moved = self._pointer.moves_around(before.time, frame.time)
        if not moved or not diff.is_next:
            return
        if not all(self._canvas.on_screen(*point) for point in moved):
            return  # on another display, for all that is known
        if any(_changed(before, frame, self._canvas.to_video(*point)) for point in moved):
            self._misses = 0
        elif changed_cells(before.luma, frame.luma).any():
            self._misses += 1
            self._suspicious = self._misses >= SUSPICIOUS_MISSES

    def result(self) -> bool:
        """Whether the screen may have another resolution or scale from some time on."""
        return self._suspicious


def _changed(before: Frame, frame: Frame, point: Point) -> bool:
    """Whether the picture changed around a point in video pixels."""
    first, second = before.patch(point), frame.patch(point)
    if first.shape != second.shape or not first.size:
        return True
    return bool(np.max(cv2.absdiff(first, second)) > CHANGED_LEVELS)
