"""One frame request during the decode pass: what its span has shown so far."""

from demo_pipeline.observation.frames.frame_choice import EFFECT_S, FrameChooser
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame


class RequestProgress:
    """A request, the rule that chooses its frame, and the times of what was seen.

    Attributes:
        request: the request.
        chooser: sees the candidates only, which are the frames from `since` up to the limit.
        changes: times of the frames in which the screen changed, ascending video seconds.
        candidates: times of the candidates.
        latest: the newest candidate.
    """

    def __init__(self, request: FrameRequest, chooser: FrameChooser) -> None:
        self.request = request
        self.chooser = chooser
        self.changes: list[float] = []
        self.candidates: list[float] = []
        self.latest: Frame | None = None

    def see(self, diff: FrameDiff) -> bool:
        """Take the next frame of the span; return whether much of the screen changed in it."""
        request, frame = self.request, diff.frame
        if self.chooser.needs_only_large_changes(frame) and not diff.may_be_large:
            self.add(frame, changed=False, large=False)
            return False
        difference, pointers = diff.difference, diff.pointers
        changed = difference is None or difference.is_significant(pointers, request.target)
        response = request.response_box
        if difference is not None and response and frame.time <= request.since + EFFECT_S:
            changed |= difference.shows_response(pointers, response)
        large = difference is not None and difference.is_large
        self.add(frame, changed=changed, large=large)
        return large and changed

    def add(self, frame: Frame, *, changed: bool, large: bool) -> None:
        """Note the next frame of the span, and show it to the chooser when it is a candidate."""
        if changed:
            self.changes.append(frame.time)
        if self.request.since <= frame.time <= self.request.limit + TIME_TOLERANCE_S:
            self.latest = frame
            self.candidates.append(frame.time)
            self.chooser.see(frame, changed=changed, large=large)

    def seconds_still(self, frame: Frame) -> float:
        """Seconds for which the screen had not changed at `frame`, as far back as the span."""
        before = [time for time in self.changes if time <= frame.time]
        return max(0.0, frame.time - max(before, default=self.request.span.start))
