"""Waits: pauses in which the screen answered the last action and the person acted on the answer.

Belongs here: the rule that turns a `pause` into a `wait`, given what changed between two actions
and which cells move by themselves. Other pauses are thinking; in doubt a pause is no wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from demo_pipeline.observation.frames.change_detection import (
    SMALL_CELLS,
    Labels,
)
from demo_pipeline.observation.frames.changed_cells import Cells, with_neighbours
from demo_pipeline.observation.frames.interval_changes import (
    EARLY_S,
    REACTION_S,
    TOGETHER_S,
    IntervalChanges,
    is_notable,
    union,
)

PAUSE_S = 2.0  # seconds; a screen left at rest for longer was read, not waited for
MIN_WAIT_S = 1.0  # seconds; a screen at rest sooner shows the action's own effect
READING_S = 10.0  # seconds; who reads for longer before the next action has thought about it
AT_WORK_GAP_S = 0.7  # seconds; closer changes are one busy stretch, whatever the frame rate
AT_WORK_TIMES = 5  # changes in a busy stretch: a bar, a spinner, lines of text; fewer may be chance
STAND_IN_SHARE = 0.33  # of a skeleton and of what replaces it that are at one place
KEY_REACH = 4  # times as many cells as appeared; more than one page of a window
HOVERED_SHARE = 0.5  # of what appeared; more of it beside a moving pointer: it opened that itself
HOVER_LARGEST_SHARE = 0.3  # of the screen; no menu or card that a pointer opens covers more


@dataclass(frozen=True)
class Wait:
    """A pause that was a wait.

    Attributes:
        action_index: row of actions.parquet.
        seconds: length of the pause.
        rest_s: video time at which the screen came to rest.
    """

    action_index: int
    seconds: float
    rest_s: float


def rest_after_answer(changes: IntervalChanges, restless: Cells) -> float | None:
    """When the screen's answer to the last action came to rest, if the person waited for it.

    None: nothing shows that the person waited. What shows it, by `restless` cells left out:

    1. Something new stands where the next action is: it came at least `MIN_WAIT_S` after the last
       action, was not there before that action, and was at rest when the person acted.
    2. Or the place of the next action is part of what the last action brought up at once, and
       something in there was busy all the time until then, and came to rest.

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
    last = union((cells for time, cells in late if abs(time - rest) <= TOGETHER_S), place) & region
    new = last & changes.new
    answered = np.count_nonzero(changes.early & place) >= SMALL_CELLS
    shown = region if answered else region & changes.filled(new)
    if not is_notable(last if answered else new) or not _is_inside(place, shown, changes):
        return None
    if not answered and _is_hover_effect(new, changes.hovered):
        return None
    is_new = answered and is_notable(new) and rest - changes.since >= PAUSE_S
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
    last = union((cells for time, cells in late if abs(time - rest) <= TOGETHER_S), changes.new)
    before = union((cells for time, cells in late if rest - time > TOGETHER_S), changes.new)
    both = np.count_nonzero(last & changes.early)
    most = max(np.count_nonzero(last), np.count_nonzero(changes.early))
    is_replaced = rest - changes.since >= PAUSE_S and both >= STAND_IN_SHARE * most
    return rest if is_replaced and is_notable(last & changes.new & ~before) else None


def _was_busy(
    changes: IntervalChanges, place: Cells, late: Sequence[tuple[float, Cells]], still: Cells
) -> float | None:
    """When what was busy in the answer came to rest: the second kind of wait."""
    answer = _joined_with(
        changes.early & still | union((cells for _, cells in late), place), place, changes
    )
    if not _is_inside(place, answer & changes.new, changes):
        return None
    times = [time for time, cells in late if np.count_nonzero(cells & answer) >= SMALL_CELLS]
    if len(times) < AT_WORK_TIMES or not is_notable(
        answer & union((cells for _, cells in late), place)
    ):
        return None
    starts = [changes.since + EARLY_S, *times]
    gaps = [after - before for before, after in zip(starts, times, strict=False)]
    if max(gaps) > AT_WORK_GAP_S:
        return None
    return _in_time(changes, times[-1], PAUSE_S)


def _in_time(changes: IntervalChanges, rest: float | None, longest: float) -> float | None:
    """`rest` if the screen kept the person waiting and rested at the press, but not for long."""
    if rest is None or rest - changes.since < MIN_WAIT_S or changes.until - rest < REACTION_S:
        return None
    return rest if changes.looked - rest <= longest else None


def _is_hover_effect(new: Cells, hovered: Cells) -> bool:
    """Whether what appeared may have been opened by the pointer, as menus and cards are."""
    count, beside = np.count_nonzero(new), np.count_nonzero(new & hovered)
    return bool(beside > HOVERED_SHARE * count and count <= HOVER_LARGEST_SHARE * new.size)


def _is_inside(place: Cells, region: Cells, changes: IntervalChanges) -> bool:
    """Whether the next action is at a place of the region.

    A pointer has to be at changed cells; what keys wrote may stand beside them. Keys that change
    much more than appeared, as those that bring another window up, did not wait for that.
    """
    if not changes.by_key:
        return bool(np.count_nonzero(place & region) >= SMALL_CELLS)
    far = np.count_nonzero(place) > KEY_REACH * np.count_nonzero(region & changes.new)
    return not far and bool(np.count_nonzero(_connected(place, filled(region))) >= SMALL_CELLS)


def filled(region: Cells) -> Cells:
    """The cells with those two beside them, which closes the space between lines of text."""
    return with_neighbours(with_neighbours(region))


def _joined_with(cells: Cells, place: Cells, changes: IntervalChanges) -> Cells:
    """Those of `cells` that are connected with the place, across gaps as between lines of text."""
    return _connected(cells, with_neighbours(place) if changes.by_key else place & cells)


def _connected(cells: Cells, near: Cells) -> Cells:
    """Those of `cells` in the parts that reach `near`, across gaps as between lines of text."""
    raw = cv2.connectedComponents(filled(cells).astype(np.uint8))[1]
    labels: Labels = np.asarray(raw, np.int32)
    connected: Cells = np.isin(labels, np.setdiff1d(np.unique(labels[near]), [0])) & cells
    return connected
