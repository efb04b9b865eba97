"""Chooses the frame of final.png, which shows the screen after the last action."""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import SMALL_CELLS
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.video_reader import Frame, Span

FINAL_FILE = "final.png"
FINAL_LOOK_S = 15.0  # seconds after the last action that are searched; a page may still load then
FINAL_EFFECT_S = 0.3  # seconds within which an application shows its first reaction
FINAL_STILL_S = 0.5  # seconds without a change after which the screen counts as still
# A progress bar is a series of at least BUSY_CHANGES small changes, at most BUSY_GAP_S apart.
BUSY_GAP_S = 0.45  # seconds; a text cursor blinks more slowly
BUSY_CHANGES = 4  # changes; fewer may be chance


class FinalFrame:
    """Chooses the first frame after the effect of the last action, once the screen is still.

    It is an observer of the decode pass. A series of small changes in quick succession, such as
    those of a progress bar, is part of the effect. A single small change, such as the blink of a
    text cursor, is not.

    Args:
        start: when the last action ended, video seconds.
        until: when the recorder was stopped, video seconds; later frames are ignored.
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
        """Takes the next frame; frames before the end of the last action are skipped."""
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
        """Takes the next frame after the last action, in presentation order.

        Args:
            frame: the frame.
            changed: whether the screen differs notably from the previous frame.
            small: whether anything differs, even a single letter.
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
        """Returns the first still frame, else the last frame; None if there was no frame."""
        first = self._still_from
        last = self._latest
        if first is None or last is None or last.time - first.time < FINAL_STILL_S:
            return last
        return first
