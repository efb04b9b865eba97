"""Finds hovers: presses on content that had opened because the pointer rested near it.

The frames before and during each rest of the pointer show whether the pressed content appeared. If
in doubt, the press is not a hover.
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

HOVER_S = 1.5  # seconds in which a resting pointer opens content; submenus opened within 1.3 s
# Maximum distance to the left or right of the pointer at which opened content begins, video pixels.
# Submenus began at up to 100 pixels.
HOVER_REACH_PX = 240
HOVER_LARGEST_SHARE = 0.3  # maximum share of the screen that an opened menu or card covers
REST_MS = 150  # milliseconds; a pointer on its way to another place stops more briefly
# Minimum distance in video pixels from a rest of the pointer to the press. A nearer pointer covers
# and highlights the pressed content.
AWAY_PX = 24.0
# Size of the area around a press that is compared, in video pixels:
PRESSED_PX = 16  # above and below the press; about the height of a menu line
ROW_PX = 120  # on the left and right of the press; enough to include letters of its line
MOST_RESTS = 8  # maximum number of the pointer's rests before a press; older rests are ignored
# Minimum correlation between the images of a row before and after it was highlighted; an estimate.
# With a lower correlation, the row shows new content, because a highlighted row keeps its letters.
LIT_LIKENESS = 0.8
# Maximum share of the opened content that may change until the press; an estimate. For example,
# highlighting a row changes a third of a menu with three rows.
GONE_SHARE = 0.6
# Maximum standard deviation of brightness (0 to 255) in a row without content; an estimate, above
# the noise of an encoder.
PLAIN_LEVELS = 4.0

_PRESSES = frozenset({"click", "double_click", "right_click", "drag"})


@dataclass
class _Rest:
    """A rest of the pointer before a press.

    Attributes:
        place, point: position of the pointer, in video pixels (`place`) and event space (`point`).
        since_ms: time at which the pointer came to rest, epoch milliseconds.
        before_s: a time right before the pointer arrived, video seconds.
        during_s: a later time, at which a menu would be open, video seconds.
        pointers: possible positions of the pointer in the frames at these times, video pixels.
        screen_before, screen_during: `Frame.quartered` of the frames at `before_s` and `during_s`.
    """

    place: Point
    point: Point
    since_ms: float
    before_s: float
    during_s: float
    pointers: Sequence[Point]
    screen_before: Luma | None = None
    screen_during: Luma | None = None


@dataclass
class _Press:
    """A press by a pointer that rested elsewhere before.

    Attributes:
        action_index: row of actions.parquet.
        place: place of the press, video pixels.
        arrives_s: the last time before the pointer reached this place, video seconds.
        rests: the pointer's rests before the press, in time order.
        screen: `Frame.quartered` of the frame at `arrives_s`.
    """

    action_index: int
    place: Point
    arrives_s: float
    rests: list[_Rest] = field(default_factory=list)
    screen: Luma | None = None


class HoverObserver:
    """The observer that finds presses on content that a resting pointer had opened.

    Args:
        actions, requests: in the same order.
        times: (frames,) times of all frames of the video, ascending seconds.
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
        wanted: list[float] = []
        for press in self._waiting:
            wanted += _wanted_times(press)
        numbers = np.searchsorted(times, np.array(wanted) + TIME_TOLERANCE_S, "right") - 1
        numbers = np.unique(numbers)
        self._times = [float(time) for time in times[numbers[numbers >= 0]]]
        self.spans = [Span(time, time) for time in self._times]
        self._last: tuple[float, Luma] | None = None
        self._next = 0
        self._hovers: list[Hover] = []

    def see(self, frame: Frame) -> None:
        """Processes the next frame in presentation order. Most frames are skipped."""
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
        """Stores a frame if a press needs it, and judges each press whose frames are complete.

        `until` is the time of the next frame that is needed, video seconds; infinite if there is
        none.
        """
        for press in list(self._waiting):
            if min(_wanted_times(press)) >= until - TIME_TOLERANCE_S:
                break
            for rest in press.rests:
                if rest.screen_before is None and rest.before_s < until - TIME_TOLERANCE_S:
                    rest.screen_before = luma
                if rest.screen_during is None and rest.during_s < until - TIME_TOLERANCE_S:
                    rest.screen_during = luma
            if press.arrives_s < until - TIME_TOLERANCE_S:
                press.screen = luma
                self._waiting.remove(press)
                self._judge(press)

    def _judge(self, press: _Press) -> None:
        """Adds a hover if a resting pointer opened the pressed content.

        The pointer may have rested on content that an earlier rest had opened, for example on the
        title of a submenu. The hover contains the places of all these rests.
        """
        openers: list[_Rest] = []
        place = press.place
        rests = press.rests
        screen = press.screen
        while rests and screen is not None:
            opener = next((rest for rest in reversed(rests) if _opened(rest, place, screen)), None)
            if opener is None:
                break
            openers.insert(0, opener)
            place = opener.place
            screen = opener.screen_before
            rests = rests[: rests.index(opener)]
        if openers:
            places = [HoverPlace(*rest.point, rest.since_ms) for rest in openers]
            self._hovers.append(Hover(action_index=press.action_index, places=tuple(places)))

    def result(self, misplaced: Collection[int] = ()) -> tuple[Hover, ...]:
        """Returns the hovers in the order of their presses. Call it after the last frame.

        Actions with indexes in `misplaced`, whose canvas was wrong, are left out.
        """
        return tuple(hover for hover in self._hovers if hover.action_index not in misplaced)


def waits_without_hovers(
    waits: Sequence[Wait], hovers: Sequence[Hover], clock: Clock
) -> list[Wait]:
    """Returns the waits, except waits for content that the pointer itself opened.

    A wait that was over before the pointer came to rest is kept.
    """
    opened_s = {hover.action_index: clock.video_time(hover.places[0].since_ms) for hover in hovers}
    never = float("inf")
    return [wait for wait in waits if wait.settled_s < opened_s.get(wait.action_index + 1, never)]


def _press_after_rest(
    action: Action, request: FrameRequest, pointer: VideoPointer
) -> _Press | None:
    """Returns the press of an action, and where the pointer had rested before at other places.

    Returns None if the action is not a press, or if the pointer did not rest elsewhere. Within
    `EFFECT_S` after the previous action, rests are ignored.
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
    places = [canvas.to_video(*point) for point in points]
    margin_s = pointer.frame_s + clock.uncertainty_ms / 1000
    press = _Press(request.action_index, pressed, request.limit)
    for number, (came_ms, left_ms) in enumerate(pairwise([*moments, float(action.press_ms)])):
        place = places[number]
        if dist(place, pressed) <= AWAY_PX or left_ms - came_ms < REST_MS:
            continue
        came_s = clock.video_time(came_ms)
        left_s = clock.video_time(left_ms)
        during_s = max(came_s, min(left_s - margin_s, came_s + HOVER_S))
        if during_s <= request.since + EFFECT_S:
            continue
        near = number
        while near > 0 and dist(places[near - 1], place) <= POINTER_PX:
            near -= 1
        before_s = max(clock.video_time(moments[near]) - margin_s, request.since)
        pointers = [*pointer.positions_near(before_s), *pointer.positions_near(during_s)]
        press.rests.append(_Rest(place, points[number], came_ms, before_s, during_s, pointers))
    away = (number for number, place in enumerate(places) if dist(place, pressed) > AWAY_PX)
    last_away = max(away, default=None)
    if not press.rests or last_away is None:
        return None
    press.rests = press.rests[-MOST_RESTS:]
    if last_away + 1 < len(moments):
        arrives_s = clock.video_time(moments[last_away + 1]) - margin_s
        press.arrives_s = max(min(request.limit, arrives_s), press.rests[-1].during_s)
    return press


def _wanted_times(press: _Press) -> list[float]:
    times = [press.arrives_s]
    for rest in press.rests:
        times += [rest.before_s, rest.during_s]
    return times


def _opened(rest: _Rest, place: Point, at_press: Luma) -> bool:
    """Whether the content at a place opened while the pointer rested nearby.

    The content must be connected with the surroundings of the pointer, be no larger than a menu,
    and stay until the press. A row that was only highlighted does not count.

    Args:
        place: the place, video pixels.
        at_press: `Frame.quartered` of the frame right before the press.
    """
    before = rest.screen_before
    during = rest.screen_during
    if before is None or during is None or dist(rest.place, place) <= AWAY_PX:
        return False
    changed = changed_cells(before, during, MEAN_LEVELS)
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
    gone = changed_cells(during, at_press, MEAN_LEVELS) & part
    if np.count_nonzero(gone) > GONE_SHARE * np.count_nonzero(part):
        return False
    rows, columns = cells_of(row)
    rows = slice(2 * rows.start, 2 * rows.stop)  # a cell has two samples per side
    columns = slice(2 * columns.start, 2 * columns.stop)
    return _is_replaced(before[rows, columns], during[rows, columns])


def _is_within(place: Point, part: Cells) -> bool:
    """Whether a place (video pixels) is inside the bounding box of the true cells."""
    rows = np.flatnonzero(part.any(axis=1))
    columns = np.flatnonzero(part.any(axis=0))
    row = int(place[1]) // BLOCK
    column = int(place[0]) // BLOCK
    if not len(rows):
        return False
    return bool(rows[0] <= row <= rows[-1] and columns[0] <= column <= columns[-1])


def _is_replaced(before: Luma, after: Luma) -> bool:
    """Whether `after` shows new content, not plain background or highlighted old content."""
    if after.std() <= PLAIN_LEVELS:
        return False
    if before.std() <= PLAIN_LEVELS:
        return True
    likeness = np.corrcoef(before.ravel().astype(float), after.ravel().astype(float))[0, 1]
    return bool(likeness < LIT_LIKENESS)
