"""The screen as each accessibility scan found it, compared with the screen before the action.

Belongs here: the frames at which scans began, and whether a target was redrawn since its scan.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo_pipeline.observation.frames.change_detection import ChangeDetector
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import SPAN_MARGIN_FRAMES, FrameRequest
from demo_pipeline.observation.frames.video_frames import Frame, Luma, Span
from demo_pipeline.observation.frames.video_pointer import VideoPointer

MAX_SCAN_FRAME_AGE_FRAMES = 3  # frame distances; an older frame may lack what the scan found


@dataclass(frozen=True)
class ScanFrame:
    """The luma of the last frame no later than a scan's beginning, and its video time.

    The next frame may already show a window that opened in between.
    """

    luma: Luma
    time: float


class ScanFrames:
    """Keeps the frames at which the scans of `requests` began, until they are no longer asked for.

    Args:
        requests: in the order in which their frames will be asked for.
        frame_s: usual distance of two frames, seconds.
    """

    def __init__(self, requests: Sequence[FrameRequest], frame_s: float) -> None:
        times = {request.scan_time for request in requests if request.scan_time is not None}
        self._due = sorted(times)
        self._max_age_s = MAX_SCAN_FRAME_AGE_FRAMES * frame_s
        self._kept: dict[float, ScanFrame] = {}
        self.spans = [Span(time, time + SPAN_MARGIN_FRAMES * frame_s) for time in self._due]

    def see(self, before: Frame | None, frame: Frame) -> None:
        """Take the next frame in presentation order, and the one decoded before it."""
        while self._due and self._due[0] < frame.time:
            due = self._due.pop(0)
            if before is not None and due - before.time <= self._max_age_s:
                self._kept[due] = ScanFrame(before.luma, before.time)

    def frame_of(self, scan_time: float | None) -> ScanFrame | None:
        """The frame of a scan; drops those of earlier scans."""
        if scan_time is None:
            return None
        self._kept = {time: kept for time, kept in self._kept.items() if time >= scan_time}
        return self._kept.get(scan_time)


class TargetComparison:
    """Observer that tells whether each target still looks as it did when its scan began.

    Args:
        requests: those whose targets are compared, in order.
        frame_s: usual distance of two frames, seconds.
        detector: compares the two frames.
        pointer: whose own picture does not count.
        enabled: False with a clock too uncertain to say which frame belongs to a scan.
    """

    def __init__(
        self,
        requests: Sequence[FrameRequest],
        frame_s: float,
        detector: ChangeDetector,
        pointer: VideoPointer,
        *,
        enabled: bool,
    ) -> None:
        self._frames = ScanFrames(requests, frame_s)
        self._detector = detector
        self._pointer = pointer
        self._enabled = enabled
        self._redrawn: dict[int, bool] = {}

    @property
    def spans(self) -> Sequence[Span]:
        """Around the beginning of each scan."""
        return self._frames.spans

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame."""
        self._frames.see(diff.before, diff.frame)

    def compare(self, request: FrameRequest, frame: Frame | None) -> None:
        """Compare the chosen frame of a request with its scan's; requests come in order."""
        scanned = self._frames.frame_of(request.scan_time)
        if scanned is None or frame is None or request.target is None or not self._enabled:
            return
        if frame.luma.shape == scanned.luma.shape:
            near = self._pointer.positions_near
            pointers = [*near(scanned.time), *near(frame.time)]
            difference = self._detector.between_distant(scanned.luma, frame.luma, pointers)
            self._redrawn[request.action_index] = difference.is_redrawn(request.target)

    def result(self) -> dict[int, bool]:
        """Action index → whether its target was redrawn; only targets that could be compared."""
        return self._redrawn
