"""Chooses one of the frames of a request: the frame that shows the screen before the action.

frame_fallback.py then replaces a chosen frame that is too old.
"""

from enum import StrEnum
from typing import NamedTuple

from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame

# Minimum time from a frame to the start of the pointer's movement towards the target, seconds. The
# clock of a video with a constant frame rate is off by less than 0.01 s (test_exactness.py).
APPROACH_ERROR_S = 0.01


class Reason(StrEnum):
    """Says why a frame was chosen or is missing: column `reason_code` of frames.parquet.

    The *limit* of a request is the latest time at which a frame shows the screen before the press.

    Reasons for the choice of a frame:

    - `pre_move`: the screen was still and the pointer had not started towards the target.
    - `settled`: the screen had just become still, while the pointer was already on its way.
    - `backoff`: no frame was still, or a better frame may exist but did not decode. The chosen
      frame is usually the last one before the limit.
    - `first_frame`: the video starts after the limit, but before the press. The first frame of the
      video is chosen.
    - `waiting`: the frame shows the start of a wait, one second after the previous action.

    Reasons for a missing frame:

    - `missing`: no frame of the video shows the screen before the press.
    - `pause`: the action is a pause during which the person did not wait for the screen.
    - `continued`: the action continues the typing of the previous action on the same screen.
    - `recorder_control`: the action started or stopped the recorder.
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
    """The chosen frame, or None if there was no candidate, and the reason for the choice."""

    frame: Frame | None
    reason: Reason


class FrameChooser:
    """Chooses the latest still frame before the pointer starts towards the target.

    If the screen changes after this frame and becomes still again, the first still frame after the
    change is chosen. If the screen does not become still, the last candidate is chosen. Candidates
    are the frames from `since` to `limit` of the request, after the last black frame.

    Attributes:
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
        """Processes the next frame of the span. Returns whether much of the screen changed."""
        request = self.request
        frame = diff.frame
        difference = diff.difference
        if frame.is_black:
            self._drop_candidates()
            return False
        if difference is None:  # the first frame counts as changed
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
        """Whether small changes at a frame can be ignored as hover effects of the pointer.

        They can be ignored if the screen was still and the pointer is now on its way.
        """
        request = self.request
        return (
            frame.time >= request.approach
            and request.approach - request.since >= EFFECT_S
            and self._best is not None
            and not self._changed_since_best
        )

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Processes the next frame of the span, in presentation order.

        `large` tells whether much of the screen differs from the frame before.
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
        """Stores `frame` as the best frame so far."""
        self._best = frame
        self._reason = Reason.PRE_MOVE if self._is_early(frame) else Reason.SETTLED
        self._changed_since_best = False

    def _is_early(self, frame: Frame) -> bool:
        """Whether a frame precedes the pointer's movement, even if the clock is slightly off."""
        request = self.request
        error_s = 0.0
        if request.approach < request.limit:
            error_s = APPROACH_ERROR_S + TIME_TOLERANCE_S
        return frame.time < request.approach - error_s

    def choice(self) -> FrameChoice:
        """Returns the best still frame, or the last candidate if the screen never became still."""
        if self.latest is not None and (self._best is None or self._changed_since_best):
            return FrameChoice(self.latest, Reason.BACKOFF)
        return FrameChoice(self._best, self._reason)

    def seconds_still(self, frame: Frame) -> float:
        """Returns the time from the last change in the span to `frame`, in seconds."""
        changes = [time for time in self._changes if time <= frame.time]
        return max(0.0, frame.time - max(changes, default=self.request.span.start))
