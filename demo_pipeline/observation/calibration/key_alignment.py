"""The clock from typing: the lag at which keys that were pressed explain where text changes.

For videos that do not show the pointer, and for parts in which it rests. A character appears a
little after its key, by as much as the program takes to show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.changed_cells import Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.recording.key_names import lookup

TYPED = "typing"  # method of a clock
MIN_KEYS = 12  # keys; fewer are no evidence
_LAG_STEP_S = 0.01  # seconds between the lags that are tried
_BAND = 3  # rows of cells in a band of the picture; a line of text has about as many
_RESTLESS = 0.3  # of the time; a band that changes more often does so by itself
# Nine films of typing, whole and in windows of 20 and 10 seconds: the lag of their own keys was
# found in 10 of 11, 37 of 45 and 55 of 89, always rightly; one of other or reversed keys in 0 of
# 361, 0 of 1,464 and 9 of 2,607.
_MIN_NATS = 14.0  # log-likelihood ratio of the best lag above that of an average one
_CONTRAST = 2.5  # times the best ratio of lags further away: bursts of typing are alike
_SHARP = 2.0  # times the ratio of the lags beside it: a burst also fits when it is a little off
_RIVAL_S, _BESIDE_S = 0.35, (0.12, 0.3)  # seconds from the best lag
_MIN_ANSWERED = 0.4  # of the keys
# Seconds from a key to its character in the picture: 0.00 to 0.04 in a terminal, an editor and a
# chat, 0.11 in another editor on a busy machine, 0.12 on a page that waits 0.09 seconds.
_ECHO_S, _SLOW_ECHO_S = 0.03, 0.1
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


@dataclass(frozen=True)
class EchoLag:
    """How long after the keys, by a clock, their characters appear.

    Attributes:
        seconds: the lag.
        keys: number of keys in the pictures that were looked at.
        frame_s: distance of two frames.
    """

    seconds: float
    keys: int
    frame_s: float


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
    lag_ms = (_ECHO_S - found.seconds) * 1000
    uncertainty_s = _SLOW_ECHO_S - _ECHO_S + found.frame_s / 2
    return Clock(
        origin_ms=documented.origin_ms + lag_ms,
        method=TYPED,
        uncertainty_ms=round(uncertainty_s * 1000, 3),
        documented_offset_ms=round(documented.documented_offset_ms + lag_ms, 3),
        moves=found.keys,
    )


def echo_lag(
    changes: ChangeMap, frames: Floats, pressed: Floats, search_s: float
) -> EchoLag | None:
    """The lag at which changes in the picture depend most on the keys; None when none stands out.

    `pressed`: when keys were pressed, video seconds; the others as in `clock_from_keys`.
    """
    if not len(changes) or len(pressed) < MIN_KEYS:
        return None
    lags = np.arange(-search_s, search_s + _LAG_STEP_S / 2, _LAG_STEP_S)
    bins = _Bins.of(changes, frames)
    typed = bins.typed(pressed, lags)
    nats = _ratios(typed, bins.changed)
    nats -= np.median(nats)
    top = int(np.argmax(nats))
    keys, answered = int(typed[top].sum()), int((typed[top] & bins.changed).sum())
    if keys < MIN_KEYS or answered < _MIN_ANSWERED * keys or not _stands_out(lags, nats, top):
        return None
    return EchoLag(float(lags[top]), keys, bins.frame_s)


def _stands_out(lags: Floats, nats: Floats, top: int) -> bool:
    """Whether a lag is far better than an average one, those beside it and any further away."""
    off = np.abs(lags - lags[top])
    beside = nats[(off > _BESIDE_S[0]) & (off < _BESIDE_S[1])]
    rival = nats[off > _RIVAL_S].max(initial=0.0)
    return bool(nats[top] >= max(_MIN_NATS, _SHARP * np.median(beside), _CONTRAST * rival))


@dataclass(frozen=True)
class _Bins:
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
    def of(cls, changes: ChangeMap, frames: Floats) -> "_Bins":
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
        shown = pressed[None] + lags[:, None]
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


def _ratios(typed: Cells, changed: Cells) -> Floats:
    """(lags,): log-likelihood ratio of "a key makes a change likelier" to "it makes none".

    It grows with the number of keys and with how well they tell the changes.
    """
    count, changing = float(len(changed)), float(changed.sum())
    keys, both = typed.sum(axis=1).astype(float), typed[:, changed].sum(axis=1).astype(float)
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
