"""The clock: which instant of the video an event belongs to, and how sure that is.

Belongs here: the clock itself, the two sources of formats note "The clock" that need no pictures,
and the map of what changed in the pictures, which the third needs (alignment.py, onsets.py). Raw
times are never rewritten; a `Clock` maps them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.video_frames import SAMPLE_STEP, Frame, Luma

# One recording a process: OpenCV's own threads cost a quarter of the CPU time and save none.
cv2.setNumThreads(1)

BLOCK = 8  # video pixels to a side of the cells in which change is noted
_CHANGED = 10
_FFMPEG_START = re.compile(r"start:\s*(\d{10,}(?:\.\d+)?)")

_LATEST_START_S = 32_503_680_000.0  # the year 3000: later numbers are no dates

META_UNCERTAINTY_MS = 2500.0  # real recorders start the video up to this long after the timestamp
FFMPEG_UNCERTAINTY_MS = 20.0

Floats = np.ndarray[Any, np.dtype[np.float64]]
Cells = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Clock:
    """video seconds = (event milliseconds - origin_ms) / 1000 * rate.

    Attributes:
        origin_ms: epoch milliseconds at which the video's time line is 0.
        method: `ffmpeg_start`, `pixels`, `click_onsets` or `meta_timestamp`.
        uncertainty_ms: half width of the interval that origin_ms lies in.
        documented_offset_ms: origin_ms - meta.timestamp.
        score: share of pointer moves that the pictures confirm; None without picture evidence.
        moves: pointer moves the score was taken over.
        event_scale: video pixels for one unit of event space, confirmed by the same evidence.
        agreement: share of the stretch's parts that find the same origin by themselves, within a
            frame; None with too few moves to tell.
        rate: video seconds in a second of the log's clock.
        drift_ppm: (rate - 1) in millionths; 0.0: looked for at the end of a long recording and not
            found; None: not looked for.
        pictures_ms: by how much the pictures' origin lies after the recorder's own; where that is
            beyond doubt, it is the uncertainty. None: only one of them is known.
    """

    origin_ms: float
    method: str
    uncertainty_ms: float
    documented_offset_ms: float = 0.0
    score: float | None = None
    moves: int = 0
    event_scale: float = 1.0
    agreement: float | None = None
    rate: float = 1.0
    drift_ppm: float | None = None
    pictures_ms: float | None = None

    def video_time(self, event_ms: float) -> float:
        """Seconds on the video's time line."""
        return (event_ms - self.origin_ms) / 1000 * self.rate

    def event_time(self, video_s: float) -> float:
        """Epoch milliseconds of an instant of the video."""
        return video_s * 1000 / self.rate + self.origin_ms


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
        luma = frame.luma
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
    side = BLOCK // SAMPLE_STEP
    rows, columns = (samples // side for samples in before.shape)
    if before.size and cv2.norm(before, after, cv2.NORM_INF) <= threshold:
        return np.zeros((rows, columns), bool)
    inside = cv2.absdiff(before, after)[: rows * side, : columns * side]
    strips = reduce(np.maximum, (inside[first::side] for first in range(side)))
    if not strips.size or strips.max() <= threshold:
        return np.zeros((rows, columns), bool)
    cells: Cells = (strips > threshold).view(f"u{side}") != 0  # a cell's samples as one number
    return cells


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
