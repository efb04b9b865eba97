"""The pointer in the video, and what else changed from one frame to the next.

Belongs here: the pointer's path seen through the clock and the canvas of a recording.
"""

from dataclasses import dataclass

import numpy as np

from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Point, PointerPath

HOVER_LAG_S = 0.1  # seconds for which an element stays lit after the pointer has left it
LIMIT_TOLERANCE_S = 1e-6  # seconds; times of frames.parquet are rounded to it


@dataclass(frozen=True)
class VideoPointer:
    """A pointer path on the video's time line and pixels; `frame_s`: distance of two frames."""

    path: PointerPath
    clock: Clock
    screen: ScreenParts
    frame_s: float

    def positions_near(self, time: float) -> list[Point]:
        """Video pixels at which the pointer, or what it lit, may be in the frame at `time`."""
        uncertainty_s = self.clock.uncertainty_ms / 1000
        earliest = time - self.frame_s - uncertainty_s
        lit = (earliest - HOVER_LAG_S, earliest - HOVER_LAG_S / 2)
        points = []
        for instant in (*lit, earliest, time - self.frame_s, time, time + uncertainty_s):
            event_ms = self.clock.event_time(instant)
            position = self.path.at(event_ms)
            canvas = self.screen.at(event_ms).canvas
            if position is not None and canvas is not None:
                points.append(canvas.to_video(*position))
        return points

    def arrival(self, time: float) -> float:
        """When the pointer came to where it is in the frame at `time`, video seconds."""
        return self.clock.video_time(self.path.arrival(self.clock.event_time(time)))

    def path_near(self, time: float) -> list[Point]:
        """Video pixels that the pointer may have crossed in the frame at `time`, close together.

        Before its first movement it is where that began.
        """
        uncertainty_s = self.clock.uncertainty_ms / 1000
        first = self.clock.event_time(time - 2 * self.frame_s - uncertainty_s)
        last = self.clock.event_time(time + self.frame_s + uncertainty_s)
        canvas = self.screen.at(first).canvas
        return [canvas.to_video(*point) for point in self.path.between(first, last) if canvas]

    def moves_around(self, before: float, after: float) -> list[Point]:
        """Positions in event space in two successive frames and in the frames around them.

        Grabbers stamp a frame up to one frame early or late. Empty when the pointer rested.
        """
        first = self._logged_at(before)
        last = self._logged_at(after)
        if first is None or last is None:
            return []
        if abs(last[0] - first[0]) + abs(last[1] - first[1]) <= MOVED_PX:
            return []
        outer = self._logged_at(before - self.frame_s), self._logged_at(after + self.frame_s)
        around = (outer[0], first, last, outer[1])
        return [position for position in around if position is not None]

    def places_around(self, before: float, after: float) -> list[Point]:
        """The same, and all between as far as the clock is less certain than a frame."""
        moved = self.moves_around(before, after)
        uncertainty_s = self.clock.uncertainty_ms / 1000
        if not moved or uncertainty_s <= self.frame_s:
            return moved
        ends = (before - uncertainty_s, after + uncertainty_s)
        return self.path.between(*(self.clock.event_time(end) for end in ends))

    def _logged_at(self, time: float) -> Point | None:
        """Position in event space at a video time; None before the first one."""
        return self.path.at(self.clock.event_time(time))

    def leak(self, request: FrameRequest, time: float) -> tuple[bool, bool, float | None]:
        """(leak, unavoidable, distance to the press in event space) of the frame at `time`.

        A leak: the pointer is at the target already, or the frame is after the request's limit.
        Unavoidable: the pointer was there since the previous action ended, and the frame is early
        enough.
        """
        late = time > request.limit + LIMIT_TOLERANCE_S
        area = request.target_area
        position = self._logged_at(time)
        if area is None or position is None:
            return late, False, None
        earlier = self._logged_at(request.since) if np.isfinite(request.since) else position
        distance = float(np.hypot(position[0] - area.x, position[1] - area.y))
        at_target = area.contains(*position)
        there_before = at_target and earlier is not None and area.contains(*earlier)
        return late or at_target, there_before and not late, round(distance, 1)
