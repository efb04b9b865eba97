"""Compares successive frames, and ignores the cells that flicker.

A cell flickers if it changes over and over while nobody acts, for example in a spinner. Changes
during an action or shortly after it do not count as flicker.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from demo_pipeline.observation.frames.changes import (
    KEY_FRAME_THRESHOLD,
    THRESHOLD,
    Cells,
    ChangeMap,
    Difference,
    changed_cells,
    with_neighbours,
)
from demo_pipeline.observation.frames.pointer_path import Point
from demo_pipeline.observation.frames.video_reader import LONE_FRAME_S, Frame, Luma, Span

EFFECT_S = 0.7  # seconds; a change within 0.7 s of an action may still be the action's effect
# A cell flickers if it changed in more than FLICKER_FRAMES frames, and in more than FLICKER_SHARE
# of the time in which nobody acts. Without the minimum of frames, a few early changes would count
# as flicker. In 24 videos, six frames gave the same result as eight.
FLICKER_FRAMES = 6
# With a share of 0.035, a clip that played for 11 s still counts as flicker 40 s later, and a
# terminal that wrote output for 2 s no longer counts as flicker 2 s later. With 0.045, the clip
# would not count.
FLICKER_SHARE = 0.035


class ChangeDetector:
    """Compares the frames of a recording in order, and ignores cells that flicker.

    Args:
        acting: spans in which the effects of an action may change the screen. The default is the
            whole video, so that no cell counts as flickering.
        grab_s: seconds between two frames while the screen changes.
        seen: changes between frames that were decoded earlier. They also show which cells flicker.

    Attributes:
        flickering: (rows, columns), true where a cell flickers, according to the frames so far.
            None before the first comparison of two frames with no action between them.
    """

    def __init__(
        self,
        acting: Sequence[Span] = (Span(-inf, inf),),
        grab_s: float = LONE_FRAME_S,
        seen: ChangeMap | None = None,
    ) -> None:
        spans = sorted(acting, key=lambda span: span.start)
        self._begins = np.array([span.start for span in spans])
        self._ends = np.maximum.accumulate([span.end for span in spans]) if spans else self._begins
        self._grab_s = grab_s
        self._quiet_s = 0.0
        self._until = -inf
        self._counts: np.ndarray[Any, np.dtype[np.int32]] = np.zeros((0, 0), np.int32)
        self.flickering: Cells | None = None
        self._seen = (-inf, -inf)
        for before, time, cells in seen.pairs() if seen else ():
            if self._is_quiet(before, time):
                self._count(before, time, cells)
        if seen and seen.times:
            self._seen = (seen.times[0], seen.times[-1])
            self._until = -inf

    def between(self, before: Frame, after: Frame) -> Difference:
        """Returns the cells that changed between two successive frames; updates `flickering`."""
        least = KEY_FRAME_THRESHOLD if after.is_key else THRESHOLD
        changed = changed_cells(before.luma, after.luma, least)
        if self._is_quiet(before.time, after.time):
            self._count(before.time, after.time, with_neighbours(changed))
        return Difference(self._steady(changed))

    def learn(self, before: Frame, after: Frame) -> None:
        """Updates `flickering` from two successive frames.

        Frames are ignored if somebody acts between them, or if they were counted before.
        """
        if self._is_quiet(before.time, after.time):
            self.between(before, after)

    def between_distant(self, before: Luma, after: Luma, pointers: list[Point]) -> Difference:
        """Returns the cells that changed between two frames that are not successive.

        Cells around `pointers` (video pixels) are left out.
        """
        changed = self._steady(changed_cells(before, after, KEY_FRAME_THRESHOLD))
        return Difference(Difference(changed).without_pointers(pointers))

    def _is_quiet(self, before: float, time: float) -> bool:
        """Whether nobody acts between two frames, and the frames were not counted before."""
        if time <= self._until or self._seen[0] < time <= self._seen[1]:
            return False
        acting = int(self._begins.searchsorted(time, "right")) - 1
        return bool(acting < 0 or before >= self._ends[acting])

    def _count(self, before: float, time: float, changed: Cells) -> None:
        """Counts the changes of each cell, and updates which cells flicker."""
        self._until = time
        self._quiet_s += time - before
        if self.flickering is None:
            self._counts = np.zeros(changed.shape, np.int32)
        self._counts += changed
        least = max(FLICKER_FRAMES, FLICKER_SHARE * self._quiet_s / self._grab_s)
        self.flickering = self._counts > least

    def _steady(self, cells: Cells) -> Cells:
        return cells if self.flickering is None else cells & ~self.flickering
