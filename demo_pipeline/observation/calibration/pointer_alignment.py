"""Evidence from the pictures: the lag at which "the pointer moved" explains "pixels changed there".

Belongs here: finding that lag, the event scale that goes with it, how well parts of the stretch
agree, and the drift between two stretches far apart (formats note "The clock", source b).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.changed_cells import BLOCK, Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerTrack

_LAG_STEP_S = 0.01
_FINE_S, _FINE_STEP_S = 0.06, 0.002  # around the lag that was found
_MOVED_PX = 8.0
_MIN_MOVES = 12
_MIN_SCORE = 0.3
_MIN_CONTRAST = 2.0
_PLATEAU = 0.85  # of the best score; the lags that reach it are the doubt
_SUMMIT = 0.95  # of the best score; the middle of these lags is the answer
_CLEARLY = 1.2  # times the share of an earlier scale makes a better one
_PARTS = 4  # of a stretch, each of which should find the same lag
_PART_MOVES = 6


def clock_from_pointer(
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
    least = 0.0
    for scale in scales:
        if least >= 1.0:  # no share is larger
            break
        seen = [_hits(cells, frames, track, documented, lag, scale=scale) for lag in lags]
        found = _peak(lags, [hits.share for hits in seen], documented, _frame_s(frames))
        if found is not None and (found.score or 0.0) > least:
            least = (found.score or 0.0) * _CLEARLY
            agreement = _agreement(lags, seen, documented, found, frames)
            best = replace(found, event_scale=scale, agreement=agreement)
    if best is None:
        return None
    around = np.arange(-_FINE_S, _FINE_S + _FINE_STEP_S / 2, _FINE_STEP_S)
    fine = (best.origin_ms - documented.origin_ms) / 1000 + around
    again = [
        _hits(cells, frames, track, documented, lag, scale=best.event_scale).share for lag in fine
    ]
    lag_ms = _plateau(fine, np.array([share for share, _ in again]), _SUMMIT)[0] * 1000
    return replace(
        best,
        origin_ms=documented.origin_ms + lag_ms,
        documented_offset_ms=round(lag_ms, 3),
    )


def _frame_s(frames: Floats) -> float:
    return float(np.median(np.diff(frames)))


def with_drift(clock: Clock, found: Clock, first_ms: float, then_ms: float) -> Clock:
    """`clock`, found around epoch `first_ms`, corrected by `found` around `then_ms`.

    What the two differ by within their doubt is no drift.
    """
    difference = found.origin_ms - clock.origin_ms
    if abs(difference) <= clock.uncertainty_ms + found.uncertainty_ms:
        return replace(clock, drift_ppm=0.0)
    rate = (found.video_time(then_ms) - clock.video_time(first_ms)) / ((then_ms - first_ms) / 1000)
    origin = first_ms - clock.video_time(first_ms) * 1000 / rate
    return replace(
        clock,
        origin_ms=origin,
        documented_offset_ms=clock.documented_offset_ms + origin - clock.origin_ms,
        uncertainty_ms=max(clock.uncertainty_ms, found.uncertainty_ms),
        rate=rate,
        drift_ppm=round((rate - 1) * 1e6, 1),
    )


def reconcile(logged: Clock, seen: Clock | None, followed: Clock, first_s: float) -> Clock:
    """The recorder's own start of the film, with what the pictures say against it.

    Args:
        logged: from ffmpeg's line; it stands, since it comes first in the order of trust.
        seen: from the pointer's movements; None: the pictures do not say.
        followed: `seen` corrected for drift, which is taken over.
        first_s: video time of the first frame, which `logged` dates.
    """
    if seen is None:
        return logged
    difference = seen.origin_ms - logged.origin_ms
    contradicted = abs(difference) > logged.uncertainty_ms + seen.uncertainty_ms
    begun_ms = logged.event_time(first_s)
    return replace(
        logged,
        origin_ms=begun_ms - first_s * 1000 / followed.rate,
        uncertainty_ms=abs(difference) if contradicted else logged.uncertainty_ms,
        score=seen.score,
        moves=seen.moves,
        event_scale=seen.event_scale,
        agreement=seen.agreement,
        rate=followed.rate,
        drift_ppm=followed.drift_ppm,
        pictures_ms=round(difference, 3),
    )


@dataclass(frozen=True)
class _Hits:
    """At one lag: the frame intervals with a pointer move, and whether both its ends changed."""

    intervals: Any
    hits: Cells

    @property
    def share(self) -> tuple[float, int]:
        """(share of the moves that the pictures confirm, moves)."""
        count = len(self.hits)
        return (float(self.hits.mean()), count) if count else (0.0, 0)

    def between(self, first: int, last: int) -> tuple[float, int]:
        """The same over the intervals first <= i < last."""
        inside = self.hits[(self.intervals >= first) & (self.intervals < last)]
        return (float(inside.mean()), len(inside)) if len(inside) else (0.0, 0)


def _agreement(
    lags: Floats, seen: Sequence[_Hits], documented: Clock, found: Clock, frames: Floats
) -> float | None:
    """Share of the parts of a stretch whose own best lag is the whole's, within a frame."""
    lag = (found.origin_ms - documented.origin_ms) / 1000
    at = seen[int(np.argmin(np.abs(lags - lag)))].intervals
    edges = np.quantile(at, np.linspace(0, 1, _PARTS + 1)).astype(int)
    agreeing: list[bool] = []
    for first, last in zip(edges[:-1], edges[1:] + 1, strict=True):
        scored = [hits.between(first, last) for hits in seen]
        score = np.array([share if moves >= _PART_MOVES else 0.0 for share, moves in scored])
        if score.max() >= _MIN_SCORE:
            top = lags[score >= _PLATEAU * score.max()]
            agreeing.append(bool(np.abs(top - lag).min() <= _frame_s(frames)))
    return round(sum(agreeing) / len(agreeing), 4) if len(agreeing) > 1 else None


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


def _hits(
    cells: _Lookup,
    frames: Floats,
    track: PointerTrack,
    documented: Clock,
    lag_s: float,
    *,
    scale: float,
) -> _Hits:
    """Which pointer moves the pictures confirm when the video lies `lag_s` off the documents."""
    events = track.times / 1000 - documented.origin_ms / 1000 - lag_s
    seen = np.searchsorted(events, frames, side="right") - 1
    before, after = seen[:-1], seen[1:]
    known = before >= 0
    step = np.hypot(track.x[after] - track.x[before], track.y[after] - track.y[before])
    chosen = np.flatnonzero(known & (step > _MOVED_PX))
    hits = np.ones(len(chosen), bool)
    for end in (before[chosen], after[chosen]):
        hits &= cells.at(chosen, track.x[end] * scale, track.y[end] * scale)
    return _Hits(chosen, hits)


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
    near = np.abs(lags - lags[top]) <= 2 * frame_s
    lag, spread = _plateau(lags[near], score[near], _PLATEAU)
    return Clock(
        origin_ms=documented.origin_ms + lag * 1000,
        method="pixels",
        uncertainty_ms=round((spread + frame_s / 2) * 1000, 3),
        documented_offset_ms=round(lag * 1000, 3),
        score=round(float(score[top]), 4),
        moves=int(moves[top]),
    )


def _plateau(lags: Floats, score: Floats, share: float) -> tuple[float, float]:
    """(middle, half width) of the lags that score this share of the best."""
    plateau = lags[score >= share * score.max()]
    return float(plateau.mean()), float(np.ptp(plateau)) / 2
