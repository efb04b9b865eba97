"""The search for another resolution or scale of the screen in mid-recording.

Belongs here: reading the whole video once more, only for recordings in which something contradicts
the scale that calibration found. Each candidate is tested on every move of the pointer. Which
candidate holds when is decided in screen_segments.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.screen_candidates import (
    DesktopSize,
    candidates,
    is_same_size,
    screen_sizes,
)
from demo_pipeline.observation.calibration.screen_parts import ScreenParts
from demo_pipeline.observation.calibration.screen_segments import (
    Observation,
    Redraw,
    find_segments,
)
from demo_pipeline.observation.frames.changed_cells import (
    BLOCK,
    Cells,
    changed_cells,
    with_neighbours,
)
from demo_pipeline.observation.frames.pointer_path import Floats, Point, PointerPath, PointerTrack
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.video_frames import Frame, Span
from demo_pipeline.observation.frames.video_pointer import VideoPointer

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
    return calibration.scale_method != "pixels" and first_beyond(calibration, track) is not None


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

    Decodes the whole video. A part whose scale cannot be known has no canvas.
    """
    search = _Search(video, calibration, path, screen_sizes(desktops, calibration.canvas))
    search.read()
    beyond = None
    if calibration.scale_method != "pixels":
        beyond = first_beyond(calibration, path.track())
    parts = find_segments(
        search.canvases(),
        search.observations(),
        search.redraws,
        positions=path.track(),
        beyond_ms=beyond,
    )
    return parts if len(parts) > 1 else None


class _Search:
    """What the video and the scans say about every candidate."""

    def __init__(
        self,
        video: RecordedVideo,
        calibration: Calibration,
        path: PointerPath,
        desktops: Sequence[DesktopSize],
    ) -> None:
        self._video = video
        self._calibration = calibration
        self._desktops = desktops
        screen = ScreenParts.single(calibration.canvas)
        self._pointer = VideoPointer(path, calibration.clock, screen, video.frame_s)
        self._moves: dict[tuple[int, int], _Moves] = {}
        base = calibration.canvas
        self._moves_of((base.video_width, base.video_height))
        self.redraws: list[Redraw] = []

    def read(self) -> None:
        """Decode the video and compare each frame with the one before."""
        times = self._video.times
        before: Frame | None = None
        for frame in self._video.frames([Span(float(times[0]), float(times[-1]))]):
            if before is not None:
                self._compare(before, frame)
            before = frame

    def canvases(self) -> list[Canvas]:
        """All candidates; the first is that of the calibration."""
        return [canvas for moves in self._moves.values() for canvas in moves.canvases]

    def observations(self) -> list[Observation]:
        """What speaks against each candidate, in time order."""
        found = [*self._moved(), *self._scanned()]
        return sorted(found, key=lambda observation: observation.time_ms)

    def _compare(self, before: Frame, frame: Frame) -> None:
        clock = self._calibration.clock
        uncertainty = clock.uncertainty_ms
        start = clock.event_time(before.time) - uncertainty
        end = clock.event_time(frame.time) + uncertainty
        if before.size != frame.size:
            self.redraws.append(Redraw(start, end, 1.0))
            return
        cells = changed_cells(before.luma, frame.luma)
        flickering = self._calibration.flickering
        if flickering is not None and flickering.shape == cells.shape:
            cells &= ~flickering
        share = float(cells.mean()) if cells.size else 0.0
        if share >= REDRAWN_SHARE:
            self.redraws.append(Redraw(start, end, share))
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

    def _moved(self) -> Iterator[Observation]:
        for size, moves in self._moves.items():
            for time, hits in zip(moves.times, moves.hits, strict=True):
                parts = [
                    1.0 - hits if other == size else np.full(len(some.canvases), IMPOSSIBLE)
                    for other, some in self._moves.items()
                ]
                yield Observation(time, np.concatenate(parts))

    def _scanned(self) -> Iterator[Observation]:
        canvases = self.canvases()
        for desktop in self._desktops:
            wrong = [not is_same_size(desktop.size, canvas.event_size) for canvas in canvases]
            costs = np.array(wrong) * WRONG_DESKTOP
            yield Observation(desktop.time_ms, costs, UNKNOWN_DESKTOP, scan=True)


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
