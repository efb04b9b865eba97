"""The observer that answers every frame request, each as soon as its span has passed.

Belongs here: the queue of open requests. Memory holds the frames of open requests and of
an undecided pause, however long the video is.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from demo_pipeline.observation.frames.frame_choice import FrameChooser
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import SPAN_MARGIN_FRAMES, FrameRequest
from demo_pipeline.observation.frames.request_progress import RequestProgress
from demo_pipeline.observation.frames.scan_frames import ScanComparison
from demo_pipeline.observation.frames.screenshot_writer import (
    PAUSE_REASON,
    Screenshot,
    ScreenshotWriter,
)
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Span
from demo_pipeline.observation.frames.waits import Wait, find_wait


@dataclass(frozen=True)
class ActionFramesResult:
    """What the video shows about the actions.

    Attributes:
        screenshots: one for each request, in their order.
        waits: pauses that were waits.
        large_changes: times at which much of the screen changed, ascending video seconds.
    """

    screenshots: Sequence[Screenshot]
    waits: Sequence[Wait]
    large_changes: Sequence[float]


class ActionFrames:
    """Shows frames to the open requests, writes screenshots, recognises waits.

    Args:
        requests: in the order of the actions.
        pause_seconds: action index of a pause → its length.
        choose_with: makes the rule that chooses the frame of a request.
        writer: writes the screenshot of an answered request.
        scanned: compares an answered request with its scan; sees each frame before this observer.
        frame_s: usual distance of two frames, seconds.
    """

    def __init__(
        self,
        requests: Sequence[FrameRequest],
        pause_seconds: Mapping[int, float],
        *,
        choose_with: Callable[[FrameRequest], FrameChooser],
        writer: ScreenshotWriter,
        scanned: ScanComparison,
        frame_s: float,
    ) -> None:
        self._requests = requests
        self._open = deque(RequestProgress(request, choose_with(request)) for request in requests)
        self._pause_seconds = pause_seconds
        self._writer = writer
        self._scanned = scanned
        self._margin_s = SPAN_MARGIN_FRAMES * frame_s
        self._undecided_pause: RequestProgress | None = None
        self._screenshots: dict[int, Screenshot] = {}
        self._waits: list[Wait] = []
        self._large_changes: list[float] = []

    @property
    def spans(self) -> Sequence[Span]:
        """Those of the requests."""
        return [request.span for request in self._requests]

    def see(self, diff: FrameDiff) -> None:
        """Answer the requests whose spans have passed; show the frame to the others."""
        time = diff.frame.time
        while self._open and time > self._open[0].request.span.end + TIME_TOLERANCE_S:
            self._answer(self._open.popleft())
        for progress in self._open:
            if time < progress.request.span.start - self._margin_s:
                break
            if progress.see(diff) and time not in self._large_changes[-1:]:
                self._large_changes.append(time)

    def result(self) -> ActionFramesResult:
        """Answer what is still open; call once, after the last frame."""
        while self._open:
            self._answer(self._open.popleft())
        self._leave_out_pause()
        screenshots = [self._screenshots[request.action_index] for request in self._requests]
        return ActionFramesResult(screenshots, self._waits, self._large_changes)

    def _answer(self, progress: RequestProgress) -> None:
        if progress.request.pause:
            self._leave_out_pause()
            self._undecided_pause = progress
            return
        self._decide_pause(progress.request)
        self._write(progress)

    def _write(self, progress: RequestProgress) -> None:
        """Write the screenshot; a target that was redrawn since its scan is no place of leaks."""
        choice = self._writer.choose(progress)
        redrawn = self._scanned.compare(progress.request, choice.frame, progress.latest)
        screenshot = self._writer.write(progress, choice, at_target=not redrawn)
        self._screenshots[progress.request.action_index] = screenshot

    def _decide_pause(self, following: FrameRequest) -> None:
        """The action after a pause shows whether the pause was a wait."""
        pause = self._undecided_pause
        if pause is None:
            return
        index = pause.request.action_index
        wait = find_wait(pause, following, self._pause_seconds[index])
        if wait is None:
            self._leave_out_pause()
            return
        self._undecided_pause = None
        self._waits.append(wait)
        self._write(pause)

    def _leave_out_pause(self) -> None:
        """The undecided pause, if any, was thinking: it gets no screenshot."""
        if self._undecided_pause is not None:
            index = self._undecided_pause.request.action_index
            self._screenshots[index] = Screenshot(index, PAUSE_REASON)
            self._undecided_pause = None
