"""Decides whether an action at the border of the screen was done there or on another display.

Some recorders log a position on another display as the nearest position on the main display, so
that the logged positions run along the border. The same positions are logged when a person pushes
the pointer against the border. The video shows the difference: the pointer either comes to the
place of the press, or it leaves the video.
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

# Width and height of the usual pointer, an arrow, in units of event space. The hot spot is the
# arrow's upper left corner.
ARROW_PX = (12.0, 20.0)
# A missing arrow proves nothing if less than half of its area would be inside the screen.
LEAST_ARROW = 0.5


@dataclass(frozen=True)
class _PointerTest:
    """The frames that show whether the pointer came to the place of an action.

    Attributes:
        action_index: number of the action's row in actions.parquet.
        place: place of the press or the release, video pixels.
        origin: place of the pointer in the frame `before`, video pixels.
        scale: video pixels per unit of event space.
        before: index of a frame before the pointer came near the place.
        at: ascending indexes of frames in which the pointer is at the place, according to the log.
    """

    action_index: int
    place: Point
    origin: Point
    scale: float
    before: int
    at: Sequence[int]


class BorderPresses:
    """The observer that looks for the pointer at the places of suspected actions.

    An action is suspected if the logged positions before it run along a border.

    Args:
        actions: all actions, in time order.
        times: (frames,) presentation times of all frames of the video, ascending seconds.
        several_displays: whether meta.json says that the computer has another display.
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
        tests: list[_PointerTest] = []
        for action in self._suspected:
            for place, time_ms in _ends(action):
                test = self._test(action.action_index, place, time_ms)
                if test is not None:
                    tests.append(test)
        self._tests = sorted(tests, key=lambda test: test.at[-1])
        numbers: list[int] = []
        for test in tests:
            numbers += [test.before, *test.at]
        self._frames: KeptFrames[Luma] = KeptFrames(times, numbers, lambda frame: frame.halved)
        self._is_seen: dict[int, bool] = {}

    @property
    def spans(self) -> Sequence[Span]:
        """The times of the frames of all tests."""
        return self._frames.spans

    def see(self, frame: Frame) -> None:
        """Keeps the next frame if a test needs it, and runs the tests whose frames are complete."""
        self._frames.see(frame)
        while self._tests and self._times[self._tests[0].at[-1]] <= frame.time:
            self._compare(self._tests.pop(0))
            needed = min((test.before for test in self._tests), default=len(self._times))
            self._frames.forget_before(needed)

    def elsewhere(self) -> list[int]:
        """Returns the indexes of actions that may have been done on another display.

        These actions are at a border of the screen, and the pointer left the video before them. If
        the computer has another display, a suspected action at a border is also returned if no
        frame shows where the pointer was. Call this method after the last frame.
        """
        may_be_elsewhere = self._several_displays or self._has_press_outside()
        indexes = []
        for action in self._suspected:
            is_seen = self._is_seen.get(action.action_index, not may_be_elsewhere)
            if not is_seen and self._is_on_border(action):
                indexes.append(action.action_index)
        return indexes

    def _has_press_outside(self) -> bool:
        """Whether any action is outside the recorded screen, which proves another display."""
        for action in self._pointing:
            canvas = self._pointer.screen.canvas_of(action)
            for place, _ in _ends(action):
                if canvas is not None and not canvas.on_screen(*place):
                    return True
        return False

    def _is_on_border(self, action: Action) -> bool:
        canvas = self._pointer.screen.canvas_of(action)
        return canvas is not None and any(canvas.on_border(*place) for place, _ in _ends(action))

    def _test(self, action_index: int, place: Point, time_ms: float) -> _PointerTest | None:
        """Returns the test for an action at a place on the border.

        Each frame of the test shows the pointer either before it comes near the place, or at the
        place, even if the clock is off by its whole uncertainty. Returns None if there are no such
        frames, if the place is not on the border, or if the event scale was not measured from the
        pointer in the video.

        Args:
            place: place of the press or the release, event space.
            time_ms: time of the press or the release, epoch milliseconds.
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
        margin_s = pointer.clock.uncertainty_ms / 1000 + pointer.frame_s
        approaches = pointer.clock.video_time(float(path.times[approach + 1])) - margin_s
        comes = pointer.clock.video_time(float(path.times[arrival + 1])) + margin_s
        goes = pointer.clock.video_time(leaves_ms) - margin_s
        before = number_at(self._times, approaches)
        first = number_at(self._times, comes)
        last = number_at(self._times, goes)
        if before < 0 or goes < comes or first <= before:
            return None
        origin = path.at(pointer.clock.event_time(float(self._times[before])))
        if origin is None or is_near(origin):
            return None
        return _PointerTest(
            action_index,
            place=canvas.to_video(*place),
            origin=canvas.to_video(*origin),
            scale=canvas.event_scale,
            before=before,
            at=sorted({first, (first + last) // 2, last}),
        )

    def _compare(self, test: _PointerTest) -> None:
        """Records whether the pointer came to the place, unless the frames leave this in doubt."""
        before = self._frames.get(test.before)
        later: list[Luma] = []
        for number in test.at:
            luma = self._frames.get(number)
            if luma is not None:
                later.append(luma)
        if before is None or not later:
            return
        if any(_differs(before, luma, test.place, test.scale) for luma in later):
            is_seen = True
        elif _inside_share(before, test.place, test.scale) >= LEAST_ARROW and all(
            _differs(before, luma, test.origin, test.scale) for luma in later
        ):
            is_seen = False
        else:
            return
        self._is_seen[test.action_index] = self._is_seen.get(test.action_index, True) and is_seen


def _ends(action: Action) -> list[tuple[Point, float]]:
    """Returns the place and time of an action's press and, for a drag, of its release.

    Places are in event space, times in epoch milliseconds.
    """
    ends: list[tuple[Point, float]] = []
    if action.x is not None and action.y is not None:
        ends.append(((action.x, action.y), action.press_ms))
    if action.end_x is not None and action.end_y is not None:
        ends.append(((action.end_x, action.end_y), action.end_ms))
    return ends


def _arrow(point: Point, scale: float) -> PixelBox:
    return PixelBox(*point, ARROW_PX[0] * scale, ARROW_PX[1] * scale)


def _inside_share(luma: Luma, point: Point, scale: float) -> float:
    """Returns the share of the pointer's area inside the video, for a pointer at `point`."""
    rows, columns = luma.shape
    arrow = _arrow(point, scale)
    inside_x = min(arrow.right, columns * DETAIL_STEP) - max(arrow.x, 0)
    inside_y = min(arrow.bottom, rows * DETAIL_STEP) - max(arrow.y, 0)
    return float(max(0.0, inside_x) * max(0.0, inside_y) / arrow.area)


def _differs(before: Luma, after: Luma, point: Point, scale: float) -> bool:
    """Whether two frames (`Frame.halved`) differ in the area of a pointer at `point`."""
    arrow = _arrow(point, scale)
    rows = slice(max(0, int(arrow.y) // DETAIL_STEP), int(arrow.bottom) // DETAIL_STEP + 1)
    columns = slice(max(0, int(arrow.x) // DETAIL_STEP), int(arrow.right) // DETAIL_STEP + 1)
    first = before[rows, columns]
    second = after[rows, columns]
    if not first.size:
        return False
    return int(np.count_nonzero(cv2.absdiff(first, second) > CHANGED_DETAIL)) >= LEAST_SAMPLES
