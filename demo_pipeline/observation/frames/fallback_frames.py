"""The frames of actions before which no frame shows the screen: kept as they pass.

Belongs here: which requests have no candidate, and the frame that answers them instead. Without it
each of them would open the video again.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Span


class FallbackFrames:
    """Keeps the last frame before the limit for pauses, and for requests without one in their span.

    Memory holds the frames of the requests that are not answered yet; successive requests without
    a frame between them share one.

    Args:
        requests: in the order in which their frames will be asked for.
        times: (frames,) presentation times of the video's frames, ascending seconds.
    """

    def __init__(self, requests: Sequence[FrameRequest], times: Floats) -> None:
        self._times = times
        wanted = {self.number(request) for request in requests if self._has_none(request)}
        self._wanted = sorted(wanted, reverse=True)
        self._kept: dict[int, Frame] = {}
        self.spans = [Span(float(times[number]), float(times[number])) for number in sorted(wanted)]

    def number(self, request: FrameRequest) -> int:
        """Number of the last frame no later than a request's limit; of the first without one."""
        return max(0, self._before(request.limit))

    def see(self, frame: Frame) -> None:
        """Take the next decoded frame, in presentation order."""
        while self._wanted and self._times[self._wanted[-1]] <= frame.time + TIME_TOLERANCE_S:
            number = self._wanted.pop()
            if self._times[number] >= frame.time - TIME_TOLERANCE_S:
                self._kept[number] = frame

    def take(self, request: FrameRequest) -> Frame | None:
        """The frame of a request; drops those that no later request asks for.

        None when it did not decode, or when the request's span holds it.
        """
        first = self.number(request)
        self._kept = {number: frame for number, frame in self._kept.items() if number >= first}
        return self._kept.get(first)

    def _has_none(self, request: FrameRequest) -> bool:
        """Whether no frame lies in the span; with a variable frame rate the screen may be older."""
        number = self._before(request.limit)
        return request.pause or number < 0 or bool(self._times[number] < request.span.start)

    def _before(self, limit: float) -> int:
        return int(np.searchsorted(self._times, limit + TIME_TOLERANCE_S, side="right")) - 1
