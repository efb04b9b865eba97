"""What changed from frame to frame of a recording, without cells that flicker.

Belongs here: learning which do so: those that change over and over while nobody acts, as a spinner
or a clip that plays. What a scroll, a drag or a page that comes changes does not count, however
often it does.
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

EFFECT_S = 0.7  # seconds; a change this soon after an action may still be that action's effect
# Frames; in little quiet time the share alone is soon reached. Of 24 films six gave what eight did,
# and a film of six seconds has no more.
FLICKER_FRAMES = 6
# Of the quiet time: a clip that had played for 11 s is known 40 s later (with 0.045 not so), and
# text in a terminal whose output ran for 2 s counts again after as long.
FLICKER_SHARE = 0.035


class ChangeDetector:
    """Compares frames of one recording, in order; cells that flicker never count.

    Args:
        acting: when somebody acts, or a change may be the effect of it, video seconds; without
            it always, so that nothing flickers.
        grab_s: seconds that a frame stands for; those between which nothing changes may be left
            out.
        seen: what changed in stretches of the video that were looked at before.

    Attributes:
        flickering: (rows, columns) of cells that flicker, by what was seen so far; None before
            two quiet frames.
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
        """What changed from a frame to the next one."""
        least = KEY_FRAME_THRESHOLD if after.is_key else THRESHOLD
        changed = changed_cells(before.luma, after.luma, least)
        if self._is_quiet(before.time, after.time):
            self._count(before.time, after.time, with_neighbours(changed))
        return Difference(self._steady(changed))

    def learn(self, before: Frame, after: Frame) -> None:
        """Learn from a frame and the next one what flickers, unless they were compared."""
        if self._is_quiet(before.time, after.time):
            self.between(before, after)

    def between_distant(self, before: Luma, after: Luma, pointers: list[Point]) -> Difference:
        """What changed between two frames some time apart, except around the pointers."""
        changed = self._steady(changed_cells(before, after, KEY_FRAME_THRESHOLD))
        return Difference(Difference(changed).without_pointers(pointers))

    def _is_quiet(self, before: float, time: float) -> bool:
        """Whether nobody acts from one frame to the next, which were not counted yet."""
        if time <= self._until or self._seen[0] < time <= self._seen[1]:
            return False
        acting = int(self._begins.searchsorted(time, "right")) - 1
        return bool(acting < 0 or before >= self._ends[acting])

    def _count(self, before: float, time: float, changed: Cells) -> None:
        """Count what changed from one frame to the next."""
        self._until = time
        self._quiet_s += time - before
        if self.flickering is None:
            self._counts = np.zeros(changed.shape, np.int32)
        self._counts += changed
        least = max(FLICKER_FRAMES, FLICKER_SHARE * self._quiet_s / self._grab_s)
        self.flickering = self._counts > least

    def _steady(self, cells: Cells) -> Cells:
        return cells if self.flickering is None else cells & ~self.flickering
