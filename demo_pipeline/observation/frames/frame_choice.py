"""Chooses the frame that shows the screen before an action, among the frames of its request.

frame_fallback.py then replaces choices that the video does not support.
"""

from enum import StrEnum
from typing import NamedTuple

from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame

# Least time from a frame to the approach, seconds. The clock of a video with a constant frame rate
# is off by less than this (test_exactness.py).
APPROACH_ERROR_S = 0.01


class Reason(StrEnum):
    """Says why a frame was chosen or is missing: column `reason_code` of frames.parquet.

    The frame was chosen because …

    - `pre_move`: the screen was still and the pointer had not started towards the target.
    - `settled`: it is the first frame of the still screen; the pointer was already on its way.
    - `backoff`: no frame was still, or the best one did not decode; it is the nearest one before
      the limit.
    - `first_frame`: it is the first of the video, which starts after the limit but before the
      press.
    - `waiting`: it shows the screen one second after the previous action, at the start of a wait.

    The action has no frame because …

    - `missing`: no frame of the video shows the screen before the press.
    - `pause`: it is a pause that was not a wait.
    - `continued`: it is typing that went on over the same screen.
    - `recorder_control`: it started or stopped the recorder.
    - `private`: the screen was dark or locked.
    - `unknown_scale`: the place of the action in the video is unknown.
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
    """The chosen frame (None if there was no candidate), and the reason of the choice."""

    frame: Frame | None
    reason: Reason


class FrameChooser:
    """Chooses the latest still frame before the pointer starts towards the target.

    If the screen changes after that frame, the first frame of the last still stretch is chosen. If
    no frame is still, the last candidate is chosen. The candidates are the frames from `since` to
    the limit of the request. A black frame removes the candidates before it.

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
        """Takes the next frame of the span, and returns whether much of the screen changed."""
        request = self.request
        frame = diff.frame
        difference = diff.difference
        if frame.is_black:
            self._drop_candidates()
            return False
        if difference is None:  # without a frame before, the screen counts as changed
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
        """Whether the pointer is on its way to the target over a screen that was still.

        Small changes are then hover effects of the pointer.
        """
        request = self.request
        return (
            frame.time >= request.approach
            and request.approach - request.since >= EFFECT_S
            and self._best is not None
            and not self._changed_since_best
        )

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Takes the next frame of the span, in presentation order.

        Args:
            frame: the frame.
            changed: whether the screen differs from the frame before.
            large: whether much of the screen differs.
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
        """Makes `frame` the best so far; nothing has changed between it and the newest frame."""
        self._best = frame
        self._reason = Reason.PRE_MOVE if self._is_early(frame) else Reason.SETTLED
        self._changed_since_best = False

    def _is_early(self, frame: Frame) -> bool:
        """Whether the pointer had not started yet, even if the clock is off by a little."""
        request = self.request
        error_s = 0.0
        if request.approach < request.limit:
            error_s = APPROACH_ERROR_S + TIME_TOLERANCE_S
        return frame.time < request.approach - error_s

    def choice(self) -> FrameChoice:
        """Returns the best still frame; the last candidate if the screen did not come to rest.

        Call it after the last frame of the span.
        """
        if self.latest is not None and (self._best is None or self._changed_since_best):
            return FrameChoice(self.latest, Reason.BACKOFF)
        return FrameChoice(self._best, self._reason)

    def seconds_still(self, frame: Frame) -> float:
        """Returns for how many seconds the screen had been still at `frame`, within the span."""
        changes = [time for time in self._changes if time <= frame.time]
        return max(0.0, frame.time - max(changes, default=self.request.span.start))
