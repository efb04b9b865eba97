"""Decides whether the last action stopped the recorder and therefore has no effect on the screen.

actions/build_actions.py decides whether the last action is a candidate.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.changes import SMALL_CELLS, Cells, with_neighbours
from demo_pipeline.observation.frames.final_frame import FINAL_LOOK_S
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import Span

# Maximum time from a press that stopped the recorder to the end of the video, seconds:
CUT_OFF_S = 0.3  # for a shortcut after which the video has no frame
STOP_BY_CLICK_S = 2.0  # for a click
CLICK_CELLS = 1  # minimum number of cells that a click changes; a small check mark is in one cell
BLINK_S = 1.5  # seconds observed before the press; every blinking cell changes in this time
# Cells that changed right before the press are ignored after it, if they are at most this share of
# all cells. If more cells changed, every change after the press counts as an effect.
UNSTEADY_SHARE = 0.1


class StopEffect:
    """The observer that looks for an effect of the last action until the end of the video.

    Any change of the screen is an effect. Cells that already changed right before the press are
    ignored, unless they were around the pointer at that time. After a shortcut, all changes around
    the pointer are ignored.

    Args:
        action: the last action, if it may have stopped the recorder (`possible_stop` of
            build_actions.py); otherwise None.
        clock: the clock of the recording. Because it is uncertain, frames that precede the press by
            at most `uncertainty_ms` count as later than the press.
        end: end of the video, seconds.
        earlier: time at which the previous action ended, video seconds.
    """

    def __init__(
        self, action: Action | None, clock: Clock, end: float, earlier: float = float("-inf")
    ) -> None:
        press = clock.video_time(action.press_ms) if action else 0.0
        self._since = press - clock.uncertainty_ms / 1000
        self._begin = max(self._since - BLINK_S, min(self._since, earlier + EFFECT_S))
        self._end = end
        self._is_click = action is not None and action.action_type == "click"
        self._is_cut_off = abs(end - press) <= CUT_OFF_S and press - self._since <= CUT_OFF_S
        longest = STOP_BY_CLICK_S if self._is_click else FINAL_LOOK_S
        self._may_be_stop = action is not None and end - press <= longest
        self._unsteady: Cells | None = None
        self._seen = False
        self._changed = False

    @property
    def spans(self) -> Sequence[Span]:
        """The span from shortly before the press to the end of the video.

        There is no span if the action cannot have stopped the recorder.
        """
        return [Span(self._begin, self._end)] if self._may_be_stop else []

    def see(self, diff: FrameDiff) -> None:
        """Processes the next frame. Frames long before the press are skipped."""
        time = diff.frame.time
        if not self._may_be_stop or self._changed or time < self._begin:
            return
        difference = diff.difference
        if time < self._since:
            if diff.before and diff.before.time >= self._begin and difference is not None:
                cells = difference.without_pointers(diff.pointers)
                self._unsteady = cells if self._unsteady is None else self._unsteady | cells
            return
        self._seen = True
        if difference is None:
            self._changed = True
        elif difference.count:
            pointers = [] if self._is_click else diff.pointers
            self._changed = self._has_new(difference.without_pointers(pointers))

    def _has_new(self, cells: Cells) -> bool:
        """Whether enough of the cells that were steady before the press have changed."""
        least = CLICK_CELLS if self._is_click else SMALL_CELLS
        if self._unsteady is not None and int(np.count_nonzero(cells)) >= least:
            if np.count_nonzero(self._unsteady) > UNSTEADY_SHARE * self._unsteady.size:
                return True
            cells = cells & ~with_neighbours(self._unsteady)
        return int(np.count_nonzero(cells)) >= least

    def result(self) -> bool:
        """Whether the action stopped the recorder, which leaves the screen unchanged.

        Returns False for a click that no frame follows. The recording may have gone on: a video
        with a variable frame rate has no frames after the last change of the screen.
        """
        if self._changed or not self._may_be_stop:
            return False
        return self._seen or (self._is_cut_off and not self._is_click)
