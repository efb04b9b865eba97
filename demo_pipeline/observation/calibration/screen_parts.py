"""The parts of a recording in which the screen has one resolution and scale.

Belongs here: which canvas holds at a time of the log. People change the resolution in settings
tasks, and then one unit of the log is another number of video pixels. How the parts are found is in
screen_search.py.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.calibration.canvas import Canvas

ALWAYS = float("-inf")


@dataclass(frozen=True)
class ScreenPart:
    """A part of a recording; it ends where the next one begins.

    Attributes:
        from_ms: when it began, epoch milliseconds; minus infinity for the first.
        canvas: of this part; None when its resolution and scale cannot be known.
        evidence: `calibration`, `pointer` (in the video), `scans` (the desktop's size in them),
            `redraw` (the moment of the change itself) or `none`.
    """

    from_ms: float
    canvas: Canvas | None
    evidence: str


@dataclass(frozen=True)
class ScreenParts:
    """All parts of a recording in time order, at least one; nearly always exactly one."""

    parts: tuple[ScreenPart, ...]

    @classmethod
    def single(cls, canvas: Canvas) -> "ScreenParts":
        """A recording whose screen keeps its resolution and scale."""
        return cls((ScreenPart(ALWAYS, canvas, "calibration"),))

    def __iter__(self) -> Iterator[ScreenPart]:
        """In time order."""
        return iter(self.parts)

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.parts)

    def at(self, event_ms: float) -> ScreenPart:
        """The part that an event time in epoch milliseconds belongs to."""
        if len(self.parts) == 1:
            return self.parts[0]
        position = bisect_right([part.from_ms for part in self.parts], event_ms)
        return self.parts[max(0, position - 1)]

    def canvas_of(self, action: Action) -> Canvas | None:
        """The canvas of an action; None when it is not known, or changes before a drag ends."""
        part = self.at(action.press_ms)
        kept = action.action_type != "drag" or part == self.at(action.end_ms)
        return part.canvas if kept else None

    def in_same(self, first_ms: float, second_ms: float) -> bool:
        """Whether two event times are in one part, so that one's coordinates hold at the other."""
        return self.at(first_ms) == self.at(second_ms)
