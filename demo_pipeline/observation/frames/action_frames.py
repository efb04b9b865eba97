"""The observer that answers every frame request, each as soon as its span has passed.

Belongs here: the queue of open requests. Memory holds the frames of open requests, however long the
video is. Which pauses were waits is known only at the end: their frames are decoded then.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import CONTINUED
from demo_pipeline.observation.frames.change_detection import LARGE_SHARE
from demo_pipeline.observation.frames.changed_cells import changed_cells
from demo_pipeline.observation.frames.evidence import WaitEvidence
from demo_pipeline.observation.frames.frame_choice import FrameChoice, FrameChooser
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import SPAN_MARGIN_FRAMES, FrameRequest
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.request_progress import RequestProgress
from demo_pipeline.observation.frames.scan_frames import ActionPictures, ScanComparison, TypedPlaces
from demo_pipeline.observation.frames.screenshot_writer import (
    PAUSE_REASON,
    Screenshot,
    ScreenshotWriter,
)
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Luma, Span
from demo_pipeline.observation.frames.wait_observer import MEAN_LEVELS, WaitObserver

REPLACED_HEIGHT = 0.5  # of the screen's; suggestions below a field are less tall, a pager is taller


@dataclass(frozen=True)
class ActionFramesResult:
    """What the video shows about the actions.

    Attributes:
        screenshots: one for each request, in their order.
        waits: pauses that were waits.
        large_changes: times at which much of the screen changed, ascending video seconds.
        typed: what changed while text was typed, by action index.
    """

    screenshots: Sequence[Screenshot]
    waits: Sequence[WaitEvidence]
    large_changes: Sequence[float]
    typed: Mapping[int, Sequence[PixelBox]]


class ActionFrames:
    """Shows frames to the open requests and writes screenshots.

    Args:
        requests: in the order of the actions.
        choosers: the rule that chooses the frame of each request; read once and not kept.
        waits: tells which pauses were waits.
        writer: writes the screenshot of an answered request.
        comparisons: compare an answered request with its scan, and with typing before it; the
            first sees each frame before this observer.
        frame_s: usual distance of two frames, seconds.
    """

    def __init__(  # noqa: PLR0917 - what the observer works with, in the order of use
        self,
        requests: Sequence[FrameRequest],
        choosers: Iterable[FrameChooser],
        waits: WaitObserver,
        writer: ScreenshotWriter,
        comparisons: tuple[ScanComparison, TypedPlaces],
        frame_s: float,
    ) -> None:
        self._requests = requests
        progresses = [
            RequestProgress(request, chooser)
            for request, chooser in zip(requests, choosers, strict=True)
        ]
        self._unanswered = deque(progresses)
        self._open = deque(one for one in progresses if not one.request.pause)
        self._waits = waits
        self._writer = writer
        self._scanned, self._typed = comparisons
        self._margin_s = SPAN_MARGIN_FRAMES * frame_s
        self._screenshots: dict[int, Screenshot] = {}
        self._pauses: dict[int, tuple[RequestProgress, FrameChoice, ActionPictures | None]] = {}
        self._large_changes: list[float] = []
        self._shown: Luma | None = None

    @property
    def spans(self) -> Sequence[Span]:
        """Those of the requests, except for pauses."""
        return [request.span for request in self._requests if not request.pause]

    def see(self, diff: FrameDiff) -> None:
        """Answer the requests whose spans have passed; show the frame to the others."""
        time = diff.frame.time
        while self._unanswered and time > self._unanswered[0].request.span.end + TIME_TOLERANCE_S:
            self._answer(self._unanswered.popleft())
        for index in list(self._pauses):
            if self._waits.may_be_wait(index) is not None:
                self._settle_pause(index)
        for progress in self._open:
            if time < progress.request.span.start - self._margin_s:
                break
            if progress.see(diff) and time not in self._large_changes[-1:]:
                self._large_changes.append(time)

    def result(self) -> ActionFramesResult:
        """Answer what is still open; call once, after the last frame."""
        while self._unanswered:
            self._answer(self._unanswered.popleft())
        waits = self._waits.result()
        for index in list(self._pauses):
            self._settle_pause(index)
        waited = {wait.action_index for wait in waits}
        for request in self._requests:
            if request.pause and request.action_index not in waited:
                self._leave_out_pause(request.action_index)
        screenshots = [self._screenshots[request.action_index] for request in self._requests]
        return ActionFramesResult(screenshots, waits, self._large_changes, self._typed.result())

    def _answer(self, progress: RequestProgress) -> None:
        """Write the screenshot; a target that was redrawn since its scan is no place of leaks.

        A pause is compared and written when it may be a wait.
        """
        choice, request = self._writer.choose(progress), progress.request
        self._typed.see(request.action_index, choice.frame)
        pictures = self._scanned.pictures(request, choice.frame, progress.latest)
        if request.pause:
            self._pauses[request.action_index] = progress, choice, pictures
            return
        self._open.remove(progress)
        if request.continued and not self._is_replaced(choice.frame):
            self._screenshots[request.action_index] = Screenshot(request.action_index, CONTINUED)
            return
        self._shown = None if choice.frame is None else choice.frame.quartered
        redrawn = self._scanned.compare(request, pictures)
        screenshot = self._writer.write(progress, choice, at_target=not redrawn)
        self._screenshots[request.action_index] = screenshot

    def _is_replaced(self, frame: Frame | None) -> bool:
        """Whether a frame shows another screen than the last screenshot of an action."""
        shown = self._shown
        if shown is None or frame is None or shown.shape != frame.quartered.shape:
            return False
        changed = changed_cells(shown, frame.quartered, MEAN_LEVELS)
        tall = cv2.boundingRect(changed.view(np.uint8))[3] >= REPLACED_HEIGHT * changed.shape[0]
        return tall and bool(np.count_nonzero(changed) >= LARGE_SHARE * changed.size)

    def _settle_pause(self, index: int) -> None:
        """Write the screenshot of a pause that may have been a wait, and let go of its frame."""
        progress, choice, pictures = self._pauses.pop(index)
        if self._waits.may_be_wait(index):
            self._scanned.compare(progress.request, pictures)
            self._screenshots[index] = self._writer.write(progress, choice)

    def _leave_out_pause(self, index: int) -> None:
        """The pause was thinking: it gets no screenshot."""
        written = self._screenshots.get(index)
        if written is not None:
            self._writer.remove(written)
        self._scanned.leave_out(index)
        self._screenshots[index] = Screenshot(index, PAUSE_REASON)
