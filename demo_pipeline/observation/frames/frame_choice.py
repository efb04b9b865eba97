"""Which frame shows the screen before an action: the rule in use, and what it falls back to.

A rule sees the candidate frames of one request in presentation order. Another rule is swapped in by
handing another `FrameChooser` to `decode_pass.run_decode_pass`.

Belongs here: which requests have no candidate, and the frame that answers them instead. Without it
each of them would open the video again.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Span

APPROACH_ERROR_S = 0.01  # seconds; clocks found in a film at a steady rate are off by less
EFFECT_S = 0.7  # seconds; a change this soon after an action may still be that action's effect


class Reason(StrEnum):
    """Why a frame was chosen: `reason_code` of frames.parquet.

    `pre_move`: the screen was still and the pointer had not started towards the target.
    `settled`: the first frame of the still screen, while the pointer was already on its way.
    `backoff`: no still frame, or the best one did not decode: the nearest one before the limit.
    `first_frame`: the video starts after the limit but before the press: its first frame.
    `waiting`: of a wait: the screen that was waited at, a second after the previous action.
    `missing`: no frame of the video shows the screen before the press.
    """

    PRE_MOVE = "pre_move"
    SETTLED = "settled"
    BACKOFF = "backoff"
    FIRST_FRAME = "first_frame"
    WAITING = "waiting"
    MISSING = "missing"


class FrameChoice(NamedTuple):
    """A chosen frame (None: no candidate was seen) and why it was chosen."""

    frame: Frame | None
    reason: Reason


class FrameChooser(Protocol):
    """A rule that chooses one of the candidate frames of one request."""

    def needs_only_large_changes(self, frame: Frame) -> bool:
        """Whether a small change in this frame would not affect the choice.

        The caller then skips the full comparison when a glance shows that nothing large changed.
        """

    def see(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Take the next candidate in presentation order.

        Args:
            frame: the candidate.
            changed: the screen differs from the previous frame.
            large: the change is too large to be the pointer's hover effects alone.
        """

    def choice(self) -> FrameChoice:
        """The choice among the candidates seen so far."""


class BeforeFrameChooser:
    """The rule in use: the latest still frame before the pointer starts towards the target.

    When the screen changes after that, the first frame of the last still stretch. When no frame is
    still, the last candidate as it is.
    """

    def __init__(self, request: FrameRequest) -> None:
        self._request = request
        self._best: Frame | None = None
        self._reason = Reason.MISSING
        self._latest: Frame | None = None
        self._changed_since_best = False
        self._first_after_change: Frame | None = None

    def needs_only_large_changes(self, frame: Frame) -> bool:
        """The pointer left a still screen and is on its way: small changes are hover effects."""
        request = self._request
        return (
            frame.time >= request.approach
            and request.approach - request.since >= EFFECT_S
            and self._best is not None
            and not self._changed_since_best
        )

    def see(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Take the next candidate, as `FrameChooser.see` says."""
        self._latest = frame
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
        early = self._is_early(frame)
        self._best, self._reason = frame, Reason.PRE_MOVE if early else Reason.SETTLED
        self._changed_since_best = False

    def _is_early(self, frame: Frame) -> bool:
        """Whether the pointer had not started towards the target, even if the clock is off."""
        request = self._request
        moves = request.approach < request.limit
        error_s = APPROACH_ERROR_S + TIME_TOLERANCE_S if moves else 0.0
        return frame.time < request.approach - error_s

    def choice(self) -> FrameChoice:
        """The best still frame, or the last candidate when no still frame followed a change."""
        if self._latest is not None and (self._best is None or self._changed_since_best):
            return FrameChoice(self._latest, Reason.BACKOFF)
        return FrameChoice(self._best, self._reason)


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
