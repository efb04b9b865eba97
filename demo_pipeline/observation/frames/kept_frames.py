"""Keeps what certain frames show until it is asked for, so that the video is decoded only once."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Span

Kept = TypeVar("Kept")


class KeptFrames(Generic[Kept]):
    """Observer that keeps what the frames of certain numbers show.

    Args:
        times: (frames,) presentation times of the video's frames, ascending seconds.
        numbers: of the frames that will be asked for.
        keep: returns what is kept of a frame. Keeping whole frames makes decoding slower.

    Attributes:
        spans: the times of these frames.
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
        """Take the next decoded frame, in presentation order."""
        while self._due and self._times[self._due[-1]] <= frame.time + TIME_TOLERANCE_S:
            number = self._due.pop()
            if self._times[number] >= frame.time - TIME_TOLERANCE_S:
                self._kept[number] = self._keep(frame)

    def get(self, number: int) -> Kept | None:
        """Returns what was kept of a frame; None if it did not decode or was not asked for."""
        return self._kept.get(number)

    def forget_before(self, number: int) -> None:
        """Drop the frames before the frame of a number."""
        self._kept = {other: kept for other, kept in self._kept.items() if other >= number}
