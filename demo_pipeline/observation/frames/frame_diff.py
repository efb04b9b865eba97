"""What changed from one decoded frame to the next, computed only when it is asked for.

Most frames of a pass need no comparison, or only that of a few rows.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from demo_pipeline.observation.frames.change_detection import (
    SMALL_CELLS,
    ChangeDetector,
    Difference,
    may_be_large,
)
from demo_pipeline.observation.frames.pointer_path import Floats, Point
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame
from demo_pipeline.observation.frames.video_pointer import VideoPointer


@dataclass(frozen=True)
class FrameDiff:
    """A frame and the frame decoded before it.

    Attributes:
        before: the previously decoded frame; None at the beginning.
        frame: the newest frame.
        times: (frames,) times of all frames of the video, ascending seconds.
        detector: compares the two.
        pointer: the pointer in this video.
    """

    before: Frame | None
    frame: Frame
    times: Floats
    detector: ChangeDetector
    pointer: VideoPointer

    @cached_property
    def difference(self) -> Difference | None:
        """What changed; None without a frame before of the same size.

        When frames between the two were not decoded, the pointer at either end does not count.
        """
        before, frame = self.before, self.frame
        if before is None or before.luma.shape != frame.luma.shape:
            return None
        if self.is_next:
            return self.detector.between(before.luma, frame.luma, key_frame=frame.is_key)
        near = self.pointer.positions_near
        pointers = [*near(before.time), *near(frame.time)]
        return self.detector.between_distant(before.luma, frame.luma, pointers)

    @cached_property
    def pointers(self) -> list[Point]:
        """Video pixels at which the pointer may be; empty when nothing changed."""
        difference = self.difference
        changed = difference is None or difference.count >= SMALL_CELLS
        return self.pointer.positions_near(self.frame.time) if changed else []

    @cached_property
    def may_be_large(self) -> bool:
        """False when a few rows show that `difference` is not large."""
        before, frame = self.before, self.frame
        if before is None or not self.is_next:
            return True
        return may_be_large(before.glance, frame.glance)

    @cached_property
    def is_next(self) -> bool:
        """Whether the video has no frame between the frame before and this one."""
        if self.before is None:
            return False
        following = np.searchsorted(self.times, self.before.time + TIME_TOLERANCE_S)
        return bool(self.times[following] >= self.frame.time - TIME_TOLERANCE_S)
