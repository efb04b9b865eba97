"""Waits: pauses in which the screen answered the last action and the person acted on the answer.

Belongs here: which pictures between two actions are looked at, what changed in them, the rule that
turns a `pause` into a `wait` by it, and which cells move by themselves: carousels, spinners, clips,
fading toasts, clocks. Only at the end of the video is that known, so that pauses are judged then.
Other pauses are thinking; in doubt a pause is not a wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.changes import (
    LARGE_SHARE,
    MIN_SIGNIFICANT_CELLS,
    SMALL_CELLS,
    Cells,
    box_share,
    cells_of,
    connected,
    filled,
    is_notable,
    with_neighbours,
)
from demo_pipeline.observation.frames.hovers import HOVER_LARGEST_SHARE
from demo_pipeline.observation.frames.pointer_path import PixelBox

REACTION_S = 0.3  # seconds; the soonest press on what was awaited came after 0.39
TOGETHER_S = 0.5  # seconds; closer changes are one; keys wrote within 0.4
LEAST_S = 1.5  # seconds to an answer; at 1 second one was invented in 26 films, at 2 five missed
PAUSE_S = 2.0  # seconds; a screen left at rest for longer was read, not waited for
READING_S = 10.0  # seconds; unless it had answered: who reads that for longer thinks about it
AT_WORK_TIMES = 5  # changes of a bar, a spinner, lines of text; fewer may be chance
PART_SHARE = 0.3  # skeletons shared 0.39 to 0.76 with the content; a fading status line had 0.18
KEY_REACH = 4  # times as many cells as appeared; keys that did not answer changed 5.4 to 27 times
HOVERED_SHARE = 0.5  # of what appeared; more of it beside a moving pointer: it opened that itself
COLUMN_GAP, ROW_GAP = 0.25, 0.05  # of the screen's sides; between columns and lines of one table
SCREEN_HEIGHT = 0.5  # of the screen's; pages and lists that were awaited changed 0.6 to 0.95 of it
RHYTHM_TIMES = 3  # changes at one place have a rhythm; two may be a start and its end
RHYTHM_REST = 1.5  # times the longest gap of a rhythm; chosen, so that its period may vary


@dataclass(frozen=True)
class Interval:
    """The time between two actions, video seconds.

    Attributes:
        earlier: end of the action before the first of the two; minus infinity without one.
        pressed: when the first one began.
        since: when it had ended.
        looked: when the pointer started towards the second one; `limit` when it did not move.
        limit: the latest time of a frame that certainly shows the screen before the second one.
        until: when the second one began.
        place: around the second one's press, video pixels; None for keys, and for a wheel that was
            turned where the first one's press was: its effect shows what it was turned for.
        origin: around the first one's press, video pixels; None for keys.
        pause: row of actions.parquet of the pause between the two.
        seconds: its length.
    """

    earlier: float
    pressed: float
    since: float
    looked: float
    limit: float
    until: float
    place: PixelBox | None
    pause: int
    seconds: float
    origin: PixelBox | None = None


@dataclass(frozen=True)
class IntervalChanges:
    """What changed between two actions; cells: (rows, columns).

    Attributes:
        interval: between the two.
        place: cells at the second one's press; of a key, the cells that it changed.
        early: changed so soon after the first action that it is the action's own effect.
        late: the changes after that, each with its time.
        hovered: last changed beside a pointer that had moved away from the first action.
        moving_before: still changed right before the first action.
        new: show something that was not there before the first action; plain ground is nothing.
        returned: show what the first action's own effect took away, as a spinner takes the place of
            a list that comes back.
    """

    interval: Interval
    place: Cells
    early: Cells
    late: Sequence[tuple[float, Cells]]
    hovered: Cells
    moving_before: Cells
    new: Cells
    returned: Cells

    def filled(self, cells: Cells) -> Cells:
        """Cells that changed together and what is between them, in which the next action may be.

        A pointer is on a line or between the columns of what appeared; keys act in the window, and
        only its columns are known.
        """
        return columns_of(cells) if self.interval.place is None else filled_between(cells)


def rest_after_answer(changes: IntervalChanges, restless: Cells) -> float | None:
    """When the screen's answer to the last action came to rest, if the person waited for it.

    None: nothing shows that the person waited. What shows it, by `restless` cells left out:

    1. Something new stands where the next action is: it came at least `EARLY_S` after the last
       action, was not there before that action, and was at rest when the person acted.
    2. Or, wherever the next action is, what came at once (a skeleton, a spinner, a label as
       "Loading", a row of dots) stood for the answer, and gave way to it.
    3. Or the place of the next action is part of what the last action brought up at once, and
       something in there was busy until then, and came to rest.

    Args:
        changes: what changed between the two actions.
        restless: (rows, columns) of cells that move by themselves.
    """
    still = ~with_neighbours(restless | with_neighbours(changes.moving_before))
    place = changes.place & still
    late = [(time, cells & still) for time, cells in changes.late]
    return (
        _appeared(changes, place, late)
        or _in_time(changes, *_gave_way(changes, late))
        or _was_busy(changes, place, late, still)
    )


def may_be_wait(changes: IntervalChanges) -> bool:
    """False when no more than noise came after the first action's own effect.

    No cell is left out, so that it holds whatever is found to move by itself.
    """
    return is_notable(union((cells for _, cells in changes.late), changes.place))


def _appeared(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]]
) -> float | None:
    """When the new content at the place came to rest: the first kind of wait."""
    solid = (_solid(changes, cells) if is_notable(cells) else cells for _, cells in late)
    region = _joined_with(union(solid, place), place, changes)
    rest = max((time for time, cells in late if is_notable(cells & region)), default=float("-inf"))
    last = _together(late, rest, place) & region
    new = last & changes.new
    answered = np.count_nonzero(changes.early & place) >= SMALL_CELLS
    shown = region if answered else region & _solid(changes, new)
    if not is_notable(last if answered else new) or not _is_inside(place, shown, changes):
        return None
    if _is_hover_effect(last, changes.hovered) or _goes_on(changes, late, region):
        return None
    earlier = union((cells for time, cells in late if time < rest - TOGETHER_S), place)
    had_stand_in = answered or is_notable(earlier & last)  # a pale one shows by its shimmer alone
    is_new = had_stand_in and is_notable(new) and rest - changes.interval.since >= PAUSE_S
    return _in_time(changes, rest, READING_S if is_new else PAUSE_S)


def _solid(changes: IntervalChanges, cells: Cells) -> Cells:
    """What appeared, with what is between; of another screen, all that is inside its outline."""
    rows, columns = (np.flatnonzero(cells.any(axis=axis)) for axis in (1, 0))
    solid = changes.filled(cells)
    tall = len(rows) and rows[-1] - rows[0] >= SCREEN_HEIGHT * len(cells)
    if tall and np.count_nonzero(cells) >= LARGE_SHARE * cells.size:
        solid = solid.copy()
        solid[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
    return solid


def _gave_way(
    changes: IntervalChanges, late: Sequence[tuple[float, Cells]]
) -> tuple[float | None, float]:
    """When what had come at once gave way to something new; and how long that may be looked at.

    A stand-in for most of the answer, as a skeleton of a page, and a label that was pressed, tell
    of a wait however long the answer is read; a line elsewhere if the person acts on it soon, and
    something new came beside it: a toast that goes away uncovers what came with it. What moves by
    itself may be the stand-in, not the answer; what moved before, or goes on, is neither.
    """
    interval = changes.interval
    early = changes.early
    nothing = (None, PAUSE_S)
    rest = max((time for time, cells in late if is_notable(cells)), default=float("-inf"))
    if rest - interval.since < LEAST_S or rest > interval.looked:
        return nothing
    last, whole = (_together(those, rest, early) for those in (late, changes.late))
    moves_on = union((cells for time, cells in changes.late if time > rest + TOGETHER_S), early)
    stand_in = early & ~with_neighbours(changes.moving_before | moves_on)
    came = last & (changes.new | changes.returned) & ~changes.hovered
    stood = np.count_nonzero(whole & with_neighbours(stand_in))
    if min(stood, np.count_nonzero(came)) < MIN_SIGNIFICANT_CELLS:
        return nothing
    most = max(np.count_nonzero(last), np.count_nonzero(early))
    is_read = np.count_nonzero(last & early) >= PART_SHARE * most
    if interval.origin is not None:
        pressed = np.zeros_like(early)
        pressed[cells_of(interval.origin)] = True
        is_read |= np.count_nonzero(whole & early & pressed) >= MIN_SIGNIFICANT_CELLS
    elsewhere = np.count_nonzero(came & changes.new & ~with_neighbours(early))
    if not is_read and elsewhere < MIN_SIGNIFICANT_CELLS:
        return nothing
    return rest, READING_S if is_read else PAUSE_S


def _was_busy(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]], still: Cells
) -> float | None:
    """When what was busy in the answer came to rest: the third kind of wait.

    It is busy at one place, as a bar, a spinner or growing lines of text are: scattered remains of
    what moves by itself are not.
    """
    seen = union((cells for _, cells in late), place)
    answer = _joined_with(changes.early & still | seen, place, changes)
    if not _is_inside(place, answer & changes.new, changes):
        return None
    inside = [(time, cells & answer) for time, cells in late if time <= changes.interval.looked]
    busy = [(time, cells) for time, cells in inside if np.count_nonzero(cells) >= SMALL_CELLS]
    if not busy:
        return None
    part = connected(union((cells for _, cells in busy), place), busy[-1][1])
    times = [time for time, cells in busy if np.count_nonzero(cells & part) >= SMALL_CELLS]
    if len(times) < AT_WORK_TIMES or not is_notable(answer & seen):
        return None
    if _goes_on(changes, late, answer):
        return None
    return _in_time(changes, times[-1])


def _goes_on(changes: IntervalChanges, late: Sequence[tuple[float, Cells]], region: Cells) -> bool:
    """Whether a region changes in a rhythm and did not rest for longer than that.

    The output of a loop, which the person acts on between two lines or stops, is not awaited.
    """
    beats: list[float] = []
    ended = float("-inf")
    for time, cells in late:
        if np.count_nonzero(cells & region) < MIN_SIGNIFICANT_CELLS:
            continue
        if time - ended > TOGETHER_S:
            beats.append(time)
        ended = time
    if len(beats) < RHYTHM_TIMES:
        return False
    gap = float(np.median(np.diff(beats)))
    return changes.interval.until - ended < RHYTHM_REST * gap


def _in_time(
    changes: IntervalChanges, rest: float | None, longest: float = READING_S
) -> float | None:
    """`rest` if the screen rested when the person acted, but not for long."""
    interval = changes.interval
    if rest is None or interval.until - rest < REACTION_S:
        return None
    return rest if interval.looked - rest <= longest else None


def _is_hover_effect(new: Cells, hovered: Cells) -> bool:
    """Whether what appeared may have been opened by the pointer, as menus and cards are."""
    beside = new & hovered
    is_most = np.count_nonzero(beside) > HOVERED_SHARE * np.count_nonzero(new)
    return bool(is_most) and box_share(beside) <= HOVER_LARGEST_SHARE


def _is_inside(place: Cells, region: Cells, changes: IntervalChanges) -> bool:
    """Whether the next action is at a place of the region.

    A pointer has to be at changed cells; what keys wrote may stand beside them. Keys that change
    much more than appeared, as those that bring another window up, did not wait for that.
    """
    if changes.interval.place is not None:
        return bool(np.count_nonzero(place & region) >= SMALL_CELLS)
    far = np.count_nonzero(place) > KEY_REACH * np.count_nonzero(region & changes.new)
    return not far and bool(np.count_nonzero(connected(place, filled(region))) >= SMALL_CELLS)


def _joined_with(cells: Cells, place: Cells, changes: IntervalChanges) -> Cells:
    """Those of `cells` that are connected with the place, across gaps as between lines of text."""
    by_key = changes.interval.place is None
    return connected(cells, with_neighbours(place) if by_key else place & cells)


def filled_between(cells: Cells) -> Cells:
    """The cells and those between them, as between the columns of a table that appeared at once."""
    rows, columns = cells.shape
    sides = (max(1, round(columns * COLUMN_GAP)), max(1, round(rows * ROW_GAP)))
    if not cells.any():
        return cells
    padded = np.pad(cells.astype(np.uint8), [(side, side) for side in sides[::-1]])
    closed = cv2.morphologyEx(padded, cv2.MORPH_CLOSE, np.ones(sides[::-1], np.uint8))
    inside: Cells = closed[sides[1] : sides[1] + rows, sides[0] : sides[0] + columns] > 0
    return inside


def columns_of(cells: Cells) -> Cells:
    """All cells above, below and between some: the window in which they changed, at most."""
    columns = np.flatnonzero(cells.any(axis=0))
    window = np.zeros_like(cells)
    if len(columns):
        window[:, columns[0] : columns[-1] + 1] = True
    return window


def union(maps: Iterable[Cells], like: Cells) -> Cells:
    """The cells that are set in any of the maps; `like`: of the same size."""
    found = np.zeros_like(like)
    for cells in maps:
        found |= cells
    return found


def _together(late: Sequence[tuple[float, Cells]], when: float, like: Cells) -> Cells:
    """The cells that changed about then; `like`: of the same size."""
    return union((cells for time, cells in late if abs(time - when) <= TOGETHER_S), like)


RESTLESS_TIMES = 2  # a place that changed unasked twice does so by itself; once may be an answer

CellCounts = np.ndarray[Any, np.dtype[np.int32]]  # (2, rows, columns)


class RestlessCells:
    """Counts, for each cell, how often it changed without a reason and how often with one."""

    def __init__(self) -> None:
        self._counts: CellCounts | None = None

    def add(self, late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> None:
        """Count what changed long after an action.

        Args:
            late: what changed then.
            changes: of the interval, when it tells where the next action was.
        """
        if not late:
            return
        if self._counts is None:
            self._counts = np.zeros((2, *late[0][1].shape), np.int32)
        self._counts += _reasons(late, changes)

    def cells(self, changes: IntervalChanges) -> Cells:
        """(rows, columns): the cells that move by themselves, and their neighbours.

        What changed once in the interval itself may be the answer that is looked for.
        """
        if self._counts is None:
            return np.zeros_like(changes.new)
        unasked, asked = self._counts
        if changes.late:
            unasked = unasked - (_reasons(changes.late, changes)[0] == 1)
        often = (unasked >= RESTLESS_TIMES) & (2 * unasked >= asked)
        return with_neighbours(often)


def _reasons(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> CellCounts:
    """How often each cell changed without a reason and with one; arguments as of `add`."""
    unasked, asked = counts = np.zeros((2, *late[0][1].shape), np.int32)
    awaited = _awaited(late, changes)
    seen = union((cells for _, cells in late), late[0][1])
    unasked += seen if awaited is None else seen & ~awaited
    if awaited is not None:
        asked += awaited
    return counts


def _awaited(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> Cells | None:
    """What changed together with the place of the next action, or replaced a stand-in."""
    if changes is None:
        return None
    content = [(time, _solid(changes, cells)) for time, cells in late if is_notable(cells)]
    touching = (time for time, cells in reversed(content) if (cells & changes.place).any())
    last = next(touching, None) or _gave_way(changes, late)[0]
    if last is None or changes.interval.until - last < REACTION_S:
        return None
    return _together(late, last, changes.place)
