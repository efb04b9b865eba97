"""A frame, and what changed since the frame that was decoded before it."""

from dataclasses import dataclass
from functools import cached_property

from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import SMALL_CELLS, Difference
from demo_pipeline.observation.frames.pointer_path import Floats, Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame


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
        """What changed; None without a frame before.

        When frames between the two were not decoded, the pointer at either end does not count.
        """
        before = self.before
        frame = self.frame
        if before is None:
            return None
        if self.is_next:
            return self.detector.between(before, frame)
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
    def is_next(self) -> bool:
        """Whether the video has no frame between the frame before and this one."""
        if self.before is None:
            return False
        following = self.times.searchsorted(self.before.time + TIME_TOLERANCE_S)
        return bool(self.times[following] >= self.frame.time - TIME_TOLERANCE_S)
