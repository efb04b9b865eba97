"""Whether an action at the border of the screen was done there, or on a display beyond the border.

Some recorders cut every position to the main display. While the pointer is on another display, the
logged positions run along the border, as they do when somebody throws the pointer against the
border of a single screen. The video shows which of the two it was: the pointer comes to the place
of the press, or leaves the picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist, inf

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.actions.repair import BORDER_RUN
from demo_pipeline.observation.frames.changes import (
    CHANGED_DETAIL,
    DETAIL_STEP,
    LEAST_SAMPLES,
    POINTER_PX,
)
from demo_pipeline.observation.frames.kept_frames import KeptFrames
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PixelBox, Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma, Span, number_at

ARROW_PX = (12.0, 20.0)  # width and height of a usual arrow, right of and below its hot spot
LEAST_ARROW = (
    0.5  # of the arrow's area; with less of it inside the screen, its absence says nothing
)


@dataclass(frozen=True)
class _Look:
    """Frames that show whether the pointer came to the place of an action.

    Attributes:
        action_index: of the action.
        place: of the press or the release, video pixels.
        origin: where the pointer is in the frame `before`, video pixels.
        scale: video pixels for one unit of the log.
        before: number of a frame from before the pointer came near the place.
        at: numbers of frames in which the log has the pointer at the place, ascending.
    """

    action_index: int
    place: Point
    origin: Point
    scale: float
    before: int
    at: Sequence[int]


class BorderPresses:
    """Looks for the pointer in the video, at the place of each action after motion along a border.

    Args:
        actions: of the recording, in time order.
        pointer: where the log has the pointer.
        times: (frames,) presentation times of the video's frames, ascending seconds.
        several_displays: whether the recorder says that the computer has another display.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        pointer: VideoPointer,
        times: Floats,
        *,
        several_displays: bool = False,
    ) -> None:
        self._pointer = pointer
        self._times = times
        self._several_displays = several_displays
        self._pointing = [action for action in actions if action.action_type in POINTER_TYPES]
        self._suspected = [action for action in self._pointing if BORDER_RUN in action.flags]
        looks: list[_Look] = []
        for action in self._suspected:
            for place, time_ms in _ends(action):
                look = self._look(action.action_index, place, time_ms)
                if look is not None:
                    looks.append(look)
        self._looks = sorted(looks, key=lambda look: look.at[-1])
        numbers: list[int] = []
        for look in looks:
            numbers += [look.before, *look.at]
        self._frames: KeptFrames[Luma] = KeptFrames(times, numbers, lambda frame: frame.halved)
        self._is_seen: dict[int, bool] = {}

    @property
    def spans(self) -> Sequence[Span]:
        """The frames of all looks."""
        return self._frames.spans

    def see(self, frame: Frame) -> None:
        """Take the next frame; compare those of a look as soon as all of them were shown."""
        self._frames.see(frame)
        while self._looks and self._times[self._looks[0].at[-1]] <= frame.time:
            self._compare(self._looks.pop(0))
            needed = min((look.before for look in self._looks), default=len(self._times))
            self._frames.forget_before(needed)

    def elsewhere(self) -> list[int]:
        """Indexes of the actions that may have been done on another display; after the last frame.

        Before these the pointer left the picture, or another display is known and the video does
        not show the pointer at their places.
        """
        may_be_elsewhere = self._several_displays or self._has_press_outside()
        indexes = []
        for action in self._suspected:
            is_seen = self._is_seen.get(action.action_index, not may_be_elsewhere)
            if not is_seen and self._is_on_border(action):
                indexes.append(action.action_index)
        return indexes

    def _has_press_outside(self) -> bool:
        """Whether an action is outside the recorded screen, so that there is another display."""
        for action in self._pointing:
            canvas = self._pointer.screen.canvas_of(action)
            for place, _ in _ends(action):
                if canvas is not None and not canvas.on_screen(*place):
                    return True
        return False

    def _is_on_border(self, action: Action) -> bool:
        canvas = self._pointer.screen.canvas_of(action)
        return canvas is not None and any(canvas.on_border(*place) for place, _ in _ends(action))

    def _look(self, action_index: int, place: Point, time_ms: float) -> _Look | None:
        """The look at a place on the border; None when the log or the video holds no such frames.

        Frames are as far from the pointer's coming and going as the clock is uncertain.
        """
        pointer = self._pointer
        path = self._pointer.path
        canvas = pointer.screen.at(time_ms).canvas
        if canvas is None or canvas.scale_method != "pixels" or not canvas.on_border(*place):
            return None

        def at_place(number: int) -> bool:
            return dist(path.place(number), place) <= MOVED_PX

        def is_near(point: Point) -> bool:
            return dist(point, place) <= POINTER_PX or canvas.on_border(*point)

        newest = int(path.times.searchsorted(time_ms, "right")) - 1
        arrival = newest
        while arrival >= 0 and at_place(arrival):
            arrival -= 1
        approach = arrival
        while approach >= 0 and is_near(path.place(approach)):
            approach -= 1
        if approach < 0 or arrival == newest:
            return None
        departure = newest
        while departure < len(path.times) and at_place(departure):
            departure += 1
        leaves_ms = float(path.times[departure]) if departure < len(path.times) else inf
        unsure_s = pointer.clock.uncertainty_ms / 1000 + pointer.frame_s
        before = number_at(
            self._times, pointer.clock.video_time(float(path.times[approach + 1])) - unsure_s
        )
        comes = pointer.clock.video_time(float(path.times[arrival + 1])) + unsure_s
        goes = pointer.clock.video_time(leaves_ms) - unsure_s
        first = number_at(self._times, comes)
        last = number_at(self._times, goes)
        if before < 0 or goes < comes or first <= before:
            return None
        origin = path.at(pointer.clock.event_time(float(self._times[before])))
        if origin is None or is_near(origin):
            return None
        at = sorted({first, (first + last) // 2, last})
        seen_at = canvas.to_video(*place)
        seen_from = canvas.to_video(*origin)
        return _Look(action_index, seen_at, seen_from, canvas.event_scale, before, at)

    def _compare(self, look: _Look) -> None:
        """Note whether the pointer came to the place, or left the picture; else nothing."""
        before = self._frames.get(look.before)
        pictures = [self._frames.get(number) for number in look.at]
        later = [picture for picture in pictures if picture is not None]
        if before is None or not later:
            return
        if any(_differs(before, picture, look.place, look.scale) for picture in later):
            is_seen = True
        elif _shown_share(before, look.place, look.scale) >= LEAST_ARROW and all(
            _differs(before, picture, look.origin, look.scale) for picture in later
        ):
            is_seen = False
        else:
            return
        self._is_seen[look.action_index] = self._is_seen.get(look.action_index, True) and is_seen


def _ends(action: Action) -> list[tuple[Point, float]]:
    """Where and when a pointing action was pressed, and where and when a drag was released."""
    ends: list[tuple[Point, float]] = []
    if action.x is not None and action.y is not None:
        ends.append(((action.x, action.y), action.press_ms))
    if action.end_x is not None and action.end_y is not None:
        ends.append(((action.end_x, action.end_y), action.end_ms))
    return ends


def _arrow(point: Point, scale: float) -> PixelBox:
    return PixelBox(*point, ARROW_PX[0] * scale, ARROW_PX[1] * scale)


def _shown_share(picture: Luma, point: Point, scale: float) -> float:
    """The share of an arrow's area that is inside the picture."""
    rows, columns = picture.shape
    arrow = _arrow(point, scale)
    inside_x = min(arrow.right, columns * DETAIL_STEP) - max(arrow.x, 0)
    inside_y = min(arrow.bottom, rows * DETAIL_STEP) - max(arrow.y, 0)
    return float(max(0.0, inside_x) * max(0.0, inside_y) / arrow.area)


def _differs(before: Luma, after: Luma, point: Point, scale: float) -> bool:
    """Whether two pictures (`Frame.halved`) differ where an arrow at a point is."""
    arrow = _arrow(point, scale)
    rows = slice(max(0, int(arrow.y) // DETAIL_STEP), int(arrow.bottom) // DETAIL_STEP + 1)
    columns = slice(max(0, int(arrow.x) // DETAIL_STEP), int(arrow.right) // DETAIL_STEP + 1)
    first = before[rows, columns]
    second = after[rows, columns]
    if not first.size:
        return False
    return int(np.count_nonzero(cv2.absdiff(first, second) > CHANGED_DETAIL)) >= LEAST_SAMPLES
