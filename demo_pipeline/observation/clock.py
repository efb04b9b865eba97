"""The clock: which instant of the video an event belongs to, and how sure that is.

Belongs here: the three sources of formats note "The clock" in their order of trust. Raw times are
never rewritten; a `Clock` maps them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demo_pipeline.observation.pictures import COLUMN_STEP, ROW_STEP, Frame, Luma

BLOCK = 8  # video pixels to a side of the cells in which change is noted
_LAG_STEP_S = 0.01
_MOVED_PX = 8.0
_CHANGED = 10
_MIN_MOVES = 12
_MIN_SCORE = 0.3
_MIN_CONTRAST = 2.0
_PLATEAU = 0.85
_FFMPEG_START = re.compile(r"start:\s*(\d{10,}(?:\.\d+)?)")

_LATEST_START_S = 32_503_680_000.0  # the year 3000: later numbers are no dates

META_UNCERTAINTY_MS = 2500.0  # real recorders start the video up to this long after the timestamp
FFMPEG_UNCERTAINTY_MS = 20.0

Floats = np.ndarray[Any, np.dtype[np.float64]]
Cells = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Clock:
    """video seconds = (event milliseconds - origin_ms) / 1000.

    Attributes:
        origin_ms: epoch milliseconds at which the video's time line is 0.
        method: `ffmpeg_start`, `pixels` or `meta_timestamp`.
        uncertainty_ms: half width of the interval that origin_ms lies in.
        documented_offset_ms: origin_ms - meta.timestamp.
        score: share of pointer moves that the pictures confirm; None without picture evidence.
        moves: pointer moves the score was taken over.
        event_scale: video pixels for one unit of event space, confirmed by the same evidence.
    """

    origin_ms: float
    method: str
    uncertainty_ms: float
    documented_offset_ms: float = 0.0
    score: float | None = None
    moves: int = 0
    event_scale: float = 1.0

    def video_time(self, event_ms: float) -> float:
        """Seconds on the video's time line."""
        return (event_ms - self.origin_ms) / 1000

    def event_time(self, video_s: float) -> float:
        """Epoch milliseconds of an instant of the video."""
        return video_s * 1000 + self.origin_ms


@dataclass(frozen=True)
class PointerTrack:
    """Where the pointer was: (n,) epoch ms ascending, (n,) x and y in event space."""

    times: Floats
    x: Floats
    y: Floats


class ChangeMap:
    """In which cells of the picture each frame differs from its predecessor.

    Memory is one bit a cell and frame: 4 kB a 1080p frame.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self._packed: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._last: Luma | None = None
        self._counts: np.ndarray[Any, np.dtype[np.int64]] = np.zeros((0, 0), np.int64)

    def __len__(self) -> int:
        """Pairs of successive frames compared."""
        return len(self._packed)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the cells; (0, 0) before two frames were compared."""
        return self._counts.shape[0], self._counts.shape[1]

    def add(self, frame: Frame) -> None:
        """Take the next frame in presentation order; one of another size is passed over."""
        luma = frame.luma()
        if self._last is not None and luma.shape != self._last.shape:
            return
        self.times.append(frame.time)
        if self._last is not None:
            cells = grown(changed_cells(self._last, luma))
            if not self._packed:
                self._counts = np.zeros(cells.shape, np.int64)
            self._counts += cells
            self._packed.append(np.packbits(cells))
        self._last = luma

    def packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(frames - 1, bytes): rows of cells, eight a byte, set where it or a neighbour changed."""
        return np.stack(self._packed)

    def counts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(rows, columns): in how many frames the cell, or a neighbour of it, changed."""
        return self._counts


def grown(cells: Cells) -> Cells:
    """The cells and their eight neighbours."""
    tall = cells.copy()
    tall[1:] |= cells[:-1]
    tall[:-1] |= cells[1:]
    wide = tall.copy()
    wide[:, 1:] |= tall[:, :-1]
    wide[:, :-1] |= tall[:, 1:]
    return wide


def changed_cells(before: Luma, after: Luma, threshold: int = _CHANGED) -> Cells:
    """(rows, columns) of cells of BLOCK x BLOCK video pixels in which a sample changed.

    A strip at the right or lower edge that is narrower than a cell belongs to none.
    """
    difference: Cells = np.maximum(before, after) - np.minimum(before, after) > threshold
    return _any_of(_any_of(difference, BLOCK // ROW_STEP).T, BLOCK // COLUMN_STEP).T


def _any_of(values: Cells, size: int) -> Cells:
    """Whether any of `size` successive rows is set; a remainder is dropped."""
    end = len(values) // size * size
    found: Cells = values[:end:size].copy()
    for first in range(1, size):
        found |= values[first:end:size]
    return found


def documented_clock(timestamp_ms: float) -> Clock:
    """meta.timestamp as the origin: what seed 000 says, with what recorders make of it."""
    return Clock(timestamp_ms, "meta_timestamp", META_UNCERTAINTY_MS)


def ffmpeg_clock(
    payloads: Iterable[str], timestamp_ms: float, first_s: float = 0.0
) -> Clock | None:
    """The epoch time of the first frame, where the recorder logged ffmpeg's own words.

    `first_s` is where that frame lies on the video's time line, seconds.
    """
    for payload in payloads:
        found = _FFMPEG_START.search(payload)
        if found and 1e9 < float(found.group(1)) < _LATEST_START_S:
            origin = (float(found.group(1)) - first_s) * 1000
            return Clock(origin, "ffmpeg_start", FFMPEG_UNCERTAINTY_MS, origin - timestamp_ms)
    return None


def clock_from_pictures(
    changes: ChangeMap,
    track: PointerTrack,
    documented: Clock,
    scales: Sequence[float],
    search_s: float,
) -> Clock | None:
    """The lag at which "the pointer moved" best explains "pixels changed there".

    Tries the event scales in order and takes the first that the pictures confirm. None when there
    are too few moves, or no lag stands out.
    """
    if not len(changes) or not len(track.times):
        return None
    frames, cells = np.array(changes.times), _Lookup(changes.packed(), changes.shape)
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    best: Clock | None = None
    for scale in scales:
        origins = documented.origin_ms / 1000 + lags
        scored = [_score(cells, frames, track, origin_s=at, scale=scale) for at in origins]
        found = _peak(lags, scored, documented, float(np.median(np.diff(frames))))
        if found is not None and (best is None or (found.score or 0) > (best.score or 0) * 1.2):
            best = replace(found, event_scale=scale)
    return best


@dataclass(frozen=True)
class _Lookup:
    """Packed cells that can be asked at points. Shapes as in `ChangeMap`."""

    packed: np.ndarray[Any, np.dtype[np.uint8]]
    shape: tuple[int, int]

    def at(self, intervals: Any, x: Floats, y: Floats) -> Cells:
        """Whether the cell under (x, y), video pixels, changed in each interval."""
        rows, columns = self.shape
        row = np.clip(y / BLOCK, 0, rows - 1).astype(np.int64)
        column = np.clip(x / BLOCK, 0, columns - 1).astype(np.int64)
        bit = row * columns + column
        found: Cells = (self.packed[intervals, bit >> 3] >> (7 - (bit & 7)) & 1).astype(bool)
        return found


def _score(
    cells: _Lookup, frames: Floats, track: PointerTrack, *, origin_s: float, scale: float
) -> tuple[float, int]:
    """(share of frame intervals with a pointer move in which both its ends changed, moves)."""
    events = track.times / 1000 - origin_s
    seen = np.searchsorted(events, frames, side="right") - 1
    before, after = seen[:-1], seen[1:]
    known = before >= 0
    step = np.hypot(track.x[after] - track.x[before], track.y[after] - track.y[before])
    chosen = np.flatnonzero(known & (step > _MOVED_PX))
    if not len(chosen):
        return 0.0, 0
    hits = np.ones(len(chosen), bool)
    for end in (before[chosen], after[chosen]):
        hits &= cells.at(chosen, track.x[end] * scale, track.y[end] * scale)
    return float(hits.mean()), len(chosen)


def _peak(
    lags: Floats, scored: Sequence[tuple[float, int]], documented: Clock, frame_s: float
) -> Clock | None:
    score = np.array([value for value, _ in scored])
    moves = np.array([count for _, count in scored])
    score[moves < _MIN_MOVES] = 0.0
    top = int(np.argmax(score))
    elsewhere = score[np.abs(lags - lags[top]) > max(0.3, 3 * frame_s)]
    rival = float(elsewhere.max()) if len(elsewhere) else 0.0
    if score[top] < _MIN_SCORE or score[top] < _MIN_CONTRAST * rival:
        return None
    plateau = lags[(score >= _PLATEAU * score[top]) & (np.abs(lags - lags[top]) <= 2 * frame_s)]
    lag = float(plateau.mean())
    spread = float(np.ptp(plateau)) / 2
    return Clock(
        origin_ms=documented.origin_ms + lag * 1000,
        method="pixels",
        uncertainty_ms=round((spread + frame_s / 2) * 1000, 3),
        documented_offset_ms=round(lag * 1000, 3),
        score=round(float(score[top]), 4),
        moves=int(moves[top]),
    )
