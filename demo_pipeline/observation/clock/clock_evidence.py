"""What tells the clock: pointer moves, typing and clicks against the pixels that changed.

Belongs here: finding that lag and the event scale with it, and reconciling the result with a logged
start time. Typing and clicks are for videos that do not show the pointer, and for parts in which it
rests. A character appears a little after its key, by as much as the program takes to show it; the
answer to a click is less exact still, since applications take different times to react.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.changes import BLOCK, Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PointerPath
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import lookup

_LAG_STEP_S = 0.01  # seconds between the lags that are tried
_FINE_S, _FINE_STEP_S = 0.06, 0.002  # seconds around the best lag that are tried again, and step
_MIN_MOVES = 12  # moves; fewer are not evidence
# Moves between frames that differ. Fewer fit 18 of 1,235 logs of other films, none with 16 or more.
_MIN_DIFFERING = 24
# Log-likelihood ratio of half of the moves confirmed to as many as the changed share of each frame
# confirms by chance. Of 1,226 clocks that parts of nine films showed, 94 were wrong, 93 of them
# with less; so were 3.5 % of the right ones, none with 24 moves. A film with large redraws had a
# scale of 1.75 at a lag of 2.4 s in 24 moves, where 1.0 and 0.03 s are right.
_MIN_SURPRISE = 16.0
_REDRAWN = 0.98  # share of a frame; of one that changed more, a move that is not confirmed counts
_MIN_SCORE = 0.3  # share of the moves that the pictures must confirm at the best lag
_MIN_CONTRAST = 2.0  # times the best score of lags further away
_DEVIATIONS = 1.96  # standard; 95 % of samples are within
_RIVAL_S, _RIVAL_FRAMES = 0.3, 3  # seconds, frame distances; a lag further away is a rival
_NEAR_FRAMES = 2  # frame distances around the best lag in which its plateau is
_PLATEAU = 0.85  # of the best score; the width of the lags that reach it is the uncertainty
_SUMMIT = 0.95  # of the best score; the middle of the lags that reach it is the result
_CLEARLY = 1.2  # times the score of the scales before it makes a scale the better one

Indexes = np.ndarray[Any, np.dtype[np.int32]]


def clock_from_pointer(
    changes: ChangeMap,
    track: PointerPath,
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

    A recorder that falls behind repeats frames, in which the pointer does not follow the log. When
    all frames show nothing, those that differ from the one before may.

    Returns:
        None with too few moves, or when no lag stands out.
    """
    differing = changes.without_repeats()
    for shown, least in ((changes, _MIN_MOVES), (differing, _MIN_DIFFERING)):
        found = _clock(shown, differing, track, documented, scales, search_s, least)
        if found is not None:
            return found
    return None


def _clock(  # noqa: PLR0917 - those of `clock_from_pointer`
    changes: ChangeMap,
    differing: ChangeMap,
    track: PointerPath,
    documented: Clock,
    scales: Sequence[float],
    search_s: float,
    least: int,
) -> Clock | None:
    """As `clock_from_pointer`, with at least so many moves between the frames.

    `differing` are the changes without repeated frames, of which no move is expected.
    """
    if not len(changes) or not len(track.times):
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    moves = Moves(changes, track, documented, lags)
    best: Clock | None = None
    needed_score = 0.0
    for scale in scales:
        if needed_score >= 1.0:  # the highest possible score
            break
        peak = _peak(moves, scale, documented, least)
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


def reconcile_clocks(
    logged: Clock, pictured: Clock | None, corrected: Clock, first_s: float
) -> Clock:
    """The clock that the recorder logged, with the drift and the contradiction that pictures show.

    By as much as the pictures contradict it, it is uncertain.

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
        rate=corrected.rate,
    )


class Moves:
    """The pointer's moves between two frames when the video is off by each of some lags.

    Args:
        changes: of the frames.
        track: the pointer's positions.
        documented: the clock that lags are relative to.
        lags: seconds.
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
        # Positions out of reach at every lag cannot be shown; searching few is quicker.
        reach = [frames[0] + lags.min() - 1.0, frames[-1] + lags.max() + 1.0]
        first, last = np.searchsorted(events, reach)
        first = max(0, int(first) - 1)
        near = events[first:last]
        found = [_of_lag(near - lag, track, frames, first) for lag in lags]
        lengths = (len(intervals) for intervals, _, _ in found)
        self._starts: Indexes = np.cumsum([0, *lengths], dtype=np.int32)
        columns = (np.concatenate(column) for column in zip(*found, strict=True))
        self._intervals, *self._ends = columns

    def confirmed(self, scale: float) -> tuple[Floats, Indexes]:
        """(lags,) share of the moves of which both ends changed, 0 without one; (lags,) moves.

        `scale`: video pixels for one unit of the track.
        """
        hits = self._hits(scale, self._changes.packed())
        count = np.cumsum(hits, dtype=np.int32)
        moves = np.diff(self._starts)
        confirmed = np.diff(np.concatenate([[0], count])[self._starts])
        return confirmed / np.maximum(moves, 1), moves

    def surprise(self, scale: float) -> float:
        """How much better a right lag explains the moves of all lags than chance, nats."""
        return float(self._ratios(scale).sum())

    def nats(self, scale: float) -> Floats:
        """(lags,): how much better each lag explains its moves than chance, nats."""
        total = np.concatenate([[0.0], np.cumsum(self._ratios(scale))])
        return np.diff(total[self._starts])

    def _ratios(self, scale: float) -> Floats:
        """(moves of all lags,) log-likelihood ratio of a right lag to chance.

        At a right lag one half of the moves are confirmed, by chance the share of the frame that
        changed. A redraw of the whole screen confirms every move, and tells nothing.
        """
        packed = self._changes.packed()
        cells = int(np.prod(self._changes.shape))
        changed = np.bitwise_count(packed).sum(axis=1) / cells
        by_chance = np.clip(changed, 1 / cells, _REDRAWN)[self._intervals]
        hits = self._hits(scale, packed)
        return np.asarray(np.log(0.5 / np.where(hits, by_chance, 1 - by_chance)), float)

    def _hits(self, scale: float, packed: np.ndarray[Any, np.dtype[np.uint8]]) -> Cells:
        """(moves of all lags,) whether both ends changed."""
        track = self._track
        (rows, columns) = self._changes.shape
        row = np.clip(track.y * scale / BLOCK, 0, rows - 1).astype(np.int32)
        column = np.clip(track.x * scale / BLOCK, 0, columns - 1).astype(np.int32)
        bits = row * columns + column
        hits: Cells = np.ones(len(self._intervals), bool)
        for positions in self._ends:
            bit = bits[positions]
            hits &= (packed[self._intervals, bit >> 3] >> (7 - (bit & 7)) & 1).astype(bool)
        return hits


def _of_lag(
    events: Floats, track: PointerPath, frames: Floats, first: int
) -> tuple[Indexes, Indexes, Indexes]:
    """Intervals, positions before and after of the moves at one lag.

    `events` are the times of the positions from number `first` on, in video seconds.
    """
    newest = (np.searchsorted(events, frames, side="right") + (first - 1)).astype(np.int32)
    intervals = np.flatnonzero(newest[1:] != newest[:-1]).astype(np.int32)
    before = newest[intervals]
    after = newest[intervals + 1]
    step = np.hypot(track.x[after] - track.x[before], track.y[after] - track.y[before])
    far = (step > MOVED_PX) & (before >= 0)
    return intervals[far], before[far], after[far]


def _peak(found: Moves, scale: float, documented: Clock, least: int) -> Clock | None:
    (share, moves), lags, frame_s = found.confirmed(scale), found.lags, found.frame_s
    score = np.where(moves < least, 0.0, share)
    top = int(np.argmax(score))
    far = np.abs(lags - lags[top]) > max(_RIVAL_S, _RIVAL_FRAMES * frame_s)
    if score[top] < max(_MIN_SCORE, _MIN_CONTRAST * score[far].max(initial=0.0)):
        return None
    surely = _surely(share, moves)
    by_chance = float((share * moves)[far].sum() / max(1, moves[far].sum()))
    if surely[top] <= by_chance or surely[far].max(initial=0.0) >= score[top]:
        return None  # of a lag with fewer moves, more fit
    near = np.abs(lags - lags[top]) <= _NEAR_FRAMES * frame_s
    lag, spread = _plateau(lags[near], score[near], _PLATEAU)
    uncertainty_ms = round((spread + frame_s / 2) * 1000, 3)
    return Clock(
        documented.origin_ms + lag * 1000,
        "pixels",
        uncertainty_ms,
        score=round(float(score[top]), 4),
        moves=int(moves[top]),
    )


def _surely(share: Floats, moves: Indexes) -> Floats:
    """The share of all moves that these, a sample, show to be confirmed: Wilson's lower bound."""
    count = np.maximum(moves, 1)
    square = _DEVIATIONS**2
    spread = _DEVIATIONS * np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    lower = (share + square / (2 * count) - spread) / (1 + square / count)
    found: Floats = np.where(moves > 0, lower, 0.0)
    return found


def _plateau(lags: Floats, score: Floats, share: float) -> tuple[float, float]:
    """(middle, half width) of the lags with at least this share of the best score."""
    plateau = lags[score >= share * score.max()]
    return float(plateau.mean()), float(np.ptp(plateau)) / 2


MIN_KEYS = 12  # keys; fewer are not evidence
_BAND = 3  # rows of cells in a band of the picture; a line of text has about as many
_RESTLESS = 0.3  # of the time; a band that changes more often does so by itself
# Nine films of typing, whole and in windows of 20 and 10 seconds: the lag of their own keys was
# found in 10 of 11, 37 of 45 and 55 of 89, always rightly; one of other or reversed keys in 0 of
# 361, 0 of 1,464 and 9 of 2,607.
_MIN_NATS = 14.0  # log-likelihood ratio of the best lag above that of an average one
_CONTRAST = 2.5  # times the best ratio of lags further away: bursts of typing are alike
_SHARP = 2.0  # times the ratio of the lags beside it: a burst also fits when it is a little off
_KEY_RIVAL_S, _BESIDE_S = 0.35, (0.12, 0.3)  # seconds from the best lag
_MIN_ANSWERED = 0.4  # of the keys
# Seconds from a key to its character in the picture: 0.00 to 0.04 in a terminal, an editor and a
# chat, 0.11 in another editor on a busy machine, 0.12 on a page that waits 0.09 seconds.
_ECHO_S = 0.03
_SLOW_ECHO_S = 0.1
_USUAL_FRAME = 10  # percentile of the distances of frames; a variable rate leaves frames out


def typed_keys(inputs: Sequence[Input]) -> Floats:
    """When keys were pressed that type or delete a character, ascending epoch milliseconds."""
    times = {
        item.time
        for item in inputs
        if item.kind == EventType.KEYDOWN
        if (key := lookup(item.name)).char or key.name == "backspace"
    }
    return np.array(sorted(times), float)


def clock_from_keys(
    changes: ChangeMap, frames: Floats, keys: Floats, documented: Clock, search_s: float
) -> Clock | None:
    """The clock at whose lag characters appear right after their keys.

    Args:
        changes: of the stretches of video that were decoded.
        frames: times of all frames of the video, seconds.
        keys: see `typed_keys`.
        documented: the clock that lags are relative to.
        search_s: the largest lag tried, seconds, both ways.

    Returns:
        None with too few keys, or when no lag stands out.
    """
    pressed = np.array([documented.video_time(time) for time in keys])
    found = echo_lag(changes, frames, pressed, search_s)
    if found is None:
        return None
    lag_s, count, frame_s = found
    lag_ms = (_ECHO_S - lag_s) * 1000
    uncertainty_s = _SLOW_ECHO_S - _ECHO_S + frame_s / 2
    return Clock(
        origin_ms=documented.origin_ms + lag_ms,
        method="typing",
        uncertainty_ms=round(uncertainty_s * 1000, 3),
        documented_offset_ms=round(documented.documented_offset_ms + lag_ms, 3),
        moves=count,
    )


def echo_lag(
    changes: ChangeMap, frames: Floats, pressed: Floats, search_s: float
) -> tuple[float, int, float] | None:
    """The lag at which changes in the picture depend most on the keys; None when none stands out.

    Its seconds, the number of keys in the pictures, and the distance of two frames in seconds.

    `pressed`: when keys were pressed, video seconds; the others as in `clock_from_keys`.
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
    return float(lags[top]), keys, bins.frame_s


def _stands_out(lags: Floats, nats: Floats, top: int) -> bool:
    """Whether a lag is far better than an average one, those beside it and any further away."""
    off = np.abs(lags - lags[top])
    beside = nats[(off > _BESIDE_S[0]) & (off < _BESIDE_S[1])]
    rival = nats[off > _KEY_RIVAL_S].max(initial=0.0)
    return bool(nats[top] >= max(_MIN_NATS, _SHARP * np.median(beside), _CONTRAST * rival))


@dataclass(frozen=True)
class Bins:
    """The time of some stretches of video in pieces about as long as a frame.

    A recorder with a variable rate leaves out frames in which nothing changes, so that a change
    belongs to the last piece before the frame that shows it.

    Attributes:
        edges: (bins, 2) begin, excluded, and end of each, video seconds, ascending.
        changed: (bins,) whether the picture changed in a band that does not do so by itself.
        frame_s: the length of a usual piece.
    """

    edges: Floats
    changed: Cells
    frame_s: float

    @classmethod
    def of(cls, changes: ChangeMap, frames: Floats) -> "Bins":
        """The pieces between frames that follow each other in the video."""
        times = np.array(changes.times)
        gaps = np.diff(times)
        frame_s = float(np.percentile(gaps, _USUAL_FRAME))
        pieces = np.maximum(1, np.round(gaps / frame_s)).astype(int)
        pieces *= np.diff(np.searchsorted(frames, times)) == 1
        last = np.cumsum(pieces) - 1
        follow = np.arange(int(pieces.sum())) - np.repeat(last - pieces + 1, pieces)
        width = np.repeat(gaps / np.maximum(pieces, 1), pieces)
        begin = np.repeat(times[:-1], pieces) + follow * width
        bands = _changed_bands(changes)[pieces > 0]
        changed = np.zeros(len(begin), bool)
        calm = bands.sum(axis=0) <= _RESTLESS * len(begin)
        changed[last[pieces > 0]] = bands[:, calm].any(axis=1)
        return cls(np.stack([begin, begin + width], axis=1), changed, frame_s)

    def typed(self, pressed: Floats, lags: Floats) -> Cells:
        """(lags, bins): whether a key was pressed in a piece, if its character came a lag later."""
        first = self.edges[0, 0] - lags[-1]
        last = self.edges[-1, 1] - lags[0]
        near = pressed[(pressed >= first) & (pressed <= last)]  # of hours of typing
        shown = near[None] + lags[:, None]
        place = np.searchsorted(self.edges[:, 0], shown, side="left") - 1
        inside = (place >= 0) & (shown <= self.edges[np.maximum(place, 0), 1])
        typed = np.zeros((len(lags), len(self.edges)), bool)
        typed[np.nonzero(inside)[0], place[inside]] = True
        return typed


def _changed_bands(changes: ChangeMap) -> Cells:
    """(frames - 1, bands): whether a cell of a band of the picture changed."""
    rows, columns = changes.shape
    packed = changes.packed()
    cells = np.unpackbits(packed, axis=1, count=rows * columns).reshape(len(packed), rows, columns)
    first = np.arange(0, rows, _BAND)
    bands: Cells = np.logical_or.reduceat(cells.any(axis=2), first, axis=1)
    return bands


def likelihood_ratios(typed: Cells, changed: Cells) -> Floats:
    """(lags,): log-likelihood ratio of "a key makes a change likelier" to "it makes none".

    It grows with the number of keys and with how well they tell the changes.
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
    for seen, across, down in table:
        ratio += seen * np.log(np.maximum(seen, 1.0) * count / np.maximum(across * down, 1.0))
    return np.where(both * count > keys * changing, ratio, 0.0)


_CLICK_LAG_STEP_S = 0.02  # seconds between the lags that are tried
_AROUND_PX = 48.0  # video pixels around a click, within which a button's pressed state shows
_REACTION_S = 0.25  # seconds after a press within which most applications show a reaction
_QUIET_S = 0.5  # seconds without a change around the click before a reaction
_MIN_PRESSES = 6  # presses; fewer are not evidence
_MIN_CLICK_SCORE = 0.6  # of the presses must be followed by a reaction at the best lag
_MIN_CLICK_CONTRAST = 1.5  # times the best score of lags further away
_ELSEWHERE_S = 0.5  # seconds; a lag this far from the best one is a rival
_LATENCY_S = 0.05  # seconds; half of the usual reaction time
CLICK_UNCERTAINTY_MS = 120.0  # milliseconds; reaction times differ this much


def clock_from_clicks(
    changes: ChangeMap, presses: PointerPath, documented: Clock, scale: float, search_s: float
) -> Clock | None:
    """The clock at whose lag most presses are followed, and not preceded, by a change around them.

    Args:
        changes: of the stretches of video that were decoded.
        presses: when and where buttons were pressed.
        documented: the clock that lags are relative to.
        scale: video pixels for one unit of event space.
        search_s: the largest lag tried, seconds, both ways.

    Returns:
        None with too few presses, or when no lag stands out.
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
    # Reactions come after their presses: the smallest lag of the plateau is the right one.
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
    """(documented video time of a press, onsets of changes around it), both in seconds.

    Only for presses that the decoded stretches may contain.
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
        top, left = (max(0, int((value - _AROUND_PX) // BLOCK)) for value in (y, x))
        bottom = min(rows, int((y + _AROUND_PX) // BLOCK) + 1)
        right = min(columns, int((x + _AROUND_PX) // BLOCK) + 1)
        row, column = np.meshgrid(np.arange(top, bottom), np.arange(left, right), indexing="ij")
        bits: Any = (row * columns + column).ravel()
        span = packed[first : max(first, last - 1)]
        changed = ((span[:, bits >> 3] >> (7 - (bits & 7))) & 1).any(axis=1)
        shown = times[first + 1 : last][changed]
        # A button's pressed state and its menu are one reaction.
        onsets.append((press, shown[np.diff(shown, prepend=-np.inf) >= _QUIET_S]))
    return onsets


def _is_followed(press: float, onsets: Floats, lags: Floats) -> Floats:
    """(lags,): 1.0 for a lag at which an onset follows the press within the reaction time."""
    pressed = press - lags
    after = np.searchsorted(onsets, pressed + _REACTION_S, side="right")
    followed: Floats = (after > np.searchsorted(onsets, pressed, side="right")).astype(np.float64)
    return followed
