"""Pairs each decoded frame with the frame decoded before it, and finds the cells that changed."""

from dataclasses import dataclass
from functools import cached_property

from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import SMALL_CELLS, Difference
from demo_pipeline.observation.frames.pointer_path import Floats, Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame


@dataclass(frozen=True)
class FrameDiff:
    """A frame and the frame decoded before it, with the cells in which they differ.

    Attributes:
        before: the frame decoded before. None for the first frame.
        frame: the newest frame.
        times: (frames,) times of all frames of the video, ascending seconds.
    """

    before: Frame | None
    frame: Frame
    times: Floats
    detector: ChangeDetector
    pointer: VideoPointer

    @cached_property
    def difference(self) -> Difference | None:
        """The cells that changed. None for the first frame.

        If the video has frames between `before` and `frame`, changes around the pointer are
        ignored.
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
        """Possible positions of the pointer, video pixels; empty if almost nothing changed."""
        difference = self.difference
        if difference is not None and difference.count < SMALL_CELLS:
            return []
        return self.pointer.positions_near(self.frame.time)

    @cached_property
    def is_next(self) -> bool:
        """Whether the video has no frame between `before` and `frame`."""
        if self.before is None:
            return False
        following = self.times.searchsorted(self.before.time + TIME_TOLERANCE_S)
        return bool(self.times[following] >= self.frame.time - TIME_TOLERANCE_S)
