"""Finds changes of the screen's resolution or scale during a recording.

`find_parts_by_scans` searches the video between accessibility scans of different desktop sizes.
`ScreenWatch` follows the pointer after the last scan, while the whole video is decoded.

Both test candidate canvases. A canvas *explains* a move of the pointer if cells changed where this
canvas puts the pointer. The change of resolution is a large redraw between the last move that the
old canvas explains and the first move that only the new canvas explains. If no candidate has the
new resolution, the resolution stays unknown.
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

# Resolutions that operating systems offer, in pixels or points (macOS), the most usual first.
RESOLUTIONS: tuple[tuple[int, int], ...] = (
    *((1920, 1080), (1366, 768), (1280, 720), (2560, 1440), (1600, 900), (1440, 900)),
    *((1280, 1024), (1024, 768), (1920, 1200), (1680, 1050), (1280, 800), (3840, 2160)),
    *((800, 600), (1152, 864), (1280, 960), (1280, 768), (1360, 768), (1400, 1050)),
    *((1600, 1200), (1600, 1024), (2048, 1152), (2048, 1536), (2560, 1600), (2560, 1080)),
    *((3440, 1440), (3840, 1600), (3840, 1080), (2880, 1800), (3200, 1800), (5120, 2880)),
    *((640, 480), (960, 540), (1024, 576), (1176, 664), (1512, 982), (1728, 1117)),
    *((1792, 1120), (2056, 1329), (1470, 956), (1710, 1112), (1147, 745), (1352, 878)),
)
# Scale settings of displays. A new setting may change the unit of the positions in the log.
SCALES = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
SAME_SIZE = 0.01  # largest relative difference of two sizes of the same screen
# If the aspect ratios of screen and video differ by at most 0.5 %, the video shows the screen
# without bars and without distortion.
SAME_ASPECT = 0.005


@dataclass(frozen=True)
class DesktopSize:
    """The size of the whole desktop in an accessibility scan.

    Attributes:
        time_ms: time of the scan, epoch milliseconds.
        size: width and height in event space.
    """

    time_ms: float
    size: ScreenSize


def is_same_size(first: ScreenSize, second: ScreenSize) -> bool:
    """Whether two sizes differ only by rounding, so that they may belong to the same screen."""
    return all(abs(a - b) <= SAME_SIZE * b for a, b in zip(first, second, strict=True))


def screen_sizes(desktops: Iterable[DesktopSize], base: Canvas) -> list[DesktopSize]:
    """Returns the desktops that were as large as the recorded screen at the time of their scan.

    `base` is the canvas at the start of the recording. If no desktop has the size of `base`, the
    result is empty, because the desktops may span several displays. Desktops that are only wider or
    only taller than `base` are left out, because they may include a second display.
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
    """Yields the sizes that the screen of `base` may change to, the most likely first."""
    width, height = base.event_size
    yield from RESOLUTIONS
    for scale in SCALES:
        yield width * (1 / scale), height * (1 / scale)
        yield width * scale, height * scale


def candidates(canvases: Sequence[Canvas], sizes: Iterable[ScreenSize]) -> list[Canvas]:
    """Returns `canvases`, followed by the canvases that screens of the given sizes would have."""
    video_size = (canvases[0].video_width, canvases[0].video_height)
    by_key: dict[tuple[float, ...], Canvas] = {}
    for canvas in chain(canvases, *(_fitted(video_size, size) for size in sizes)):
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        by_key.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(by_key.values())


def _fitted(video_size: tuple[int, int], screen: ScreenSize) -> Iterator[Canvas]:
    """Yields the possible canvases of a screen in a video.

    There is one canvas if screen and video have the same aspect ratio. Otherwise there are two: one
    with bars around the screen, and one with the screen stretched.
    """
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


# Minimum number of moves that must support a change of the canvas; fewer may be chance.
SWITCH = 3.5
# Cost of each move under the hypothesis that the scale is unknown. Under the hypothesis that a
# canvas is right, a move that the canvas does not explain costs 1.
UNKNOWN_COST = 0.6
# Minimum share of all cells that a change to an unknown scale redraws. Most windows and all menus
# redraw less.
WHOLE_SHARE = 0.25
# Among the redraws that may be the change of resolution, those that are less than half as large as
# the largest one are ignored.
COMPARABLE = 0.5
# Minimum share of the moves that a canvas must explain. Measured: right scales explained 0.65 to
# 0.94 of the moves; a scale that was 4 % off explained half of them.
AGREEING_SHARE = 0.6
# Candidates are equally likely if the numbers of moves that they explain differ by at most one.
AMBIGUOUS = 1.0
# Candidates count as the same if they convert the screen's lower right corner to points that differ
# by at most 10 canvas pixels in x and in y.
LARGEST_ERROR_PX = 10.0
# Extra cost of each candidate over the one before it in the list. If two candidates explain the
# same moves, the more usual resolution wins.
UNLIKELIER = 1e-3
# Minimum share of all cells that change in a redraw. The minimum is low, because a new resolution
# does not change cells within areas of a single color.
REDRAWN_SHARE = 0.02
REACTION_MS = 200  # milliseconds; people take at least this long to act on a new screen
QUIET_SHARE = 0.05  # if a larger share of the cells changes, a move of the pointer proves nothing
SURE_MOVES = 5  # five successive moves prove that the canvas is right, or that it is wrong
# The search for a change runs after every move between frames until there are 32 such moves. Two to
# four movements of the pointer towards a target contain 32 moves between frames.
FEW_MOVES = 32
# When 4096 moves (3 MB) are in memory, every second one is dropped. Without this limit, a long
# video that does not show the pointer would collect 100,000 moves.
MOST_MOVES = 4096


def find_parts_by_scans(
    video: RecordedVideo,
    calibration: Calibration,
    path: PointerPath,
    desktops: Sequence[DesktopSize],
) -> None:
    """Adds a part to the calibration's screen where the desktop's size changes between two scans.

    Decodes the video from the first of the two scans to some seconds after the second.

    Args:
        calibration: the clock and the canvas; new parts are added to `calibration.screen`.
        desktops: the sizes of the desktop in all scans, in time order.
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
    """A move of the pointer between two successive frames, while the screen hardly changes.

    Attributes:
        places: positions of the pointer in four successive frames, event space. The two frames of
            the move are in the middle.
        changed: (rows, columns), true for the cells that changed between the two frames, and for
            the cells next to them.
    """

    places: Sequence[Point]
    changed: Cells


class ScreenWatch:
    """Uses the pointer's moves to detect changes of the screen's size while the video is decoded.

    It watches the video after the last accessibility scan. It does nothing if the scans already
    showed a change of size, or if the video did not show the pointer during the calibration.

    Args:
        calibration: new parts are added to `calibration.screen` as soon as they are certain.
        desktops: the sizes of the desktop in all scans.
    """

    spans: Sequence[Span] = ()

    def __init__(self, calibration: Calibration, desktops: Sequence[DesktopSize]) -> None:
        base = calibration.canvas
        clock = calibration.clock
        is_watched = base.scale_method == "pixels" and len(calibration.screen) == 1
        self._from_s = inf
        if is_watched:
            sizes = screen_sizes(desktops, base)
            scan_times = [clock.video_time(desktop.time_ms) for desktop in sizes]
            self._from_s = max(scan_times, default=ALWAYS)
        self._screen = calibration.screen
        self._calibrated = base
        self._begin(base, ALWAYS)

    def _begin(self, canvas: Canvas, time_ms: float) -> None:
        """Forgets earlier evidence, and expects `canvas` from this event time on."""
        self._canvas = canvas
        self._agreed = 0
        self._missed = 0
        self._is_suspicious = False
        usual = candidates((canvas, self._calibrated), _usual_sizes(self._calibrated))
        self._evidence = _CanvasEvidence(usual, time_ms)

    def see(self, diff: FrameDiff) -> None:
        """Examines the next frame, and adds parts to the screen if a change of size is certain."""
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
        """Counts how many moves in succession the expected canvas explains, or does not explain.

        `places` are the positions that the pointer may have had during the move, event space.
        """
        if self._evidence.agrees(move, places):
            self._agreed += 1
            self._missed = 0
        else:
            self._missed += all(self._canvas.on_screen(*point) for point in places)
            self._agreed = 0
        if self._missed >= SURE_MOVES:
            self._is_suspicious = True

    def finish(self) -> None:
        """Adds the parts for a change of size that was not yet certain when the video ended.

        Call it after the last frame.
        """
        if not self._is_suspicious:
            return
        change = self._evidence.change()
        if change is not None:
            self._screen.add(change.parts)


def _changed_share(diff: FrameDiff) -> float:
    """Returns the share of all cells that changed since the last frame; 0 for a first frame."""
    difference = diff.difference
    if difference is None:
        return 0.0
    return difference.count / max(1, difference.cells.size)


def _quiet_move(diff: FrameDiff, expected: Canvas) -> _Move | None:
    """Returns the pointer's move between the frames of `diff`, or None if no move is usable.

    A move is not usable if no cell changed, if much of the screen changed, or if the expected
    canvas puts the pointer at a border, where the pointer may be invisible.
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
    """Returns for each point and canvas whether the cell changed where the canvas puts the point.

    The result is (points, canvases).

    Args:
        changed: (rows, columns), true for the cells that changed.
        scales: (canvases, 2), horizontal and vertical video pixels per unit of event space.
        bars: (canvases, 2), width of the left bar and height of the upper bar, video pixels.
        points: the points, event space.
    """
    places = np.array(points)[:, None] * scales + bars
    column, row = np.moveaxis((places // BLOCK).astype(np.int64), -1, 0)
    rows, columns = changed.shape
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    hits = inside & changed[row.clip(0, rows - 1), column.clip(0, columns - 1)]
    return np.asarray(hits, np.bool_)


class _Redraw(NamedTuple):
    """A redraw of much of the screen.

    Attributes:
        start_ms, end_ms: the redraw lies between these times, epoch milliseconds.
        share: share of the cells that changed.
    """

    start_ms: float
    end_ms: float
    share: float


class _Change(NamedTuple):
    """A change of the screen's size.

    Attributes:
        parts: the parts of the recording from the change on.
        gain: number of moves that support the change, minus `SWITCH`.
    """

    parts: Sequence[ScreenPart]
    gain: float


class _CanvasEvidence:
    """Collects which candidate canvases explain the pointer's moves, and finds a change of canvas.

    The first candidate is right when the collection begins. The hypotheses about the time after a
    change are called *states*: one for each candidate, and a last one for an unknown scale. A move
    that a candidate does not explain adds 1 to the cost of its state. Every move adds
    `UNKNOWN_COST` to the cost of the last state.
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
        """Forgets earlier evidence, and assumes that the first candidate is right at `time_ms`.

        `time_ms` is in epoch milliseconds.
        """
        self._since_ms = time_ms
        self._redraws: list[_Redraw] = []
        self._times: list[float] = []
        self._costs: list[Floats] = []

    def agrees(self, move: _Move, places: Sequence[Point]) -> bool:
        """Whether the first candidate explains a move, with the pointer at any of `places`."""
        return bool(_hits(move.changed, self._scales[:1], self._bars[:1], places).any())

    def see(self, diff: FrameDiff, move: _Move | None) -> None:
        """Records whether `diff` shows a redraw, and which candidates explain the move.

        `move` is the result of `_quiet_move` for `diff`.
        """
        before = diff.before
        clock = diff.pointer.clock
        share = _changed_share(diff)
        time_ms = clock.event_time(diff.frame.time)
        if before is not None and share >= REDRAWN_SHARE:
            # If frames after `before` were not decoded, the redraw may come long after `before`.
            # Then a person who pressed right after `before` still saw the old screen.
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
        """Whether to call `change` after the latest move.

        True while there are few moves, and later whenever their number is a power of 2.
        """
        return len(self._times) < FEW_MOVES or len(self._times).bit_count() == 1

    def change(self, scan_ms: float = inf) -> _Change | None:
        """Returns the change of canvas that explains the moves best, or None if none is needed.

        `scan_ms` is the time of a scan that showed another size of the screen, epoch milliseconds.
        It is infinite if there is no such scan.
        """
        is_certain = scan_ms < inf
        states = self._unknown + 1
        costs = np.reshape(self._costs, (-1, states))
        # total[m, s]: cost of all moves if the first candidate is right for the first m moves, and
        # state s is right for all later moves.
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
        """Returns the redraw at the change from the old state to the new state.

        The redraw lies between the last move that the old state explains better and the first move
        that the new state explains better. Several large redraws in this time are joined into one.
        If there was no redraw, the share of the result is 0.

        Args:
            gains: (moves,), positive where the new state explains a move better than the old one.
            first_move: index of the first move under the new state.
            scan_ms: time of a scan that showed the new size; infinite if there is no such scan.
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
        """Returns the canvas of the state after a change, or None if it is in doubt.

        The canvas is in doubt if it explains too few moves, or if another candidate explains nearly
        as many moves and puts the lower right corner of the screen elsewhere.

        Args:
            costs: (moves after the change, states), the cost of each move under each state.
            state: index of the state after the change.
            is_certain: whether a scan shows that the screen has another size.
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
