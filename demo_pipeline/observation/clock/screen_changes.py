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
from itertools import chain, pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import (
    ALWAYS,
    Canvas,
    ScreenPart,
    fit_canvas,
)
from demo_pipeline.observation.clock.clock_search import STRETCH_S
from demo_pipeline.observation.frames.changes import BLOCK, Cells, changed_cells, with_neighbours
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import merge_spans
from demo_pipeline.observation.frames.pointer_path import Floats, Point, PointerPath
from demo_pipeline.observation.frames.video_pointer import VideoPointer
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
        wider = size[0] - width
        taller = size[1] - height
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
    across = video_size[0] / width
    down = video_size[1] / height
    if abs(across - down) <= SAME_ASPECT * down:
        yield fit_canvas(video_size, across)
        return
    scale = min(across, down)
    left = (video_size[0] - width * scale) / 2
    top = (video_size[1] - height * scale) / 2
    whole = fit_canvas(video_size, scale)
    pad_x = whole.pad_x + round(left * whole.scale)
    pad_y = whole.pad_y + round(top * whole.scale)
    yield replace(whole, pad_x=pad_x, pad_y=pad_y, left=left, top=top)
    yield fit_canvas(video_size, down, stretch=across / down)


SWITCH = 3.5  # moves that must speak for a change; fewer may be chance
UNKNOWN_COST = 0.6  # of a move that no candidate explains, when the scale is taken as unknown
WHOLE_SHARE = 0.25  # of all cells; more than most windows, and no menu
COMPARABLE = 0.5  # of the largest redraw; one as large may be the change of resolution as well
AGREEING_SHARE = 0.6  # of the moves; right scales explained 0.65 to 0.94, one 4 % off half of them
AMBIGUOUS = 1.0  # moves; a candidate that explains but so many fewer is as likely
LARGEST_ERROR_PX = 10.0  # canvas pixels by which two candidates may differ and count as one
UNLIKELIER = 1e-3  # cost of each candidate above the one before it: among equals, the most usual
REDRAWN_SHARE = 0.02  # of all cells; a new resolution moves everything that is not plain
REACTION_MS = 200  # nobody acts sooner on a new screen: a press right after a frame was on its one
QUIET_SHARE = 0.05  # of all cells; with more of them, a change proves nothing about the pointer
SURE_MOVES = 5  # in a row that the picture shows where the log has the pointer, or does not
FEW_MOVES = 32  # two to four movements towards a target
MOST_MOVES = 4096  # kept, 3 MB; a film that hides its pointer may have 100,000 in two hours


def find_parts_by_scans(
    video: RecordedVideo,
    calibration: Calibration,
    path: PointerPath,
    desktops: Sequence[DesktopSize],
) -> None:
    """Add the parts of a recording whose scans show desktops of several sizes to its screen.

    Decodes what is between two scans that differ, and some seconds more in which the pointer moves.
    """
    clock = calibration.clock
    base = calibration.canvas
    screen = calibration.screen
    pairs = [
        (one, other)
        for one, other in pairwise(screen_sizes(desktops, base))
        if not is_same_size(one.size, other.size)
    ]
    pointer = VideoPointer(path, clock, screen, video.frame_s)
    expected = base
    detector = deepcopy(calibration.detector)
    nexts = [*(one.time_ms for one, _ in pairs[1:]), inf]
    for (one, other), until_ms in zip(pairs, nexts, strict=False):
        is_back = is_same_size(other.size, base.event_size)
        told = [base] if is_back else _fitted((base.video_width, base.video_height), other.size)
        found = _CanvasEvidence([expected, *told], one.time_ms)
        end = min(clock.video_time(other.time_ms) + STRETCH_S, clock.video_time(until_ms))
        span = Span(clock.video_time(one.time_ms), end)
        for before, frame in pairwise(video.frames(merge_spans([span], video.frame_s))):
            diff = FrameDiff(before, frame, video.times, detector, pointer)
            found.see(diff, _quiet_move(diff, expected))
        if (change := found.change(other.time_ms)) is not None:
            screen.add(change.parts)
            expected = change.parts[-1].canvas or expected


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
        calibration: of the recording; its screen takes parts as soon as they are beyond doubt.
        desktops: those of the scans.
    """

    spans: Sequence[Span] = ()

    def __init__(self, calibration: Calibration, desktops: Sequence[DesktopSize]) -> None:
        base = calibration.canvas
        clock = calibration.clock
        known = [clock.video_time(d.time_ms) for d in screen_sizes(desktops, base)]
        is_watched = base.scale_method == "pixels" and len(calibration.screen) == 1
        self._from_s = max(known, default=ALWAYS) if is_watched else inf
        self._screen = calibration.screen
        self._calibrated = base
        self._begin(base, ALWAYS)

    def _begin(self, canvas: Canvas, time_ms: float) -> None:
        """Expect a canvas from a time on."""
        self._canvas = canvas
        self._agreed = 0
        self._missed = 0
        self._is_suspicious = False
        usual = candidates((canvas, self._calibrated), _usual_sizes(self._calibrated))
        self._found = _CanvasEvidence(usual, time_ms)

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
        if diff.before is None or diff.before.time < self._from_s:
            return
        time_ms = diff.pointer.clock.event_time(diff.frame.time)
        move = _quiet_move(diff, self._canvas)
        if move is not None:
            self._test(move, diff.pointer.places_around(diff.before.time, diff.frame.time))
        if _changed_share(diff) >= REDRAWN_SHARE:
            self._agreed = 0
        if move is not None and self._agreed >= SURE_MOVES and not self._is_suspicious:
            self._found.begin(time_ms)
            return
        self._found.see(diff, move)
        if move is not None and self._is_suspicious and self._found.is_due:
            change = self._found.change()
            canvas = change and change.gain >= SWITCH and change.parts[-1].canvas
            if change and canvas:
                self._screen.add(change.parts)
                self._begin(canvas, time_ms)

    def _test(self, move: _Move, places: Sequence[Point]) -> None:
        """Test the expected canvas on a move, which may have been at any of the places."""
        if self._found.agrees(move, places):
            self._agreed = self._agreed + 1
            self._missed = 0
        else:
            self._missed += all(self._canvas.on_screen(*point) for point in places)
            self._agreed = 0
        self._is_suspicious |= self._missed >= SURE_MOVES

    def finish(self) -> None:
        """Find the part that is left, after the whole film."""
        if self._is_suspicious and (change := self._found.change()) is not None:
            self._screen.add(change.parts)


def _changed_share(diff: FrameDiff) -> float:
    """The share of all cells that changed since the frame decoded before; 0 without one."""
    difference = diff.difference
    return difference.count / max(1, difference.cells.size) if difference else 0.0


def _quiet_move(diff: FrameDiff, expected: Canvas) -> _Move | None:
    """The move from one frame to the next; None: no move, or one that proves nothing.

    A move proves nothing where nothing changed, because grabbers stall and then write the same
    picture again, and where the expected canvas has the pointer at a border.
    """
    before = diff.before
    frame = diff.frame
    if before is None or not diff.is_next:
        return None
    places = diff.pointer.moves_around(before.time, frame.time)
    if len(places) < 4 or _changed_share(diff) > QUIET_SHARE:
        return None
    if any(expected.hides_pointer(*place) for place in places):
        return None
    changed = with_neighbours(changed_cells(before.luma, frame.luma))
    if diff.detector.flickering is not None:
        changed &= ~diff.detector.flickering
    return _Move(places, changed) if changed.any() else None


def _hits(changed: Cells, scales: Floats, bars: Floats, points: Sequence[Point]) -> Cells:
    """(points, canvases): whether a cell changed under each of the points, by each canvas.

    `scales`, `bars`: (canvases, 2), across and down.
    """
    places = np.array(points)[:, None] * scales + bars
    column, row = np.moveaxis((places // BLOCK).astype(np.int64), -1, 0)
    rows, columns = changed.shape
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    found = inside & changed[row.clip(0, rows - 1), column.clip(0, columns - 1)]
    return np.asarray(found, np.bool_)


class _Redraw(NamedTuple):
    """A redraw of much of the screen: a share of its cells, between two epoch milliseconds."""

    start_ms: float
    end_ms: float
    share: float


class _Change(NamedTuple):
    """The parts that follow a change, and by how many moves more than needed it is shown."""

    parts: Sequence[ScreenPart]
    gain: float


class _CanvasEvidence:
    """What the film says about each candidate after a time at which the first one held.

    The state after the last candidate is `unknown`.
    """

    def __init__(self, canvases: Sequence[Canvas], time_ms: float) -> None:
        self._canvases, self._unknown = canvases, len(canvases)
        across = [(one.event_scale * one.stretch, one.event_scale) for one in canvases]
        self._scales, self._bars = np.array(across), np.array([(c.left, c.top) for c in canvases])
        self.begin(time_ms)

    def begin(self, time_ms: float) -> None:
        """Begin anew at a time at which the first candidate held."""
        self._since_ms = time_ms
        self._redraws: list[_Redraw] = []
        self._times: list[float] = []
        self._costs: list[Floats] = []

    def agrees(self, move: _Move, places: Sequence[Point]) -> bool:
        """Whether a move that was at one of the places agrees with the first candidate."""
        return bool(_hits(move.changed, self._scales[:1], self._bars[:1], places).any())

    def see(self, diff: FrameDiff, move: _Move | None) -> None:
        """Note a redraw, or which candidates a move agrees with, as `_quiet_move` has it."""
        before = diff.before
        clock = diff.pointer.clock
        share = _changed_share(diff)
        time_ms = clock.event_time(diff.frame.time)
        if before is not None and share >= REDRAWN_SHARE:
            unmoved_ms = 0.0 if diff.is_next else REACTION_MS
            start = clock.event_time(before.time) - clock.uncertainty_ms + unmoved_ms
            self._redraws.append(_Redraw(start, time_ms + clock.uncertainty_ms, share))
        if move is not None:
            found = _hits(move.changed, self._scales, self._bars, move.places)
            earlier, first, last, later = found
            hits = (earlier | first) & (last | later)
            self._times.append(time_ms)
            self._costs.append(np.append(~hits, UNKNOWN_COST))
            if len(self._times) == MOST_MOVES:
                del self._times[::2], self._costs[::2]

    @property
    def is_due(self) -> bool:
        """Whether it is worth asking again: as moves are few, or twice as many as before."""
        return len(self._times) < FEW_MOVES or len(self._times).bit_count() == 1

    def change(self, told_ms: float = inf) -> _Change | None:
        """The change that explains the moves best; None: they are explained without one.

        `told_ms`: when it was over, where a scan tells that there was one.
        """
        costs = np.reshape(self._costs, (-1, self._unknown + 1))
        spent = np.cumsum(np.vstack([np.zeros(self._unknown + 1), costs]), axis=0)
        total = spent[:, :1] + spent[-1] - spent + UNLIKELIER * np.arange(self._unknown + 1)
        total[:, [0, -1] if told_ms < inf else [0]] = inf
        first, state = divmod(int(np.argmin(total)), self._unknown + 1)
        gain = float(spent[-1, 0] - total[first, state]) - SWITCH
        redraw = self._redraw(costs[:, 0] - costs[:, state], first, told_ms)
        is_seen = redraw.share >= WHOLE_SHARE or state < self._unknown
        if told_ms == inf and (gain <= 0 or not is_seen):
            return None
        is_first = redraw.start_ms == ALWAYS
        canvas = self._canvas(costs[first:], state, is_told=told_ms < inf)
        last = ScreenPart(redraw.end_ms, canvas if redraw.share else None)
        parts = (ScreenPart(redraw.start_ms, None), last)
        return _Change((ScreenPart(ALWAYS, canvas),) if is_first else parts, gain)

    def _redraw(self, favours: Floats, first: int, told_ms: float) -> _Redraw:
        """The largest redraws between what speaks against a change before a move, and for it.

        Without a redraw, its share is 0.
        """
        old = [time for time, cost in zip(self._times[:first], favours, strict=False) if cost < 0]
        later = zip(self._times[first:], favours[first:], strict=True)
        start = max(old, default=self._since_ms)
        end = min([told_ms, *(time for time, cost in later if cost > 0)])
        found = [one for one in self._redraws if one.end_ms > start and one.start_ms < end]
        share = max((one.share for one in found), default=0.0)
        largest = [one for one in found if one.share >= COMPARABLE * share]
        if not largest:
            return _Redraw(start, end, 0.0)
        return _Redraw(largest[0].start_ms, largest[-1].end_ms, share)

    def _canvas(self, costs: Floats, state: int, *, is_told: bool) -> Canvas | None:
        """The canvas of a state, by the costs of the moves after a change; None: it is in doubt.

        As where a candidate that is nearly as good lays the last corner of the screen elsewhere.
        """
        agreeing = np.count_nonzero(costs[:, state] < UNKNOWN_COST)
        if state == self._unknown or (not is_told and agreeing < AGREEING_SHARE * len(costs)):
            return None
        spent = costs.sum(axis=0)[: self._unknown]
        canvas = self._canvases[state]
        rivals = np.flatnonzero(spent[1:] <= spent[state] + AMBIGUOUS).tolist()
        corners = [self._canvases[one + 1].to_canvas(*canvas.event_size) for one in rivals]
        if float(np.ptp(np.array(corners), axis=0).max()) > LARGEST_ERROR_PX:
            return None
        return replace(canvas, scale_method="pixels") if agreeing >= SWITCH else canvas
