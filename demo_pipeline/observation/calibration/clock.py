"""The clock: which instant of the video an event belongs to, and how sure that is.

Belongs here: the clock itself, the two sources of formats note "The clock" that need no pictures,
and the map of what changed in the pictures, which the third needs (alignment.py, onsets.py). Raw
times are never rewritten; a `Clock` maps them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_FFMPEG_START = re.compile(r"start:\s*(\d{10,}(?:\.\d+)?)")

_LATEST_START_S = 32_503_680_000.0  # the year 3000: later numbers are no dates

META_UNCERTAINTY_MS = 2500.0  # real recorders start the video up to this long after the timestamp
FFMPEG_UNCERTAINTY_MS = 20.0


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
