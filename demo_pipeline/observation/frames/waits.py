"""Waits: pauses in which the screen answered the last action and the person acted on the answer.

Belongs here: what changed on the screen between two actions, the rule that turns a `pause` into a
`wait` by it, and which cells move by themselves: carousels, spinners, canvases, clips, fading
toasts, clocks. Other pauses are thinking; in doubt a pause is no wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.frame_changes import (
    MIN_SIGNIFICANT_CELLS,
    SIGNIFICANT_SHARE,
    SMALL_CELLS,
    Cells,
    connected,
    filled,
    with_neighbours,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox

EARLY_S = 1.0  # seconds after an action in which its own effect shows: a pressed button, a menu
REACTION_S = 0.3  # seconds; nobody sees something and presses a button on it sooner
TOGETHER_S = 0.5  # seconds; changes as close as this are one
PAUSE_S = 2.0  # seconds; a screen left at rest for longer was read, not waited for
READING_S = 10.0  # seconds; who reads for longer before the next action has thought about it
AT_WORK_TIMES = 5  # changes of a bar, a spinner, lines of text; fewer may be chance
STAND_IN_SHARE = 0.33  # of a skeleton and of what replaces it that are at one place
KEY_REACH = 4  # times as many cells as appeared; more than one page of a window
HOVERED_SHARE = 0.5  # of what appeared; more of it beside a moving pointer: it opened that itself
HOVER_LARGEST_SHARE = 0.3  # of the screen; no menu or card that a pointer opens covers more
COLUMN_GAP, ROW_GAP = 0.25, 0.05  # of the screen's sides; between columns and lines of one table
RESTLESS_TIMES = 2  # a place that changed unasked twice does so by itself; once may be an answer
LONG_INTERVAL_S = 5.0  # seconds; in a longer interval each of them counts


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
        place: around the second one's press, video pixels; None for keys.
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
        new: differ from what was there before the first action.
    """

    interval: Interval
    place: Cells
    early: Cells
    late: Sequence[tuple[float, Cells]]
    hovered: Cells
    moving_before: Cells
    new: Cells

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
    2. Or the place of the next action is part of what the last action brought up at once, and
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
        or _in_time(changes, stand_in_replaced(changes, late), PAUSE_S)
        or _was_busy(changes, place, late, still)
    )


def may_be_wait(changes: IntervalChanges) -> bool:
    """False when nothing changed around the next action and nothing gave way to anything.

    No cell is left out, so that it holds whatever is found to move by itself.
    """
    if stand_in_replaced(changes, changes.late) is not None:
        return True
    late = union((cells for _, cells in changes.late), changes.place)
    return bool((changes.filled(filled(late | changes.early)) & filled(changes.place)).any())


def _appeared(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]]
) -> float | None:
    """When the new content at the place came to rest: the first kind of wait."""
    solid = (changes.filled(cells) if is_notable(cells) else cells for _, cells in late)
    region = _joined_with(union(solid, place), place, changes)
    rest = max((time for time, cells in late if is_notable(cells & region)), default=float("-inf"))
    last = _together(late, rest, place) & region
    new = last & changes.new
    answered = np.count_nonzero(changes.early & place) >= SMALL_CELLS
    shown = region if answered else region & changes.filled(new)
    if not is_notable(last if answered else new) or not _is_inside(place, shown, changes):
        return None
    if not answered and _is_hover_effect(new, changes.hovered):
        return None
    is_new = answered and is_notable(new) and rest - changes.interval.since >= PAUSE_S
    longest = READING_S if is_new else PAUSE_S
    return _in_time(changes, rest, longest)


def stand_in_replaced(
    changes: IntervalChanges, late: Sequence[tuple[float, Cells]]
) -> float | None:
    """When what had come at once gave way to something new at once, as a skeleton of a page does.

    This tells of a wait wherever the next action is. What loads later in a page that is already
    there is a small part of it; a toast that goes away leaves nothing new.
    """
    rest = max((time for time, cells in late if is_notable(cells)), default=float("-inf"))
    last = _together(late, rest, changes.new)
    before = union((cells for time, cells in late if rest - time > TOGETHER_S), changes.new)
    both = np.count_nonzero(last & changes.early)
    most = max(np.count_nonzero(last), np.count_nonzero(changes.early))
    is_replaced = rest - changes.interval.since >= PAUSE_S and both >= STAND_IN_SHARE * most
    return rest if is_replaced and is_notable(last & changes.new & ~before) else None


def _was_busy(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]], still: Cells
) -> float | None:
    """When what was busy in the answer came to rest: the second kind of wait."""
    seen = union((cells for _, cells in late), place)
    answer = _joined_with(changes.early & still | seen, place, changes)
    if not _is_inside(place, answer & changes.new, changes):
        return None
    times = [time for time, cells in late if np.count_nonzero(cells & answer) >= SMALL_CELLS]
    if len(times) < AT_WORK_TIMES or not is_notable(answer & seen):
        return None
    return _in_time(changes, times[-1], PAUSE_S)


def _in_time(changes: IntervalChanges, rest: float | None, longest: float) -> float | None:
    """`rest` if the screen rested when the person acted, but not for long."""
    interval = changes.interval
    if rest is None or interval.until - rest < REACTION_S:
        return None
    return rest if interval.looked - rest <= longest else None


def _is_hover_effect(new: Cells, hovered: Cells) -> bool:
    """Whether what appeared may have been opened by the pointer, as menus and cards are."""
    count, beside = np.count_nonzero(new), np.count_nonzero(new & hovered)
    return bool(beside > HOVERED_SHARE * count and count <= HOVER_LARGEST_SHARE * new.size)


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


class RestlessCells:
    """Counts, for each cell, how often it changed without a reason and how often with one."""

    def __init__(self) -> None:
        self._counts: np.ndarray[Any, np.dtype[np.int32]] | None = None  # (2, rows, columns)

    def add(
        self, since: float, late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None
    ) -> None:
        """Count what changed long after an action.

        Args:
            since: when the action had ended.
            late: what changed then.
            changes: of the interval, when it tells where the next action was.
        """
        if not late:
            return
        if self._counts is None:
            self._counts = np.zeros((2, *late[0][1].shape), np.int32)
        unasked, asked = self._counts
        late = [(time, cells) for time, cells in late if cells.shape == unasked.shape]
        awaited = _awaited(late, changes)
        parts: dict[int, Cells] = {}
        for time, cells in late:
            part = int((time - since) // LONG_INTERVAL_S)
            parts[part] = parts.get(part, np.zeros_like(cells)) | cells
        for cells in parts.values():
            unasked += cells if awaited is None else cells & ~awaited
        if awaited is not None:
            asked += awaited

    def cells(self, like: Cells) -> Cells:
        """(rows, columns): the cells that move by themselves, and their neighbours."""
        if self._counts is None or self._counts.shape[1:] != like.shape:
            return np.zeros_like(like)
        unasked, asked = self._counts
        often = (unasked >= RESTLESS_TIMES) & (2 * unasked >= asked)
        return with_neighbours(often)


def _awaited(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> Cells | None:
    """What changed together with the place of the next action, or replaced a stand-in."""
    if changes is None:
        return None
    content = [(time, changes.filled(cells)) for time, cells in late if is_notable(cells)]
    touching = (time for time, cells in reversed(content) if (cells & changes.place).any())
    last = next(touching, None) or stand_in_replaced(changes, late)
    if last is None or changes.interval.until - last < REACTION_S:
        return None
    return _together(late, last, changes.place)


def is_notable(cells: Cells) -> bool:
    """Whether it is more than a text cursor, a letter or noise."""
    enough = max(MIN_SIGNIFICANT_CELLS, SIGNIFICANT_SHARE * cells.size)
    return bool(np.count_nonzero(cells) >= enough)


def filled_between(cells: Cells) -> Cells:
    """The cells and those between them, as between the columns of a table that appeared at once."""
    rows, columns = cells.shape
    sides = (max(1, round(columns * COLUMN_GAP)), max(1, round(rows * ROW_GAP)))
    if not cells.any():
        return cells
    padded = np.pad(cells.astype(np.uint8), ((sides[1],) * 2, (sides[0],) * 2))
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
        if cells.shape == found.shape:
            found |= cells
    return found


def _together(late: Sequence[tuple[float, Cells]], when: float, like: Cells) -> Cells:
    """The cells that changed about then; `like`: of the same size."""
    return union((cells for time, cells in late if abs(time - when) <= TOGETHER_S), like)
