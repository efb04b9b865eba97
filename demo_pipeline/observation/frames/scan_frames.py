"""The screen as each accessibility scan saw it: small pictures of the moments at which scans began.

Belongs here: which frames those are, and keeping each until its last action has been answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_frames import Frame, Luma, Span

_FRAMES_OLD = 3  # a hiccup of the recorder; older frames may lack what the scan saw


@dataclass(frozen=True)
class ScanFrame:
    """The luma of the last frame no later than a scan's beginning, and its video time.

    The frame after it may show a window already that opened in between.
    """

    luma: Luma
    time: float


class ScanFrames:
    """Offered every frame in order, keeps those at which the scans of `wanted` began."""

    def __init__(self, wanted: Sequence[FrameRequest], frame_s: float) -> None:
        self._due = sorted({one.scan for one in wanted if one.scan is not None})
        self._old = _FRAMES_OLD * frame_s
        self._last: Frame | None = None
        self._kept: dict[float, ScanFrame] = {}
        self.spans = [Span(time, time + 1.5 * frame_s) for time in self._due]

    def offer(self, frame: Frame) -> None:
        """Take the next frame in presentation order."""
        last, self._last = self._last, frame
        while self._due and self._due[0] < frame.time:
            due = self._due.pop(0)
            if last is not None and due - last.time <= self._old:
                self._kept[due] = ScanFrame(last.luma, last.time)

    def at(self, scan: float | None) -> ScanFrame | None:
        """The picture of a scan; forgets those of earlier ones, since questions come in order."""
        if scan is None:
            return None
        self._kept = {time: seen for time, seen in self._kept.items() if time >= scan}
        return self._kept.get(scan)
