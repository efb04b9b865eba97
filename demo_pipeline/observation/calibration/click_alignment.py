"""The clock from clicks: the lag at which the screen changes where and right after it was clicked.

For videos that do not show the pointer. Less exact than the pointer itself, since applications take
different times to react.
"""

from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.changed_cells import BLOCK, ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerTrack

_LAG_STEP_S = 0.02  # seconds between the lags that are tried
_AROUND_PX = 48.0  # video pixels around a click, within which a button's pressed state shows
_REACTION_S = 0.25  # seconds after a press within which most applications show a reaction
_QUIET_S = 0.5  # seconds without a change around the click before a reaction
_MIN_PRESSES = 6  # presses; fewer are no evidence
_MIN_SCORE = 0.6  # of the presses must be followed by a reaction at the best lag
_MIN_CONTRAST = 1.5  # times the best score of lags further away
_ELSEWHERE_S = 0.5  # seconds; a lag this far from the best one is a rival
_PLATEAU = 0.85  # of the best score; the lags that reach it are equally good
_LATENCY_S = 0.05  # seconds; half of the usual reaction time
CLICK_UNCERTAINTY_MS = 120.0  # milliseconds; reaction times differ this much


def clock_from_clicks(
    changes: ChangeMap, presses: PointerTrack, documented: Clock, scale: float, search_s: float
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
    frames = np.array(changes.times)
    onsets = _changes_near(changes, presses, documented, scale, search_s)
    if len(onsets) < _MIN_PRESSES:
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    score = np.mean([_is_followed(press, times, lags) for press, times in onsets], axis=0)
    top = int(np.argmax(score))
    elsewhere = score[np.abs(lags - lags[top]) > _ELSEWHERE_S]
    rival = float(elsewhere.max()) if len(elsewhere) else 0.0
    if score[top] < _MIN_SCORE or score[top] < _MIN_CONTRAST * rival:
        return None
    # Reactions come after their presses: the smallest lag of the plateau is the right one.
    plateau = lags[(score >= _PLATEAU * score[top]) & (np.abs(lags - lags[top]) <= _REACTION_S)]
    lag = float(plateau.min()) + _LATENCY_S
    frame_ms = float(np.median(np.diff(frames))) * 1000
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
    changes: ChangeMap, presses: PointerTrack, documented: Clock, scale: float, search_s: float
) -> list[tuple[float, Floats]]:
    """(documented video time of a press, onsets of changes around it), both in seconds.

    Only for presses that the decoded stretches may contain.
    """
    times, packed = np.array(changes.times), changes.packed()
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
        onsets.append((press, _onsets(times[first + 1 : last][changed])))
    return onsets


def _onsets(times: Floats) -> Floats:
    """Changes after a quiet time: a button's pressed state and its menu are one reaction."""
    return times[np.diff(times, prepend=-np.inf) >= _QUIET_S]


def _is_followed(press: float, onsets: Floats, lags: Floats) -> Floats:
    """(lags,): 1.0 for a lag at which an onset follows the press within the reaction time."""
    pressed = press - lags
    after = np.searchsorted(onsets, pressed + _REACTION_S, side="right")
    followed: Floats = (after > np.searchsorted(onsets, pressed, side="right")).astype(np.float64)
    return followed
