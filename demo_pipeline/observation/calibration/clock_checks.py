"""Whether one clock holds along a recording: what parts of the video further on say.

Belongs here: which parts to look at, so that each costs little decoding, and the uncertainty that
covers what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, PointerTrack
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.video_frames import Span

WORTH_S = 10.0  # seconds of video; in fewer a clock has no time to change
PART_S = 100.0  # seconds of video for another part, so that decoding costs a few hundredths more
MAX_PARTS = 2  # parts looked at; each is decoded twice
PART_MOVES = 24  # moves between frames, twice what a lag needs to be found
LONGEST_PART_S = (
    10.0  # seconds decoded for one part; without that many moves in them it says nothing
)


@dataclass(frozen=True)
class ClockPart:
    """The clock that a part of the video shows on its own, and the part's middle in epoch ms."""

    middle_ms: float
    clock: Clock


def parts_to_check(
    video: RecordedVideo, track: PointerTrack, clock: Clock, begin: float, end: float
) -> list[Span]:
    """The parts between two video times, ascending seconds, in which the pointer moves enough.

    The time is divided evenly, and the first share left out: a video falls behind and stays so. In
    each other share the part is the key frame after which enough movement follows soonest: nothing
    is decoded that is not looked at.
    """
    if end - begin < WORTH_S:
        return []
    count = max(1, min(MAX_PARTS, round((end - begin) / PART_S)))
    moves = np.concatenate([[0], np.cumsum(_moving(video, track, clock))])
    keys = video.packets.key_pts * float(video.packets.time_base)
    edges = np.linspace(begin, end, count + 2)[1:]
    found = [
        _soonest(video, moves, keys[(keys >= first) & (keys < last)])
        for first, last in pairwise(edges.tolist())
    ]
    return [span for span in found if span is not None]


def _moving(video: RecordedVideo, track: PointerTrack, clock: Clock) -> Any:
    """(frames - 1,) whether the pointer moved from one frame to the next, by the log."""
    events = (track.times - clock.origin_ms) / 1000
    newest = np.maximum(np.searchsorted(events, video.times, side="right") - 1, 0)
    return np.hypot(np.diff(track.x[newest]), np.diff(track.y[newest])) > MOVED_PX


def _soonest(video: RecordedVideo, moves: Any, keys: Any) -> Span | None:
    """From one of the key frames until there were enough moves; the shortest such span.

    Args:
        video: of the recording.
        moves: (frames,) how many moves there were up to each frame.
        keys: times of the key frames, seconds.
    """
    starts = np.searchsorted(video.times, keys)
    ends = np.searchsorted(moves, moves[starts] + PART_MOVES) if len(starts) else starts
    spans = [
        Span(float(video.times[start]), float(video.times[end]))
        for start, end in zip(starts, ends, strict=True)
        if end < len(video.times)
    ]
    short = [span for span in spans if span.end - span.start <= LONGEST_PART_S]
    return min(short, key=lambda span: span.end - span.start, default=None)


def with_parts(clock: Clock, parts: Sequence[ClockPart]) -> Clock:
    """The clock, as uncertain as its parts differ from it.

    A start time that the recorder logged is exact: only a part that contradicts it beyond its own
    uncertainty counts.
    """
    uncertainty = clock.uncertainty_ms
    for part in parts:
        shown = part.clock.video_time(part.middle_ms) - clock.video_time(part.middle_ms)
        apart = abs(shown) * 1000
        granted = part.clock.uncertainty_ms if clock.method == "ffmpeg_start" else 0.0
        if apart > clock.uncertainty_ms + granted:
            uncertainty = max(uncertainty, round(apart, 3))
    return replace(clock, uncertainty_ms=uncertainty)
