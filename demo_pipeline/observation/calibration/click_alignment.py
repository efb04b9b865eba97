"""Evidence from clicks: the lag at which the screen first changes where and when it was clicked.

Belongs here: what is left of formats note "The clock", source b, where the video does not show the
pointer. Less exact than the pointer itself, since applications answer when they like.
"""

from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.changed_cells import BLOCK, ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerTrack

_LAG_STEP_S = 0.02
_AROUND_PX = 48.0  # video pixels; a button's pressed look begins this close to the click
_ANSWER_S = 0.25  # within this after a press most applications show that they noticed
_QUIET_S = 0.5
_MIN_PRESSES = 6
_MIN_SCORE = 0.6
_MIN_CONTRAST = 1.5
_ELSEWHERE_S = 0.5
_PLATEAU = 0.85
_LATENCY_S = 0.05  # half of what an application usually takes
UNCERTAINTY_MS = 120.0


def clock_from_clicks(
    changes: ChangeMap, presses: PointerTrack, documented: Clock, scale: float, search_s: float
) -> Clock | None:
    """The lag at which most presses are followed, and not preceded, by a change around them.

    `scale`: video pixels for one unit of event space. None when there are too few presses, or no
    lag stands out.
    """
    if not len(changes):
        return None
    frames = np.array(changes.times)
    onsets = _changes_near(changes, presses, documented, scale, search_s)
    if len(onsets) < _MIN_PRESSES:
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    score = np.mean([_answered(at, times, lags) for at, times in onsets], axis=0)
    top = int(np.argmax(score))
    elsewhere = score[np.abs(lags - lags[top]) > _ELSEWHERE_S]
    rival = float(elsewhere.max()) if len(elsewhere) else 0.0
    if score[top] < _MIN_SCORE or score[top] < _MIN_CONTRAST * rival:
        return None
    # The presses lie just before the first answers: at the plateau's smallest lag.
    plateau = lags[(score >= _PLATEAU * score[top]) & (np.abs(lags - lags[top]) <= _ANSWER_S)]
    lag = float(plateau.min()) + _LATENCY_S
    frame_ms = float(np.median(np.diff(frames))) * 1000
    return Clock(
        origin_ms=documented.origin_ms + lag * 1000,
        method="click_onsets",
        uncertainty_ms=round(UNCERTAINTY_MS + frame_ms / 2, 3),
        documented_offset_ms=round(documented.documented_offset_ms + lag * 1000, 3),
        score=round(float(score[top]), 4),
        moves=len(onsets),
        event_scale=scale,
    )


def _changes_near(
    changes: ChangeMap, presses: PointerTrack, documented: Clock, scale: float, search_s: float
) -> list[tuple[float, Floats]]:
    """(video seconds of a press by the documents, onsets of changes around it), where seen at all.

    Only presses that the stretch may hold.
    """
    times, packed = np.array(changes.times), changes.packed()
    rows, columns = changes.shape
    reach = search_s + 2 * _ANSWER_S
    found: list[tuple[float, Floats]] = []
    for time, x, y in zip(presses.times, presses.x * scale, presses.y * scale, strict=True):
        at = documented.video_time(float(time))
        first, last = np.searchsorted(times, [at - reach, at + reach])
        if last - first < 2:
            continue
        top, left = (max(0, int((value - _AROUND_PX) // BLOCK)) for value in (y, x))
        bottom = min(rows, int((y + _AROUND_PX) // BLOCK) + 1)
        right = min(columns, int((x + _AROUND_PX) // BLOCK) + 1)
        row, column = np.meshgrid(np.arange(top, bottom), np.arange(left, right), indexing="ij")
        bits: Any = (row * columns + column).ravel()
        span = packed[first : max(first, last - 1)]
        changed = ((span[:, bits >> 3] >> (7 - (bits & 7))) & 1).any(axis=1)
        found.append((at, _first_of_each(times[first + 1 : last][changed])))
    return found


def _first_of_each(times: Floats) -> Floats:
    """Changes that follow a quiet time: a pressed look and what it opens are one answer."""
    return times[np.diff(times, prepend=-np.inf) >= _QUIET_S]


def _answered(at: float, onsets: Floats, lags: Floats) -> Floats:
    """For each lag, 1.0 where an onset follows the press within the answer time."""
    pressed = at - lags
    after = np.searchsorted(onsets, pressed + _ANSWER_S, side="right")
    answered: Floats = (after > np.searchsorted(onsets, pressed, side="right")).astype(np.float64)
    return answered
