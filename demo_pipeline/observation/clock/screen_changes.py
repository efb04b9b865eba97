"""Another resolution or scale of the screen in mid-recording.

Belongs here: the candidates, each tested on every move of the pointer, and cutting a recording into
parts. Where scans show desktops of several sizes, the film between them is looked at before the
decode pass; what only the pointer shows is seen in the pass itself. A screen changes its resolution
only when it is redrawn as a whole, so that the moment is a redraw between the observations on both
sides; a change to another resolution than the candidates stays unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise

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
from demo_pipeline.observation.clock.clock_search import STRETCH_S
from demo_pipeline.observation.frames.changes import (
    BLOCK,
    Cells,
    changed_cells,
    with_neighbours,
)
from demo_pipeline.observation.frames.frame_requests import merge_spans
from demo_pipeline.observation.frames.pointer_path import Floats, Point, PointerPath
from demo_pipeline.observation.frames.video_pointer import FrameDiff, VideoPointer
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


def candidates(base: Canvas, desktops: Sequence[DesktopSize]) -> list[Canvas]:
    """Canvases of the video of `base` that are worth testing, `base` and then the most likely.

    The video keeps its size, so a screen of another shape either has bars or is stretched.
    """
    width, height = base.event_size
    scaled = ((width * factor, height * factor) for s in SCALES for factor in (1 / s, s))
    sizes = chain((desktop.size for desktop in desktops), RESOLUTIONS, scaled)
    kept: dict[tuple[float, ...], Canvas] = {}
    for canvas in chain(
        [base], *(_fitted((base.video_width, base.video_height), s) for s in sizes)
    ):
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        kept.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(kept.values())


def _fitted(video_size: tuple[int, int], screen: ScreenSize) -> Iterator[Canvas]:
    across, down = (video / side for video, side in zip(video_size, screen, strict=True))
    if abs(across - down) <= SAME_ASPECT * down:
        yield fit_canvas(video_size, across)
        return
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


@dataclass(frozen=True, slots=True)
class _Observation:
    """What one move of the pointer, or one scan, costs each candidate.

    Attributes:
        time_ms: epoch milliseconds.
        costs: (candidates,) 0 or false where it agrees.
        unknown: what it costs to take the scale as unknown.
        scan: whether it is a scan.
    """

    time_ms: float
    costs: Floats | Cells
    unknown: float = UNKNOWN_COST
    scan: bool = False


@dataclass(frozen=True)
class _Redraw:
    """A redraw of much of the screen: a share of its cells, between two epoch milliseconds.

    `is_between`: there are frames between the two that were not decoded.
    """

    start_ms: float
    end_ms: float
    share: float
    is_between: bool = False


@dataclass
class _Run:
    """Successive observations, first <= i < last, that one state explains best."""

    state: int
    first: int
    last: int


REDRAWN_SHARE = 0.02  # of all cells; a new resolution moves everything that is not plain
QUIET_SHARE = 0.05  # of all cells; with more of them, a change proves nothing about the pointer
SUSPICIOUS_MISSES = 5  # moves in a row without a change where the log has the pointer
WRONG_DESKTOP = 4.0  # cost of a candidate that contradicts the desktop's size in one scan
UNKNOWN_DESKTOP = 2.0  # cost of saying that it is not known, then


def parts_by_scans(
    video: RecordedVideo,
    calibration: Calibration,
    path: PointerPath,
    desktops: Sequence[DesktopSize],
) -> ScreenParts | None:
    """The parts of a recording whose scans show desktops of several sizes; None for others.

    Decodes what is between two scans that differ, and some seconds more in which the pointer moves.
    """
    clock = calibration.clock
    spans = [
        Span(clock.video_time(one.time_ms), clock.video_time(other.time_ms) + STRETCH_S)
        for one, other in pairwise(screen_sizes(desktops, calibration.canvas))
        if not is_same_size(one.size, other.size)
    ]
    if not spans:
        return None
    pointer = VideoPointer(path, clock, calibration.screen, video.frame_s)
    watch = ScreenWatch(calibration, pointer, desktops)
    watch.look_at(video, spans)
    return watch.parts()


class ScreenWatch:
    """Observer of what the film says about every candidate, and the parts that follow.

    The state after the last candidate is `unknown`.

    Args:
        calibration: with the parts of the screen that are known.
        pointer: its path, as the calibration maps it to the video.
        desktops: those of the scans.

    Attributes:
        canvases: all candidates; the first is that of the calibration.
        observations: what speaks against each candidate, in time order once `parts` was asked.
        redraws: in time order.
    """

    spans: Sequence[Span] = ()

    def __init__(
        self, calibration: Calibration, pointer: VideoPointer, desktops: Sequence[DesktopSize]
    ) -> None:
        self._calibration, self._pointer = calibration, pointer
        known = screen_sizes(desktops, calibration.canvas)
        self.canvases = candidates(calibration.canvas, known)
        self._unknown = len(self.canvases)
        self.redraws: list[_Redraw] = []
        self.observations = [self._of_scan(desktop) for desktop in known]
        self._misses, self._is_suspicious = 0, False
        self._positions = pointer.path
        self._costs: Floats = np.zeros((0, 0))

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
        before, frame, difference = diff.before, diff.frame, diff.difference
        if before is None or difference is None:
            return
        share = difference.count / max(1, difference.cells.size)
        if share >= REDRAWN_SHARE:
            clock = self._calibration.clock
            start = clock.event_time(before.time) - clock.uncertainty_ms
            end = clock.event_time(frame.time) + clock.uncertainty_ms
            self.redraws.append(_Redraw(start, end, share, not diff.is_next))
        if diff.is_next and share <= QUIET_SHARE:
            moved = self._pointer.moves_around(before.time, frame.time)
            if len(moved) == 4:
                self._see_move(before, frame, moved, diff.detector.flickering)

    def _see_move(
        self, before: Frame, frame: Frame, moved: Sequence[Point], flickering: Cells | None
    ) -> None:
        """Note which candidates a move of the pointer in a quiet picture agrees with.

        It counts as missed when no place that it was logged at changed, but another one did:
        grabbers stall, and then write the same picture again.
        """
        changed = with_neighbours(changed_cells(before.luma, frame.luma))
        if flickering is not None:
            changed &= ~flickering
        if not changed.any():
            return
        time_ms = self._calibration.clock.event_time(frame.time)
        earlier, first, last, later = self._hits(changed, self.canvases, moved)
        hits = (earlier | first) & (last | later)
        self.observations.append(_Observation(time_ms, ~hits))
        canvas = self._calibration.screen.at(time_ms).canvas
        places = self._pointer.places_around(before.time, frame.time)
        if canvas is None or not self._hits(changed, [canvas], places).any():
            self._misses += canvas is None or all(canvas.on_screen(*point) for point in places)
            self._is_suspicious |= self._misses >= SUSPICIOUS_MISSES
        else:
            self._misses = 0

    def look_at(self, video: RecordedVideo, spans: Sequence[Span]) -> None:
        """See all frames of some stretches of the film."""
        detector = deepcopy(self._calibration.detector)
        for before, frame in pairwise(video.frames(merge_spans(spans, video.frame_s))):
            self.see(FrameDiff(before, frame, video.times, detector, self._pointer))

    @staticmethod
    def _hits(changed: Cells, canvases: Sequence[Canvas], points: Sequence[Point]) -> Cells:
        """(points, canvases): whether a cell changed under each of the points, by each canvas."""
        scales = np.array([(one.event_scale * one.stretch, one.event_scale) for one in canvases])
        bars = np.array([(one.left, one.top) for one in canvases])
        places = np.array(points)[:, None] * scales + bars
        column, row = np.moveaxis((places // BLOCK).astype(np.int64), -1, 0)
        rows, columns = changed.shape
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        found = inside & changed[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return np.asarray(found, np.bool_)

    def _of_scan(self, desktop: DesktopSize) -> _Observation:
        wrong = [not is_same_size(desktop.size, canvas.event_size) for canvas in self.canvases]
        costs = np.array(wrong) * WRONG_DESKTOP
        return _Observation(desktop.time_ms, costs, UNKNOWN_DESKTOP, scan=True)

    def contradicting(self, video: RecordedVideo) -> ScreenParts | None:
        """Parts that are not the calibration's, after the whole film; None: it holds.

        Redraws between frames that were not decoded are looked for then. In a film that did not
        show the pointer when it was calibrated, its absence proves nothing.
        """
        if self._calibration.canvas.scale_method != "pixels" or not self._is_suspicious:
            return None
        self._look_between(video)
        found, known = self.parts(), [part.canvas for part in self._calibration.screen]
        return found if found and [part.canvas for part in found] != known else None

    def _look_between(self, video: RecordedVideo) -> None:
        """See the frames among which the screen was redrawn, where they were not decoded."""
        video_time = self._calibration.clock.video_time
        unseen = [r for r in self.redraws if r.is_between and r.share >= WHOLE_SHARE * COMPARABLE]
        self.redraws = [redraw for redraw in self.redraws if redraw not in unseen]
        self.look_at(video, [Span(video_time(r.start_ms), video_time(r.end_ms)) for r in unseen])
        self.redraws.sort(key=lambda redraw: redraw.start_ms)

    def parts(self) -> ScreenParts | None:
        """The parts that the observations show; None when the first candidate explains all."""
        if not self.observations:
            return None
        self.observations.sort(key=lambda observation: observation.time_ms)
        self._costs = np.array([[*o.costs, o.unknown] for o in self.observations])
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
        return ScreenParts(tuple(parts)) if len(parts) > 1 else None

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
