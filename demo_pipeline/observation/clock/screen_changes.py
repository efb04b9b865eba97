"""Finds changes of the screen's resolution or scale during a recording.

If scans show desktops of several sizes, `find_parts_by_scans` searches the video between them
before the decode pass. After the last scan, `ScreenWatch` follows the pointer during the decode
pass. Both compare a list of candidate canvases with the pointer's moves. A change of resolution
redraws the whole screen, so its moment is a large redraw between the last move that agrees with the
old canvas and the first move that contradicts it. A change to a resolution that is not a candidate
stays unknown.
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
SAME_SIZE = 0.01  # largest relative difference of two sizes of the same screen
# Largest relative difference of the aspect ratios of a screen and of a video that shows it without
# bars and without distortion.
SAME_ASPECT = 0.005


@dataclass(frozen=True)
class DesktopSize:
    """The size of the whole desktop in an accessibility scan.

    Attributes:
        time_ms: of the scan, epoch milliseconds.
        size: width and height in event space.
    """

    time_ms: float
    size: ScreenSize


def is_same_size(first: ScreenSize, second: ScreenSize) -> bool:
    """Whether two sizes are those of the same screen, apart from rounding."""
    return all(abs(a - b) <= SAME_SIZE * b for a, b in zip(first, second, strict=True))


def screen_sizes(desktops: Iterable[DesktopSize], base: Canvas) -> list[DesktopSize]:
    """Returns the desktops that are as large as the recorded screen was at their time.

    The result is empty unless some desktop has the size of `base`, because the desktop may span
    several displays. A desktop that is longer than `base` along one side only is left out, because
    a second display may have been added.
    """
    all_desktops = list(desktops)
    width, height = base.event_size
    if not any(is_same_size(desktop.size, (width, height)) for desktop in all_desktops):
        return []

    def grew_along_one_side(size: ScreenSize) -> bool:
        wider = size[0] - width
        taller = size[1] - height
        slack = SAME_SIZE * width
        return (abs(wider) <= slack < taller) or (abs(taller) <= slack < wider)

    return [desktop for desktop in all_desktops if not grew_along_one_side(desktop.size)]


def _usual_sizes(base: Canvas) -> Iterator[ScreenSize]:
    """Yields the sizes of screens that `base` may change to, the most likely first."""
    width, height = base.event_size
    yield from RESOLUTIONS
    for scale in SCALES:
        yield width * (1 / scale), height * (1 / scale)
        yield width * scale, height * scale


def candidates(canvases: Sequence[Canvas], sizes: Iterable[ScreenSize]) -> list[Canvas]:
    """Returns the canvases of a video, then the ones that screens of these sizes may have in it.

    The video keeps its size, so a screen of another shape either has bars or is stretched.
    """
    video_size = (canvases[0].video_width, canvases[0].video_height)
    by_key: dict[tuple[float, ...], Canvas] = {}
    for canvas in chain(canvases, *(_fitted(video_size, size) for size in sizes)):
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        by_key.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(by_key.values())


def _fitted(video_size: tuple[int, int], screen: ScreenSize) -> Iterator[Canvas]:
    """Yields the canvases of a screen that fills the video, or has bars in it, or is stretched."""
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


SWITCH = 3.5  # moves that must support a change; fewer may be chance
UNKNOWN_COST = 0.6  # cost of a move under "the scale is unknown"; an unexplained move costs 1
WHOLE_SHARE = 0.25  # of all cells; most windows and all menus redraw less
COMPARABLE = 0.5  # of the largest redraw; one as large may be the change of resolution, too
# Share of the moves that a canvas must explain. Right scales explained 0.65 to 0.94 of the moves, a
# scale that was 4 % off explained half of them.
AGREEING_SHARE = 0.6
AMBIGUOUS = 1.0  # moves; a candidate that explains this many moves less is still as likely
LARGEST_ERROR_PX = 10.0  # canvas pixels; candidates that differ by less count as the same
UNLIKELIER = 1e-3  # extra cost of each candidate; among equals the most usual resolution wins
REDRAWN_SHARE = 0.02  # of all cells; a new resolution moves everything that is not plain
REACTION_MS = 200  # milliseconds; nobody acts sooner on a new screen
QUIET_SHARE = 0.05  # of all cells; if more of them change, the change proves nothing
SURE_MOVES = 5  # successive moves that agree with the canvas, or contradict it, are proof
FEW_MOVES = 32  # moves in two to four movements towards a target
MOST_MOVES = 4096  # moves in memory (3 MB); a long video without a pointer has 100,000


def find_parts_by_scans(
    video: RecordedVideo,
    calibration: Calibration,
    path: PointerPath,
    desktops: Sequence[DesktopSize],
) -> None:
    """Adds parts to the calibration's screen where successive scans show desktops of other sizes.

    Decodes the video between two scans that differ, and some seconds more.
    """
    clock = calibration.clock
    base = calibration.canvas
    screen = calibration.screen
    size_changes = [
        (before, after)
        for before, after in pairwise(screen_sizes(desktops, base))
        if not is_same_size(before.size, after.size)
    ]
    pointer = VideoPointer(path, clock, screen, video.frame_s)
    expected = base
    detector = deepcopy(calibration.detector)
    next_times = [*(before.time_ms for before, _ in size_changes[1:]), inf]
    for (scan, next_scan), until_ms in zip(size_changes, next_times, strict=False):
        if is_same_size(next_scan.size, base.event_size):
            new_canvases = [base]
        else:
            new_canvases = list(_fitted((base.video_width, base.video_height), next_scan.size))
        evidence = _CanvasEvidence([expected, *new_canvases], scan.time_ms)
        end = min(clock.video_time(next_scan.time_ms) + STRETCH_S, clock.video_time(until_ms))
        span = Span(clock.video_time(scan.time_ms), end)
        for before_frame, frame in pairwise(video.frames(merge_spans([span], video.frame_s))):
            diff = FrameDiff(before_frame, frame, video.times, detector, pointer)
            evidence.see(diff, _quiet_move(diff, expected))
        change = evidence.change(next_scan.time_ms)
        if change is not None:
            screen.add(change.parts)
            expected = change.parts[-1].canvas or expected


class _Move(NamedTuple):
    """A move of the pointer while the screen hardly changes.

    Attributes:
        places: of the pointer in two successive frames and in the frames around them, event space.
        changed: (rows, columns) of cells that changed, and their neighbours.
    """

    places: Sequence[Point]
    changed: Cells


class ScreenWatch:
    """Observer that detects changes of the screen's size by the pointer, after the last scan.

    It works only if the video showed the pointer during the calibration; otherwise a missing
    pointer proves nothing.

    Args:
        calibration: of the recording; its screen takes parts as soon as they are beyond doubt.
        desktops: the desktops of the scans.
    """

    spans: Sequence[Span] = ()

    def __init__(self, calibration: Calibration, desktops: Sequence[DesktopSize]) -> None:
        base = calibration.canvas
        clock = calibration.clock
        is_watched = base.scale_method == "pixels" and len(calibration.screen) == 1
        self._from_s = inf
        if is_watched:
            scanned = [clock.video_time(d.time_ms) for d in screen_sizes(desktops, base)]
            self._from_s = max(scanned, default=ALWAYS)
        self._screen = calibration.screen
        self._calibrated = base
        self._begin(base, ALWAYS)

    def _begin(self, canvas: Canvas, time_ms: float) -> None:
        """Resets the evidence and assumes the canvas from this time on."""
        self._canvas = canvas
        self._agreed = 0
        self._missed = 0
        self._is_suspicious = False
        usual = candidates((canvas, self._calibrated), _usual_sizes(self._calibrated))
        self._evidence = _CanvasEvidence(usual, time_ms)

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the frame decoded before it."""
        if diff.before is None or diff.before.time < self._from_s:
            return
        time_ms = diff.pointer.clock.event_time(diff.frame.time)
        move = _quiet_move(diff, self._canvas)
        if move is not None:
            self._test(move, diff.pointer.places_around(diff.before.time, diff.frame.time))
        if _changed_share(diff) >= REDRAWN_SHARE:
            self._agreed = 0
        if move is not None and self._agreed >= SURE_MOVES and not self._is_suspicious:
            self._evidence.begin(time_ms)
            return
        self._evidence.see(diff, move)
        if move is not None and self._is_suspicious and self._evidence.is_due:
            change = self._evidence.change()
            if change is None or change.gain < SWITCH:
                return
            canvas = change.parts[-1].canvas
            if canvas is not None:
                self._screen.add(change.parts)
                self._begin(canvas, time_ms)

    def _test(self, move: _Move, places: Sequence[Point]) -> None:
        """Test the expected canvas on a move; the pointer may have been at any of the places."""
        if self._evidence.agrees(move, places):
            self._agreed += 1
            self._missed = 0
        else:
            self._missed += all(self._canvas.on_screen(*point) for point in places)
            self._agreed = 0
        if self._missed >= SURE_MOVES:
            self._is_suspicious = True

    def finish(self) -> None:
        """Add the last part, if there is one; call it after the last frame."""
        if not self._is_suspicious:
            return
        change = self._evidence.change()
        if change is not None:
            self._screen.add(change.parts)


def _changed_share(diff: FrameDiff) -> float:
    """Returns the share of all cells that changed since the frame decoded before; 0 without it."""
    difference = diff.difference
    if difference is None:
        return 0.0
    return difference.count / max(1, difference.cells.size)


def _quiet_move(diff: FrameDiff, expected: Canvas) -> _Move | None:
    """Returns the move from a frame to the next; None without a move, or if it proves nothing.

    A move proves nothing if no cell changed, because grabbers that stall repeat a frame. It also
    proves nothing if the expected canvas has the pointer at a border, where it may be invisible.
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
    """(points, canvases): whether a cell changed under each point, as each canvas places it.

    `scales`, `bars`: (canvases, 2), horizontal and vertical.
    """
    places = np.array(points)[:, None] * scales + bars
    column, row = np.moveaxis((places // BLOCK).astype(np.int64), -1, 0)
    rows, columns = changed.shape
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    hits = inside & changed[row.clip(0, rows - 1), column.clip(0, columns - 1)]
    return np.asarray(hits, np.bool_)


class _Redraw(NamedTuple):
    """A redraw of much of the screen: a share of its cells, between two epoch milliseconds."""

    start_ms: float
    end_ms: float
    share: float


class _Change(NamedTuple):
    """A change of the screen's size.

    Attributes:
        parts: of the recording from the change on.
        gain: moves that support the change, beyond those that are needed.
    """

    parts: Sequence[ScreenPart]
    gain: float


class _CanvasEvidence:
    """Collects which candidate canvases explain the pointer's moves, from a time on.

    The first candidate held at that time. Each move costs a candidate 1 if the candidate does not
    explain it, and costs the state "the scale is unknown" `UNKNOWN_COST`. The number of this state
    follows that of the last candidate.
    """

    def __init__(self, canvases: Sequence[Canvas], time_ms: float) -> None:
        self._canvases = canvases
        self._unknown = len(canvases)
        self._scales = np.array(
            [(canvas.event_scale * canvas.stretch, canvas.event_scale) for canvas in canvases]
        )
        self._bars = np.array([(canvas.left, canvas.top) for canvas in canvases])
        self.begin(time_ms)

    def begin(self, time_ms: float) -> None:
        """Drop the evidence so far: the first candidate held at this time."""
        self._since_ms = time_ms
        self._redraws: list[_Redraw] = []
        self._times: list[float] = []
        self._costs: list[Floats] = []

    def agrees(self, move: _Move, places: Sequence[Point]) -> bool:
        """Whether the first candidate explains a move at any of the places."""
        return bool(_hits(move.changed, self._scales[:1], self._bars[:1], places).any())

    def see(self, diff: FrameDiff, move: _Move | None) -> None:
        """Note a redraw, and which candidates explain a move; `move`: by `_quiet_move`."""
        before = diff.before
        clock = diff.pointer.clock
        share = _changed_share(diff)
        time_ms = clock.event_time(diff.frame.time)
        if before is not None and share >= REDRAWN_SHARE:
            # With frames left out in between, a press right after `before` was on its screen.
            unmoved_ms = 0.0 if diff.is_next else REACTION_MS
            start = clock.event_time(before.time) - clock.uncertainty_ms + unmoved_ms
            self._redraws.append(_Redraw(start, time_ms + clock.uncertainty_ms, share))
        if move is not None:
            earlier, first, last, later = _hits(move.changed, self._scales, self._bars, move.places)
            hits = (earlier | first) & (last | later)
            self._times.append(time_ms)
            self._costs.append(np.append(~hits, UNKNOWN_COST))
            if len(self._times) == MOST_MOVES:
                del self._times[::2], self._costs[::2]

    @property
    def is_due(self) -> bool:
        """Whether `change` is worth a call: while moves are few, and when their number doubled."""
        return len(self._times) < FEW_MOVES or len(self._times).bit_count() == 1

    def change(self, scan_ms: float = inf) -> _Change | None:
        """Returns the change that explains the moves best; None if they need no change.

        `scan_ms`: time of a scan by which the screen certainly had another size, epoch ms.
        """
        is_certain = scan_ms < inf
        states = self._unknown + 1
        costs = np.reshape(self._costs, (-1, states))
        # total[m, s]: cost of "the first candidate up to move m, state s from then on".
        spent = np.cumsum(np.vstack([np.zeros(states), costs]), axis=0)
        total = spent[:, :1] + spent[-1] - spent + UNLIKELIER * np.arange(states)
        total[:, 0] = inf
        if is_certain:
            total[:, -1] = inf
        first_move, state = divmod(int(np.argmin(total)), states)
        gain = float(spent[-1, 0] - total[first_move, state]) - SWITCH
        redraw = self._redraw(costs[:, 0] - costs[:, state], first_move, scan_ms)
        is_plausible = redraw.share >= WHOLE_SHARE or state < self._unknown
        if not is_certain and (gain <= 0 or not is_plausible):
            return None
        canvas = self._canvas(costs[first_move:], state, is_certain=is_certain)
        if redraw.start_ms == ALWAYS:
            return _Change((ScreenPart(ALWAYS, canvas),), gain)
        redrawn = ScreenPart(redraw.start_ms, None)
        new_part = ScreenPart(redraw.end_ms, canvas if redraw.share else None)
        return _Change((redrawn, new_part), gain)

    def _redraw(self, gains: Floats, first_move: int, scan_ms: float) -> _Redraw:
        """Returns the largest redraws between the last old move and the first new one, as a whole.

        Without such a redraw, the share is 0.

        Args:
            gains: (moves,) positive where the new state explains a move better than the old one.
            first_move: number of the first move under the new state.
            scan_ms: as in `change`.
        """
        old_times = [
            time for time, gain in zip(self._times[:first_move], gains, strict=False) if gain < 0
        ]
        new_moves = zip(self._times[first_move:], gains[first_move:], strict=True)
        new_times = [time for time, gain in new_moves if gain > 0]
        start = max(old_times, default=self._since_ms)
        end = min([scan_ms, *new_times])
        between = [
            redraw for redraw in self._redraws if redraw.end_ms > start and redraw.start_ms < end
        ]
        share = max((redraw.share for redraw in between), default=0.0)
        largest = [redraw for redraw in between if redraw.share >= COMPARABLE * share]
        if not largest:
            return _Redraw(start, end, 0.0)
        return _Redraw(largest[0].start_ms, largest[-1].end_ms, share)

    def _canvas(self, costs: Floats, state: int, *, is_certain: bool) -> Canvas | None:
        """Returns the canvas of a state, by the costs of the moves after a change.

        None if it is in doubt: because it explains too few moves, or because another candidate is
        nearly as good and puts the last corner of the screen elsewhere. `is_certain`: a scan shows
        that the screen has another size.
        """
        agreeing = np.count_nonzero(costs[:, state] < UNKNOWN_COST)
        if state == self._unknown or (not is_certain and agreeing < AGREEING_SHARE * len(costs)):
            return None
        spent = costs.sum(axis=0)[: self._unknown]
        canvas = self._canvases[state]
        rivals = np.flatnonzero(spent[1:] <= spent[state] + AMBIGUOUS).tolist()
        corners = [self._canvases[rival + 1].to_canvas(*canvas.event_size) for rival in rivals]
        if float(np.ptp(np.array(corners), axis=0).max()) > LARGEST_ERROR_PX:
            return None
        return replace(canvas, scale_method="pixels") if agreeing >= SWITCH else canvas
