"""Converts the pointer's logged path to times and pixels of the video, and detects leaks.

A leak is a frame from before a press that reveals where the press will be, because the frame shows
the pointer at its target or lies too close to the press.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Point, PointerPath

HOVER_LAG_S = 0.1  # seconds for which an element stays highlighted after the pointer leaves
LIMIT_TOLERANCE_S = 1e-6  # seconds; the precision of times in frames.parquet


class Leak(NamedTuple):
    """Tells whether a frame reveals the place of the press that follows.

    Attributes:
        is_leak: the pointer is at the target already, or the frame is later than
            `FrameRequest.limit`.
        is_unavoidable: the pointer was at the target when the previous action ended, so no earlier
            frame is better. False if the frame is later than `FrameRequest.limit`.
        distance_px: distance from the pointer to the press, in event space. None if the action has
            no target area (keys), or if the pointer's position is unknown.
    """

    is_leak: bool
    is_unavoidable: bool
    distance_px: float | None


@dataclass(frozen=True)
class VideoPointer:
    """The pointer's path in times and pixels of the video.

    Attributes:
        clock: converts event times to video times.
        screen: the parts of the recording with different resolutions, each with its canvas.
        frame_s: mean interval between frames, seconds.
    """

    path: PointerPath
    clock: Clock
    screen: ScreenParts
    frame_s: float

    def positions_near(self, time: float) -> list[Point]:
        """Returns the points at which a frame may show the pointer or its hover effects.

        The points are in video pixels. There are several, because the clock is uncertain. `time` is
        the time of the frame, video seconds.
        """
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
        """Returns the time at which the pointer came to the place where it is at `time`.

        Both times are video seconds.
        """
        return self.clock.video_time(self.path.arrival(self.clock.event_time(time)))

    def path_near(self, time: float) -> list[Point]:
        """Returns all logged positions at which a frame may show the pointer, video pixels.

        `time` is the time of the frame, video seconds.
        """
        uncertainty_s = self.clock.uncertainty_ms / 1000
        first = self.clock.event_time(time - 2 * self.frame_s - uncertainty_s)
        last = self.clock.event_time(time + self.frame_s + uncertainty_s)
        canvas = self.screen.at(first).canvas
        return [canvas.to_video(*point) for point in self.path.between(first, last) if canvas]

    def moves_around(self, before: float, after: float) -> list[Point]:
        """Returns the pointer's positions, in event space, if it moved between two frames.

        There are up to four positions: at the two frames, one frame earlier and one frame later,
        because recorders stamp frames up to one frame early or late. The result is empty if the
        pointer rested. `before` and `after` are the times of the frames, video seconds.
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
        """Returns the positions of `moves_around`, unless the clock is too uncertain.

        If the pointer moved, and the clock's uncertainty exceeds the interval between frames,
        returns all logged positions that the pointer may have had between the frames.
        """
        moved = self.moves_around(before, after)
        uncertainty_s = self.clock.uncertainty_ms / 1000
        if not moved or uncertainty_s <= self.frame_s:
            return moved
        ends = (before - uncertainty_s, after + uncertainty_s)
        return self.path.between(*(self.clock.event_time(end) for end in ends))

    def _logged_at(self, time: float) -> Point | None:
        """Returns the position in event space at a video time; None before the first position."""
        return self.path.at(self.clock.event_time(time))

    def leak(self, request: FrameRequest, time: float) -> Leak:
        """Tests whether the frame at `time` reveals the place of the press in the request."""
        is_late = time > request.limit + LIMIT_TOLERANCE_S
        area = request.target_area
        position = self._logged_at(time)
        if area is None or position is None:
            return Leak(is_late, is_unavoidable=False, distance_px=None)
        # Without a previous action, assume that the pointer has always been at its position.
        earlier = self._logged_at(request.since) if np.isfinite(request.since) else position
        is_at_target = area.contains(*position)
        was_at_target = is_at_target and earlier is not None and area.contains(*earlier)
        distance = float(np.hypot(position[0] - area.x, position[1] - area.y))
        return Leak(
            is_leak=is_late or is_at_target,
            is_unavoidable=was_at_target and not is_late,
            distance_px=round(distance, 1),
        )
