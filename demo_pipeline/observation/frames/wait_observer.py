"""Looks at the screen between actions."""

import pickle
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import dist

import cv2
import numpy as np
from isal import isal_zlib

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.changes import (
    MEAN_LEVELS,
    POINTER_PX,
    Cells,
    cells_of,
    changed_cells,
    connected,
    with_neighbours,
)
from demo_pipeline.observation.frames.evidence import Wait
from demo_pipeline.observation.frames.frame_requests import EARLY_S, FrameRequest
from demo_pipeline.observation.frames.hovers import HOVER_REACH_PX, HOVER_S
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox, Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Luma, Span
from demo_pipeline.observation.frames.waits import (
    PART_SHARE,
    REACTION_S,
    TOGETHER_S,
    Interval,
    IntervalChanges,
    RestlessCells,
    may_be_wait,
    rest_after_answer,
    union,
)

LONGEST_S = 120.0  # seconds; what changes later than this after an action is not looked at
SAMPLE_S = 0.25  # seconds between two pictures: finer than a person's reaction
PLACE_PX = 24  # video pixels around a press: the letters of what was clicked
RESTING_PX = 1.0  # video pixels; a pointer that moved by less looks the same
GROUND_SAMPLES = 9  # of 4 x 4 pixels, to a side; lines of text cover less than half of that
_INK_LEVELS = 24  # of 255, between samples side by side; pale skeletons and fades have less


@dataclass
class _IntervalRecord:
    """Collects the changes of one interval, from pictures in order."""

    interval: Interval
    _before: list[Cells] = field(default_factory=list)
    _early: list[Cells] = field(default_factory=list)
    _late: list[tuple[float, Cells]] = field(default_factory=list)
    _hovered: Cells | None = None
    _first: Luma | None = None
    _last: Luma | None = None
    _at_limit: Luma | None = None
    _stood: Luma | None = None
    _answer: Cells | None = None
    is_hidden: bool = False  # in part: a frame was black

    @property
    def end(self) -> float:
        """When the second action shows its effect: the first sample after it is the last."""
        return self.interval.until + (0.0 if self.interval.place else TOGETHER_S)

    def see(self, time: float, luma: Luma, before: Luma, changed: Cells, hovered: Cells) -> None:
        """Take the next picture, and what changed since the one before.

        `hovered`: the cells that changed beside a pointer that had come there of late.
        """
        interval = self.interval
        if self._first is None:
            self._first = self._last = self._at_limit = before
        if time <= interval.pressed:
            self._first = luma
            if changed.any() and time > interval.earlier + EARLY_S:
                self._before.append(changed)
        elif time <= interval.since + EARLY_S:
            self._early.append(changed)
            self._stood = luma
        elif time <= interval.limit and time <= interval.since + LONGEST_S and changed.any():
            is_approach = time > interval.looked
            self._late.append((time, changed & ~hovered if is_approach else changed))
        if interval.pressed < time <= interval.looked and changed.any():
            earlier = np.zeros_like(changed) if self._hovered is None else self._hovered
            self._hovered = np.where(changed, hovered, earlier)
        if time <= interval.looked:
            self._last = luma
        if time <= interval.limit:
            self._at_limit = luma
        elif time <= self.end and self._at_limit is not None:
            self._answer = changed_cells(self._at_limit, luma, MEAN_LEVELS)

    def changes(self) -> IntervalChanges | None:
        """What was seen; None when the interval was not seen from before to after."""
        first = self._first
        last = self._last
        answer = self._answer
        if first is None or last is None:
            return None
        interval = self.interval
        new = changed_cells(first, last, MEAN_LEVELS)
        none = np.zeros_like(new)
        early = union(self._early, new)
        shown = _inked(last)
        place = answer
        if interval.place is not None:
            place = none.copy()
            place[cells_of(interval.place)] = True
        if place is None:
            return None
        return IntervalChanges(
            interval,
            place,
            early,
            self.late(),
            none if self._hovered is None else self._hovered,
            union(self._before, new),
            new & with_neighbours(shown),
            none if self._stood is None else early & shown & _blanked(self._stood, last),
        )

    def late(self) -> Sequence[tuple[float, Cells]]:
        """The changes after the first action's own effect.

        Without slight ones right before the second action, such as a text cursor's blink: they are
        not what the person acted on.
        """
        slight = PART_SHARE * max((np.count_nonzero(c) for _, c in self._late), default=0)
        seen = self.interval.until - REACTION_S
        return [(t, c) for t, c in self._late if t <= seen or np.count_nonzero(c) > slight]


def _inked(luma: Luma) -> Cells:
    """(rows, columns) of cells that show more than plain ground, such as letters or an edge."""
    around = np.ones((3, 3), np.uint8)
    lowest = cv2.erode(luma, around)
    highest = cv2.dilate(luma, around)
    return changed_cells(np.asarray(lowest, np.uint8), np.asarray(highest, np.uint8), _INK_LEVELS)


def _blanked(stood: Luma, last: Luma) -> Cells:
    """(rows, columns) of cells that were plain ground, and have the same ground in the end.

    A notification has a ground of its own.
    """
    grounds = _ground(stood), _ground(last)
    return ~_inked(stood) & ~changed_cells(*grounds, MEAN_LEVELS)


def _ground(luma: Luma) -> Luma:
    """The brightness that most samples around each have."""
    return np.asarray(cv2.medianBlur(np.ascontiguousarray(luma), GROUND_SAMPLES), np.uint8)


class WaitObserver:
    """Looks at the screen between the actions, and finds the pauses that were waits.

    Args:
        intervals: between successive actions, in their order.
        times: (frames,) of all frames of the video, ascending seconds.
        pointer: whose own picture and hover effects do not count.
    """

    def __init__(self, intervals: Sequence[Interval], times: Floats, pointer: VideoPointer) -> None:
        self._open = deque(_IntervalRecord(interval) for interval in intervals)
        self._pointer = pointer
        self._times = _sample_times(intervals, times)
        self.spans = [Span(time, time) for time in self._times]
        self._next = 0
        self._last: tuple[Luma, float] | None = None
        self._restless = RestlessCells()
        self._candidates: list[bytes] = []
        self._verdicts: dict[int, bool | None] = {one.pause: None for one in intervals}

    def see(self, frame: Frame) -> None:
        """Take the next frame in presentation order; most of them are skipped."""
        time = frame.time
        reached = bisect_right(self._times, time + TIME_TOLERANCE_S)
        if reached == self._next:
            return
        self._next = reached
        luma = frame.quartered
        last = self._last
        self._last = (luma, time)
        if last is None:
            return
        arrival = self._pointer.arrival(time)
        changed, hovered = self._changed(time, arrival, luma, *last)
        while self._open and time > self._open[0].end + SAMPLE_S:
            self._close(self._open.popleft())
        for record in self._open:
            if time <= record.interval.pressed - TOGETHER_S:
                break
            came_since = arrival > record.interval.since
            record.is_hidden |= frame.is_black
            record.see(time, luma, last[0], changed, hovered & came_since)

    def may_be_wait(self, pause: int) -> bool | None:
        """Whether a pause can turn out to be a wait; None: the action after it was not seen yet.

        False only when it was none whatever is restless.
        """
        return self._verdicts.get(pause, False)

    def result(self) -> list[Wait]:
        """The waits, in order; call after the last frame."""
        while self._open:
            self._close(self._open.popleft())
        waits = []
        for packed in self._candidates:
            changes: IntervalChanges = pickle.loads(isal_zlib.decompress(packed))  # noqa: S301 - our own
            rest = rest_after_answer(changes, self._restless.cells(changes))
            if rest is not None:
                interval = changes.interval
                settled_s = round(rest, 6)
                seconds = round(min(interval.seconds, rest - interval.since), 3)
                came = union((cells for _, cells in changes.late), changes.new) & changes.new
                acted_on = bool(interval.place and (changes.filled(came) & changes.place).any())
                known = {"action_index": interval.pause, "acted_on": acted_on}
                waits.append(Wait(**known, seconds=seconds, settled_s=settled_s))
        return waits

    def _changed(
        self, time: float, arrival: float, luma: Luma, last: Luma, last_time: float
    ) -> tuple[Cells, Cells]:
        """What changed since the last picture, without what is around a moving pointer.

        And what of it belongs to a change beside a pointer that came there of late.
        """
        changed = changed_cells(last, luma, MEAN_LEVELS)
        if not changed.any():
            return changed, changed
        near = self._pointer.positions_near
        pointers = [*near(last_time), *near(time)]
        if any(max(side) - min(side) > RESTING_PX for side in zip(*pointers, strict=True)):
            changed = changed & ~_around(pointers, changed, POINTER_PX)
        if time - arrival > HOVER_S:
            return changed, np.zeros_like(changed)
        reach = _around(pointers, changed, HOVER_REACH_PX)
        return changed, connected(changed, with_neighbours(reach))

    def _close(self, record: _IntervalRecord) -> None:
        """Learn from an interval; keep it when its pause may have been a wait."""
        changes = record.changes()
        interval = record.interval
        self._verdicts[interval.pause] = False
        if record.is_hidden:
            return
        self._restless.add(record.late(), changes)
        if changes is not None and changes.late and may_be_wait(changes):
            self._verdicts[interval.pause] = True
            # Maps of whole screens are mostly empty: a hundredth of the memory.
            self._candidates.append(isal_zlib.compress(pickle.dumps(changes), 0))


def intervals_between(
    actions: Sequence[Action], requests: Sequence[FrameRequest], pointer: VideoPointer
) -> list[Interval]:
    """The pauses between successive actions, as the frame requests place them in the video."""
    pauses: dict[int, Action] = {}
    acting: list[tuple[Action, FrameRequest]] = []
    for action, request in zip(actions, requests, strict=True):
        if action.action_type != "pause":
            acting.append((action, request))
        elif acting:
            longest = pauses.get(len(acting))
            if longest is None or (action.seconds or 0) > (longest.seconds or 0):
                pauses[len(acting)] = action
    found = []
    earlier = float("-inf")
    clock = pointer.clock
    for number, ((before, first), (after, second)) in enumerate(pairwise(acting), start=1):
        since = second.since
        pause = pauses.get(number)
        if pause is not None and second.press > since:
            looked = clock.video_time(pause.end_ms)
            place = _place(second)
            origin = _place(first)
            is_wheel = after.action_type == "scroll"
            if is_wheel and place and origin and dist(place[:2], origin[:2]) <= PLACE_PX:
                place = None
            found.append(
                Interval(
                    earlier,
                    first.press,
                    since,
                    min(looked, second.limit),
                    second.limit,
                    second.press,
                    place,
                    pause.action_index,
                    pause.seconds or 0.0,
                    origin,
                )
            )
        earlier = max(earlier, clock.video_time(before.end_ms))
    return found


def _place(request: FrameRequest) -> PixelBox | None:
    area = request.target_area
    canvas = request.canvas
    if area is None or canvas is None:
        return None
    return PixelBox.around(canvas.to_video(area.x, area.y), PLACE_PX)


def _sample_times(intervals: Sequence[Interval], times: Floats) -> list[float]:
    """Times of the frames that are looked at: closely when an answer may be awaited."""
    if not intervals or not len(times):
        return []
    wanted = []
    for one in intervals:
        late = one.since + EARLY_S
        wanted.append(np.array([one.pressed - TOGETHER_S, one.pressed, late, one.limit]))
        wanted.append(np.arange(late, min(one.limit, one.since + LONGEST_S), SAMPLE_S))
        if one.place is None:
            wanted.append(np.array([one.until + TOGETHER_S]))
    grid = np.unique(np.concatenate(wanted))
    shown = np.unique(np.searchsorted(times, grid + TIME_TOLERANCE_S, side="right") - 1)
    return [float(time) for time in times[shown[shown >= 0]]]


def _around(pointers: Sequence[Point], like: Cells, across: int) -> Cells:
    """(rows, columns): cells as near to the pointer as its own picture, or as `across` in a row."""
    around = np.zeros_like(like)
    for x, y in set(pointers):
        around[cells_of(PixelBox(x - across, y - POINTER_PX, 2 * across, 2 * POINTER_PX))] = True
    return around
