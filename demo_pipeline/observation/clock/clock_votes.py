"""Finds the clock by all inputs together: moves of the pointer, keys, buttons and the wheel.

This search is for recordings of keyboard work, which have too few moves and too little typing for
the searches in clock_evidence.py.

The score of a lag is the sum of two log-likelihood ratios. The first is high if cells changed where
the pointer was. The second is high if changes follow inputs more often than by chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_evidence import (
    Bins,
    Moves,
    likelihood_ratios,
)
from demo_pipeline.observation.frames.changes import Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PointerPath
from demo_pipeline.recording.input_log import BUTTON_EVENTS, EventType
from demo_pipeline.recording.key_names import lookup

# Pairs of thresholds for the best lag: its score (nats), and the ratio of its score to that of the
# best rival. The lag shows the clock if it reaches both thresholds of one pair.
# Measured: 73 windows of ten seconds of video were compared with the whole log of their recording.
# 58 of them found a clock, all within 0.15 s of the true clock. Another 102 windows were compared
# with the log of another recording. One of them found a clock (score 18.8, ratio 4.9), because the
# two recordings had the same movement of the pointer. The largest score of the other 101 windows
# was 17.1, with a ratio of 1.4.
_ENOUGH = ((20.0, 2.0), (12.0, 3.0))
_MIN_INPUTS = 2  # minimum number of input times; a single time fits every change
# Lags more than 0.4 s from the best lag are rivals, because the screen reacts in less than 0.4 s.
_RIVAL_S = 0.4
_LAG_STEP_S = 0.02  # seconds between the lags of the first search
# The second search tries the lags around the best lag of the first search.
_FINE_S = 0.3  # seconds on each side
_FINE_STEP_S = 0.004  # seconds between two lags
# The result is the middle of the lags whose score is at most 3 nats below the best score. A lag
# with 3 nats less is twenty times less likely.
_PLATEAU_NATS = 3.0
# Seconds from an input to its reaction in the video. Each value is tried for all inputs together.
_ANSWERS_S = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.24)
_LAGS_AT_ONCE = 2000  # lags that are tested at once; limits the memory for hours of video

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def answered_inputs(inputs: Sequence[Input]) -> Floats:
    """Returns the times at which keys, buttons and the wheel were used, ascending epoch ms.

    Modifiers and the repetitions of a held key are left out, because most have no visible effect.
    """
    times: set[int] = set()
    held: set[str] = set()
    for item in inputs:
        if item.kind == EventType.KEYUP:
            held.discard(item.name)
        elif item.kind == EventType.KEYDOWN:
            if item.name not in held and not lookup(item.name).modifier:
                times.add(item.time)
            held.add(item.name)
        elif item.kind in BUTTON_EVENTS or item.kind == EventType.MOUSEWHEEL:
            times.add(item.time)
    return np.array(sorted(times), float)


def clock_from_inputs(  # noqa: PLR0917 - each kind of evidence is an argument
    changes: ChangeMap,
    frames: Floats,
    track: PointerPath,
    inputs: Floats,
    documented: Clock,
    scales: Sequence[float],
) -> Clock | None:
    """Returns the clock for the lag at which the inputs explain the changes in the video best.

    The search covers every lag at which the log and the video overlap. Returns None if no lag
    stands out.

    Args:
        frames: times of all frames of the video, seconds.
        inputs: the result of `answered_inputs`.
        scales: event scales to try, the most likely first. The search ends at the first scale that
            shows a clock.
    """
    if not len(changes) or len(inputs) < _MIN_INPUTS:
        return None
    votes = _InputVotes(changes, track, inputs, documented, Bins.of(changes, frames))
    reach_s = votes.farthest_s(float(frames[-1]))
    lags = np.arange(-reach_s, reach_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    answer_nats = votes.answered(lags)
    usual_nats = float(np.median(answer_nats))
    for scale in scales:
        nats = votes.moved(lags, scale) + answer_nats - usual_nats
        top = int(np.argmax(nats))
        rival = nats[np.abs(lags - lags[top]) > _RIVAL_S].max(initial=0.0)
        if any(nats[top] >= max(least, contrast * rival) for least, contrast in _ENOUGH):
            return votes.clock(float(lags[top]), scale)
    return None


@dataclass(frozen=True)
class _InputVotes:
    """Scores lags by the changes in the decoded stretches.

    Attributes:
        inputs: the result of `answered_inputs`.
        bins: the decoded stretches, divided into bins that are about one frame long.
    """

    changes: ChangeMap
    track: PointerPath
    inputs: Floats
    documented: Clock
    bins: Bins

    def farthest_s(self, video_end_s: float) -> float:
        """Returns the largest lag at which the log and the video overlap, seconds."""
        log_end_s = self.documented.video_time(float(self.inputs[-1]))
        log_begin_s = self.documented.video_time(float(self.inputs[0]))
        return max(video_end_s, abs(log_end_s), video_end_s - log_begin_s)

    def moved(self, lags: Floats, scale: float) -> Floats:
        """Returns how much better than chance each lag explains the pointer's moves, in nats.

        The result is (lags,). Lags that are worse than chance get 0, because a video may not show
        the pointer at all.
        """
        nats = np.zeros(len(lags))
        if not len(self.track.times):
            return nats
        for part in _parts(np.flatnonzero(self._is_moving(lags))):
            moves = Moves(self.changes, self.track, self.documented, lags[part])
            nats[part] = np.maximum(moves.nats(scale), 0.0)
        return nats

    def _is_moving(self, lags: Floats) -> Cells:
        """Returns for each lag whether the pointer moves at all in the decoded stretches."""
        track = self.track
        events = track.times / 1000 - self.documented.origin_ms / 1000
        frames = np.array(self.changes.times)
        is_moving = np.zeros(len(lags), bool)
        for part in _parts(np.arange(len(lags))):
            shifted_frames = frames + lags[part, None]
            newest = np.maximum(np.searchsorted(events, shifted_frames, side="right") - 1, 0)
            steps = np.hypot(np.diff(track.x[newest]), np.diff(track.y[newest]))
            is_moving[part] = (steps > MOVED_PX).any(axis=1)
        return is_moving

    def answered(self, lags: Floats) -> Floats:
        """Returns for each lag the result of `likelihood_ratios` at the best reaction time.

        The result is (lags,), in nats.
        """
        pressed = np.array([self.documented.video_time(time) for time in self.inputs.tolist()])
        parts = _parts(np.arange(len(lags)))
        return np.concatenate([self._answered(pressed, lags[part]) for part in parts])

    def _answered(self, pressed: Floats, lags: Floats) -> Floats:
        # A video that began later shows the reactions earlier, so `Bins.typed` needs negative lags,
        # in ascending order.
        later = -lags[::-1]
        best = np.zeros(len(lags))
        for answer_s in _ANSWERS_S:
            typed = self.bins.typed(pressed + answer_s, later)
            best = np.maximum(best, likelihood_ratios(typed, self.bins.changed))
        return best[::-1]

    def clock(self, lag_s: float, scale: float) -> Clock:
        """Returns the clock in the middle of the lags around `lag_s` with nearly the same score.

        The uncertainty is half the range of these lags, plus half a frame.
        """
        lags = np.arange(lag_s - _FINE_S, lag_s + _FINE_S + _FINE_STEP_S / 2, _FINE_STEP_S)
        nats = self.moved(lags, scale) + self.answered(lags)
        good = lags[nats >= nats.max() - _PLATEAU_NATS]
        middle_ms = round(float(good.min() + good.max()) / 2 * 1000, 3)
        half_s = float(np.ptp(good)) / 2 + self.bins.frame_s / 2
        return replace(
            self.documented,
            origin_ms=self.documented.origin_ms + middle_ms,
            method="inputs",
            uncertainty_ms=round(half_s * 1000, 3),
            documented_offset_ms=round(self.documented.documented_offset_ms + middle_ms, 3),
            moves=len(self.inputs),
            event_scale=scale,
        )


def _parts(numbers: _Numbers) -> Iterator[_Numbers]:
    """Divides indexes of lags into portions of `_LAGS_AT_ONCE`."""
    for first in range(0, len(numbers), _LAGS_AT_ONCE):
        yield numbers[first : first + _LAGS_AT_ONCE]
