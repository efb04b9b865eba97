"""Collects the changes of the screen between actions, so that waits.py can find the waits.

A wait is a pause in which the person waited until the screen answered an action.
"""

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

LONGEST_S = 120.0  # seconds after an action; later changes are not observed
SAMPLE_S = 0.25  # seconds between two compared frames; a person's reaction takes longer
PLACE_PX = 24  # video pixels around a press, enough to include letters of the clicked element
RESTING_PX = 1.0  # maximum movement of a resting pointer, video pixels
# The background is the median of a square with this side, in samples of 4 x 4 pixels. Lines of
# text cover less than half of such a square.
GROUND_SAMPLES = 9
# Minimum brightness difference between neighbouring samples of content, in levels (0 to 255). The
# pale shapes of a skeleton screen differ less from their surroundings.
_INK_LEVELS = 24


@dataclass
class _IntervalRecord:
    """Collects the changes of the screen in one interval, frame by frame."""

    interval: Interval
    _before: list[Cells] = field(default_factory=list)
    _early: list[Cells] = field(default_factory=list)
    _late: list[tuple[float, Cells]] = field(default_factory=list)
    _hovered: Cells | None = None
    _first: Luma | None = None
    _last: Luma | None = None
    _at_limit: Luma | None = None
    _after_effect: Luma | None = None
    _answer: Cells | None = None
    is_hidden: bool = False  # whether any frame was black

    @property
    def end(self) -> float:
        """The time at which the observation of the interval ends, video seconds.

        The observation ends when the second action starts or, if the interval has no `place`,
        `TOGETHER_S` later, to include the second action's effect.
        """
        if self.interval.place is not None:
            return self.interval.until
        return self.interval.until + TOGETHER_S

    def see(self, time: float, luma: Luma, before: Luma, changed: Cells, hovered: Cells) -> None:
        """Processes the next compared frame.

        Args:
            time: time of the frame, video seconds.
            luma: luma of the frame, as in `Frame.quartered`.
            before: luma of the previously compared frame.
            hovered: the cells that changed beside a pointer soon after the pointer arrived.
        """
        interval = self.interval
        if self._first is None:
            self._first = before
            self._last = before
            self._at_limit = before
        if time <= interval.pressed:
            self._first = luma
            if changed.any() and time > interval.earlier + EARLY_S:
                self._before.append(changed)
        elif time <= interval.since + EARLY_S:
            self._early.append(changed)
            self._after_effect = luma
        elif time <= interval.limit and time <= interval.since + LONGEST_S and changed.any():
            if time > interval.looked:  # the moving pointer may cause hover effects on its way
                self._late.append((time, changed & ~hovered))
            else:
                self._late.append((time, changed))
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
        """Returns the changes of the interval.

        Returns None if no frame was seen or, for an interval without a `place`, if no frame between
        `limit` and `end` was seen.
        """
        first = self._first
        last = self._last
        if first is None or last is None:
            return None
        interval = self.interval
        changed = changed_cells(first, last, MEAN_LEVELS)
        no_cells = np.zeros_like(changed)
        place = self._answer
        if interval.place is not None:
            place = no_cells.copy()
            place[cells_of(interval.place)] = True
        if place is None:
            return None
        early = union(self._early, changed)
        content = _content(last)
        returned = no_cells
        if self._after_effect is not None:
            returned = early & content & _was_blank(self._after_effect, last)
        return IntervalChanges(
            interval,
            place=place,
            early=early,
            late=self.late(),
            hovered=no_cells if self._hovered is None else self._hovered,
            moving_before=union(self._before, changed),
            new=changed & with_neighbours(content),
            returned=returned,
        )

    def late(self) -> Sequence[tuple[float, Cells]]:
        """Returns the changes (with times) after the direct effect of the interval's first action.

        Slight changes right before the second action, such as the blink of a text cursor, are left
        out.
        """
        counts = [np.count_nonzero(cells) for _, cells in self._late]
        slight = PART_SHARE * max(counts, default=0)
        latest_seen = self.interval.until - REACTION_S
        return [
            (time, cells)
            for (time, cells), count in zip(self._late, counts, strict=True)
            if time <= latest_seen or count > slight
        ]


def _content(luma: Luma) -> Cells:
    """Returns a map (rows, columns) of the cells with letters or edges, not plain background."""
    around = np.ones((3, 3), np.uint8)
    lowest = cv2.erode(luma, around)
    highest = cv2.dilate(luma, around)
    return changed_cells(np.asarray(lowest, np.uint8), np.asarray(highest, np.uint8), _INK_LEVELS)


def _was_blank(before: Luma, after: Luma) -> Cells:
    """Returns a map (rows, columns) of the cells that had no content and kept their background."""
    background_changed = changed_cells(_background(before), _background(after), MEAN_LEVELS)
    return ~_content(before) & ~background_changed


def _background(luma: Luma) -> Luma:
    """Returns the background brightness at each sample: the median of the samples around it."""
    return np.asarray(cv2.medianBlur(np.ascontiguousarray(luma), GROUND_SAMPLES), np.uint8)


class WaitObserver:
    """The observer that finds the pauses in which the person waited for the screen.

    Changes around a moving pointer are ignored.

    Args:
        intervals: the intervals between successive actions, in order of time.
        times: (frames,) times of all frames of the video, ascending seconds.
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
        self._verdicts: dict[int, bool | None] = {interval.pause: None for interval in intervals}

    def see(self, frame: Frame) -> None:
        """Processes the next frame in presentation order. Most frames are skipped."""
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
            came_since_action = arrival > record.interval.since
            record.is_hidden |= frame.is_black
            record.see(time, luma, last[0], changed, hovered & came_since_action)

    def may_be_wait(self, pause: int) -> bool | None:
        """Whether the pause with this action index may be a wait.

        Returns None until all frames of the interval were seen. False is final, but a pause with
        True may still turn out not to be a wait.
        """
        return self._verdicts.get(pause, False)

    def result(self) -> list[Wait]:
        """Returns the waits in order. Call it after the last frame."""
        while self._open:
            self._close(self._open.popleft())
        waits = []
        for packed in self._candidates:
            changes: IntervalChanges = pickle.loads(isal_zlib.decompress(packed))  # noqa: S301 - pickled by `_close`
            rest = rest_after_answer(changes, self._restless.cells(changes))
            if rest is None:
                continue
            interval = changes.interval
            new_content = union((cells for _, cells in changes.late), changes.new) & changes.new
            is_at_place = (changes.filled(new_content) & changes.place).any()
            waits.append(
                Wait(
                    action_index=interval.pause,
                    seconds=round(min(interval.seconds, rest - interval.since), 3),
                    settled_s=round(rest, 6),
                    acted_on=bool(interval.place and is_at_place),
                )
            )
        return waits

    def _changed(
        self, time: float, arrival: float, luma: Luma, last: Luma, last_time: float
    ) -> tuple[Cells, Cells]:
        """Returns the cells that changed since the last compared frame, and those that are hovered.

        Cells around a moving pointer are left out. Hovered cells are connected with the
        surroundings of a pointer that arrived at most `HOVER_S` ago.

        Args:
            time: time of the newest frame, video seconds.
            arrival: when the pointer arrived at its position, video seconds.
            luma: luma of the newest frame, as in `Frame.quartered`.
            last: luma of the last compared frame.
            last_time: time of the last compared frame, video seconds.
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
        """Ends an interval: counts restless cells, and stores the changes of a possible wait."""
        changes = record.changes()
        interval = record.interval
        self._verdicts[interval.pause] = False
        if record.is_hidden:
            return
        self._restless.add(record.late(), changes)
        if changes is not None and changes.late and may_be_wait(changes):
            self._verdicts[interval.pause] = True
            # Few cells change, so the compressed maps take a hundredth of the memory.
            self._candidates.append(isal_zlib.compress(pickle.dumps(changes), 0))


def intervals_between(
    actions: Sequence[Action], requests: Sequence[FrameRequest], pointer: VideoPointer
) -> list[Interval]:
    """Returns the intervals between successive actions with a logged pause between them.

    If there are several pauses between two actions, the longest one is used. `actions` and
    `requests` are in the same order.
    """
    pauses: dict[int, Action] = {}
    acting: list[tuple[Action, FrameRequest]] = []
    for action, request in zip(actions, requests, strict=True):
        if action.action_type != "pause":
            acting.append((action, request))
        elif acting:
            longest = pauses.get(len(acting))
            if longest is None or (action.seconds or 0) > (longest.seconds or 0):
                pauses[len(acting)] = action
    intervals = []
    earlier = float("-inf")
    clock = pointer.clock
    for number, ((before, first), (after, second)) in enumerate(pairwise(acting), start=1):
        since = second.since
        pause = pauses.get(number)
        if pause is not None and second.press > since:
            looked = clock.video_time(pause.end_ms)
            place = _place(second)
            origin = _place(first)
            is_scroll = after.action_type == "scroll"
            if is_scroll and place and origin and dist(place[:2], origin[:2]) <= PLACE_PX:
                place = None
            intervals.append(
                Interval(
                    earlier=earlier,
                    pressed=first.press,
                    since=since,
                    looked=min(looked, second.limit),
                    limit=second.limit,
                    until=second.press,
                    place=place,
                    pause=pause.action_index,
                    seconds=pause.seconds or 0.0,
                    origin=origin,
                )
            )
        earlier = max(earlier, clock.video_time(before.end_ms))
    return intervals


def _place(request: FrameRequest) -> PixelBox | None:
    """Returns the box that extends `PLACE_PX` around a press, video pixels; None for keys."""
    area = request.target_area
    canvas = request.canvas
    if area is None or canvas is None:
        return None
    return PixelBox.around(canvas.to_video(area.x, area.y), PLACE_PX)


def _sample_times(intervals: Sequence[Interval], times: Floats) -> list[float]:
    """Returns the times of the frames to compare, ascending video seconds.

    There is one frame every `SAMPLE_S` while the screen may still react to an action.
    """
    if not intervals or not len(times):
        return []
    wanted = []
    for interval in intervals:
        pressed = interval.pressed
        late = interval.since + EARLY_S
        wanted.append(np.array([pressed - TOGETHER_S, pressed, late, interval.limit]))
        wanted.append(np.arange(late, min(interval.limit, interval.since + LONGEST_S), SAMPLE_S))
        if interval.place is None:
            wanted.append(np.array([interval.until + TOGETHER_S]))
    moments = np.unique(np.concatenate(wanted))
    numbers = np.unique(np.searchsorted(times, moments + TIME_TOLERANCE_S, side="right") - 1)
    return [float(time) for time in times[numbers[numbers >= 0]]]


def _around(pointers: Sequence[Point], like: Cells, across: int) -> Cells:
    """Returns a map of the cells around the pointers, of the same size as the map `like`.

    The map covers `across` video pixels to the left and right, and `POINTER_PX` above and below.
    """
    around = np.zeros_like(like)
    for x, y in set(pointers):
        around[cells_of(PixelBox(x - across, y - POINTER_PX, 2 * across, 2 * POINTER_PX))] = True
    return around
