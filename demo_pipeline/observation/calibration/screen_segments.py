"""Which resolution and scale held when: the cheapest explanation of all observations.

Belongs here: cutting a recording into parts. A screen changes its resolution only when it is
redrawn as a whole, so that the moment is a redraw between the observations on both sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.screen_parts import ALWAYS, ScreenPart, ScreenParts
from demo_pipeline.observation.frames.pointer_path import Floats, Point, PointerTrack

SWITCH = 3.5  # observations that must speak for a change; fewer may be chance
UNKNOWN_COST = 0.6  # of a move that no candidate explains, when the scale is taken as unknown
WHOLE_SHARE = 0.25  # of all cells; more than most windows, and no menu
COMPARABLE = 0.5  # of the largest redraw; one as large may be the change of resolution as well
AMBIGUOUS = 1.0  # observations; a candidate that explains but so many fewer is as likely
LARGEST_ERROR_PX = 10.0  # canvas pixels by which two candidates may differ and count as one
UNLIKELIER = 1e-3  # cost of each candidate above the one before it: among equals, the most usual


@dataclass(frozen=True)
class Observation:
    """What one move of the pointer, or one scan, costs each candidate.

    Attributes:
        time_ms: epoch milliseconds.
        costs: (candidates,) 0 where it agrees.
        unknown: what it costs to take the scale as unknown.
        scan: whether it is a scan.
    """

    time_ms: float
    costs: Floats
    unknown: float = UNKNOWN_COST
    scan: bool = False


@dataclass(frozen=True)
class Redraw:
    """A redraw of much of the screen: a share of its cells, between two epoch milliseconds."""

    start_ms: float
    end_ms: float
    share: float


@dataclass
class _Run:
    """Successive observations, first <= i < last, that one state explains best."""

    state: int
    first: int
    last: int


def find_segments(
    canvases: Sequence[Canvas],
    observations: Sequence[Observation],
    redraws: Sequence[Redraw],
    *,
    positions: PointerTrack,
    beyond_ms: float | None = None,
) -> ScreenParts:
    """The parts of a recording, one when the first candidate explains all of it.

    Args:
        canvases: the candidates; the first is that of the calibration.
        observations: in time order.
        redraws: in time order.
        positions: of the pointer in the log; candidates that differ there are told apart.
        beyond_ms: when positions began that contradict the first candidate and fit no other; from
            the last redraw before them on, nothing is known. None: there are none.
    """
    if not observations:
        return _unknown_from(canvases[0], redraws, beyond_ms)
    segments = _Segments(canvases, observations, redraws, positions)
    parts = segments.parts()
    if len(parts) == 1 and not any(observation.scan for observation in observations):
        return _unknown_from(canvases[0], redraws, beyond_ms)
    return ScreenParts(parts)


def _unknown_from(
    canvas: Canvas, redraws: Sequence[Redraw], beyond_ms: float | None
) -> ScreenParts:
    first = ScreenPart(ALWAYS, canvas, "calibration")
    if beyond_ms is not None:
        before = [r for r in redraws if r.share >= WHOLE_SHARE and r.start_ms <= beyond_ms]
        if before:
            return ScreenParts((first, ScreenPart(before[-1].start_ms, None, "none")))
    return ScreenParts((first,))


class _Segments:
    """The parts of one recording; the state after the last candidate is `unknown`."""

    def __init__(
        self,
        canvases: Sequence[Canvas],
        observations: Sequence[Observation],
        redraws: Sequence[Redraw],
        positions: PointerTrack,
    ) -> None:
        self._canvases = canvases
        self._observations = observations
        self._redraws = redraws
        self._positions = positions
        self._unknown = len(canvases)
        self._costs: Floats = np.array([[*o.costs, o.unknown] for o in observations])

    def parts(self) -> tuple[ScreenPart, ...]:
        """In time order."""
        runs = self._without_unproven(self._runs())
        changes = [self._change(before, run) for before, run in pairwise(runs)]
        begins = [ALWAYS, *(change.end_ms for change in changes)]
        ends = [*(change.start_ms for change in changes), float("inf")]
        parts = []
        for number, run in enumerate(runs):
            if number:
                parts.append(ScreenPart(changes[number - 1].start_ms, None, "redraw"))
            proven = number == 0 or changes[number - 1].share > 0
            parts.append(self._part(run, begins[number], ends[number], proven=proven))
        return tuple(parts)

    def _runs(self) -> list[_Run]:
        """The cheapest sequence of states, as runs."""
        entering = np.arange(self._unknown + 1) * UNLIKELIER
        total, came_from = entering + self._costs[0], []
        for costs in self._costs[1:]:
            cheapest = int(np.argmin(total))
            switched = total[cheapest] + SWITCH + entering
            stays = total <= switched
            came_from.append(np.where(stays, np.arange(len(total)), cheapest))
            total = np.where(stays, total, switched) + costs
        states = [int(np.argmin(total))]
        for back in reversed(came_from):
            states.append(int(back[states[-1]]))
        runs, position = [], 0
        for state, group in groupby(reversed(states)):
            length = len(list(group))
            runs.append(_Run(state, position, position + length))
            position += length
        return runs

    def _without_unproven(self, runs: Sequence[_Run]) -> list[_Run]:
        """The runs; one of unknown scale counts only from a redraw of the whole screen on.

        A pointer that the video stops showing is no sign of another resolution.
        """
        kept: list[_Run] = []
        for run in runs:
            state = run.state
            if state == self._unknown:
                before = kept[-1].state if kept else 0
                whole = kept and self._change(kept[-1], run).share >= WHOLE_SHARE
                state = state if whole else before
            if kept and kept[-1].state == state:
                kept[-1] = _Run(state, kept[-1].first, run.last)
            else:
                kept.append(_Run(state, run.first, run.last))
        return kept

    def _change(self, before: _Run, run: _Run) -> Redraw:
        """When one run became the next: at the largest redraws between what speaks for either.

        Without a redraw, its share is 0.
        """
        favours = self._costs[:, before.state] - self._costs[:, run.state]
        old = [i for i in range(before.first, before.last) if favours[i] < 0]
        new = [i for i in range(run.first, run.last) if favours[i] > 0]
        start = self._observations[max(old, default=before.first)].time_ms
        end = self._observations[min(new, default=run.first)].time_ms
        found = [r for r in self._redraws if r.end_ms > start and r.start_ms < end]
        share = max((redraw.share for redraw in found), default=0.0)
        if not share:
            return Redraw(start, end, 0.0)
        largest = [redraw for redraw in found if redraw.share >= COMPARABLE * share]
        return Redraw(largest[0].start_ms, largest[-1].end_ms, share)

    def _part(self, run: _Run, from_ms: float, until_ms: float, *, proven: bool) -> ScreenPart:
        """The part of a run; `proven`: it begins with a redraw, or with the recording."""
        if run.state == 0:
            return ScreenPart(from_ms, self._canvases[0], "calibration")
        if not proven or run.state == self._unknown or self._is_ambiguous(run, from_ms, until_ms):
            return ScreenPart(from_ms, None, "none")
        moves = [o for o in self._observations[run.first : run.last] if not o.scan]
        agreeing = sum(o.costs[run.state] < UNKNOWN_COST for o in moves)
        evidence = "pointer" if agreeing >= SWITCH else "scans"
        return ScreenPart(from_ms, self._canvases[run.state], evidence)

    def _is_ambiguous(self, run: _Run, from_ms: float, until_ms: float) -> bool:
        """Whether another candidate explains a run as well and lays its positions elsewhere."""
        costs = self._costs[run.first : run.last].sum(axis=0)[: self._unknown]
        rivals = np.flatnonzero(costs <= costs[run.state] + AMBIGUOUS).tolist()
        size = self._canvases[run.state].event_size
        points = self._extremes(from_ms, until_ms, size) or [size]
        places = [
            [self._canvases[state].to_canvas(*point) for point in points]
            for state in (run.state, *rivals)
        ]
        return float(np.ptp(np.array(places), axis=0).max()) > LARGEST_ERROR_PX

    def _extremes(self, from_ms: float, until_ms: float, size: Point) -> list[Point]:
        """Corners of the box of the pointer's positions on a screen of this size, in event space.

        Between two times. Empty without such a position.
        """
        track = self._positions
        inside = (track.times >= from_ms) & (track.times < until_ms)
        inside &= (track.x >= 0) & (track.x < size[0]) & (track.y >= 0) & (track.y < size[1])
        if not inside.any():
            return []
        x, y = track.x[inside], track.y[inside]
        return [(float(a), float(b)) for a in (x.min(), x.max()) for b in (y.min(), y.max())]
