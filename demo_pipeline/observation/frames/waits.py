"""Decides which pauses are waits, in which the person waited until the screen answered an action.

*Restless* cells, which move by themselves (carousels, spinners, clips, clocks), are ignored.
Pauses are judged at the end of the video, because only then are all restless cells known. If in
doubt, a pause is not a wait.
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

# Minimum time from the screen's answer to the next action, seconds. The fastest press on awaited
# content came after 0.39 seconds.
REACTION_S = 0.3
# Maximum time between changes that count as a single change, seconds. After a key was pressed, its
# text appeared within 0.4 seconds.
TOGETHER_S = 0.5
# Minimum time from an action until awaited content replaces a placeholder, such as a spinner,
# seconds. In 26 videos, a limit of 1 second led to one false wait, and 2 seconds missed five waits.
LEAST_S = 1.5
# Maximum time from the screen's answer to the start of the pointer's movement, seconds. After a
# longer time, the person was reading, not waiting.
PAUSE_S = 2.0
READING_S = 10.0  # seconds; replaces `PAUSE_S` if it is certain that the person waited
AT_WORK_TIMES = 5  # minimum number of changes of a busy spinner; fewer may be chance
# Minimum number of cells that an answer has in common with its placeholder, as a share of the
# larger of the two. Skeleton screens had 0.39 to 0.76, and a fading status line had 0.18.
PART_SHARE = 0.3
# If keys change more than four times as many cells as the new content has, the person did not wait
# for this content. In such cases, the keys changed 5.4 to 27 times as many cells.
KEY_REACH = 4
# If more than this share of the new content is beside a resting pointer, the content counts as a
# hover effect.
HOVERED_SHARE = 0.5
TABLE_COLUMN_GAP = 0.25  # maximum gap between columns of a table, as a share of the screen's width
TABLE_ROW_GAP = 0.05  # maximum gap between lines of a table, as a share of the screen's height
# Minimum height of a change that may be a new page or list, as a share of the screen's height.
# Measured: pages and lists that people waited for changed 0.6 to 0.95 of the height.
SCREEN_HEIGHT = 0.5
RHYTHM_TIMES = 3  # minimum number of changes in a rhythm; two may be an answer's start and end
# Time without a change after which a rhythm counts as over, as a multiple of its median gap. This
# estimate leaves room for gaps of different length.
RHYTHM_REST = 1.5


@dataclass(frozen=True)
class Interval:
    """The time between two successive actions. Times are video seconds.

    Attributes:
        earlier: when the action before these two ended; minus infinity if there is no such action.
        pressed: when the first action began.
        since: when the first action ended.
        looked: when the pointer started towards the second action, or `limit` if it rested.
        limit: frames up to this time show the screen before the second action.
        until: when the second action began.
        place: box around the press of the second action, video pixels. None for keys, and for a
            scroll at the place of the first press.
        pause: row in actions.parquet of the pause between the two actions.
        seconds: length of the pause.
        origin: box around the press of the first action, video pixels; None for keys.
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
    """The changes of the screen between two actions. All cells are (rows, columns).

    Attributes:
        place: cells at the press of the second action. If the interval has no `place`, the cells
            that the second action changed.
        early: cells that changed soon after the first action, as its own effect.
        late: the later changes, each with its time in video seconds.
        hovered: cells whose last change was beside the pointer, soon after the pointer arrived.
        moving_before: cells that still changed right before the first action.
        new: cells with content that was not there before the first action.
        returned: cells with content that the first action removed for a while, for example a list
            that a spinner replaced.
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
        """Returns the area in which an action on the content of `cells` can take place.

        If the interval has a `place`, this includes the gaps between lines and columns. Without a
        `place`, as for keys, it reaches from the first to the last column of the cells, over the
        full height of the screen, because the cells show only the width of the window.
        """
        if self.interval.place is None:
            return columns_of(cells)
        return filled_between(cells)


def rest_after_answer(changes: IntervalChanges, restless: Cells) -> float | None:
    """Returns the time at which the answer to the first action came to rest, video seconds.

    Returns None if the pause was not a wait. Restless cells are ignored. A pause is a wait in three
    cases:

    1. New content at the place of the second action appeared at least a second after the first
       action, and was at rest when the person acted again.
    2. The first action immediately brought up a placeholder (a skeleton screen, a spinner, a label
       like "Loading"), and new content replaced the placeholder. The second action may be anywhere.
    3. The second action is inside the content that the first action immediately brought up.
       Something in this content was busy, for example a progress bar, and came to rest.

    Args:
        restless: (rows, columns), true where a cell moves by itself.
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
    """Whether more than noise changed after the direct effect of the interval's first action."""
    return is_notable(union((cells for _, cells in changes.late), changes.place))


def _appeared(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]]
) -> float | None:
    """Returns the time at which new content at the place of the second action came to rest.

    This is case 1 of `rest_after_answer`. Returns None if the case does not apply.
    """
    changed = np.zeros_like(place)
    for _, cells in late:
        changed |= _solid(changes, cells) if is_notable(cells) else cells
    region = _connected_with(changed, place, changes)
    rest = max((time for time, cells in late if is_notable(cells & region)), default=float("-inf"))
    last = _together(late, rest, place) & region
    new = last & changes.new
    answered_at_once = np.count_nonzero(changes.early & place) >= SMALL_CELLS
    if answered_at_once:
        is_enough = is_notable(last) and _is_inside(place, region, changes)
    else:
        is_enough = is_notable(new) and _is_inside(place, region & _solid(changes, new), changes)
    if not is_enough:
        return None
    if _is_hover_effect(last, changes.hovered) or _goes_on(changes, late, region):
        return None
    earlier = union((cells for time, cells in late if time < rest - TOGETHER_S), place)
    # A pale placeholder may be too faint to detect, but its shimmer changes the same cells earlier.
    had_placeholder = answered_at_once or is_notable(earlier & last)
    is_new = had_placeholder and is_notable(new) and rest - changes.interval.since >= PAUSE_S
    return _in_time(changes, rest, READING_S if is_new else PAUSE_S)


def _solid(changes: IntervalChanges, cells: Cells) -> Cells:
    """Returns the cells with the gaps between them filled, as in `IntervalChanges.filled`.

    If the cells span much of the screen, as a new page does, their bounding box is filled.
    """
    rows = np.flatnonzero(cells.any(axis=1))
    columns = np.flatnonzero(cells.any(axis=0))
    solid = changes.filled(cells)
    tall = len(rows) and rows[-1] - rows[0] >= SCREEN_HEIGHT * len(cells)
    if tall and np.count_nonzero(cells) >= LARGE_SHARE * cells.size:
        solid = solid.copy()
        solid[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
    return solid


def _gave_way(
    changes: IntervalChanges, late: Sequence[tuple[float, Cells]]
) -> tuple[float | None, float]:
    """Returns the time at which new content replaced a placeholder, and a limit for reading it.

    This is case 2 of `rest_after_answer`. The time, in video seconds, is None if no placeholder
    was replaced. The limit is the longest time that the person may read the content, in seconds.

    The limit is `READING_S` if the placeholder and the answer have at least `PART_SHARE` of their
    cells in common, or if the placeholder was the pressed label itself. In other cases, for example
    a status line, the limit is `PAUSE_S`. New content must then also have appeared outside the
    placeholder, because a placeholder may be a notification that only faded.

    Restless cells may be a placeholder but not an answer. Cells that moved before the first action,
    or that move after the answer, are not part of a placeholder.
    """
    interval = changes.interval
    early = changes.early
    nothing = (None, PAUSE_S)
    rest = max((time for time, cells in late if is_notable(cells)), default=float("-inf"))
    if rest - interval.since < LEAST_S or rest > interval.looked:
        return nothing
    last = _together(late, rest, early)
    last_with_restless = _together(changes.late, rest, early)
    moves_on = union((cells for time, cells in changes.late if time > rest + TOGETHER_S), early)
    placeholder = early & ~with_neighbours(changes.moving_before | moves_on)
    answer = last & (changes.new | changes.returned) & ~changes.hovered
    replaced = np.count_nonzero(last_with_restless & with_neighbours(placeholder))
    if min(replaced, np.count_nonzero(answer)) < MIN_SIGNIFICANT_CELLS:
        return nothing
    most = max(np.count_nonzero(last), np.count_nonzero(early))
    may_be_read = np.count_nonzero(last & early) >= PART_SHARE * most
    if interval.origin is not None:
        pressed = np.zeros_like(early)
        pressed[cells_of(interval.origin)] = True
        pressed_label = last_with_restless & early & pressed
        may_be_read |= np.count_nonzero(pressed_label) >= MIN_SIGNIFICANT_CELLS
    if may_be_read:
        return rest, READING_S
    elsewhere = np.count_nonzero(answer & changes.new & ~with_neighbours(early))
    if elsewhere < MIN_SIGNIFICANT_CELLS:
        return nothing
    return rest, PAUSE_S


def _was_busy(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]], still: Cells
) -> float | None:
    """Returns the time at which busy content, such as a spinner, came to rest.

    This is case 3 of `rest_after_answer`. The changes must be at a single place. Returns None if
    nothing was busy.
    """
    changed_late = union((cells for _, cells in late), place)
    answer = _connected_with(changes.early & still | changed_late, place, changes)
    if not _is_inside(place, answer & changes.new, changes):
        return None
    inside = [(time, cells & answer) for time, cells in late if time <= changes.interval.looked]
    busy = [(time, cells) for time, cells in inside if np.count_nonzero(cells) >= SMALL_CELLS]
    if not busy:
        return None
    part = connected(union((cells for _, cells in busy), place), busy[-1][1])
    times = [time for time, cells in busy if np.count_nonzero(cells & part) >= SMALL_CELLS]
    if len(times) < AT_WORK_TIMES or not is_notable(answer & changed_late):
        return None
    if _goes_on(changes, late, answer):
        return None
    return _in_time(changes, times[-1])


def _goes_on(changes: IntervalChanges, late: Sequence[tuple[float, Cells]], region: Cells) -> bool:
    """Whether a region changes in a rhythm that may continue after the second action.

    A rhythm, such as the output of a loop, is not an answer. The rhythm is over if the region
    rested for at least `RHYTHM_REST` times the median gap.
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
    """Returns `rest`, the time at which the screen came to rest, if the pause can be a wait.

    Returns None if the second action came less than `REACTION_S` later, or if the pointer started
    to move more than `longest` seconds later.
    """
    interval = changes.interval
    if rest is None or interval.until - rest < REACTION_S:
        return None
    return rest if interval.looked - rest <= longest else None


def _is_hover_effect(new: Cells, hovered: Cells) -> bool:
    """Whether the resting pointer may have opened the new content, for example a menu or a card."""
    beside = new & hovered
    is_most = np.count_nonzero(beside) > HOVERED_SHARE * np.count_nonzero(new)
    return bool(is_most) and box_share(beside) <= HOVER_LARGEST_SHARE


def _is_inside(place: Cells, region: Cells, changes: IntervalChanges) -> bool:
    """Whether the second action is inside the region.

    A pointer must be on cells of the region. Typed text may also be beside the region. Keys
    that change many more cells, for example by opening another window, are not inside.
    """
    if changes.interval.place is not None:
        return bool(np.count_nonzero(place & region) >= SMALL_CELLS)
    if np.count_nonzero(place) > KEY_REACH * np.count_nonzero(region & changes.new):
        return False
    return bool(np.count_nonzero(connected(place, filled(region))) >= SMALL_CELLS)


def _connected_with(cells: Cells, place: Cells, changes: IntervalChanges) -> Cells:
    """Returns the cells that are connected with the place of the second action."""
    if changes.interval.place is None:
        return connected(cells, with_neighbours(place))
    return connected(cells, place & cells)


def filled_between(cells: Cells) -> Cells:
    """Fills the gaps between true cells that are no larger than the gaps in a table."""
    if not cells.any():
        return cells
    rows, columns = cells.shape
    high = max(1, round(rows * TABLE_ROW_GAP))
    wide = max(1, round(columns * TABLE_COLUMN_GAP))
    padded = np.pad(cells.astype(np.uint8), [(high, high), (wide, wide)])
    closed = cv2.morphologyEx(padded, cv2.MORPH_CLOSE, np.ones((high, wide), np.uint8))
    inside: Cells = closed[high : high + rows, wide : wide + columns] > 0
    return inside


def columns_of(cells: Cells) -> Cells:
    """Returns a map that is true from the first to the last column with a true cell."""
    columns = np.flatnonzero(cells.any(axis=0))
    window = np.zeros_like(cells)
    if len(columns):
        window[:, columns[0] : columns[-1] + 1] = True
    return window


def union(maps: Iterable[Cells], like: Cells) -> Cells:
    """Returns the cells that are true in any of the maps; `like` is a map of the same size."""
    all_cells = np.zeros_like(like)
    for cells in maps:
        all_cells |= cells
    return all_cells


def _together(late: Sequence[tuple[float, Cells]], when: float, like: Cells) -> Cells:
    """Returns the cells that changed within `TOGETHER_S` of `when`, as a map shaped like `like`."""
    return union((cells for time, cells in late if abs(time - when) <= TOGETHER_S), like)


# Minimum number of intervals in which a restless cell changed without cause (see `RestlessCells`).
# A single such change may be an answer.
RESTLESS_TIMES = 2

CellCounts = np.ndarray[Any, np.dtype[np.int32]]  # (2, rows, columns)


class RestlessCells:
    """Finds the cells that move by themselves. Such cells often change without cause.

    A cell changes *as an answer* if the change belongs to the screen's answer to an action. It
    changes *without cause* if the change comes long after an action, and the next action is
    unrelated to the change.
    """

    def __init__(self) -> None:
        self._counts: CellCounts | None = None

    def add(self, late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> None:
        """Counts the changes in an interval.

        Args:
            late: the changes after the direct effect of the interval's first action, each with its
                time.
            changes: all changes of the interval; None if the place of the second action is unknown.
        """
        if not late:
            return
        if self._counts is None:
            self._counts = np.zeros((2, *late[0][1].shape), np.int32)
        self._counts += _reasons(late, changes)

    def cells(self, changes: IntervalChanges) -> Cells:
        """Returns a map (rows, columns) of the cells that move by themselves, and their neighbours.

        The interval of `changes` is being judged. Its changes without cause are not counted,
        because they may turn out to be the answer.
        """
        if self._counts is None:
            return np.zeros_like(changes.new)
        unasked, asked = self._counts
        if changes.late:
            unasked = unasked - (_reasons(changes.late, changes)[0] == 1)
        often = (unasked >= RESTLESS_TIMES) & (2 * unasked >= asked)
        return with_neighbours(often)


def _reasons(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> CellCounts:
    """Returns whether each cell changed without cause, and whether it changed as an answer.

    The result is (2, rows, columns), with values 0 and 1. The arguments are those of
    `RestlessCells.add`.
    """
    changed = union((cells for _, cells in late), late[0][1])
    counts = np.zeros((2, *changed.shape), np.int32)
    awaited = _awaited(late, changes)
    if awaited is None:
        counts[0] = changed
    else:
        counts[0] = changed & ~awaited
        counts[1] = awaited
    return counts


def _awaited(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> Cells | None:
    """Returns the cells that changed in the screen's answer to the first action.

    Returns None if the interval shows no answer.
    """
    if changes is None:
        return None
    content = [(time, _solid(changes, cells)) for time, cells in late if is_notable(cells)]
    touching = (time for time, cells in reversed(content) if (cells & changes.place).any())
    last = next(touching, None) or _gave_way(changes, late)[0]
    if last is None or changes.interval.until - last < REACTION_S:
        return None
    return _together(late, last, changes.place)
