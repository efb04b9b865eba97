"""The frame after the last action, for final.png."""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import SMALL_CELLS
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import Frame, Span

FINAL_FILE = "final.png"
FINAL_LOOK_S = 15.0  # seconds after the last action; a screen that loads longer is shown loading
FINAL_EFFECT_S = 0.3  # seconds that an application takes to show its first reaction
FINAL_STILL_S = 0.5  # seconds without a change that make the screen still
BUSY_GAP_S = 0.45  # seconds; closer changes are one busy stretch; a text cursor blinks more slowly
BUSY_CHANGES = 4  # changes in one busy stretch; fewer may be chance


class FinalFrame:
    """Observer that chooses the first frame after the last action's effect with a still screen.

    Small changes in quick succession, such as those of a progress bar, are part of the effect; a
    single one, such as the blink of a text cursor, is not.

    Args:
        start: when the last action had ended, video seconds.
        until: when the recorder was stopped; frames from then on do not count.
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
        if diff.frame.is_black:  # what comes after it is not the last action's doing alone
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
            frame: the next in presentation order.
            changed: the screen differs from the previous frame.
            small: anything at all differs, even a single letter.
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
        """The first still frame, the last frame when none is still, None without a frame."""
        first = self._still_from
        last = self._latest
        if first is None or last is None or last.time - first.time < FINAL_STILL_S:
            return last
        return first
