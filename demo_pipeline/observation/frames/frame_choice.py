"""Which frame shows the screen before an action: the rule, and what it falls back to.

Belongs here: which of a request's candidate frames is chosen, and keeping the frames shown at
moments that are known beforehand. Without these, requests without a candidate would open the video
again.
"""

from enum import StrEnum
from typing import NamedTuple

from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame

APPROACH_ERROR_S = 0.01  # seconds; clocks found in a film at a steady rate are off by less


class Reason(StrEnum):
    """Why a frame was chosen, or why there is none: `reason_code` of frames.parquet.

    `pre_move`: the screen was still and the pointer had not started towards the target.
    `settled`: the first frame of the still screen, while the pointer was already on its way.
    `backoff`: no still frame, or the best one did not decode: the nearest one before the limit.
    `first_frame`: the video starts after the limit but before the press: its first frame.
    `waiting`: of a wait: the screen that was waited at, a second after the previous action.
    `missing`: no frame of the video shows the screen before the press.
    `pause`: a pause that was not a wait.
    `continued`: typing that went on while the screen was not replaced.
    `recorder_control`: an action that was for the recorder.
    `private`: the screen was dark or locked.
    `unknown_scale`: where the action's coordinates are in the video.
    """

    PRE_MOVE = "pre_move"
    SETTLED = "settled"
    BACKOFF = "backoff"
    FIRST_FRAME = "first_frame"
    WAITING = "waiting"
    MISSING = "missing"
    PAUSE = "pause"
    CONTINUED = "continued"
    RECORDER = "recorder_control"
    UNKNOWN_SCALE = "unknown_scale"
    PRIVATE = "private"


class FrameChoice(NamedTuple):
    """A chosen frame (None: no candidate was seen) and why it was chosen."""

    frame: Frame | None
    reason: Reason


class FrameChooser:
    """Chooses for a request the latest still frame before the pointer starts towards the target.

    When the screen changes after that, the first frame of the last still stretch. When no frame is
    still, the last candidate as it is. Candidates are the frames from `since` up to the limit, of
    these the ones after a black one.

    Attributes:
        request: the request.
        candidates: times of the candidates, ascending video seconds.
        latest: the newest candidate.
    """

    def __init__(self, request: FrameRequest) -> None:
        self.request = request
        self._changes: list[float] = []
        self._forget()

    def _forget(self) -> None:
        """Begin anew: what was shown so far is no candidate."""
        self.candidates: list[float] = []
        self.latest: Frame | None = None
        self._best: Frame | None = None
        self._reason = Reason.MISSING
        self._changed_since_best = False
        self._first_after_change: Frame | None = None

    def see(self, diff: FrameDiff) -> bool:
        """Take the next frame of the span; return whether much of the screen changed in it."""
        request = self.request
        frame = diff.frame
        difference = diff.difference
        if frame.is_black:
            self._forget()
            return False
        large = difference is not None and difference.is_large
        if difference is not None and not large and self.needs_only_large_changes(frame):
            self.add(frame, changed=False, large=False)
            return False
        pointers = diff.pointers
        changed = difference is None or difference.is_significant(pointers, request.target)
        response = request.response_box
        if difference is not None and response and frame.time <= request.since + EFFECT_S:
            changed |= difference.shows_response(pointers, response)
        self.add(frame, changed=changed, large=large)
        return large and changed

    def needs_only_large_changes(self, frame: Frame) -> bool:
        """Whether the pointer left a still screen and is on its way: small changes are its own."""
        request = self.request
        return (
            frame.time >= request.approach
            and request.approach - request.since >= EFFECT_S
            and self._best is not None
            and not self._changed_since_best
        )

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Note the next frame of the span: whether it differs from the one before, and by much."""
        if changed:
            self._changes.append(frame.time)
        if not self.request.since <= frame.time <= self.request.limit + TIME_TOLERANCE_S:
            return
        self.latest = frame
        self.candidates.append(frame.time)
        if changed:
            self._changed_since_best |= large or not self.needs_only_large_changes(frame)
            self._first_after_change = frame
            return
        if self._is_early(frame):
            self._take(frame)
        elif self._best is None or self._changed_since_best:
            self._take(self._first_after_change or frame)
        self._first_after_change = None

    def _take(self, frame: Frame) -> None:
        """Make `frame` the best: nothing changed from it to the newest frame."""
        self._best = frame
        self._reason = Reason.PRE_MOVE if self._is_early(frame) else Reason.SETTLED
        self._changed_since_best = False

    def _is_early(self, frame: Frame) -> bool:
        """Whether the pointer had not started towards the target, even if the clock is off."""
        request = self.request
        moves = request.approach < request.limit
        error_s = APPROACH_ERROR_S + TIME_TOLERANCE_S if moves else 0.0
        return frame.time < request.approach - error_s

    def choice(self) -> FrameChoice:
        """The best still frame, or the last candidate when no still frame followed a change."""
        if self.latest is not None and (self._best is None or self._changed_since_best):
            return FrameChoice(self.latest, Reason.BACKOFF)
        return FrameChoice(self._best, self._reason)

    def seconds_still(self, frame: Frame) -> float:
        """Seconds for which the screen had not changed at `frame`, as far back as the span."""
        before = [time for time in self._changes if time <= frame.time]
        return max(0.0, frame.time - max(before, default=self.request.span.start))
