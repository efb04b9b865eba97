"""From one frame to the next: what changed, worked out no further than somebody asks.

Belongs here: when a look at a few rows will do. What a difference means is change.py's subject.
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
from demo_pipeline.observation.frames.video_frames import Frame
from demo_pipeline.observation.frames.video_pointer import VideoPointer


@dataclass(frozen=True)
class FrameDiff:
    """A frame of a video, and the one that was looked at before it.

    `times` are those of all frames of the video, ascending seconds.
    """

    before: Frame | None
    frame: Frame
    times: Floats
    change: ChangeDetector
    pointer: VideoPointer

    @cached_property
    def difference(self) -> Difference | None:
        """What changed; None at the beginning. Over a gap, the pointer's two places do not."""
        before, frame = self.before, self.frame
        if before is None or before.luma.shape != frame.luma.shape:
            return None
        if self._is_next(before):
            return self.change.between(before.luma, frame.luma, key_frame=frame.is_key)
        pointers = [*self.pointer.near(before.time), *self.pointer.near(frame.time)]
        return self.change.since(before.luma, frame.luma, pointers)

    @cached_property
    def pointers(self) -> list[Point]:
        """Video pixels at which the pointer may be; none where nothing changed."""
        difference = self.difference
        noted = difference is None or difference.count >= SMALL_CELLS
        return self.pointer.near(self.frame.time) if noted else []

    @cached_property
    def may_be_large(self) -> bool:
        """False when a few rows tell that `difference` is not large."""
        before, frame = self.before, self.frame
        if before is None or not self._is_next(before):
            return True
        return may_be_large(before.glance, frame.glance)

    def _is_next(self, before: Frame) -> bool:
        """No frame of the video lies between."""
        following = np.searchsorted(self.times, before.time + 1e-9)
        return bool(self.times[following] >= self.frame.time - 1e-9)
