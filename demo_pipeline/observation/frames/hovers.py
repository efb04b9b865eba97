"""Hovers: what a press was on had appeared beside a pointer that rested elsewhere, as in a menu.

Belongs here: where the pointer rested before each press, and whether the frames before and during
the rest show that the pressed content came then. In doubt it did not.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import dist

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.changes import (
    BLOCK,
    MEAN_LEVELS,
    POINTER_PX,
    SMALL_CELLS,
    Cells,
    box_share,
    cells_of,
    changed_cells,
    connected,
    with_neighbours,
)
from demo_pipeline.observation.frames.evidence import Hover, HoverPlace, Wait
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox, Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Luma, Span

HOVER_S = 1.5  # seconds from the pointer's coming to rest; submenus opened within 1.3
HOVER_REACH_PX = 240  # video pixels along the pointer's row; submenus began up to 100 away
HOVER_LARGEST_SHARE = 0.3  # of the screen; no menu or card that a pointer opens covers more
REST_MS = 150  # milliseconds without a move; a pointer on its way pauses for less
AWAY_PX = 24.0  # video pixels; a nearer pointer covers what is pressed, and lights it
PRESSED_PX = 16  # video pixels above and below a press: a line of a menu
ROW_PX = 120  # video pixels to each side of a press in which its letters are
MOST_RESTS = 8  # before one press; the latest count
LIT_LIKENESS = 0.8  # correlation; chosen: a row that was lit keeps its letters
GONE_SHARE = 0.6  # of what opened; chosen: a lit row of a menu of three changes a third of it
PLAIN_LEVELS = 4.0  # standard deviation of 255; chosen, above the noise of an encoder

_PRESSES = frozenset({"click", "double_click", "right_click", "drag"})


@dataclass
class _Rest:
    """A rest of the pointer before a press.

    Attributes:
        place: video pixels.
        point: where, event space.
        since_ms: when it began, epoch milliseconds.
        before: a time right before the pointer came, video seconds.
        seen: the latest time at which what it opened shows while it is still there.
        pointers: where the pointer may be in the frames of these two times.
        shown_before, shown: those frames.
    """

    place: Point
    point: Point
    since_ms: float
    before: float
    seen: float
    pointers: Sequence[Point]
    shown_before: Luma | None = None
    shown: Luma | None = None


@dataclass
class _Press:
    """A press before which the pointer rested elsewhere; times are video seconds.

    Attributes:
        action_index: row of actions.parquet.
        place: of the press, video pixels.
        at_press: the latest time at which the pointer is not at the press yet.
        rests: in order.
        shown: the frame at `at_press`.
    """

    action_index: int
    place: Point
    at_press: float
    rests: list[_Rest] = field(default_factory=list)
    shown: Luma | None = None


class HoverObserver:
    """Looks at the screen before and during each rest of the pointer, and at the press after it.

    Args:
        actions: in time order.
        requests: of the actions, in their order.
        times: (frames,) of all frames of the video, ascending seconds.
        pointer: its path in the video.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        requests: Sequence[FrameRequest],
        times: Floats,
        pointer: VideoPointer,
    ) -> None:
        self._waiting: list[_Press] = []
        for action, request in zip(actions, requests, strict=True):
            press = _press_after_rest(action, request, pointer)
            if press is not None:
                self._waiting.append(press)
        wanted = [time for press in self._waiting for time in _wanted_times(press)]
        shown = np.unique(np.searchsorted(times, np.array(wanted) + TIME_TOLERANCE_S, "right") - 1)
        self._times = [float(time) for time in times[shown[shown >= 0]]]
        self.spans = [Span(time, time) for time in self._times]
        self._last: tuple[float, Luma] | None = None
        self._next = 0
        self._hovers: list[Hover] = []

    def see(self, frame: Frame) -> None:
        """Take the next frame in presentation order; most of them are skipped."""
        reached = bisect_right(self._times, frame.time + TIME_TOLERANCE_S)
        if reached == self._next:
            return
        self._next = reached
        luma = frame.quartered
        last = self._last
        self._last = (frame.time, luma)
        if last is not None:
            self._keep(frame.time, last[1])
        if self._next == len(self._times):
            self._keep(float("inf"), luma)

    def _keep(self, until: float, luma: Luma) -> None:
        """Keep a picture for the times before `until` that wait for one; judge complete presses."""
        for press in list(self._waiting):
            if min(_wanted_times(press)) >= until - TIME_TOLERANCE_S:
                break
            for rest in press.rests:
                if rest.shown_before is None and rest.before < until - TIME_TOLERANCE_S:
                    rest.shown_before = luma
                if rest.shown is None and rest.seen < until - TIME_TOLERANCE_S:
                    rest.shown = luma
            if press.at_press < until - TIME_TOLERANCE_S:
                press.shown = luma
                self._waiting.remove(press)
                self._judge(press)

    def _judge(self, press: _Press) -> None:
        """Find the rest that opened what was pressed, and those that opened where that was."""
        opened: list[_Rest] = []
        place = press.place
        rests = press.rests
        shown = press.shown
        while rests and shown is not None:
            opener = next((rest for rest in reversed(rests) if _opened(rest, place, shown)), None)
            if opener is None:
                break
            opened.insert(0, opener)
            place = opener.place
            shown = opener.shown_before
            rests = rests[: rests.index(opener)]
        if opened:
            places = [HoverPlace(*rest.point, rest.since_ms) for rest in opened]
            self._hovers.append(Hover(action_index=press.action_index, places=tuple(places)))

    def result(self, misplaced: Collection[int] = ()) -> tuple[Hover, ...]:
        """The hovers that opened what was pressed, in order of the presses.

        `misplaced`: indexes of actions that were looked at in the wrong place.
        """
        return tuple(hover for hover in self._hovers if hover.action_index not in misplaced)


def waits_without_hovers(
    waits: Sequence[Wait], hovers: Sequence[Hover], clock: Clock
) -> list[Wait]:
    """The waits but those for what the pointer opened itself before the next action.

    A wait that was over when the pointer came to rest, as for a page with a menu, stays.
    """
    opened_s = {hover.action_index: clock.video_time(hover.places[0].since_ms) for hover in hovers}
    never = float("inf")
    return [wait for wait in waits if wait.settled_s < opened_s.get(wait.action_index + 1, never)]


def _press_after_rest(
    action: Action, request: FrameRequest, pointer: VideoPointer
) -> _Press | None:
    """A press before which the pointer rested elsewhere since the action before; None: it did not.

    So soon after an action that the screen may show its effect, nothing was opened by the pointer.
    """
    if action.action_type not in _PRESSES or request.point is None or request.canvas is None:
        return None
    pressed = request.point
    canvas = request.canvas
    clock = pointer.clock
    path = pointer.path
    since_ms = clock.event_time(request.since)
    inside = slice(*path.times.searchsorted((since_ms, action.press_ms), "right").tolist())
    moments = path.times[inside].tolist()
    points = list(zip(path.x[inside].tolist(), path.y[inside].tolist(), strict=True))
    filmed = [canvas.to_video(*point) for point in points]
    blur_s = pointer.frame_s + clock.uncertainty_ms / 1000
    press = _Press(request.action_index, pressed, request.limit)
    for number, (came_ms, left_ms) in enumerate(pairwise([*moments, float(action.press_ms)])):
        if dist(filmed[number], pressed) <= AWAY_PX or left_ms - came_ms < REST_MS:
            continue
        came = clock.video_time(came_ms)
        left = clock.video_time(left_ms)
        near = number
        while near > 0 and dist(filmed[near - 1], filmed[number]) <= POINTER_PX:
            near -= 1
        before = clock.video_time(moments[near]) - blur_s
        seen = max(came, min(left - blur_s, came + HOVER_S))
        if seen <= request.since + EFFECT_S:
            continue
        before = max(before, request.since)
        pointers = [*pointer.positions_near(before), *pointer.positions_near(seen)]
        place = filmed[number]
        press.rests.append(_Rest(place, points[number], came_ms, before, seen, pointers))
    arriving = (number for number, at in enumerate(filmed) if dist(at, pressed) > AWAY_PX)
    last_away = max(arriving, default=None)
    if not press.rests or last_away is None:
        return None
    press.rests = press.rests[-MOST_RESTS:]
    if last_away + 1 < len(moments):
        arrives = clock.video_time(moments[last_away + 1]) - blur_s
        press.at_press = max(min(request.limit, arrives), press.rests[-1].seen)
    return press


def _wanted_times(press: _Press) -> list[float]:
    times = [press.at_press]
    for rest in press.rests:
        times += [rest.before, rest.seen]
    return times


def _opened(rest: _Rest, place: Point, at_press: Luma) -> bool:
    """Whether what is at a place in the picture `at_press` came during a rest of the pointer.

    It is connected with the surroundings of the pointer, is no larger than a menu, stayed until the
    press, and is no row that was merely lit.
    """
    before = rest.shown_before
    shown = rest.shown
    if before is None or shown is None or dist(rest.place, place) <= AWAY_PX:
        return False
    changed = changed_cells(before, shown, MEAN_LEVELS)
    for point in rest.pointers:
        changed[cells_of(PixelBox.around(point, POINTER_PX))] = False
    x, y = rest.place
    row = PixelBox(x - HOVER_REACH_PX, y - POINTER_PX, 2 * HOVER_REACH_PX, 2 * POINTER_PX)
    near = np.zeros_like(changed)
    near[cells_of(row)] = True
    part: Cells = connected(changed, with_neighbours(near & changed))
    if box_share(part) > HOVER_LARGEST_SHARE:
        return False
    x, y = place
    row = PixelBox(x - ROW_PX, y - PRESSED_PX, 2 * ROW_PX, 2 * PRESSED_PX)
    if not _is_within(place, part) or np.count_nonzero(part[cells_of(row)]) < SMALL_CELLS:
        return False
    gone = changed_cells(shown, at_press, MEAN_LEVELS) & part
    if np.count_nonzero(gone) > GONE_SHARE * np.count_nonzero(part):
        return False
    rows, columns = cells_of(row)
    rows = slice(2 * rows.start, 2 * rows.stop)  # a cell has two samples to a side
    columns = slice(2 * columns.start, 2 * columns.stop)
    return _is_replaced(before[rows, columns], shown[rows, columns])


def _is_within(place: Point, part: Cells) -> bool:
    """Whether a place is inside the box around some cells."""
    rows, columns = (np.flatnonzero(part.any(axis=axis)) for axis in (1, 0))
    row = int(place[1]) // BLOCK
    column = int(place[0]) // BLOCK
    if not len(rows):
        return False
    return bool(rows[0] <= row <= rows[-1] and columns[0] <= column <= columns[-1])


def _is_replaced(before: Luma, after: Luma) -> bool:
    """Whether something new shows: neither plain ground nor the same in another brightness."""
    if after.std() <= PLAIN_LEVELS:
        return False
    if before.std() <= PLAIN_LEVELS:
        return True
    likeness = np.corrcoef(before.ravel().astype(float), after.ravel().astype(float))[0, 1]
    return bool(likeness < LIT_LIKENESS)
