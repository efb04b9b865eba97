"""The clock from the pointer: the lag at which its logged moves explain where pixels changed.

Belongs here: finding that lag and the event scale with it, how well parts of the stretch agree, the
drift between two stretches far apart, and reconciling the result with a logged start time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.changed_cells import BLOCK, Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PointerTrack

_LAG_STEP_S = 0.01  # seconds between the lags that are tried
_FINE_S, _FINE_STEP_S = 0.06, 0.002  # seconds around the best lag that are tried again, and step
_MIN_MOVES = 12  # moves; fewer are no evidence
_MIN_SCORE = 0.3  # share of the moves that the pictures must confirm at the best lag
_MIN_CONTRAST = 2.0  # times the best score of lags further away
_RIVAL_S, _RIVAL_FRAMES = 0.3, 3  # seconds, frame distances; a lag further away is a rival
_NEAR_FRAMES = 2  # frame distances around the best lag in which its plateau is
_PLATEAU = 0.85  # of the best score; the width of the lags that reach it is the uncertainty
_SUMMIT = 0.95  # of the best score; the middle of the lags that reach it is the result
_CLEARLY = 1.2  # times the score of the scales before it makes a scale the better one
_PARTS = 4  # of a stretch, each of which should give the same lag
_PART_MOVES = 6  # moves in a part; with fewer it gives none

Indexes = np.ndarray[Any, np.dtype[np.int32]]


def clock_from_pointer(
    changes: ChangeMap,
    track: PointerTrack,
    documented: Clock,
    scales: Sequence[float],
    search_s: float,
) -> Clock | None:
    """The clock at whose lag the pointer's moves best explain where pixels changed.

    Args:
        changes: of the stretches of video that were decoded.
        track: the pointer's positions in the log.
        documented: the clock that lags are relative to.
        scales: event scales to try, the most likely first; a later one must be clearly better.
        search_s: the largest lag tried, seconds, both ways.

    Returns:
        None with too few moves, or when no lag stands out.
    """
    if not len(changes) or not len(track.times):
        return None
    frames = np.array(changes.times)
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    events = track.times / 1000 - documented.origin_ms / 1000
    moves = _Moves.of(events, track, frames, lags)
    best: Clock | None = None
    needed_score = 0.0
    for scale in scales:
        if needed_score >= 1.0:  # the highest possible score
            break
        hits = moves.confirmed(changes, track, scale)
        peak = _peak(lags, hits, documented, _frame_s(frames))
        if peak is not None and (peak.score or 0.0) > needed_score:
            needed_score = (peak.score or 0.0) * _CLEARLY
            agreement = _agreement(lags, hits, documented, peak, frames)
            best = replace(peak, event_scale=scale, agreement=agreement)
    if best is None:
        return None
    around = np.arange(-_FINE_S, _FINE_S + _FINE_STEP_S / 2, _FINE_STEP_S)
    fine = (best.origin_ms - documented.origin_ms) / 1000 + around
    close = _Moves.of(events, track, frames, fine)
    shares, _ = close.confirmed(changes, track, best.event_scale).shares()
    lag_ms = _plateau(fine, shares, _SUMMIT)[0] * 1000
    return replace(
        best,
        origin_ms=documented.origin_ms + lag_ms,
        documented_offset_ms=round(lag_ms, 3),
    )


def _frame_s(frames: Floats) -> float:
    return float(np.median(np.diff(frames)))


def with_drift(clock: Clock, late: Clock, early_ms: float, late_ms: float) -> Clock:
    """`clock`, which was found around epoch `early_ms`, corrected by `late` around `late_ms`.

    A difference within their uncertainties is no drift.
    """
    difference = late.origin_ms - clock.origin_ms
    if abs(difference) <= clock.uncertainty_ms + late.uncertainty_ms:
        return replace(clock, drift_ppm=0.0)
    seconds = (late_ms - early_ms) / 1000
    rate = (late.video_time(late_ms) - clock.video_time(early_ms)) / seconds
    origin = early_ms - clock.video_time(early_ms) * 1000 / rate
    return replace(
        clock,
        origin_ms=origin,
        documented_offset_ms=clock.documented_offset_ms + origin - clock.origin_ms,
        uncertainty_ms=max(clock.uncertainty_ms, late.uncertainty_ms),
        rate=rate,
        drift_ppm=round((rate - 1) * 1e6, 1),
    )


def reconcile_clocks(
    logged: Clock, pictured: Clock | None, corrected: Clock, first_s: float
) -> Clock:
    """The clock that the recorder logged, with the drift and the contradiction that pictures show.

    Args:
        logged: from the start time that ffmpeg printed; its origin is kept, as the most trusted.
        pictured: from the pointer's movements; None when they show none.
        corrected: `pictured` corrected for drift; its rate is taken over.
        first_s: video time of the first frame, which the logged start time is of.
    """
    if pictured is None:
        return logged
    difference = pictured.origin_ms - logged.origin_ms
    contradicted = abs(difference) > logged.uncertainty_ms + pictured.uncertainty_ms
    start_ms = logged.event_time(first_s)
    return replace(
        logged,
        origin_ms=start_ms - first_s * 1000 / corrected.rate,
        uncertainty_ms=abs(difference) if contradicted else logged.uncertainty_ms,
        score=pictured.score,
        moves=pictured.moves,
        event_scale=pictured.event_scale,
        agreement=pictured.agreement,
        rate=corrected.rate,
        drift_ppm=corrected.drift_ppm,
        pictures_ms=round(difference, 3),
    )


@dataclass(frozen=True)
class _Hits:
    """The pointer's moves at each lag and those that the pictures confirm, ordered by lag.

    Attributes:
        starts: (lags + 1,) where the moves of each lag begin, and the end.
        intervals: (moves,) the frame interval of each move.
        hits: (moves,) whether both ends of the move changed in it.
    """

    starts: Indexes
    intervals: Indexes
    hits: Cells

    def shares(self, inside: Cells | None = None) -> tuple[Floats, Indexes]:
        """(lags,) share of the moves that the pictures confirm, 0 without one; (lags,) moves.

        `inside`: (moves,) those that count; None: all.
        """
        counted = np.ones_like(self.hits) if inside is None else inside
        moves, confirmed = (
            np.diff(np.concatenate([[0], np.cumsum(chosen, dtype=np.int32)])[self.starts])
            for chosen in (counted, counted & self.hits)
        )
        return confirmed / np.maximum(moves, 1), moves


def _agreement(
    lags: Floats, found: _Hits, documented: Clock, peak: Clock, frames: Floats
) -> float | None:
    """Share of the parts of a stretch whose best lag is that of the whole, within a frame."""
    lag = (peak.origin_ms - documented.origin_ms) / 1000
    at_peak = int(np.argmin(np.abs(lags - lag)))
    intervals = found.intervals[found.starts[at_peak] : found.starts[at_peak + 1]]
    edges = np.quantile(intervals, np.linspace(0, 1, _PARTS + 1)).astype(int)
    agreeing: list[bool] = []
    for first, last in zip(edges[:-1], edges[1:] + 1, strict=True):
        share, moves = found.shares((found.intervals >= first) & (found.intervals < last))
        score = np.where(moves >= _PART_MOVES, share, 0.0)
        if score.max() >= _MIN_SCORE:
            top = lags[score >= _PLATEAU * score.max()]
            agreeing.append(bool(np.abs(top - lag).min() <= _frame_s(frames)))
    return round(sum(agreeing) / len(agreeing), 4) if len(agreeing) > 1 else None


@dataclass(frozen=True)
class _Moves:
    """The pointer's moves between two frames at each of some lags, ordered by lag.

    Attributes:
        starts: (lags + 1,) where the moves of each lag begin, and the end.
        intervals: (moves,) the frame interval of each move.
        before: (moves,) number of the position that the first frame of the interval shows.
        after: (moves,) the same of its second frame.
    """

    starts: Indexes
    intervals: Indexes
    before: Indexes
    after: Indexes

    @classmethod
    def of(cls, events: Floats, track: PointerTrack, frames: Floats, lags: Floats) -> "_Moves":
        """The moves when the video is off by each of the lags.

        Args:
            events: times of the positions, seconds by the clock that lags are relative to.
            track: the positions.
            frames: times of the frames, video seconds.
            lags: seconds.
        """
        # Positions out of reach at every lag cannot be shown; searching few is quicker.
        reach = [frames[0] + lags.min() - 1.0, frames[-1] + lags.max() + 1.0]
        first, last = np.searchsorted(events, reach)
        first = max(0, int(first) - 1)
        near = events[first:last]
        found = [_of_lag(near - lag, track, frames, first) for lag in lags]
        starts = np.cumsum([0, *(len(intervals) for intervals, _, _ in found)], dtype=np.int32)
        return cls(starts, *(np.concatenate(column) for column in zip(*found, strict=True)))

    def confirmed(self, changes: ChangeMap, track: PointerTrack, scale: float) -> _Hits:
        """Which moves the pictures confirm, of a track `scale` times smaller than the video."""
        rows, columns = changes.shape
        row = np.clip(track.y * scale / BLOCK, 0, rows - 1).astype(np.int32)
        column = np.clip(track.x * scale / BLOCK, 0, columns - 1).astype(np.int32)
        bits, packed = row * columns + column, changes.packed()
        hits: Cells = np.ones(len(self.intervals), bool)
        for positions in (self.before, self.after):
            bit = bits[positions]
            hits &= (packed[self.intervals, bit >> 3] >> (7 - (bit & 7)) & 1).astype(bool)
        return _Hits(self.starts, self.intervals, hits)


def _of_lag(
    events: Floats, track: PointerTrack, frames: Floats, first: int
) -> tuple[Indexes, Indexes, Indexes]:
    """Intervals, positions before and after of the moves at one lag.

    `events` are the times of the positions from number `first` on, in video seconds.
    """
    newest = (np.searchsorted(events, frames, side="right") + (first - 1)).astype(np.int32)
    intervals = np.flatnonzero(newest[1:] != newest[:-1]).astype(np.int32)
    before, after = newest[intervals], newest[intervals + 1]
    step = np.hypot(track.x[after] - track.x[before], track.y[after] - track.y[before])
    far = (step > MOVED_PX) & (before >= 0)
    return intervals[far], before[far], after[far]


def _peak(lags: Floats, found: _Hits, documented: Clock, frame_s: float) -> Clock | None:
    share, moves = found.shares()
    score = np.where(moves < _MIN_MOVES, 0.0, share)
    top = int(np.argmax(score))
    elsewhere = score[np.abs(lags - lags[top]) > max(_RIVAL_S, _RIVAL_FRAMES * frame_s)]
    rival = float(elsewhere.max()) if len(elsewhere) else 0.0
    if score[top] < _MIN_SCORE or score[top] < _MIN_CONTRAST * rival:
        return None
    near = np.abs(lags - lags[top]) <= _NEAR_FRAMES * frame_s
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
    """(middle, half width) of the lags with at least this share of the best score."""
    plateau = lags[score >= share * score.max()]
    return float(plateau.mean()), float(np.ptp(plateau)) / 2
