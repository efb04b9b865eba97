"""The picture after the last action: what final_screenshot.png shows.

Belongs here: choosing that one frame.
"""

from demo_pipeline.observation.frames.video_frames import Frame
from demo_pipeline.observation.frames.waits import BUSY_CHANGES, BUSY_GAP_S

FINAL_FILE = "final.png"
FINAL_LOOK_S = 15.0  # after the last action; what loads longer is shown as it then looks
FINAL_EFFECT_S = 0.3
FINAL_STILL_S = 0.5


class FinalChooser:
    """The first frame after the last action's effect from which the screen stays still.

    Small changes that come in quick succession, such as a progress bar's, are part of the effect; a
    single one, such as a text cursor's, is not.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._busy: list[float] = []
        self._still_from: Frame | None = None
        self._latest: Frame | None = None

    @property
    def best(self) -> Frame | None:
        """The answer; the last frame where none was seen to stay; None without a frame."""
        first, last = self._still_from, self._latest
        if first is None or last is None or last.time - first.time < FINAL_STILL_S:
            return last
        return first

    def feed(self, frame: Frame, *, changed: bool, small: bool) -> None:
        """Take the next frame in order.

        Args:
            frame: the next in presentation order; one before the last action's end is passed over.
            changed: the screen differs from the frame before.
            small: anything at all does, be it as little as a letter.
        """
        if frame.time < self._start:
            return
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
