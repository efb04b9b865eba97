"""Chooses the frame of final.png, which shows the screen after the last action."""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import SMALL_CELLS
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import Frame, Span

FINAL_FILE = "final.png"
FINAL_LOOK_S = 15.0  # seconds searched after the last action; a page may still be loading
FINAL_EFFECT_S = 0.3  # seconds until an application shows its first reaction
FINAL_STILL_S = 0.5  # seconds without a change after which the screen counts as still
# At least BUSY_CHANGES small changes, each at most BUSY_GAP_S after the previous one, count as a
# progress bar.
BUSY_GAP_S = 0.45  # seconds; a text cursor blinks more slowly
BUSY_CHANGES = 4  # number of changes; fewer may be chance


class FinalFrame:
    """Chooses the first motionless frame after the effect of the last action.

    Small changes in quick succession, such as those of a progress bar, are part of the effect. A
    single small change, such as the blink of a text cursor, is not.

    Args:
        start: time at which the last action ended, video seconds.
        until: time at which the recorder was stopped, video seconds. Later frames are ignored.
    """

    def __init__(self, start: float, until: float = float("inf")) -> None:
        self._start = start
        self._until = until
        self._busy: list[float] = []
        self._still_from: Frame | None = None
        self._latest: Frame | None = None

    @property
    def spans(self) -> Sequence[Span]:
        """The span that is searched for the frame, starting at the end of the last action."""
        return [Span(self._start, max(self._start, min(self._start + FINAL_LOOK_S, self._until)))]

    def see(self, diff: FrameDiff) -> None:
        """Processes the next frame. Frames before the end of the last action are skipped."""
        if not self._start <= diff.frame.time < self._until:
            return
        if diff.frame.is_black:
            # Frames after a black one may show more than the last action's effect.
            self._until = diff.frame.time
            return
        difference = diff.difference
        pointers = diff.pointers
        changed = difference is None or difference.is_significant(pointers, None)
        small = difference is None or difference.count_away_from(pointers) >= SMALL_CELLS
        self.add(diff.frame, changed=changed, small=small)

    def add(self, frame: Frame, *, changed: bool, small: bool) -> None:
        """Processes the next frame after the last action, in presentation order.

        Args:
            changed: whether the screen differs notably from the previous frame.
            small: whether at least a small part of the screen differs, such as a letter.
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
        """Returns the first still frame, or the last frame if the screen did not become still.

        Returns None if there was no frame.
        """
        first = self._still_from
        last = self._latest
        if first is None or last is None or last.time - first.time < FINAL_STILL_S:
            return last
        return first
