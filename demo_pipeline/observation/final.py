"""The picture after the last action: what final_screenshot.png shows.

Belongs here: choosing that one frame.
"""

from demo_pipeline.observation.pictures import Frame

FINAL_FILE = "final.png"
FINAL_LOOK_S = 4.0  # after the last action
FINAL_EFFECT_S = 0.3
FINAL_STILL_S = 0.5


class FinalChooser:
    """The first frame after the last action's effect from which the screen stays still."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._candidate: Frame | None = None
        self.best: Frame | None = None
        self.latest: Frame | None = None

    def feed(self, frame: Frame, *, changed: bool) -> None:
        """Take the next frame in order."""
        if frame.time < self._start:
            return
        self.latest = frame
        if self.best is not None or frame.time < self._start + FINAL_EFFECT_S:
            return
        if changed or self._candidate is None:
            self._candidate = frame
        elif frame.time - self._candidate.time >= FINAL_STILL_S:
            self.best = self._candidate
