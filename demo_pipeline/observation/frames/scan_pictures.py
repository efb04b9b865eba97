"""The pictures that scans are compared with, kept while an action still needs them.

Belongs here: the frames shown when scans began and ended. What changed since is in scan_frames.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.screen_picture import ScreenPicture, screen_picture
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Span


class ActionPictures(NamedTuple):
    """The screen at an action and at its scan.

    Attributes:
        first, last: as the scan began and ended; None: such a frame did not decode.
        shot: the screenshot.
        at_press: the last before the press.
    """

    first: ScreenPicture | None
    last: ScreenPicture | None
    shot: ScreenPicture
    at_press: ScreenPicture


class ScanFrames:
    """Keeps the frames shown when scans began and ended, until they are no longer asked for.

    The frame shown at a moment is the last one no later, however old: a video with a variable
    frame rate has none while nothing changes.

    Args:
        requests: in the order in which their frames will be asked for.
        times: (frames,) times of all frames of the video, ascending seconds.
    """

    def __init__(self, requests: Sequence[FrameRequest], times: Floats) -> None:
        self._times = times
        moments = [
            moment
            for request in requests
            if request.scan is not None
            for moment in (request.scan.began, request.scan.ended)
        ]
        shown = {time for moment in moments if (time := self._shown(moment)) is not None}
        self._due = sorted(shown, reverse=True)
        self._kept: dict[float, ScreenPicture] = {}
        self.spans = [Span(time, time) for time in sorted(shown)]

    def _shown(self, moment: float) -> float | None:
        """Time of the frame shown at a moment; None before the video."""
        position = int(np.searchsorted(self._times, moment + TIME_TOLERANCE_S, side="right")) - 1
        return float(self._times[position]) if position >= 0 else None

    def see(self, frame: Frame) -> None:
        """Take the next frame in presentation order."""
        while self._due and self._due[-1] <= frame.time + TIME_TOLERANCE_S:
            due = self._due.pop()
            if abs(due - frame.time) <= TIME_TOLERANCE_S:
                self._kept[due] = screen_picture(frame)

    def frame_at(self, moment: float) -> ScreenPicture | None:
        """The frame shown at a moment; None when it did not decode."""
        shown = self._shown(moment)
        return None if shown is None else self._kept.get(shown)

    def forget(self, moment: float) -> None:
        """Drop the frames that were no longer shown at a moment."""
        shown = self._shown(moment)
        if shown is not None:
            self._kept = {time: kept for time, kept in self._kept.items() if time >= shown}
