"""The observer that finds the waits among the pauses, from a few pictures a second.

Belongs here: which pictures are looked at, and the order of the judgement. A pause is judged when
the whole video has been seen, as only then it is known what moves by itself.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.change_detection import (
    POINTER_PX,
)
from demo_pipeline.observation.frames.changed_cells import BLOCK, Cells, changed_cells
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.interval_changes import (
    ANSWER_S,
    BEFORE_S,
    EARLY_S,
    LONGEST_S,
    MEAN_LEVELS,
    Interval,
    IntervalRecord,
    PackedChanges,
    Sample,
)
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox, Point
from demo_pipeline.observation.frames.restless_cells import RestlessCells
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Luma, Span
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.waits import (
    Wait,
    filled,
    may_be_wait,
    rest_after_answer,
)

SAMPLE_S = 0.25  # seconds between two pictures: finer than a person's reaction
PLACE_PX = 24  # video pixels around a press: the letters of what was clicked
HOVER_S = 1.5  # seconds; menus, cards and tips open within these of the pointer's coming to rest
HOVER_REACH_PX = 240  # video pixels from the pointer to the submenu beside its item
RESTING_PX = 1.0  # video pixels; a pointer that moved by less looks the same


class WaitObserver:
    """Looks at the screen between the actions, and finds the pauses that were waits.

    Args:
        intervals: between successive actions, in their order.
        times: (frames,) of all frames of the video, ascending seconds.
        pointer: whose own picture and hover effects do not count.
    """

    def __init__(self, intervals: Sequence[Interval], times: Floats, pointer: VideoPointer) -> None:
        self._open = deque(IntervalRecord(interval) for interval in intervals)
        self._pointer = pointer
        self._times = _sample_times(intervals, times)
        self.spans = [Span(time, time) for time in self._times]
        self._next = 0
        self._last: tuple[Luma, float] | None = None
        self._restless = RestlessCells()
        self._candidates: list[PackedChanges] = []
        self._undecided = {interval.pause for interval in intervals}
        self._possible: set[int] = set()

    def see(self, frame: Frame) -> None:
        """Take the next frame in presentation order; most of them are skipped."""
        time = frame.time
        if self._next == len(self._times) or time < self._times[self._next] - TIME_TOLERANCE_S:
            return
        while self._next < len(self._times) and self._times[self._next] <= time + TIME_TOLERANCE_S:
            self._next += 1
        last = self._last
        self._last = (frame.quartered, time)
        if last is None or last[0].shape != frame.quartered.shape:
            return
        sample = self._compared(time, frame.quartered, *last)
        while self._open and time > self._open[0].end + SAMPLE_S:
            self._close(self._open.popleft())
        for record in self._open:
            if time <= record.begin:
                break
            record.see(sample)

    def may_be_wait(self, pause: int) -> bool | None:
        """Whether a pause can turn out to be a wait; None: the action after it was not seen yet.

        False only when it was none whatever is restless.
        """
        return None if pause in self._undecided else pause in self._possible

    def result(self) -> list[Wait]:
        """The waits, in order; call after the last frame."""
        while self._open:
            self._close(self._open.popleft())
        waits = []
        for packed in self._candidates:
            changes = packed.unpacked()
            rest = rest_after_answer(changes, self._restless.cells(changes.new))
            if rest is not None:
                waits.append(Wait(packed.pause, packed.seconds, rest))
        return waits

    def _compared(self, time: float, luma: Luma, last: Luma, last_time: float) -> Sample:
        """What changed since the last picture."""
        changed = changed_cells(last, luma, MEAN_LEVELS)
        hovered = np.zeros_like(changed)
        arrival = self._pointer.arrival(time)
        if changed.any():
            near = self._pointer.positions_near
            pointers = [*near(last_time), *near(time)]
            if _is_moving(pointers):
                changed = changed & ~_around(pointers, changed, POINTER_PX)
            if time - arrival <= HOVER_S:
                hovered = _beside(changed, _around(pointers, changed, HOVER_REACH_PX))
        return Sample(time, last, luma, changed, hovered, arrival)

    def _close(self, record: IntervalRecord) -> None:
        """Learn from an interval; keep it when its pause may have been a wait."""
        changes, interval = record.changes(), record.interval
        self._restless.add(interval.since, record.late(), changes)
        self._undecided.discard(interval.pause)
        if changes is not None and changes.late and may_be_wait(changes):
            self._possible.add(interval.pause)
            self._candidates.append(PackedChanges.of(interval, changes))


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
    for number, ((before, first), (_, second)) in enumerate(pairwise(acting), start=1):
        since, pause = second.since, pauses.get(number)
        if pause is not None and second.press > since:
            looked = clock.video_time(pause.end_ms)
            found.append(
                Interval(
                    earlier,
                    first.press,
                    since,
                    min(looked, second.limit),
                    second.limit,
                    second.press,
                    _place(second),
                    pause.action_index,
                    pause.seconds or 0.0,
                )
            )
        earlier = max(earlier, clock.video_time(before.end_ms))
    return found


def _place(request: FrameRequest) -> PixelBox | None:
    area, canvas = request.target_area, request.canvas
    if area is None or canvas is None:
        return None
    x, y = canvas.to_video(area.x, area.y)
    return PixelBox(x - PLACE_PX, y - PLACE_PX, 2 * PLACE_PX, 2 * PLACE_PX)


def _sample_times(intervals: Sequence[Interval], times: Floats) -> list[float]:
    """Times of the frames that are looked at: closely when an answer may be awaited."""
    if not intervals or not len(times):
        return []
    wanted = []
    for one in intervals:
        late = one.since + EARLY_S
        wanted.append(np.array([one.pressed - BEFORE_S, one.pressed, late, one.limit]))
        wanted.append(np.arange(late, min(one.limit, one.since + LONGEST_S), SAMPLE_S))
        if one.place is None:
            wanted.append(np.array([one.until + ANSWER_S]))
    grid = np.unique(np.concatenate(wanted))
    shown = np.unique(np.searchsorted(times, grid + TIME_TOLERANCE_S, side="right") - 1)
    return [float(time) for time in times[shown[shown >= 0]]]


def _is_moving(pointers: Sequence[Point]) -> bool:
    sides = list(zip(*pointers, strict=True))
    return any(max(side) - min(side) > RESTING_PX for side in sides)


def _around(pointers: Sequence[Point], like: Cells, across: int) -> Cells:
    """(rows, columns): cells as near to the pointer as its own picture, or as `across` in a row."""
    around = np.zeros_like(like)
    for x, y in set(pointers):
        top, bottom = (max(0, int((y + side) // BLOCK)) for side in (-POINTER_PX, POINTER_PX))
        left, right = (max(0, int((x + side) // BLOCK)) for side in (-across, across))
        around[top : bottom + 1, left : right + 1] = True
    return around


def _beside(changed: Cells, around: Cells) -> Cells:
    """The regions of `changed`, across the gaps between lines, that reach the pointer's cells."""
    mask = (filled(changed) | around).view(np.uint8)
    left, top, width, height = cv2.boundingRect(mask)
    part = (slice(top, top + height), slice(left, left + width))
    count, labels = cv2.connectedComponents(mask[part], connectivity=8)
    reaching = np.zeros(count, bool)
    reaching[labels[around[part]]] = True
    beside: Cells = np.zeros_like(changed)
    beside[part] = reaching[labels] & changed[part]
    return beside
