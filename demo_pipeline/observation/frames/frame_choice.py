"""Which frame shows the screen before an action.

Belongs here: the before-frame rule of formats note 2 as a small machine fed with frames in order.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_frames import Frame

EFFECT_S = 0.7  # within this after an action a change may still be that action's effect


class Reason(StrEnum):
    """Why a frame was chosen."""

    PRE_MOVE = "pre_move"
    SETTLED = "settled"
    BACKOFF = "backoff"
    FIRST_FRAME = "first_frame"
    MISSING = "missing"


@dataclass
class BeforeFrameChooser:
    """Takes frames of `wanted.span` in order; `best` and `reason` stand after `finish`.

    `latest` is the newest frame that could have been chosen, `times` are those of all of them, and
    `changes` those of the changes it was told of.
    """

    wanted: FrameRequest
    best: Frame | None = None
    reason: Reason = Reason.MISSING
    changes: list[float] = field(default_factory=list)
    latest: Frame | None = None
    times: list[float] = field(default_factory=list)
    _changed_since_best: bool = False
    _arrival: Frame | None = None

    def feed(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Take the next frame.

        Args:
            frame: the next in presentation order.
            changed: the screen differs from the frame before.
            large: so much that what the pointer hovers over cannot be all of it.
        """
        if changed:
            self.changes.append(frame.time)
        if not self.wanted.since <= frame.time <= self.wanted.limit + 1e-9:
            return
        self.latest = frame
        self.times.append(frame.time)
        if changed:
            self._changed_since_best |= large or not self.minds_only_large(frame)
            self._arrival = frame
            return
        if frame.time < self.wanted.approach:
            self._take(frame)
        elif self.best is None or self._changed_since_best:
            self._take(self._arrival or frame)
        self._arrival = None

    def _take(self, frame: Frame) -> None:
        """Nothing changed after `frame`, or up to the one fed now: it shows a still screen."""
        early = frame.time < self.wanted.approach
        self.best, self.reason = frame, Reason.PRE_MOVE if early else Reason.SETTLED
        self._changed_since_best = False

    def minds_only_large(self, frame: Frame) -> bool:
        """The hand is on its way and had set out from a still screen: small changes are its own."""
        wanted = self.wanted
        return (
            not wanted.pause
            and frame.time >= wanted.approach
            and wanted.approach - wanted.since >= EFFECT_S
            and self.best is not None
            and not self._changed_since_best
        )

    def seconds_still(self, frame: Frame) -> float:
        """Seconds for which the screen had not changed at `frame`, as far back as was looked."""
        before = [time for time in self.changes if time <= frame.time]
        return max(0.0, frame.time - max(before, default=self.wanted.span.start))

    def finish(self) -> None:
        """No stable frame: the last one before the limit, as it is."""
        if self.latest is None:
            return
        if self.best is None or self._changed_since_best:
            self.best, self.reason = self.latest, Reason.BACKOFF
