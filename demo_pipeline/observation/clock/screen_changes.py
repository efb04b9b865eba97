"""The search for another resolution or scale of the screen in mid-recording.

Belongs here: the candidates, each tested on every move of the pointer, and cutting a recording into
parts. The video is read once more only for recordings in which something contradicts the scale that
calibration found. A screen changes its resolution only when it is redrawn as a whole, so that the
moment is a redraw between the observations on both sides; a change to another resolution than the
candidates stays unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np

from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import (
    ALWAYS,
    Canvas,
    ScaleMethod,
    ScreenPart,
    ScreenParts,
    fit_canvas,
)
from demo_pipeline.observation.frames.changes import (
    BLOCK,
    Cells,
    changed_cells,
    with_neighbours,
)
from demo_pipeline.observation.frames.pointer_path import Floats, Point, PointerPath, PointerTrack
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, RecordedVideo, Span

ScreenSize = tuple[float, float]

# Resolutions that systems offer, in pixels or points (macOS), the most usual ones first.
RESOLUTIONS: tuple[tuple[int, int], ...] = (
    *((1920, 1080), (1366, 768), (1280, 720), (2560, 1440), (1600, 900), (1440, 900)),
    *((1280, 1024), (1024, 768), (1920, 1200), (1680, 1050), (1280, 800), (3840, 2160)),
    *((800, 600), (1152, 864), (1280, 960), (1280, 768), (1360, 768), (1400, 1050)),
    *((1600, 1200), (1600, 1024), (2048, 1152), (2048, 1536), (2560, 1600), (2560, 1080)),
    *((3440, 1440), (3840, 1600), (3840, 1080), (2880, 1800), (3200, 1800), (5120, 2880)),
    *((640, 480), (960, 540), (1024, 576), (1176, 664), (1512, 982), (1728, 1117)),
    *((1792, 1120), (2056, 1329), (1470, 956), (1710, 1112), (1147, 745), (1352, 878)),
)
SCALES = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)  # display scales; a log may count in scaled pixels
SAME_SIZE = 0.01  # largest relative difference of two sizes of one screen
SAME_ASPECT = (
    0.005  # largest relative difference of the shapes of a screen and its undistorted film
)


@dataclass(frozen=True)
class DesktopSize:
    """The size of the whole desktop in an accessibility scan: event space, epoch milliseconds."""

    time_ms: float
    size: ScreenSize


def is_same_size(first: ScreenSize, second: ScreenSize) -> bool:
    """Whether two sizes are those of one screen, but for rounding."""
    return all(abs(a - b) <= SAME_SIZE * b for a, b in zip(first, second, strict=True))


def screen_sizes(desktops: Iterable[DesktopSize], base: Canvas) -> list[DesktopSize]:
    """The desktops that tell the size of the recorded screen; none when they never do.

    They count when one is the recorded screen's. A desktop that grew along one side only may have
    got a second display.
    """
    found = list(desktops)
    width, height = base.event_size
    if not any(is_same_size(desktop.size, (width, height)) for desktop in found):
        return []

    def grew(size: ScreenSize) -> bool:
        wider, taller = size[0] - width, size[1] - height
        slack = SAME_SIZE * width
        return (abs(wider) <= slack < taller) or (abs(taller) <= slack < wider)

    return [desktop for desktop in found if not grew(desktop.size)]


def candidates(
    video_size: tuple[int, int], base: Canvas, desktops: Sequence[DesktopSize]
) -> list[Canvas]:
    """Canvases of a video of `video_size` that are worth testing, the most likely first.

    The first keeps the scale of `base`. In a video that keeps its size, a screen of another shape
    either has bars or is stretched; one that changes its size shows the screen as it is.
    """
    unchanged = video_size == (base.video_width, base.video_height)
    first = base if unchanged else fit_canvas(video_size, base.event_scale)
    width, height = base.event_size
    scaled = ((width * factor, height * factor) for s in SCALES for factor in (1 / s, s))
    sizes = chain((desktop.size for desktop in desktops), RESOLUTIONS, scaled)
    tried = chain([first], *(_fitted(video_size, size, unchanged=unchanged) for size in sizes))
    kept: dict[tuple[float, ...], Canvas] = {}
    for canvas in tried:
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        kept.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(kept.values())


def _fitted(
    video_size: tuple[int, int], screen: ScreenSize, *, unchanged: bool
) -> Iterator[Canvas]:
    across, down = (video / side for video, side in zip(video_size, screen, strict=True))
    if abs(across - down) <= SAME_ASPECT * down:
        yield fit_canvas(video_size, across)
    elif unchanged:
        scale = min(across, down)
        (video_w, video_h), (width, height) = video_size, screen
        bars = (video_w - width * scale) / 2, (video_h - height * scale) / 2
        yield fit_canvas(video_size, scale, bars=bars)
        yield fit_canvas(video_size, down, stretch=across / down)


SWITCH = 3.5  # observations that must speak for a change; fewer may be chance
UNKNOWN_COST = 0.6  # of a move that no candidate explains, when the scale is taken as unknown
WHOLE_SHARE = 0.25  # of all cells; more than most windows, and no menu
COMPARABLE = 0.5  # of the largest redraw; one as large may be the change of resolution as well
AMBIGUOUS = 1.0  # observations; a candidate that explains but so many fewer is as likely
LARGEST_ERROR_PX = 10.0  # canvas pixels by which two candidates may differ and count as one
UNLIKELIER = 1e-3  # cost of each candidate above the one before it: among equals, the most usual


@dataclass(frozen=True)
class _Observation:
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
class _Redraw:
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


REDRAWN_SHARE = 0.02  # of all cells; a new resolution moves everything that is not plain
QUIET_SHARE = 0.05  # of all cells; with more of them, a change proves nothing about the pointer
IMPOSSIBLE = 3.0  # cost of a candidate for frames of another size
WRONG_DESKTOP = 4.0  # cost of a candidate that contradicts the desktop's size in one scan
UNKNOWN_DESKTOP = 2.0  # cost of saying that it is not known, then


@dataclass
class _Moves:
    """The pointer's moves in the frames of one size; `canvases`: the candidates for it."""

    canvases: list[Canvas]
    times: list[float] = field(default_factory=list)
    hits: list[Cells] = field(default_factory=list)


def needs_search(
    calibration: Calibration, track: PointerTrack, sizes: Sequence[DesktopSize]
) -> bool:
    """Whether the log alone raises the suspicion that the screen changed its size.

    Either the scans show desktops of several sizes, or, in a video that does not show the pointer,
    positions are beyond two sides of the screen as no second display explains.
    """
    known = screen_sizes(sizes, calibration.canvas)
    if any(not is_same_size(known[0].size, desktop.size) for desktop in known):
        return True
    return (
        calibration.canvas.scale_method != "pixels" and first_beyond(calibration, track) is not None
    )


def first_beyond(calibration: Calibration, track: PointerTrack) -> float | None:
    """When the pointer first left the screen over two sides, epoch milliseconds; else None.

    Positions right of the screen and others below it, neither of them beyond both, cannot all be on
    one other display.
    """
    width, height = calibration.canvas.event_size
    right = (track.x >= width) & (track.y >= 0) & (track.y < height)
    below = (track.y >= height) & (track.x >= 0) & (track.x < width)
    if not right.any() or not below.any():
        return None
    return float(track.times[right | below].min())


def find_screen_parts(
    video: RecordedVideo,
    calibration: Calibration,
    path: PointerPath,
    desktops: Sequence[DesktopSize],
) -> ScreenParts | None:
    """The parts of a recording whose screen changed its resolution or scale; None when it did not.

    Decodes the whole video. A part whose scale cannot be known has no canvas. Where positions begin
    that contradict the first candidate and fit no other, nothing is known from the last redraw
    before them on.
    """
    search = _Search(video, calibration, path, screen_sizes(desktops, calibration.canvas))
    parts = search.parts()
    if len(parts) > 1 or any(observation.scan for observation in search.observations):
        return ScreenParts(parts) if len(parts) > 1 else None
    if calibration.canvas.scale_method == "pixels":
        return None
    beyond_ms = first_beyond(calibration, path.track())
    if beyond_ms is None:
        return None
    whole = [r for r in search.redraws if r.share >= WHOLE_SHARE and r.start_ms <= beyond_ms]
    first = ScreenPart(ALWAYS, calibration.canvas)
    unknown = [ScreenPart(one.start_ms, None) for one in whole[-1:]]
    return ScreenParts((first, *unknown)) if unknown else None


class _Search:
    """What the video and the scans say about every candidate, and the parts that follow.

    The state after the last candidate is `unknown`.

    Attributes:
        canvases: all candidates; the first is that of the calibration.
        observations: what speaks against each candidate, in time order.
        redraws: in time order.
    """

    def __init__(
        self,
        video: RecordedVideo,
        calibration: Calibration,
        path: PointerPath,
        desktops: Sequence[DesktopSize],
    ) -> None:
        self._calibration, self._desktops, self._positions = calibration, desktops, path.track()
        screen = ScreenParts.single(calibration.canvas)
        self._pointer = VideoPointer(path, calibration.clock, screen, video.frame_s)
        self._moves: dict[tuple[int, int], _Moves] = {}
        self._moves_of((calibration.canvas.video_width, calibration.canvas.video_height))
        self.redraws: list[_Redraw] = []
        frames = video.frames([Span(float(video.times[0]), float(video.times[-1]))])
        for before, frame in pairwise(frames):
            self._compare(before, frame)
        self.canvases = [canvas for moves in self._moves.values() for canvas in moves.canvases]
        self._unknown = len(self.canvases)
        found = [*self._moved(), *self._scanned()]
        self.observations = sorted(found, key=lambda observation: observation.time_ms)
        self._costs: Floats = np.array([[*o.costs, o.unknown] for o in self.observations])

    def _compare(self, before: Frame, frame: Frame) -> None:
        clock = self._calibration.clock
        uncertainty = clock.uncertainty_ms
        start = clock.event_time(before.time) - uncertainty
        end = clock.event_time(frame.time) + uncertainty
        if before.size != frame.size:
            self.redraws.append(_Redraw(start, end, 1.0))
            return
        cells = changed_cells(before.luma, frame.luma)
        flickering = self._calibration.flickering
        if flickering is not None and flickering.shape == cells.shape:
            cells &= ~flickering
        share = float(cells.mean()) if cells.size else 0.0
        if share >= REDRAWN_SHARE:
            self.redraws.append(_Redraw(start, end, share))
        moved = self._pointer.moves_around(before.time, frame.time)
        if len(moved) == 4 and 0 < share <= QUIET_SHARE:
            moves = self._moves_of(frame.size)
            changed = with_neighbours(cells)
            left = _changed_at(changed, moves.canvases, moved[:2])
            reached = _changed_at(changed, moves.canvases, moved[2:])
            moves.times.append(clock.event_time(frame.time))
            moves.hits.append(left & reached)

    def _moves_of(self, size: tuple[int, int]) -> _Moves:
        if size not in self._moves:
            found = candidates(size, self._calibration.canvas, self._desktops)
            self._moves[size] = _Moves(found)
        return self._moves[size]

    def _moved(self) -> Iterator[_Observation]:
        for size, moves in self._moves.items():
            for time, hits in zip(moves.times, moves.hits, strict=True):
                parts = [
                    1.0 - hits if other == size else np.full(len(some.canvases), IMPOSSIBLE)
                    for other, some in self._moves.items()
                ]
                yield _Observation(time, np.concatenate(parts))

    def _scanned(self) -> Iterator[_Observation]:
        for desktop in self._desktops:
            wrong = [not is_same_size(desktop.size, canvas.event_size) for canvas in self.canvases]
            costs = np.array(wrong) * WRONG_DESKTOP
            yield _Observation(desktop.time_ms, costs, UNKNOWN_DESKTOP, scan=True)

    def parts(self) -> tuple[ScreenPart, ...]:
        """In time order; one when the first candidate explains all, none without observations."""
        if not self.observations:
            return ()
        runs = self._without_unproven(self._runs())
        changes = [self._change(before, run) for before, run in pairwise(runs)]
        begins = [ALWAYS, *(change.end_ms for change in changes)]
        ends = [*(change.start_ms for change in changes), float("inf")]
        parts = []
        for number, run in enumerate(runs):
            if number:
                parts.append(ScreenPart(changes[number - 1].start_ms, None))
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

        A pointer that the video stops showing is not a sign of another resolution.
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

    def _change(self, before: _Run, run: _Run) -> _Redraw:
        """When one run became the next: at the largest redraws between what speaks for either.

        Without a redraw, its share is 0.
        """
        favours = self._costs[:, before.state] - self._costs[:, run.state]
        old = [i for i in range(before.first, before.last) if favours[i] < 0]
        new = [i for i in range(run.first, run.last) if favours[i] > 0]
        start = self.observations[max(old, default=before.first)].time_ms
        end = self.observations[min(new, default=run.first)].time_ms
        found = [r for r in self.redraws if r.end_ms > start and r.start_ms < end]
        share = max((redraw.share for redraw in found), default=0.0)
        if not share:
            return _Redraw(start, end, 0.0)
        largest = [redraw for redraw in found if redraw.share >= COMPARABLE * share]
        return _Redraw(largest[0].start_ms, largest[-1].end_ms, share)

    def _part(self, run: _Run, from_ms: float, until_ms: float, *, proven: bool) -> ScreenPart:
        """The part of a run; `proven`: it begins with a redraw, or with the recording."""
        if run.state == 0:
            return ScreenPart(from_ms, self.canvases[0])
        if not proven or run.state == self._unknown or self._is_ambiguous(run, from_ms, until_ms):
            return ScreenPart(from_ms, None)
        moves = [o for o in self.observations[run.first : run.last] if not o.scan]
        agreeing = sum(o.costs[run.state] < UNKNOWN_COST for o in moves)
        canvas = self.canvases[run.state]
        method: ScaleMethod = "pixels" if agreeing >= SWITCH else "assumed"
        return ScreenPart(from_ms, replace(canvas, scale_method=method))

    def _is_ambiguous(self, run: _Run, from_ms: float, until_ms: float) -> bool:
        """Whether another candidate explains a run as well and lays its positions elsewhere."""
        costs = self._costs[run.first : run.last].sum(axis=0)[: self._unknown]
        rivals = np.flatnonzero(costs <= costs[run.state] + AMBIGUOUS).tolist()
        size = self.canvases[run.state].event_size
        points = self._extremes(from_ms, until_ms, size) or [size]
        places = [
            [self.canvases[state].to_canvas(*point) for point in points]
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


def _changed_at(changed: Cells, canvases: Sequence[Canvas], points: Sequence[Point]) -> Cells:
    """(canvases,): whether a cell changed under one of the points, by each canvas."""
    rows, columns = changed.shape
    found = np.zeros(len(canvases), bool)
    for point in points:
        mapped: Floats = np.array([canvas.to_video(*point) for canvas in canvases])
        column, row = (mapped // BLOCK).astype(np.int64).T
        inside: Any = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        found[inside] |= changed[row[inside], column[inside]]
    return found
