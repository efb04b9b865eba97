"""The pointer in the video: its logged path, seen through the clock and the canvas.

The test for a leak is here: whether a frame shows the pointer at its target already.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Point, PointerPath

HOVER_LAG_S = 0.1  # seconds for which an element stays lit after the pointer has left it
LIMIT_TOLERANCE_S = 1e-6  # seconds; times in frames.parquet are rounded to this


class Leak(NamedTuple):
    """Whether a frame gives the place of the press away.

    Attributes:
        is_leak: the pointer is at the target already, or the frame is later than the limit.
        is_unavoidable: no earlier frame is better, because the pointer was at the target when the
            previous action ended, and the frame is not later than the limit.
        distance_px: from the pointer to the press, event space; None without a target or position.
    """

    is_leak: bool
    is_unavoidable: bool
    distance_px: float | None


@dataclass(frozen=True)
class VideoPointer:
    """The pointer's path, converted to the video's times and pixels.

    Attributes:
        path: the pointer's positions in the log.
        clock: of the recording.
        screen: its parts, each with a canvas.
        frame_s: usual distance of two frames, seconds.
    """

    path: PointerPath
    clock: Clock
    screen: ScreenParts
    frame_s: float

    def positions_near(self, time: float) -> list[Point]:
        """Returns where the pointer, or an element that it lit, may be in a frame; video pixels."""
        uncertainty_s = self.clock.uncertainty_ms / 1000
        earliest = time - self.frame_s - uncertainty_s
        lit = (earliest - HOVER_LAG_S, earliest - HOVER_LAG_S / 2)
        points = []
        for video_s in (*lit, earliest, time - self.frame_s, time, time + uncertainty_s):
            event_ms = self.clock.event_time(video_s)
            position = self.path.at(event_ms)
            canvas = self.screen.at(event_ms).canvas
            if position is not None and canvas is not None:
                points.append(canvas.to_video(*position))
        return points

    def arrival(self, time: float) -> float:
        """Returns when the pointer came to where it is in the frame at `time`, video seconds."""
        return self.clock.video_time(self.path.arrival(self.clock.event_time(time)))

    def path_near(self, time: float) -> list[Point]:
        """Returns the logged positions that the pointer may have in a frame; video pixels.

        Before its first movement, the pointer is where that movement began.
        """
        uncertainty_s = self.clock.uncertainty_ms / 1000
        first = self.clock.event_time(time - 2 * self.frame_s - uncertainty_s)
        last = self.clock.event_time(time + self.frame_s + uncertainty_s)
        canvas = self.screen.at(first).canvas
        return [canvas.to_video(*point) for point in self.path.between(first, last) if canvas]

    def moves_around(self, before: float, after: float) -> list[Point]:
        """Returns positions in two successive frames and in the frames around them, event space.

        The frames around them count because grabbers stamp a frame up to one frame early or late.
        Empty if the pointer rested.
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
        """Returns the positions of `moves_around`, or more of them if the clock is uncertain.

        If its uncertainty exceeds a frame, these are all positions within the uncertainty.
        """
        moved = self.moves_around(before, after)
        uncertainty_s = self.clock.uncertainty_ms / 1000
        if not moved or uncertainty_s <= self.frame_s:
            return moved
        ends = (before - uncertainty_s, after + uncertainty_s)
        return self.path.between(*(self.clock.event_time(end) for end in ends))

    def _logged_at(self, time: float) -> Point | None:
        """Returns the position at a video time, event space; None before the first position."""
        return self.path.at(self.clock.event_time(time))

    def leak(self, request: FrameRequest, time: float) -> Leak:
        """Returns whether the frame at `time` gives the place of the requested press away."""
        is_late = time > request.limit + LIMIT_TOLERANCE_S
        area = request.target_area
        position = self._logged_at(time)
        if area is None or position is None:
            return Leak(is_late, is_unavoidable=False, distance_px=None)
        # Before the first action, the pointer counts as having been where it is in the frame.
        earlier = self._logged_at(request.since) if np.isfinite(request.since) else position
        is_at_target = area.contains(*position)
        was_at_target = is_at_target and earlier is not None and area.contains(*earlier)
        distance = float(np.hypot(position[0] - area.x, position[1] - area.y))
        return Leak(
            is_leak=is_late or is_at_target,
            is_unavoidable=was_at_target and not is_late,
            distance_px=round(distance, 1),
        )
