"""Chooses the frame that shows the screen before an action, from the frames of its request.

frame_fallback.py replaces a choice that the video does not support.
"""

from enum import StrEnum
from typing import NamedTuple

from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame

# Seconds. The clock of a video with a steady frame rate is off by less (test_exactness.py).
APPROACH_ERROR_S = 0.01


class Reason(StrEnum):
    """Why a frame was chosen, or why there is none: `reason_code` of frames.parquet.

    `pre_move`: the screen was still and the pointer had not started towards the target.
    `settled`: the first frame of the still screen, while the pointer was already on its way.
    `backoff`: no frame was still, or the best one did not decode: the nearest before the limit.
    `first_frame`: the video starts after the limit but before the press: its first frame.
    `waiting`: a wait: the screen one second after the previous action.
    `missing`: no frame of the video shows the screen before the press.
    `pause`: a pause that was not a wait.
    `continued`: typing that went on while the screen was not replaced.
    `recorder_control`: the action was done to the recorder.
    `private`: the screen was dark or locked.
    `unknown_scale`: the action's place in the video is unknown.
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
    """The chosen frame, or None without a candidate, and why it was chosen."""

    frame: Frame | None
    reason: Reason


class FrameChooser:
    """Chooses the latest still frame before the pointer starts towards the target.

    If the screen changes after that frame, the first frame of the last still stretch is chosen. If
    no frame is still, the last candidate is chosen. Candidates are the frames from `since` to the
    limit. A black frame drops the candidates before it.

    Attributes:
        request: the request that is answered.
        candidates: times of the candidates, ascending video seconds.
        latest: the newest candidate.
    """

    def __init__(self, request: FrameRequest) -> None:
        self.request = request
        self._changes: list[float] = []
        self._drop_candidates()

    def _drop_candidates(self) -> None:
        self.candidates: list[float] = []
        self.latest: Frame | None = None
        self._best: Frame | None = None
        self._reason = Reason.MISSING
        self._changed_since_best = False
        self._first_after_change: Frame | None = None

    def see(self, diff: FrameDiff) -> bool:
        """Take the next frame of the span. Returns whether much of the screen changed in it."""
        request = self.request
        frame = diff.frame
        difference = diff.difference
        if frame.is_black:
            self._drop_candidates()
            return False
        if difference is None:  # nothing to compare with, so the screen counts as changed
            self.add(frame, changed=True, large=False)
            return False
        large = difference.is_large
        if not large and self.needs_only_large_changes(frame):
            self.add(frame, changed=False, large=False)
            return False
        pointers = diff.pointers
        changed = difference.is_significant(pointers, request.target)
        response = request.response_box
        if response and frame.time <= request.since + EFFECT_S:
            changed |= difference.shows_response(pointers, response)
        self.add(frame, changed=changed, large=large)
        return large and changed

    def needs_only_large_changes(self, frame: Frame) -> bool:
        """Whether the pointer left a still screen and is on its way to the target.

        Small changes are then its own hover effects.
        """
        request = self.request
        return (
            frame.time >= request.approach
            and request.approach - request.since >= EFFECT_S
            and self._best is not None
            and not self._changed_since_best
        )

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Note the next frame of the span.

        Args:
            frame: the next frame in presentation order.
            changed: the screen differs from the frame before.
            large: much of the screen differs.
        """
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
        error_s = 0.0
        if request.approach < request.limit:
            error_s = APPROACH_ERROR_S + TIME_TOLERANCE_S
        return frame.time < request.approach - error_s

    def choice(self) -> FrameChoice:
        """Returns the best still frame, or the last candidate if no still frame followed a change.

        Call it after the last frame of the span.
        """
        if self.latest is not None and (self._best is None or self._changed_since_best):
            return FrameChoice(self.latest, Reason.BACKOFF)
        return FrameChoice(self._best, self._reason)

    def seconds_still(self, frame: Frame) -> float:
        """Returns for how long the screen had not changed at `frame`, within the span."""
        changes = [time for time in self._changes if time <= frame.time]
        return max(0.0, frame.time - max(changes, default=self.request.span.start))
