"""The pointer in the video: where it may be in a frame, and whether a frame shows it at its target.

Belongs here: the pointer's path seen through the clock and the canvas of a recording.
"""

from dataclasses import dataclass

import numpy as np

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Point, PointerPath

HOVER_LAG_S = 0.1  # seconds for which an element stays lit after the pointer has left it
LIMIT_TOLERANCE_S = 1e-6  # seconds; times of frames.parquet are rounded to it


@dataclass(frozen=True)
class VideoPointer:
    """A pointer path on the video's time line and pixels; `frame_s`: distance of two frames."""

    path: PointerPath
    clock: Clock
    canvas: Canvas
    frame_s: float

    def positions_near(self, time: float) -> list[Point]:
        """Video pixels at which the pointer, or what it lit, may be in the frame at `time`."""
        uncertainty_s = self.clock.uncertainty_ms / 1000
        earliest = time - self.frame_s - uncertainty_s
        lit = (earliest - HOVER_LAG_S, earliest - HOVER_LAG_S / 2)
        points = []
        for instant in (*lit, earliest, time - self.frame_s, time, time + uncertainty_s):
            position = self.path.at(self.clock.event_time(instant))
            if position is not None:
                points.append(self.canvas.to_video(*position))
        return points

    def leak(self, request: FrameRequest, time: float) -> tuple[bool, bool, float | None]:
        """(leak, unavoidable, distance to the press in event space) of the frame at `time`.

        A leak: the pointer is at the target already, or the frame is after the request's limit.
        Unavoidable: the pointer was there since the previous action ended, and the frame is early
        enough.
        """
        late = time > request.limit + LIMIT_TOLERANCE_S and not request.pause
        area = request.target_area
        position = self.path.at(self.clock.event_time(time))
        if area is None or position is None:
            return late, False, None
        earlier: Point | None = position
        if np.isfinite(request.since):
            earlier = self.path.at(self.clock.event_time(request.since))
        distance = float(np.hypot(position[0] - area.x, position[1] - area.y))
        at_target = area.contains(*position)
        there_before = at_target and earlier is not None and area.contains(*earlier)
        return late or at_target, there_before and not late, round(distance, 1)
