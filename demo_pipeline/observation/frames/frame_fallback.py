"""Replaces a chosen frame if it is too old, or if frames of the video did not decode."""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.frames.frame_choice import FrameChoice, FrameChooser, Reason
from demo_pipeline.observation.frames.frame_requests import SPAN_MARGIN_FRAMES, FrameRequest
from demo_pipeline.observation.frames.kept_frames import KeptFrames
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    number_at,
)

# The newest candidate is too old if it precedes the frame that a player shows at
# `FrameRequest.limit` by more than MAX_STALE_S and more than MAX_STALE_FRAMES. If that frame is the
# last frame of the video, the limit is compared instead of the frame's time.
MAX_STALE_S = 0.5  # seconds; an estimate, not a measured value
MAX_STALE_FRAMES = 2  # frame intervals; longer than MAX_STALE_S if the frame rate is low


class FrameFallback:
    """Confirms the choice of a `FrameChooser`, or replaces the chosen frame.

    The replacement is the nearest frame before `FrameRequest.limit`.

    Args:
        requests: all requests that will be answered, in order.

    Attributes:
        frames: an observer that keeps the last frame before the limit of some requests: those of
            pauses, and those whose decoded span may begin after this frame.
    """

    def __init__(self, video: RecordedVideo, requests: Sequence[FrameRequest]) -> None:
        self._video = video
        self._max_stale_s = max(MAX_STALE_S, MAX_STALE_FRAMES * video.frame_s)
        numbers: list[int] = []
        for request in requests:
            number = number_at(video.times, request.limit)
            if request.pause or number < 0 or video.times[number] < request.span.start:
                numbers.append(max(0, number))
        self.frames: KeptFrames[Frame] = KeptFrames(video.times, numbers, lambda frame: frame)

    def confirmed(self, chooser: FrameChooser) -> FrameChoice:
        """Returns the chooser's choice, corrected if frames are missing.

        If no frame was chosen, or if the newest candidate is too old, returns the nearest frame
        before the limit. If a better frame may have existed, the reason becomes `backoff`.
        """
        frame, reason = chooser.choice()
        if frame is None or self._is_stale(chooser.request.limit, chooser.latest):
            return self._nearest(chooser.request, chooser.latest)
        if self._misses_candidates(chooser, frame, reason):
            return FrameChoice(frame, Reason.BACKOFF)
        return FrameChoice(frame, reason)

    def _misses_candidates(self, chooser: FrameChooser, frame: Frame, reason: Reason) -> bool:
        """Whether a better frame than the chosen one may have existed.

        A better frame may exist if a frame of the request did not decode, or if the video ended too
        early. For the reason `pre_move`, only the frames from the chosen one to the start of the
        pointer's movement are checked.
        """
        request = chooser.request
        begin = frame.time
        until = request.approach
        if reason is not Reason.PRE_MOVE:
            begin = max(request.since, request.span.start)
            until = request.limit
        earliest = begin + TIME_TOLERANCE_S
        latest = until - TIME_TOLERANCE_S
        first, last = np.searchsorted(self._video.times, [earliest, latest])
        seen = sum(earliest < time < latest for time in chooser.candidates)
        video_end = self._video.times[-1] + SPAN_MARGIN_FRAMES * self._video.frame_s
        return bool(last - first > seen or until > video_end)

    def _is_stale(self, limit: float, latest: Frame | None) -> bool:
        """Whether the newest candidate is too old to show the screen at the limit."""
        times = self._video.times
        number = number_at(times, limit)
        due = limit if number == len(times) - 1 else float(times[max(0, number)])
        return latest is not None and due - latest.time > self._max_stale_s

    def _nearest(self, request: FrameRequest, latest: Frame | None) -> FrameChoice:
        """Chooses the nearest frame before the limit of a request.

        If the video starts after the limit but before the press, its first frame is chosen. The
        choice has no frame if the press is before the first frame of the video or too long after
        its last frame, or if the nearest frame is black or did not decode. `latest` is the newest
        candidate.
        """
        times = self._video.times
        number = number_at(times, request.limit)
        if request.press > times[-1] + self._max_stale_s:
            return FrameChoice(None, Reason.MISSING)
        if request.pause:
            reason = Reason.WAITING
        elif number >= 0:
            reason = Reason.BACKOFF
        else:
            reason = Reason.FIRST_FRAME
        nearest = max(0, number)
        self.frames.forget_before(nearest)
        frame = self.frames.get(nearest)
        is_latest = latest is not None and abs(latest.time - times[nearest]) <= TIME_TOLERANCE_S
        if frame is None and is_latest:
            frame = latest
        latest_s = max(request.limit + TIME_TOLERANCE_S, request.press - TIME_TOLERANCE_S)
        if frame is None or frame.time > latest_s or frame.is_black:
            return FrameChoice(None, Reason.MISSING)
        return FrameChoice(frame, reason)
