"""Keeps facts about chosen frames for later use, so that the video is decoded only once."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Span

Kept = TypeVar("Kept")


class KeptFrames(Generic[Kept]):
    """An observer of the decode pass that keeps a value for each of the chosen frames.

    Args:
        times: (frames,) presentation times of all frames of the video, ascending seconds.
        numbers: indexes of the chosen frames.
        keep: computes the value of a frame.

    Attributes:
        spans: the times of the chosen frames.
    """

    def __init__(
        self, times: Floats, numbers: Iterable[int], keep: Callable[[Frame], Kept]
    ) -> None:
        self._times = times
        self._keep = keep
        self._due = sorted(set(numbers), reverse=True)
        self._kept: dict[int, Kept] = {}
        self.spans = [Span(float(time), float(time)) for time in times[self._due[::-1]]]

    def see(self, frame: Frame) -> None:
        """Stores the value of the next decoded frame, in presentation order, if it was chosen."""
        while self._due and self._times[self._due[-1]] <= frame.time + TIME_TOLERANCE_S:
            number = self._due.pop()
            if self._times[number] >= frame.time - TIME_TOLERANCE_S:
                self._kept[number] = self._keep(frame)

    def get(self, number: int) -> Kept | None:
        """Returns the value of the frame with this index.

        Returns None if the frame did not decode, was not chosen, or was dropped.
        """
        return self._kept.get(number)

    def forget_before(self, number: int) -> None:
        """Drops the values of all frames before the one with this index."""
        self._kept = {other: kept for other, kept in self._kept.items() if other >= number}
