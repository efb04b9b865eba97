"""The pointer as the video shows it: where it and what it lights up may be in a frame.

Belongs here: the pointer's path on the video's clock, and whether a frame gives its target away.
"""

from dataclasses import dataclass

import numpy as np

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Point, PointerPath

HOVER_LAG_S = 0.1  # what the pointer left stays lit this much longer


@dataclass(frozen=True)
class VideoPointer:
    """A path seen through a clock and a canvas; `frame_s` is the distance of two frames."""

    path: PointerPath
    clock: Clock
    canvas: Canvas
    frame_s: float

    def near(self, time: float) -> list[Point]:
        """Video pixels at which the pointer or its trace may be in the frame at `time`."""
        doubt = self.clock.uncertainty_ms / 1000
        earliest = time - self.frame_s - doubt
        lit = (earliest - HOVER_LAG_S, earliest - HOVER_LAG_S / 2)
        points = []
        for moment in (*lit, earliest, time - self.frame_s, time, time + doubt):
            found = self.path.at(self.clock.event_time(moment))
            if found is not None:
                points.append(self.canvas.to_video(*found))
        return points

    def leak(self, wanted: FrameRequest, time: float) -> tuple[bool, bool, float | None]:
        """(leak, unavoidable, pixels of event space to the press) of the frame at `time`."""
        late = time > wanted.limit + 1e-6 and not wanted.pause
        if wanted.vicinity is None:
            return late, False, None
        clock, vicinity = self.clock, wanted.vicinity
        at = self.path.at(clock.event_time(time))
        if at is None:
            return late, False, None
        before = self.path.at(clock.event_time(wanted.since)) if np.isfinite(wanted.since) else at
        distance = float(np.hypot(at[0] - vicinity.x, at[1] - vicinity.y))
        there = vicinity.holds(*at)
        unavoidable = there and before is not None and vicinity.holds(*before)
        return late or there, unavoidable, round(distance, 1)
