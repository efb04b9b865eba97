"""Another resolution or scale of the screen in mid-recording.

Belongs here: the candidates, what speaks for each of them, and cutting a recording into parts.
Where scans show desktops of several sizes, the film between them is looked at before the decode
pass; after the last scan the pointer tells, as the pass sees it. A screen changes its resolution
only when it is redrawn as a whole, so that the moment is a redraw between the observations on both
sides; a change to another resolution than the candidates stays unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from demo_pipeline.actions.action_tables import Action
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
from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span

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


def _usual_sizes(base: Canvas) -> Iterator[ScreenSize]:
    """Of screens that `base` may have changed to, the most likely first."""
    width, height = base.event_size
    yield from RESOLUTIONS
    yield from ((width * factor, height * factor) for s in SCALES for factor in (1 / s, s))


def candidates(known: Sequence[Canvas], sizes: Iterable[ScreenSize]) -> list[Canvas]:
    """The `known` canvases of a video, and those that screens of these sizes may have in it.

    The video keeps its size, so a screen of another shape either has bars or is stretched.
    """
    video_size = (known[0].video_width, known[0].video_height)
    kept: dict[tuple[float, ...], Canvas] = {}
    for canvas in chain(known, *(_fitted(video_size, size) for size in sizes)):
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        kept.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(kept.values())


def _fitted(video_size: tuple[int, int], screen: ScreenSize) -> Iterator[Canvas]:
    width, height = screen
    across, down = video_size[0] / width, video_size[1] / height
    if abs(across - down) <= SAME_ASPECT * down:
        yield fit_canvas(video_size, across)
        return
    scale = min(across, down)
    left, top = (video_size[0] - width * scale) / 2, (video_size[1] - height * scale) / 2
    whole = fit_canvas(video_size, scale)
    pad_x, pad_y = whole.pad_x + round(left * whole.scale), whole.pad_y + round(top * whole.scale)
    yield replace(whole, pad_x=pad_x, pad_y=pad_y, left=left, top=top)
    yield fit_canvas(video_size, down, stretch=across / down)


SWITCH = 3.5  # observations that must speak for a change; fewer may be chance
UNKNOWN_COST = 0.6  # of a move that no candidate explains, when the scale is taken as unknown
WHOLE_SHARE = 0.25  # of all cells; more than most windows, and no menu
COMPARABLE = 0.5  # of the largest redraw; one as large may be the change of resolution as well
FEW_OBSERVED = 32  # observations; two to four movements towards a target
AGREEING_SHARE = 0.8  # of the moves; right scales explained 0.94, one that is off by 1 % 0.7
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
REACTION_MS = 200  # nobody acts sooner on a new screen: a press right after a frame was on its one
QUIET_SHARE = 0.05  # of all cells; with more of them, a change proves nothing about the pointer
SURE_MOVES = 5  # in a row that the picture shows where the log has the pointer, or does not
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
    clock, known = calibration.clock, screen_sizes(desktops, calibration.canvas)
    spans = [
        Span(clock.video_time(one.time_ms), clock.video_time(other.time_ms) + STRETCH_S)
        for one, other in pairwise(known)
        if not is_same_size(one.size, other.size)
    ]
    if not spans:
        return None
    pointer = VideoPointer(path, clock, calibration.screen, video.frame_s)
    canvases = candidates([calibration.canvas], [desktop.size for desktop in known])
    found, detector = _CanvasEvidence(canvases), deepcopy(calibration.detector)
    for desktop in known:
        found.add_scan(desktop)
    for before, frame in pairwise(video.frames(merge_spans(spans, video.frame_s))):
        diff = FrameDiff(before, frame, video.times, detector, pointer)
        found.see(diff, _quiet_move(diff))
    parts = found.parts()
    return ScreenParts(parts) if len(parts) > 1 else None


class _Move(NamedTuple):
    """A move of the pointer in a picture that hardly changes.

    Attributes:
        places: in two successive frames and in those around them, event space.
        changed: (rows, columns) of cells that changed, and their neighbours.
    """

    places: Sequence[Point]
    changed: Cells


class ScreenWatch:
    """Observer that tells from the pointer whether and where the screen was given another size.

    Scans tell up to the last of them. A film that did not show the pointer when it was calibrated
    proves nothing by its absence.

    Args:
        calibration: of the recording.
        screen: its parts; takes those that are found, as soon as they are beyond doubt.
        desktops: those of the scans.
    """

    spans: Sequence[Span] = ()

    def __init__(
        self, calibration: Calibration, screen: ScreenParts, desktops: Sequence[DesktopSize]
    ) -> None:
        base, clock = calibration.canvas, calibration.clock
        known = [clock.video_time(d.time_ms) for d in screen_sizes(desktops, base)]
        is_watched = base.scale_method == "pixels" and calibration.parts is None
        self._from_s = max(known, default=ALWAYS) if is_watched else inf
        self._screen, self._calibrated = screen, base
        self._begin(base)

    def _begin(self, canvas: Canvas) -> None:
        """Expect a canvas from now on."""
        self._canvas, self._agreed, self._missed, self._is_suspicious = canvas, 0, 0, False
        known = (canvas, self._calibrated)
        self._found = _CanvasEvidence(candidates(known, _usual_sizes(self._calibrated)))

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
        if diff.before is None or diff.before.time < self._from_s:
            return
        move = _quiet_move(diff)
        if move is not None:
            self._test(move, diff.pointer.places_around(diff.before.time, diff.frame.time))
        if _changed_share(diff) >= REDRAWN_SHARE:
            self._agreed = 0
        if move is not None and self._agreed >= SURE_MOVES and not self._is_suspicious:
            self._found.begin(diff)
            return
        self._found.see(diff, move)
        if move is not None and self._is_suspicious and self._found.is_due:
            parts = self._found.parts(so_far=True)
            if parts and parts[-1].canvas is not None:
                self._take(parts)
                self._begin(parts[-1].canvas)
                self._found.begin(diff)

    def _test(self, move: _Move, places: Sequence[Point]) -> None:
        """Test the expected canvas on a move, which may have been at any of the places."""
        if _hits(move.changed, [self._canvas], places).any():
            self._missed, self._agreed = 0, self._agreed + 1
        else:
            self._missed += all(self._canvas.on_screen(*point) for point in places)
            self._agreed = 0
        self._is_suspicious |= self._missed >= SURE_MOVES

    def misplaced(self, actions: Sequence[Action]) -> set[int]:
        """The actions, by index, whose places in the film are now known to be others, or unknown.

        After the whole film, when the last parts are found.
        """
        if self._is_suspicious:
            self._take(self._found.parts())
            self._is_suspicious = False
        return {
            action.action_index
            for action in actions
            for time_ms in (action.press_ms, action.end_ms)
            if self._from_s < inf and self._screen.at(time_ms).canvas != self._calibrated
        }

    def _take(self, parts: Sequence[ScreenPart]) -> None:
        *before, last = self._screen.parts
        first = [replace(part, from_ms=last.from_ms) for part in parts[:1]] or [last]
        self._screen.parts = (*before, *first, *parts[1:])


def _changed_share(diff: FrameDiff) -> float:
    """The share of all cells that changed since the frame decoded before; 0 without one."""
    difference = diff.difference
    return difference.count / max(1, difference.cells.size) if difference else 0.0


def _quiet_move(diff: FrameDiff) -> _Move | None:
    """The move from one frame to the next; None: there is none that proves anything.

    Not where nothing changed: grabbers stall, and then write the same picture again.
    """
    before, frame = diff.before, diff.frame
    if before is None or not diff.is_next:
        return None
    places = diff.pointer.moves_around(before.time, frame.time)
    if len(places) < 4 or _changed_share(diff) > QUIET_SHARE:
        return None
    changed = with_neighbours(changed_cells(before.luma, frame.luma))
    if diff.detector.flickering is not None:
        changed &= ~diff.detector.flickering
    return _Move(places, changed) if changed.any() else None


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


class _CanvasEvidence:
    """What the film and the scans say about each candidate, and the parts that follow.

    The state after the last candidate is `unknown`.

    Args:
        canvases: all candidates; the first is the expected one.
    """

    def __init__(self, canvases: Sequence[Canvas]) -> None:
        self._canvases, self._unknown = canvases, len(canvases)
        self._redraws: list[_Redraw] = []
        self._observations: list[_Observation] = []
        self._costs: Floats = np.zeros((0, 0))

    def begin(self, diff: FrameDiff) -> None:
        """Begin anew at a frame that certainly shows the first candidate."""
        time_ms = diff.pointer.clock.event_time(diff.frame.time)
        costs = np.where(np.arange(self._unknown) > 0, 2 * SWITCH, 0.0)
        self._observations = [_Observation(time_ms, costs, 2 * SWITCH)]
        self._redraws = []

    def see(self, diff: FrameDiff, move: _Move | None) -> None:
        """Note a redraw, or which candidates a move agrees with, as `_quiet_move` has it."""
        before, clock, share = diff.before, diff.pointer.clock, _changed_share(diff)
        time_ms = clock.event_time(diff.frame.time)
        if before is not None and share >= REDRAWN_SHARE:
            unmoved_ms = 0.0 if diff.is_next else REACTION_MS
            start = clock.event_time(before.time) - clock.uncertainty_ms + unmoved_ms
            end = time_ms + clock.uncertainty_ms
            self._redraws.append(_Redraw(start, end, share))
        if move is not None:
            earlier, first, last, later = _hits(move.changed, self._canvases, move.places)
            hits = (earlier | first) & (last | later)
            self._observations.append(_Observation(time_ms, ~hits))

    def add_scan(self, desktop: DesktopSize) -> None:
        """Note which candidates a scan agrees with."""
        wrong = [not is_same_size(desktop.size, one.event_size) for one in self._canvases]
        costs = np.array(wrong) * WRONG_DESKTOP
        self._observations.append(_Observation(desktop.time_ms, costs, UNKNOWN_DESKTOP, scan=True))

    @property
    def is_due(self) -> bool:
        """Whether it is worth asking again: as there are few, or twice as many as before."""
        return len(self._observations) < FEW_OBSERVED or len(self._observations).bit_count() == 1

    def parts(self, *, so_far: bool = False) -> tuple[ScreenPart, ...]:
        """The parts that the observations show; `so_far`: only those that will stand."""
        if not self._observations:
            return ()
        self._observations.sort(key=lambda observation: observation.time_ms)
        self._costs = np.array([[*o.costs, o.unknown] for o in self._observations])
        runs = self._without_unproven(self._runs())
        costs, state = self._costs[runs[-1].first :].sum(axis=0), runs[-1].state
        if so_far and costs[0] - costs[state] < 2 * SWITCH:
            return ()
        parts = [self._part(runs[0], ALWAYS, is_proven=True)]
        for before, run in pairwise(runs):
            change = self._change(before, run)
            parts.append(ScreenPart(change.start_ms, None))
            parts.append(self._part(run, change.end_ms, is_proven=change.share > 0))
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
        start = self._observations[max(old, default=before.first)].time_ms
        end = self._observations[min(new, default=run.first)].time_ms
        found = [r for r in self._redraws if r.end_ms > start and r.start_ms < end]
        share = max((redraw.share for redraw in found), default=0.0)
        if not share:
            return _Redraw(start, end, 0.0)
        largest = [redraw for redraw in found if redraw.share >= COMPARABLE * share]
        return _Redraw(largest[0].start_ms, largest[-1].end_ms, share)

    def _part(self, run: _Run, from_ms: float, *, is_proven: bool) -> ScreenPart:
        """The part of a run; `is_proven`: it begins with a redraw, or with the recording."""
        if run.state == 0:
            return ScreenPart(from_ms, self._canvases[0])
        if not is_proven or run.state == self._unknown or self._is_ambiguous(run):
            return ScreenPart(from_ms, None)
        moves = [o for o in self._observations[run.first : run.last] if not o.scan]
        agreeing = sum(o.costs[run.state] < UNKNOWN_COST for o in moves)
        is_scanned = len(moves) < run.last - run.first
        if not is_scanned and agreeing < AGREEING_SHARE * len(moves):
            return ScreenPart(from_ms, None)
        method: ScaleMethod = "pixels" if agreeing >= SWITCH else "assumed"
        return ScreenPart(from_ms, replace(self._canvases[run.state], scale_method=method))

    def _is_ambiguous(self, run: _Run) -> bool:
        """Whether another candidate explains a run as well and lays its last corner elsewhere."""
        costs = self._costs[run.first : run.last].sum(axis=0)[: self._unknown]
        rivals = np.flatnonzero(costs <= costs[run.state] + AMBIGUOUS).tolist()
        corner = self._canvases[run.state].event_size
        places = [self._canvases[state].to_canvas(*corner) for state in (run.state, *rivals)]
        return float(np.ptp(np.array(places), axis=0).max()) > LARGEST_ERROR_PX
