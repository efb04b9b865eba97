"""Chooses the frame after the last action, for final.png."""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import SMALL_CELLS
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import Frame, Span

FINAL_FILE = "final.png"
FINAL_LOOK_S = 15.0  # seconds after the last action; a screen that still loads then is final
FINAL_EFFECT_S = 0.3  # seconds in which an application shows its first reaction
FINAL_STILL_S = 0.5  # seconds without a change after which the screen is still
BUSY_GAP_S = 0.45  # seconds between changes of a busy stretch; a text cursor blinks more slowly
BUSY_CHANGES = 4  # changes in a busy stretch; fewer may be chance


class FinalFrame:
    """Observer that chooses the first frame of the still screen after the last action's effect.

    Small changes in quick succession, such as those of a progress bar, belong to the effect. A
    single small change, such as the blink of a text cursor, does not.

    Args:
        start: when the last action ended, video seconds.
        until: when the recorder was stopped; later frames are ignored.
    """

    def __init__(self, start: float, until: float = float("inf")) -> None:
        self._start = start
        self._until = until
        self._busy: list[float] = []
        self._still_from: Frame | None = None
        self._latest: Frame | None = None

    @property
    def spans(self) -> Sequence[Span]:
        """The seconds after the last action."""
        return [Span(self._start, max(self._start, min(self._start + FINAL_LOOK_S, self._until)))]

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame; frames before the end of the last action are skipped."""
        if not self._start <= diff.frame.time < self._until:
            return
        if diff.frame.is_black:  # later frames may show more than the last action's effect
            self._until = diff.frame.time
            return
        difference = diff.difference
        pointers = diff.pointers
        changed = difference is None or difference.is_significant(pointers, None)
        small = difference is None or difference.count_away_from(pointers) >= SMALL_CELLS
        self.add(diff.frame, changed=changed, small=small)

    def add(self, frame: Frame, *, changed: bool, small: bool) -> None:
        """Note a frame after the last action.

        Args:
            frame: the next frame in presentation order.
            changed: the screen differs notably from the previous frame.
            small: anything differs, even a single letter.
        """
        self._latest = frame
        if small:
            if self._busy and frame.time - self._busy[-1] > BUSY_GAP_S:
                self._busy = []
            self._busy.append(frame.time)
        if frame.time < self._start + FINAL_EFFECT_S:
            return
        busy = small and len(self._busy) >= BUSY_CHANGES
        if self._still_from is None or changed or busy:
            self._still_from = frame

    def result(self) -> Frame | None:
        """Returns the first still frame, or else the last frame; None without a frame."""
        first = self._still_from
        last = self._latest
        if first is None or last is None or last.time - first.time < FINAL_STILL_S:
            return last
        return first
