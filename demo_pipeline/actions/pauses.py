"""Pauses: times between two actions in which the person did nothing but, perhaps, idly move.

Belongs here: where a pause begins and ends. Whether it was a wait is seen in the video.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from demo_pipeline.actions.action_tables import CONTINUED, POINTER_MOVED, Action
from demo_pipeline.actions.inputs import Input, distance
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.settings import ActionSettings

ARRIVED_PX = 40.0  # screen pixels; a pointer this near to the press has arrived, or overshot it
ARRIVED_MS = 1000  # milliseconds; a pointer that arrived earlier was waiting there, not on its way


def pauses_between(
    actions: Sequence[Action], inputs: Sequence[Input], settings: ActionSettings
) -> Iterator[Action]:
    """Yield the pauses of at least `pause_ms` between two actions, none inside one.

    Only the approach to the next target ends a pause; other movements of the pointer do not, nor
    do they begin one. A key that is part of no action does both.

    Args:
        actions: in time order.
        inputs: of the whole log, in time order.
        settings: `pause_ms`, and `pointer_rest_ms`, which ends a movement of the pointer.
    """
    if not actions:
        return
    presses = [action.press_ms for action in actions]
    ends = list(accumulate((action.end_ms for action in actions), max))
    first_end = min(action.end_ms for action in actions)
    moves = [item for item in inputs if item.kind == EventType.MOUSEMOVE]
    times = [move.time for move in moves]
    for before, after in pairwise(_without_moves(inputs)):
        started = bisect_right(presses, before.time)
        inside = started > 0 and ends[started - 1] >= after.time
        inside |= started < len(actions) and CONTINUED in actions[started].flags
        if before.time < first_end or after.time > presses[-1] or inside:
            continue
        between = moves[bisect_right(times, before.time) : bisect_right(times, after.time)]
        end = _approach_start(between, after, settings.pointer_rest_ms)
        if end - before.time < settings.pause_ms:
            continue
        pause = Action("pause", before.time, end, [])
        pause.first_event, pause.last_event = before.index, after.index
        pause.seconds = (end - before.time) / 1000
        instants = [before.time, *(move.time for move in between), after.time]
        if max(later - time for time, later in pairwise(instants)) < settings.pause_ms:
            pause.flags = [POINTER_MOVED]
        yield pause


def _without_moves(inputs: Sequence[Input]) -> list[Input]:
    return [item for item in inputs if item.kind != EventType.MOUSEMOVE]


def _approach_start(moves: Sequence[Input], press: Input, rest_ms: int) -> int:
    """When the last movement towards a press began, epoch milliseconds; the press without one.

    Back from the press, the approach lasts for as long as the pointer comes from farther away and
    does not rest.
    """
    position = len(moves) - 1
    while position >= 0 and distance(moves[position], press) <= ARRIVED_PX:
        position -= 1
    arrived = position + 1
    if arrived == len(moves) or press.x is None or press.time - moves[arrived].time > ARRIVED_MS:
        return press.time
    start, farthest = arrived, 0.0
    while position >= 0 and moves[position + 1].time - moves[position].time < rest_ms:
        away = distance(moves[position], press)
        if away < farthest - ARRIVED_PX:
            break
        if away > farthest:
            start, farthest = position, away
        position -= 1
    return moves[start].time
