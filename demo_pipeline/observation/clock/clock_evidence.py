"""Finds the clock by comparing pointer moves, typing or clicks with the pixels that changed.

A *lag* is the delay of the video's start relative to the documented clock. Each search tries many
lags and returns the clock for the lag that explains the changed pixels best.

- Pointer moves are the most exact evidence, and also show the event scale.
- Typing is used for videos that do not show the pointer, and for parts where the pointer rests.
- Clicks are the least exact evidence, because applications take different times to react.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import BLOCK, Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PointerPath
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import lookup

_LAG_STEP_S = 0.01  # seconds between the lags of the first search
# The second search tries the lags around the best lag of the first search.
_FINE_S = 0.06  # seconds on each side
_FINE_STEP_S = 0.002  # seconds between two lags
_MIN_MOVES = 12  # minimum number of moves between frames that counts as evidence
# Minimum number of moves if repeated frames are left out. Measured: in 18 of 1,235 cases, a video
# fitted the log of another video, each time with fewer than 16 moves.
_MIN_DIFFERING = 24
# A clock is rejected if its log-likelihood ratio (`Moves.surprise`) is less than 16 nats. Measured
# on 1,226 clocks found in parts of nine videos: 93 of the 94 wrong clocks and 3.5 % of the right
# clocks had a smaller ratio. No right clock with 24 moves had a smaller ratio.
_MIN_SURPRISE = 16.0
# A redraw counts as at most 98 % of the cells, even if it changed more of them. Without this limit,
# one unconfirmed move during a redraw of the whole screen would be unlimited evidence.
_REDRAWN = 0.98
# The score of a lag is the share of the moves that the video confirms at this lag.
_MIN_SCORE = 0.3  # the best lag needs at least this score
_MIN_CONTRAST = 2.0  # the best score must be at least twice the score of every rival
_DEVIATIONS = 1.96  # 95 % of a normal distribution lies within 1.96 standard deviations
# A lag is a rival if it is further from the best lag than both of these distances.
_RIVAL_S = 0.3  # seconds
_RIVAL_FRAMES = 3  # frame intervals; decisive if the frame rate is low
_NEAR_FRAMES = 2  # frame intervals; lags further from the best lag are not part of its plateau
# Lags with at least 85 % of the best score form the plateau. For pointer moves, the uncertainty is
# half the range of the plateau, plus half a frame interval.
_PLATEAU = 0.85
_SUMMIT = 0.95  # the result is the mean of the lags with at least 95 % of the best score
# A less likely scale wins only if its score is more than 1.2 times that of the likelier scales.
_CLEARLY = 1.2

Indexes = np.ndarray[Any, np.dtype[np.int32]]


def clock_from_pointer(
    changes: ChangeMap,
    track: PointerPath,
    documented: Clock,
    scales: Sequence[float],
    search_s: float,
) -> Clock | None:
    """Returns the clock for the lag at which the pointer's moves explain the changed pixels best.

    If no lag stands out when all frames are compared, repeated frames are left out, because the
    pointer in them does not follow the log.

    Args:
        scales: event scales to try, the most likely first. A later scale must be clearly better.
        search_s: the largest lag that is tried in either direction, seconds.

    Returns:
        The clock, or None if no lag stands out.
    """
    differing = changes.without_repeats()
    for compared, min_moves in ((changes, _MIN_MOVES), (differing, _MIN_DIFFERING)):
        clock = _clock(compared, differing, track, documented, scales, search_s, min_moves)
        if clock is not None:
            return clock
    return None


def _clock(  # noqa: PLR0917 - the arguments of `clock_from_pointer`
    changes: ChangeMap,
    differing: ChangeMap,
    track: PointerPath,
    documented: Clock,
    scales: Sequence[float],
    search_s: float,
    min_moves: int,
) -> Clock | None:
    """Returns the clock for the best lag, or None if no lag stands out.

    Args:
        changes: the changed cells between the compared frames.
        differing: the changed cells between frames that are not repeated. They show whether moves
            are confirmed by chance.
        track, documented, scales, search_s: arguments of `clock_from_pointer`.
        min_moves: lags with fewer moves between the frames are not evidence.
    """
    if not len(changes) or not len(track.times):
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    moves = Moves(changes, track, documented, lags)
    best: Clock | None = None
    needed_score = 0.0
    for scale in scales:
        if needed_score >= 1.0:  # a score cannot exceed 1
            break
        peak = _peak(moves, scale, documented, min_moves)
        if peak is None or (peak.score or 0.0) <= needed_score:
            continue
        lag = np.array([peak.origin_ms - documented.origin_ms]) / 1000
        if Moves(differing, track, documented, lag).surprise(scale) >= _MIN_SURPRISE:
            needed_score = (peak.score or 0.0) * _CLEARLY
            best = replace(peak, event_scale=scale)
    if best is None:
        return None
    around = np.arange(-_FINE_S, _FINE_S + _FINE_STEP_S / 2, _FINE_STEP_S)
    fine = (best.origin_ms - documented.origin_ms) / 1000 + around
    shares, _ = Moves(changes, track, documented, fine).confirmed(best.event_scale)
    lag_ms = _plateau(fine, shares, _SUMMIT)[0] * 1000
    origin_ms = documented.origin_ms + lag_ms
    return replace(best, origin_ms=origin_ms, documented_offset_ms=round(lag_ms, 3))


def reconcile_clocks(logged: Clock, by_pointer: Clock | None, rate: float, first_s: float) -> Clock:
    """Returns the logged clock, with the drift and the scale that the pointer's moves show.

    If the pointer's moves contradict the logged clock, the difference of the two clocks becomes the
    uncertainty of the logged clock.

    Args:
        logged: the clock from the start time that ffmpeg printed. This start time remains the time
            of the first frame.
        by_pointer: the clock estimated from the pointer's moves, or None.
        rate: video seconds per second of the log, measured by the pointer's moves.
        first_s: video time of the first frame, seconds.
    """
    if by_pointer is None:
        return logged
    difference = by_pointer.origin_ms - logged.origin_ms
    contradicted = abs(difference) > logged.uncertainty_ms + by_pointer.uncertainty_ms
    start_ms = logged.event_time(first_s)
    return replace(
        logged,
        origin_ms=start_ms - first_s * 1000 / rate,
        uncertainty_ms=abs(difference) if contradicted else logged.uncertainty_ms,
        score=by_pointer.score,
        moves=by_pointer.moves,
        event_scale=by_pointer.event_scale,
        rate=rate,
    )


class Moves:
    """The pointer's moves from frame to frame, assuming each of several lags in turn.

    A move is *confirmed* if the cells at both of its ends changed between the two frames.

    Args:
        lags: the lags to assume, seconds.
    """

    def __init__(
        self, changes: ChangeMap, track: PointerPath, documented: Clock, lags: Floats
    ) -> None:
        self._changes = changes
        self._track = track
        self.lags = lags
        frames = np.array(changes.times)
        self.frame_s = float(np.median(np.diff(frames)))
        events = track.times / 1000 - documented.origin_ms / 1000
        # For speed, leave out positions that are outside the decoded frames at every lag.
        reach = [frames[0] + lags.min() - 1.0, frames[-1] + lags.max() + 1.0]
        first, end = np.searchsorted(events, reach)
        first = max(0, int(first) - 1)
        near_events = events[first:end]
        moves_by_lag = [_moves_at_lag(near_events - lag, track, frames, first) for lag in lags]
        counts = [len(intervals) for intervals, _, _ in moves_by_lag]
        self._starts: Indexes = np.cumsum([0, *counts], dtype=np.int32)
        columns = (np.concatenate(column) for column in zip(*moves_by_lag, strict=True))
        self._intervals, *self._ends = columns

    def confirmed(self, scale: float) -> tuple[Floats, Indexes]:
        """Returns the share of confirmed moves at each lag, and the number of moves at each lag.

        Both are (lags,). The share is 0 at a lag without moves. `scale` is in video pixels per unit
        of event space.
        """
        hits = self._hits(scale, self._changes.packed())
        count = np.cumsum(hits, dtype=np.int32)
        moves = np.diff(self._starts)
        confirmed = np.diff(np.concatenate([[0], count])[self._starts])
        return confirmed / np.maximum(moves, 1), moves

    def surprise(self, scale: float) -> float:
        """Returns the sum of `nats` over all lags."""
        return float(self._ratios(scale).sum())

    def nats(self, scale: float) -> Floats:
        """Returns the log-likelihood ratio of each lag against chance, in nats. Shape: (lags,)."""
        total = np.concatenate([[0.0], np.cumsum(self._ratios(scale))])
        return np.diff(total[self._starts])

    def _ratios(self, scale: float) -> Floats:
        """Returns for each move the log-likelihood ratio of a right lag to a wrong lag.

        The result begins with the moves at the first lag, followed by the moves at the second lag,
        and so on. At the right lag, a move is assumed to be confirmed with a probability of 50 %.
        At a wrong lag, the probability is the share of the screen that changed.
        """
        packed = self._changes.packed()
        cells = int(np.prod(self._changes.shape))
        changed = np.bitwise_count(packed).sum(axis=1) / cells
        by_chance = np.clip(changed, 1 / cells, _REDRAWN)[self._intervals]
        hits = self._hits(scale, packed)
        return np.asarray(np.log(0.5 / np.where(hits, by_chance, 1 - by_chance)), float)

    def _hits(self, scale: float, packed: np.ndarray[Any, np.dtype[np.uint8]]) -> Cells:
        """Returns for each move at each lag whether the screen changed at both ends of the move."""
        track = self._track
        rows, columns = self._changes.shape
        row = np.clip(track.y * scale / BLOCK, 0, rows - 1).astype(np.int32)
        column = np.clip(track.x * scale / BLOCK, 0, columns - 1).astype(np.int32)
        bits = row * columns + column
        hits: Cells = np.ones(len(self._intervals), bool)
        for positions in self._ends:
            bit = bits[positions]
            hits &= (packed[self._intervals, bit >> 3] >> (7 - (bit & 7)) & 1).astype(bool)
        return hits


def _moves_at_lag(
    events: Floats, track: PointerPath, frames: Floats, first: int
) -> tuple[Indexes, Indexes, Indexes]:
    """Returns the moves between frames at one lag, as three arrays of equal length.

    The arrays contain indexes: of the interval between two frames, of the position before the move,
    and of the position after the move.

    Args:
        events: times of the positions in `track` from `first` on, in video seconds at this lag.
        frames: times of the frames, video seconds.
        first: index in `track` of the first position in `events`.
    """
    newest = (np.searchsorted(events, frames, side="right") + (first - 1)).astype(np.int32)
    intervals = np.flatnonzero(newest[1:] != newest[:-1]).astype(np.int32)
    before = newest[intervals]
    after = newest[intervals + 1]
    step = np.hypot(track.x[after] - track.x[before], track.y[after] - track.y[before])
    far = (step > MOVED_PX) & (before >= 0)
    return intervals[far], before[far], after[far]


def _peak(moves: Moves, scale: float, documented: Clock, min_moves: int) -> Clock | None:
    """Returns the clock for the lag at which the video confirms the largest share of the moves.

    Returns None if no lag with at least `min_moves` moves stands out.
    """
    lags = moves.lags
    frame_s = moves.frame_s
    share, count = moves.confirmed(scale)
    score = np.where(count < min_moves, 0.0, share)
    top = int(np.argmax(score))
    far = np.abs(lags - lags[top]) > max(_RIVAL_S, _RIVAL_FRAMES * frame_s)
    if score[top] < max(_MIN_SCORE, _MIN_CONTRAST * score[far].max(initial=0.0)):
        return None
    lower_bound = _wilson_lower_bound(share, count)
    by_chance = float((share * count)[far].sum() / max(1, count[far].sum()))
    if lower_bound[top] <= by_chance:
        return None
    if lower_bound[far].max(initial=0.0) >= score[top]:
        # A rival with fewer than `min_moves` moves has a significantly larger share of confirmed
        # moves than the best lag.
        return None
    near = np.abs(lags - lags[top]) <= _NEAR_FRAMES * frame_s
    lag, spread = _plateau(lags[near], score[near], _PLATEAU)
    uncertainty_ms = round((spread + frame_s / 2) * 1000, 3)
    return Clock(
        documented.origin_ms + lag * 1000,
        "pixels",
        uncertainty_ms,
        score=round(float(score[top]), 4),
        moves=int(count[top]),
    )


def _wilson_lower_bound(share: Floats, moves: Indexes) -> Floats:
    """Returns the lower bound of Wilson's 95 % interval for each share of confirmed moves."""
    count = np.maximum(moves, 1)
    square = _DEVIATIONS**2
    spread = _DEVIATIONS * np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    lower = (share + square / (2 * count) - spread) / (1 + square / count)
    return np.asarray(np.where(moves > 0, lower, 0.0), float)


def _plateau(lags: Floats, score: Floats, share: float) -> tuple[float, float]:
    """Returns the mean of the lags that reach `share` of the best score, and half their range."""
    plateau = lags[score >= share * score.max()]
    return float(plateau.mean()), float(np.ptp(plateau)) / 2


MIN_KEYS = 12  # minimum number of keys that counts as evidence
_BAND = 3  # rows of cells in a band of the screen, about the height of a line of text
# Bands that change more than 30 % of the time are ignored, because typing does not cause so many
# changes.
_RESTLESS = 0.3
# The next three thresholds apply to log-likelihood ratios from which the median over all lags was
# subtracted. Measured on nine videos of typing, for whole videos, windows of 20 s and windows of
# 10 s. With the right keys, a lag was found in 10 of 11, 37 of 45 and 55 of 89 cases, each time the
# right lag. With the keys of another video, or with reversed keys, a lag was found in 0 of 361,
# 0 of 1,464 and 9 of 2,607 cases.
_MIN_NATS = 14.0  # minimum ratio of the best lag, nats
# The ratio of the best lag must be at least 2.5 times the ratio of every rival, because bursts of
# typing resemble each other.
_CONTRAST = 2.5
# The ratio of the best lag must be at least twice the median ratio of the lags near it, because a
# burst of typing also fits roughly at a close lag.
_SHARP = 2.0
_KEY_RIVAL_S = 0.35  # lags more than 0.35 s from the best lag are rivals
_BESIDE_S = (0.12, 0.3)  # lags that differ from the best lag by 0.12 to 0.3 s are near it
_MIN_ANSWERED = 0.4  # minimum share of the keys that must be followed by a change
# Seconds from a key to its character on the screen. Measured: 0.00 to 0.04 in most programs, 0.11
# in an editor on a busy machine, 0.12 on a page that waits 0.09 seconds.
_ECHO_S = 0.03  # assumed when the clock is computed
_SLOW_ECHO_S = 0.1  # longest time that the uncertainty of the clock covers
# The 10th percentile of the intervals between frames counts as the usual interval. The median would
# be too long for recorders that leave out frames.
_USUAL_FRAME = 10


def typed_keys(inputs: Sequence[Input]) -> Floats:
    """Returns the press times of the keys that type or delete a character, ascending epoch ms."""
    times: set[int] = set()
    for item in inputs:
        if item.kind == EventType.KEYDOWN:
            key = lookup(item.name)
            if key.char or key.name == "backspace":
                times.add(item.time)
    return np.array(sorted(times), float)


def clock_from_keys(
    changes: ChangeMap, frames: Floats, keys: Floats, documented: Clock, search_s: float
) -> Clock | None:
    """Returns the clock for the lag at which characters appear right after their keys.

    Args:
        frames: times of all frames of the video, seconds.
        keys: the result of `typed_keys`.
        search_s: the largest lag that is tried in either direction, seconds.

    Returns:
        The clock, or None if no lag stands out.
    """
    pressed = np.array([documented.video_time(time) for time in keys])
    echo = echo_lag(changes, frames, pressed, search_s)
    if echo is None:
        return None
    lag_ms = (_ECHO_S - echo.lag_s) * 1000
    uncertainty_s = _SLOW_ECHO_S - _ECHO_S + echo.frame_s / 2
    return Clock(
        origin_ms=documented.origin_ms + lag_ms,
        method="typing",
        uncertainty_ms=round(uncertainty_s * 1000, 3),
        documented_offset_ms=round(documented.documented_offset_ms + lag_ms, 3),
        moves=echo.keys,
    )


class EchoLag(NamedTuple):
    """The time from keys to their characters in the video.

    Attributes:
        lag_s: seconds from a key to its character, if the documented clock is used.
        keys: number of keys in the decoded stretches.
        frame_s: usual interval between two frames, seconds.
    """

    lag_s: float
    keys: int
    frame_s: float


def echo_lag(
    changes: ChangeMap, frames: Floats, pressed: Floats, search_s: float
) -> EchoLag | None:
    """Returns the lag at which the changes depend most on the keys, or None if no lag stands out.

    `pressed` contains the press times of the keys, video seconds. The other arguments are those of
    `clock_from_keys`.
    """
    if not len(changes) or len(pressed) < MIN_KEYS:
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    bins = Bins.of(changes, frames)
    typed = bins.typed(pressed, lags)
    nats = likelihood_ratios(typed, bins.changed)
    nats -= np.median(nats)
    top = int(np.argmax(nats))
    keys = int(typed[top].sum())
    answered = int((typed[top] & bins.changed).sum())
    if keys < MIN_KEYS or answered < _MIN_ANSWERED * keys or not _stands_out(lags, nats, top):
        return None
    return EchoLag(float(lags[top]), keys, bins.frame_s)


def _stands_out(lags: Floats, nats: Floats, top: int) -> bool:
    """Whether the best lag is far better than its rivals, the lags near it and an average lag.

    Args:
        nats: (lags,), log-likelihood ratios minus the ratio of an average lag.
        top: index of the best lag.
    """
    distance = np.abs(lags - lags[top])
    beside = nats[(distance > _BESIDE_S[0]) & (distance < _BESIDE_S[1])]
    rival = nats[distance > _KEY_RIVAL_S].max(initial=0.0)
    return bool(nats[top] >= max(_MIN_NATS, _SHARP * np.median(beside), _CONTRAST * rival))


@dataclass(frozen=True)
class Bins:
    """The time of the decoded stretches, divided into bins that are about one frame long.

    A change after a gap without frames is counted in the last bin of the gap.

    Attributes:
        edges: (bins, 2) start (excluded) and end (included) of each bin, ascending video seconds.
        changed: (bins,) whether a band of the screen changed. Bands that change in more than 30 %
            of the bins are ignored.
        frame_s: usual length of a bin, seconds.
    """

    edges: Floats
    changed: Cells
    frame_s: float

    @classmethod
    def of(cls, changes: ChangeMap, frames: Floats) -> "Bins":
        """Divides the time between decoded frames into bins.

        Two decoded frames have no bins between them if they are not consecutive in the video.
        """
        times = np.array(changes.times)
        gaps = np.diff(times)
        frame_s = float(np.percentile(gaps, _USUAL_FRAME))
        bins_in_gap = np.maximum(1, np.round(gaps / frame_s)).astype(int)
        bins_in_gap *= np.diff(np.searchsorted(frames, times)) == 1
        last_bin = np.cumsum(bins_in_gap) - 1
        number_in_gap = np.arange(int(bins_in_gap.sum()))
        number_in_gap -= np.repeat(last_bin - bins_in_gap + 1, bins_in_gap)
        width = np.repeat(gaps / np.maximum(bins_in_gap, 1), bins_in_gap)
        begin = np.repeat(times[:-1], bins_in_gap) + number_in_gap * width
        has_bins = bins_in_gap > 0
        bands = _changed_bands(changes)[has_bins]
        calm = bands.sum(axis=0) <= _RESTLESS * len(begin)
        changed = np.zeros(len(begin), bool)
        changed[last_bin[has_bins]] = bands[:, calm].any(axis=1)
        return cls(np.stack([begin, begin + width], axis=1), changed, frame_s)

    def typed(self, pressed: Floats, lags: Floats) -> Cells:
        """Returns for each lag and bin whether the time of a key plus the lag falls into the bin.

        The result is (lags, bins). `pressed` contains the press times of the keys, ascending video
        seconds. `lags` are ascending seconds.
        """
        first = self.edges[0, 0] - lags[-1]
        last = self.edges[-1, 1] - lags[0]
        # A log may contain hours of typing. Only keys that can fall into a bin are kept.
        near = pressed[(pressed >= first) & (pressed <= last)]
        echoes = near[None] + lags[:, None]
        number = np.searchsorted(self.edges[:, 0], echoes, side="left") - 1
        inside = (number >= 0) & (echoes <= self.edges[np.maximum(number, 0), 1])
        typed = np.zeros((len(lags), len(self.edges)), bool)
        typed[np.nonzero(inside)[0], number[inside]] = True
        return typed


def _changed_bands(changes: ChangeMap) -> Cells:
    """Returns for each frame which bands of the screen have a changed cell: (frames - 1, bands)."""
    rows, columns = changes.shape
    packed = changes.packed()
    cells = np.unpackbits(packed, axis=1, count=rows * columns).reshape(len(packed), rows, columns)
    first = np.arange(0, rows, _BAND)
    bands: Cells = np.logical_or.reduceat(cells.any(axis=2), first, axis=1)
    return bands


def likelihood_ratios(typed: Cells, changed: Cells) -> Floats:
    """Compares two hypotheses at each lag: changes depend on keys, or are independent of them.

    Returns the log-likelihood ratios in nats. The ratio is 0 where keys make changes less likely.
    Both arguments come from `Bins`: `typed` is (lags, bins), and `changed` is (bins,).
    """
    count = float(len(changed))
    changing = float(changed.sum())
    keys = typed.sum(axis=1).astype(float)
    both = typed[:, changed].sum(axis=1).astype(float)
    table = (
        (both, keys, changing),
        (keys - both, keys, count - changing),
        (changing - both, count - keys, changing),
        (count - keys - changing + both, count - keys, count - changing),
    )
    ratio = np.zeros(len(typed))
    for observed, row_total, column_total in table:
        expected = np.maximum(row_total * column_total, 1.0)
        ratio += observed * np.log(np.maximum(observed, 1.0) * count / expected)
    return np.where(both * count > keys * changing, ratio, 0.0)


_CLICK_LAG_STEP_S = 0.02  # seconds between the lags that are tried
# Only changes at most 48 video pixels from a click can be its reaction. A button's pressed state is
# visible within this distance.
_AROUND_PX = 48.0
_REACTION_S = 0.25  # seconds after a press within which most applications show a reaction
_QUIET_S = 0.5  # seconds before a reaction during which nothing changes around the click
_MIN_PRESSES = 6  # minimum number of presses that counts as evidence
# The score of a lag is the share of the presses that are followed by a reaction at this lag.
_MIN_CLICK_SCORE = 0.6  # the best lag needs at least this score
_MIN_CLICK_CONTRAST = 1.5  # the best score must be at least 1.5 times the score of every rival
_ELSEWHERE_S = 0.5  # lags more than 0.5 s from the best lag are rivals
_LATENCY_S = 0.05  # seconds; half of the usual reaction time
CLICK_UNCERTAINTY_MS = 120.0  # covers the differences between reaction times


def clock_from_clicks(
    changes: ChangeMap, presses: PointerPath, documented: Clock, scale: float, search_s: float
) -> Clock | None:
    """Returns the clock for the lag at which most presses are followed by a reaction of the screen.

    A reaction is a change around the press after at least `_QUIET_S` without such a change.

    Args:
        presses: times and positions of the button presses.
        scale: video pixels per unit of event space.
        search_s: the largest lag that is tried in either direction, seconds.

    Returns:
        The clock, or None if no lag stands out.
    """
    if not len(changes):
        return None
    onsets = _changes_near(changes, presses, documented, scale, search_s)
    if len(onsets) < _MIN_PRESSES:
        return None
    lags = np.arange(-search_s, search_s + _CLICK_LAG_STEP_S / 2, _CLICK_LAG_STEP_S)
    score = np.mean([_is_followed(press, times, lags) for press, times in onsets], axis=0)
    top = int(np.argmax(score))
    rival = score[np.abs(lags - lags[top]) > _ELSEWHERE_S].max(initial=0.0)
    if score[top] < max(_MIN_CLICK_SCORE, _MIN_CLICK_CONTRAST * rival):
        return None
    # The fastest reactions determine the smallest lag of the plateau. The slowest reactions
    # determine its largest lag.
    plateau = lags[(score >= _PLATEAU * score[top]) & (np.abs(lags - lags[top]) <= _REACTION_S)]
    lag = float(plateau.min()) + _LATENCY_S
    frame_ms = float(np.median(np.diff(changes.times))) * 1000
    return Clock(
        origin_ms=documented.origin_ms + lag * 1000,
        method="click_onsets",
        uncertainty_ms=round(CLICK_UNCERTAINTY_MS + frame_ms / 2, 3),
        documented_offset_ms=round(documented.documented_offset_ms + lag * 1000, 3),
        score=round(float(score[top]), 4),
        moves=len(onsets),
        event_scale=scale,
    )


def _changes_near(
    changes: ChangeMap, presses: PointerPath, documented: Clock, scale: float, search_s: float
) -> list[tuple[float, Floats]]:
    """Returns for each press its time by the documented clock, and the times of nearby reactions.

    All times are video seconds. Presses that lie outside the decoded stretches at every lag are
    left out.
    """
    times = np.array(changes.times)
    packed = changes.packed()
    rows, columns = changes.shape
    reach = search_s + 2 * _REACTION_S
    onsets: list[tuple[float, Floats]] = []
    for time, x, y in zip(presses.times, presses.x * scale, presses.y * scale, strict=True):
        press = documented.video_time(float(time))
        first, last = np.searchsorted(times, [press - reach, press + reach])
        if last - first < 2:
            continue
        top = max(0, int((y - _AROUND_PX) // BLOCK))
        left = max(0, int((x - _AROUND_PX) // BLOCK))
        bottom = min(rows, int((y + _AROUND_PX) // BLOCK) + 1)
        right = min(columns, int((x + _AROUND_PX) // BLOCK) + 1)
        row, column = np.meshgrid(np.arange(top, bottom), np.arange(left, right), indexing="ij")
        bits: Any = (row * columns + column).ravel()
        near_press = packed[first : max(first, last - 1)]
        is_changed = ((near_press[:, bits >> 3] >> (7 - (bits & 7))) & 1).any(axis=1)
        changed_at = times[first + 1 : last][is_changed]
        # A button's pressed state and the menu that it opens count as a single reaction.
        onsets.append((press, changed_at[np.diff(changed_at, prepend=-np.inf) >= _QUIET_S]))
    return onsets


def _is_followed(press: float, onsets: Floats, lags: Floats) -> Floats:
    """Returns 1.0 for each lag at which a reaction follows within `_REACTION_S`, otherwise 0.0."""
    pressed = press - lags
    after = np.searchsorted(onsets, pressed + _REACTION_S, side="right")
    followed: Floats = (after > np.searchsorted(onsets, pressed, side="right")).astype(np.float64)
    return followed
