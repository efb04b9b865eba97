"""Chooses and writes the screenshot of each action while the video is decoded.

Each action has a *request* for a frame in a span of the video. The request is *pending* before the
first frame of its span, *open* while frames of the span are decoded, and *answered* when the span
is over. The answer for a pause is held until the next action shows whether the person may have
waited for the screen.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.continued_typing import ContinuedTyping
from demo_pipeline.observation.frames.evidence import Hover, Wait
from demo_pipeline.observation.frames.frame_choice import FrameChoice, FrameChooser, Reason
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_fallback import FrameFallback
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    ScannedTarget,
)
from demo_pipeline.observation.frames.hovers import waits_without_hovers
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.scan_comparisons import ActionScreens, ScanComparison
from demo_pipeline.observation.frames.screenshot_writer import Screenshot, ScreenshotWriter
from demo_pipeline.observation.frames.typed_places import TypedPlaces
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Span
from demo_pipeline.observation.frames.wait_observer import WaitObserver

# Maximum number of comparisons that wait until the scale of an accessibility scan is known. Each
# holds up to four screens of 0.5 MB (1080p).
MOST_HELD = 16

Requests = Sequence[FrameRequest]
Rescaled = Callable[[float | None], Requests]
"""Creates the requests of all actions, with the boxes of trees multiplied by a scale.

If the scale is None, no target has a box.
"""


class ScaledRequests:
    """Creates the requests of the actions for each scale that the boxes in their trees may have.

    Some recorders log the boxes of trees and the pointer positions in different units. The *scale*
    converts the boxes of a tree to the unit of pointer positions. It is 1 for most trees.

    Args:
        screen: the canvas of each part of the recording. Parts may be added during decoding.
        requests: the requests for the scale 1, in the order of the actions.

    Attributes:
        current: the requests for the scale 1, in the order of the actions.
    """

    def __init__(self, screen: ScreenParts, requests: Requests, rescaled: Rescaled) -> None:
        self._screen = screen
        self._parts = len(screen)
        self._rescaled = rescaled
        self._by_scale: dict[float | None, Requests] = {1.0: requests}
        self.current = list(requests)

    @property
    def scales(self) -> list[float | None]:
        """The scales for which requests were created so far."""
        return list(self._by_scale)

    def of(self, index: int, scale: float | None) -> FrameRequest:
        """Returns the request of the action with this index, for a scale of the action's tree."""
        if scale not in self._by_scale:
            self._by_scale[scale] = self._rescaled(scale)
        return self._by_scale[scale][index]

    def is_outdated(self) -> bool:
        """Whether parts were added to the screen after the requests were created."""
        return len(self._screen) > self._parts

    def renew(self, indexes: Collection[int]) -> None:
        """Creates the requests of these actions again, with the current parts of the screen."""
        self._parts = len(self._screen)
        self._by_scale = {1.0: self._rescaled(1.0)}
        for index in indexes:
            self.current[index] = self._by_scale[1.0][index]


@dataclass
class _PendingRequest:
    """A request that is not answered yet.

    Attributes:
        request: the request for the scale 1.
        choosers: a `FrameChooser` for each scale that the action's tree may have. Empty before the
            first frame of the span.
    """

    request: FrameRequest
    choosers: dict[float | None, FrameChooser] = field(default_factory=dict)

    def chooser(self, scale: float | None) -> FrameChooser:
        """Returns the chooser for a scale.

        If there is none, returns the chooser for a target without a box; if that chooser is also
        missing, returns the chooser for the scale 1.
        """
        possible = (scale, None, 1.0)
        return next(self.choosers[scale] for scale in possible if scale in self.choosers)


class _HeldPause(NamedTuple):
    """The answer for a pause, held until the next action shows whether to use the answer."""

    chooser: FrameChooser
    choice: FrameChoice
    screens: ActionScreens | None


class _HeldComparison(NamedTuple):
    """A comparison of an action with its scan, postponed until the scale of the scan is known."""

    scan: ScannedTarget
    action_index: int
    screens: ActionScreens


class _TargetComparisons:
    """Compares the screen of each action with the screen of its scan once the scale is known."""

    def __init__(self, comparison: ScanComparison, requests: ScaledRequests) -> None:
        self._comparison = comparison
        self._scales = comparison.scales
        self._requests = requests
        self._held: list[_HeldComparison] = []

    def is_redrawn(
        self, scan: ScannedTarget | None, index: int, screens: ActionScreens | None
    ) -> bool:
        """Whether the target of an action was certainly redrawn since the action's scan.

        Returns False if the scale of the scan is in doubt. If a later scan may still confirm the
        scale, `compare_held` makes the comparison later.

        Args:
            scan: the action's scan, or None if the action has none.
            screens: the screens of the action and of the scan; None if one is missing.
        """
        if scan is None or screens is None:
            return False
        if self._scales.is_open(scan.event_index):
            self._held.append(_HeldComparison(scan, index, screens))
            return False
        scale = self._scales.at(scan.event_index)
        if scale is None:
            return False
        return self._comparison.compare(self._requests.of(index, scale), screens)

    def compare_held(self, *, is_end: bool = False) -> None:
        """Makes the postponed comparisons if the scale of their scans is known now.

        At the end of the video, or when `MOST_HELD` comparisons are postponed, all are made.
        """
        held = self._held
        if held and self._scales.is_open(held[0].scan.event_index):
            if not is_end and len(held) != MOST_HELD:
                return
            self._scales.give_up()
        self._held = []
        for comparison in held:
            self.is_redrawn(*comparison)


class ActionFrames:
    """The observer of the decoded frames that chooses and writes the screenshots of all actions.

    While the scale of the accessibility tree is unknown, a request has a chooser for each possible
    scale, and another for a target without a box.

    Args:
        fallback: confirms the chosen frames, and replaces those that are too old.
        scanned: compares the screen of an action with the screen of its scan. `scanned` must see
            each frame before this observer does.
        typed: compares the screen before and after typing.
        waits: decides during which pauses the person may have waited for the screen.
        private: tells whether the screen was dark during a break in typing.
        frame_s: usual interval between two frames, seconds.

    Attributes:
        requests: the requests of all actions at the scale 1. After a change of the screen, the
            requests of actions that have no frame yet are renewed.
        large_changes: times at which much of the screen changed, ascending video seconds.
    """

    def __init__(
        self,
        *,
        requests: ScaledRequests,
        fallback: FrameFallback,
        writer: ScreenshotWriter,
        scanned: ScanComparison,
        typed: TypedPlaces,
        waits: WaitObserver,
        private: PrivateScreen,
        frame_s: float,
    ) -> None:
        self._scaled = requests
        self.requests = requests.current
        self._fallback = fallback
        self._writer = writer
        self._scanned = scanned
        self._comparisons = _TargetComparisons(scanned, requests)
        self._typed = typed
        self._waits = waits
        self._private = private
        self._margin_s = SPAN_MARGIN_FRAMES * frame_s
        self._unanswered = deque(_PendingRequest(request) for request in self.requests)
        self._open = deque(pending for pending in self._unanswered if not pending.request.pause)
        self._pauses: dict[int, _HeldPause] = {}
        self._screenshots: dict[int, Screenshot] = {}
        self._continued_typing = ContinuedTyping()
        self.large_changes: list[float] = []

    @property
    def spans(self) -> Sequence[Span]:
        """The spans of all requests except those of pauses."""
        return [request.span for request in self.requests if not request.pause]

    def see(self, diff: FrameDiff) -> None:
        """Answers the requests whose spans are over, and offers the frame to the open requests."""
        time = diff.frame.time
        if self._scaled.is_outdated():
            self._renew_requests()
        while self._unanswered and time > self._unanswered[0].request.span.end + TIME_TOLERANCE_S:
            self._answer(self._unanswered.popleft())
        for index in list(self._pauses):
            if self._waits.may_be_wait(index) is not None:
                self._settle_pause(index)
        for pending in self._open:
            if time < pending.request.span.start - self._margin_s:
                break
            self._begin(pending)
            if pending.request.continued:
                self._continued_typing.follow(diff.before, diff.frame)
            is_large = [chooser.see(diff) for chooser in pending.choosers.values()]
            if any(is_large) and time not in self.large_changes[-1:]:
                self.large_changes.append(time)

    def result(
        self, misplaced: Collection[int], hovers: Sequence[Hover], clock: Clock
    ) -> tuple[list[Screenshot], list[Wait]]:
        """Returns the screenshot of each request, in order, and the waits.

        Call it after the last frame.

        Args:
            misplaced: indexes of the actions whose request was created with a wrong canvas. A wait
                is left out if its pause or the action after the pause is one of these actions.
            hovers: presses on content that the resting pointer opened. Waits for this content are
                left out.
        """
        while self._unanswered:
            self._answer(self._unanswered.popleft())
        self._comparisons.compare_held(is_end=True)
        waits = [
            wait
            for wait in self._waits.result()
            if not {wait.action_index, wait.action_index + 1}.intersection(misplaced)
        ]
        waits = waits_without_hovers(waits, hovers, clock)
        for index in list(self._pauses):
            self._settle_pause(index)
        waited = {wait.action_index for wait in waits}
        for request in self.requests:
            if request.pause and request.action_index not in waited:
                self._leave_out_pause(request.action_index)
        return [self._screenshots[request.action_index] for request in self.requests], waits

    def forget(self, misplaced: Collection[int]) -> None:
        """Drops the comparisons of these actions, because the comparisons used a wrong canvas."""
        for index in misplaced:
            self._scanned.leave_out(self.requests[index])
            self._typed.places.pop(index, None)

    def _renew_requests(self) -> None:
        """Renews the requests of actions that have no frame yet, after a change of the screen."""
        not_begun = [pending for pending in self._unanswered if not pending.choosers]
        self._scaled.renew([pending.request.action_index for pending in not_begun])
        for pending in not_begun:
            pending.request = self.requests[pending.request.action_index]

    def _begin(self, pending: _PendingRequest) -> None:
        """Creates the choosers of a request, if it has none yet."""
        if pending.choosers:
            return
        request = pending.request
        scales: list[float | None] = [1.0]
        if request.scan is not None and request.target is not None:
            if not self._scanned.note_scale(request, is_last=False):
                scales = [None, *self._scaled.scales]
            else:
                scale = self._scanned.scales.at(request.scan.event_index)
                if scale != 1.0:
                    scales = [None, scale]
        for scale in dict.fromkeys(scales):
            pending.choosers[scale] = FrameChooser(self._scaled.of(request.action_index, scale))

    def _answer(self, pending: _PendingRequest) -> None:
        """Chooses the frame of a request and writes its screenshot.

        The answer for a pause is held instead.
        """
        self._begin(pending)
        request: FrameRequest = pending.request
        index = request.action_index
        scale: float | None = 1.0
        if request.scan is not None:
            self._scanned.note_scale(request, is_last=True)
            self._comparisons.compare_held()
            scale = self._scanned.scales.at(request.scan.event_index)
        chooser = pending.chooser(scale)
        choice = self._fallback.confirmed(chooser)
        self._typed.see(index, choice.frame)
        screens = self._scanned.screens(request, choice.frame, chooser.latest)
        if request.pause:
            self._pauses[index] = _HeldPause(chooser, choice, screens)
            return
        self._open.remove(pending)
        is_continued = self._is_continued(request, chooser, choice)
        self._continued_typing.see(choice.frame, request.point)
        if is_continued:
            self._screenshots[index] = Screenshot(index, Reason.CONTINUED)
            return
        is_redrawn = self._comparisons.is_redrawn(request.scan, index, screens)
        # If another element may be at the target's place by now, the target's box is not used.
        self._screenshots[index] = self._writer.write(chooser, choice, at_target=not is_redrawn)

    def _is_continued(
        self, request: FrameRequest, chooser: FrameChooser, choice: FrameChoice
    ) -> bool:
        """Whether an action only continues earlier typing on the same screen."""
        if not request.continued or self._private.was_dark(request.since, request.press):
            return False
        if request.after_long_rest:
            return True
        return not self._continued_typing.is_replaced(choice.frame, chooser.latest)

    def _settle_pause(self, index: int) -> None:
        """Drops the held answer for a pause; first writes it if the person may have waited."""
        chooser, choice, screens = self._pauses.pop(index)
        if self._waits.may_be_wait(index):
            self._comparisons.is_redrawn(chooser.request.scan, index, screens)
            self._screenshots[index] = self._writer.write(chooser, choice)

    def _leave_out_pause(self, index: int) -> None:
        """Removes the screenshot of a pause during which the person did not wait."""
        if index in self._screenshots:
            self._writer.remove(self._screenshots[index])
        self._scanned.since_scan.pop(index, None)
        self._screenshots[index] = Screenshot(index, Reason.PAUSE)
