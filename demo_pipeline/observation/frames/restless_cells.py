"""Which cells move by themselves: carousels, spinners, canvases, clips, fading toasts, clocks.

Belongs here: how that is learned, over the whole video, from what nobody acted on.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from demo_pipeline.observation.frames.changed_cells import Cells, with_neighbours
from demo_pipeline.observation.frames.interval_changes import (
    REACTION_S,
    TOGETHER_S,
    IntervalChanges,
    is_notable,
    union,
)
from demo_pipeline.observation.frames.waits import stand_in_replaced

RESTLESS_TIMES = (
    2  # a place that changed unasked twice does so by itself; once may be a late answer
)
LONG_INTERVAL_S = 5.0  # seconds; in a longer interval each of them counts

ChangeCounts = np.ndarray[Any, np.dtype[np.int32]]


class RestlessCells:
    """ChangeCounts, for each cell, how often it changed without a reason and how often with one."""

    def __init__(self) -> None:
        self._unasked: ChangeCounts | None = None
        self._awaited: ChangeCounts | None = None

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
        if self._unasked is None or self._awaited is None:
            self._unasked = np.zeros(late[0][1].shape, np.int32)
            self._awaited = np.zeros(late[0][1].shape, np.int32)
        late = [(time, cells) for time, cells in late if cells.shape == self._unasked.shape]
        awaited = _awaited(late, changes)
        parts: dict[int, Cells] = {}
        for time, cells in late:
            part = int((time - since) // LONG_INTERVAL_S)
            parts[part] = parts.get(part, np.zeros_like(cells)) | cells
        for cells in parts.values():
            self._unasked += cells if awaited is None else cells & ~awaited
        if awaited is not None:
            self._awaited += awaited

    def cells(self, like: Cells) -> Cells:
        """(rows, columns): the cells that move by themselves, and their neighbours."""
        if self._unasked is None or self._awaited is None or self._unasked.shape != like.shape:
            return np.zeros_like(like)
        often = (self._unasked >= RESTLESS_TIMES) & (2 * self._unasked >= self._awaited)
        return with_neighbours(often)


def _awaited(late: Sequence[tuple[float, Cells]], changes: IntervalChanges | None) -> Cells | None:
    """What changed together with the place of the next action, or replaced a stand-in."""
    if changes is None:
        return None
    content = [(time, changes.filled(cells)) for time, cells in late if is_notable(cells)]
    touching = (time for time, cells in reversed(content) if (cells & changes.place).any())
    last = next(touching, None) or stand_in_replaced(changes, late)
    if last is None or changes.until - last < REACTION_S:
        return None
    return union((cells for time, cells in late if abs(time - last) <= TOGETHER_S), changes.place)
