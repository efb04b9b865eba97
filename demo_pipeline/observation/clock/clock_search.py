"""Searches the video for evidence of the clock, and checks the clock in later parts of the video.

The search decodes one stretch of the video after the other until the pointer, typing or other
inputs show the clock. Afterwards it decodes a few later parts of the video, and increases the
uncertainty to cover the clocks of those parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_evidence import (
    MIN_KEYS,
    clock_from_keys,
    clock_from_pointer,
    echo_lag,
)
from demo_pipeline.observation.clock.clock_votes import clock_from_inputs
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import MOVED_PX, Floats, PointerPath
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    Span,
)

WORTH_S = 10.0  # if less than 10 s of video remain, they are not checked
# One part is checked for every 30 seconds of video, because videos shift by 1 or 2 frames against
# the log in 90 s.
PART_S = 30.0
MAX_PARTS = 4  # maximum number of checked parts; small, because their frames are decoded twice
# A checked part has 24 moves between frames. If no span in its section of the video has enough
# moves, the part has at least 24 typed keys. Both are twice the minimum for finding a lag.
PART_MOVES = 24
PART_KEYS = 24
# Smallest and largest number of seconds from a key to its character if the clock is right.
# Measured: 0.00 to 0.04 in most programs, 0.06 in the simulator. Slower programs, with 0.11 and
# 0.12, make the clock look less certain than it is.
ECHO_S = (-0.015, 0.065)
# Minimum time from a chosen frame to its press, milliseconds.
MIN_LEAD_MS = 50
LONGEST_PART_S = 10.0  # seconds of video decoded for a part with typing
# Maximum number of frames decoded for a part with moves: ten seconds at 30 frames a second. The
# limit is not in seconds, because ten seconds at 8 frames a second hold only 19 moves.
LONGEST_PART_FRAMES = 300

STRETCH_S = 10.0  # seconds of video in a stretch
# The busiest stretch starts within 20 s after the first movement, and within the first sixth of the
# video after this movement. The limits are low, because the clock is unchecked before the stretch.
BUSY_S = 20.0
BUSY_SHARE = 1 / 6
# Minimum number of moves between the frames of the busiest stretch; three times the minimum for
# finding a lag.
BUSY_MOVES = 36
MAX_OFFSET_S = 3.5  # seconds searched around meta.timestamp; recorders are off by 0.5 to 2.5
MAX_STRETCHES = 32  # the search gives up after 32 stretches, even in a long video
MIN_STRETCHES = 6  # the search does not give up before 6 stretches, even in a short video
# Maximum share of the video that the search decodes. A search that finds no evidence must not
# double the time of decoding.
MAX_SHARE = 0.3
MIN_MOVES = 12  # pointer events; a stretch with fewer is not worth decoding
MIN_ANSWERED = 4  # inputs with possible effects; a stretch with fewer is not worth decoding
# Recordings of keyboard work need more video: `_keyboard_work` and `answered_clock` each decode at
# most 20 % of the video in addition.
MORE_SHARE = 0.2
DRIFT_AFTER_S = 300.0  # seconds; in a shorter time, no clock drifts by a frame
MAX_DRIFT_S = 1.5  # maximum drift that is searched for in later parts of the video, seconds
_NEXT_FRAME_S = 1e-6  # seconds that are added to a frame's time to find the frame after it


class ClockPart(NamedTuple):
    """The clock that was measured in one part of the video.

    Attributes:
        middle_ms: event time in the middle of the part, epoch milliseconds.
        clock: the clock that fits this part.
    """

    middle_ms: float
    clock: Clock


@dataclass(frozen=True)
class ClockSearch:
    """Decodes stretches of the video and searches them for evidence of the clock.

    Attributes:
        keys: press times from `typed_keys`, epoch milliseconds.
    """

    video: RecordedVideo
    track: PointerPath
    keys: Floats

    def _decode(self, changes: ChangeMap, batches: Iterable[Sequence[Span]]) -> Iterator[None]:
        """Decodes batches of stretches into `changes`, and yields after each batch.

        The caller may stop after any batch. The video is opened once and read forwards for all
        batches, because in a video with a single key frame every seek decodes from the beginning.
        """
        batches = list(batches)
        stretches: list[Span] = []
        for batch in batches:
            stretches += batch
        frames = self.video.frames(stretches)
        ahead: Frame | None = None
        last: Frame | None = None
        for batch in batches:
            end = batch[-1].end + TIME_TOLERANCE_S
            last_time = self.video.times[np.searchsorted(self.video.times, end) - 1]
            if last is not None and last.time >= batch[0].start - TIME_TOLERANCE_S:
                changes.add(last)  # the two batches share this frame
            while last is None or last.time < last_time:
                ahead = ahead or next(frames, None)
                if ahead is None or ahead.time > end:
                    break
                last = ahead
                ahead = None
                changes.add(last)
            yield

    def pointer_clock(
        self, documented: Clock, logged: Clock | None, scales: Sequence[float]
    ) -> tuple[Clock | None, ChangeMap]:
        """Returns the clock estimated from the pointer, and the changes in the decoded video.

        The busiest stretch (`_busiest`) is searched first, then the stretches from the first
        movement on. If `logged` is given, only one batch is decoded.

        Args:
            logged: the clock from the start time that ffmpeg printed, or None if it is not logged.
            scales: event scales to try, the most likely first.

        Returns:
            The clock, or None without enough evidence; and the changed cells in the stretches that
            the last search decoded.
        """
        batches = self._stretches(documented, self.track.times, MIN_MOVES)
        if logged is None and np.count_nonzero(self._moving(documented)) < MIN_MOVES:
            batches = self._keyboard_work(documented)
        for search in (self._busiest(documented), batches):
            changes = ChangeMap()
            for _ in self._decode(changes, search):
                reference = logged or documented
                clock = clock_from_pointer(changes, self.track, reference, scales, MAX_OFFSET_S)
                if clock is not None or logged is not None:
                    return clock, changes
        return None, changes

    def _keyboard_work(self, documented: Clock) -> Iterator[list[Span]]:
        """Yields a single, longer stretch from the first movement on, for a video with few moves.

        Decoding one long stretch is cheaper than several seeks, because in a video with a single
        key frame every seek decodes from the beginning.
        """
        times = self.video.times
        begin = self._begin(documented, self.track.times)
        more_s = min(STRETCH_S, MORE_SHARE * float(times[-1] - times[0]))
        second = float(times[min(int(np.searchsorted(times, begin)) + 1, len(times) - 1)])
        end = max(begin + STRETCH_S + more_s, second)
        yield [Span(begin, min(float(times[-1]), end))]

    def _busiest(self, documented: Clock) -> Iterator[list[Span]]:
        """Yields the busiest stretch (the one with the most moves) near the first movement.

        Yields nothing if this stretch has fewer than `BUSY_MOVES` moves or is the first stretch.
        Measured on 42 videos: a stretch was yielded for 8, and the clock was found in all 8.
        """
        times = self.video.times
        keys = self._key_frames
        begin = self._begin(documented, self.track.times)
        until = begin + min(BUSY_S, BUSY_SHARE * (times[-1] - begin))
        near = (keys > begin) & (keys <= until)
        starts = np.array([begin, *keys[near]])
        moves = np.concatenate([[0], np.cumsum(self._moving(documented))])
        ends = np.minimum(np.searchsorted(times, starts + STRETCH_S), len(times) - 1)
        moved = moves[ends] - moves[np.searchsorted(times, starts)]
        start = float(starts[np.argmax(moved)])
        if moved.max() >= BUSY_MOVES and start > begin:
            yield [Span(start, start + STRETCH_S)]

    def typed_clock(self, changes: ChangeMap, documented: Clock) -> Clock | None:
        """Returns the clock estimated from typing, or None if there is too little evidence.

        Searches `changes` first. Then decodes later stretches and adds their changes to `changes`.
        """
        end = changes.times[-1] if changes.times else None
        frames = self.video.times
        batches = self._stretches(documented, self.keys, MIN_KEYS, end)
        for _ in chain([None], self._decode(changes, batches)):
            clock = clock_from_keys(changes, frames, self.keys, documented, MAX_OFFSET_S)
            if clock is not None:
                return clock
        return None

    def answered_clock(
        self, changes: ChangeMap, documented: Clock, answered: Floats, scales: Sequence[float]
    ) -> Clock | None:
        """Returns the clock estimated from all inputs together, or None without enough evidence.

        Searches `changes` first. Then decodes a few later stretches and adds their changes to
        `changes`. `answered` is the result of `answered_inputs`.
        """
        frames = self.video.times
        max_stretches = int(MORE_SHARE * (frames[-1] - frames[0]) / STRETCH_S)
        end = changes.times[-1] if changes.times else None
        batches: Iterable[list[Span]] = ()
        if max_stretches:
            batches = self._stretches(documented, answered, MIN_ANSWERED, end, max_stretches)
        for _ in chain([None], self._decode(changes, batches)):
            clock = clock_from_inputs(changes, frames, self.track, answered, documented, scales)
            if clock is not None:
                return clock
        return None

    def _stretches(
        self,
        documented: Clock,
        events: Floats,
        min_events: int,
        after: float | None = None,
        max_stretches: int | None = None,
    ) -> Iterator[list[Span]]:
        """Yields batches of stretches that may hold evidence: 1 stretch, then 1, 2, 4, 8 and 16.

        Each stretch holds at least two frames.

        Args:
            events: times of the inputs that are the evidence, epoch milliseconds.
            min_events: stretches with fewer of these events are left out. Without `after`, the
                first stretch is yielded in any case.
            after: stretches start at or after this video time, seconds; by default near the first
                event.
            max_stretches: maximum number of stretches; by default, the limit depends on the length
                of the video.
        """
        times = self.video.times
        first = float(times[0])
        last = float(times[-1])
        event_times = np.array([documented.video_time(time) for time in events])
        begin = self._begin(documented, events)
        begin = begin if after is None else max(begin, after)
        # An explicit limit is never exceeded. The limit that depends on the length of the video is
        # checked only after whole batches.
        hard_limit = inf if max_stretches is None else max_stretches
        if max_stretches is None:
            allowed = int(MAX_SHARE * (last - first) / STRETCH_S)
            max_stretches = min(MAX_STRETCHES, max(MIN_STRETCHES, allowed))
        batch: list[Span] = []
        yielded = 0
        size = 1
        for start in np.arange(begin, max(last, begin + _NEXT_FRAME_S), STRETCH_S).tolist():
            reach = [start - MAX_OFFSET_S, start + STRETCH_S + MAX_OFFSET_S]
            first_event, end_event = np.searchsorted(event_times, reach)
            if (yielded or after is not None) and end_event - first_event < min_events:
                continue
            position = int(np.searchsorted(times, start + _NEXT_FRAME_S)) + 1
            second = float(times[min(position, len(times) - 1)])
            batch.append(Span(start, min(last, max(start + STRETCH_S, second))))
            if len(batch) == min(size, hard_limit - yielded):
                yield batch
                yielded += len(batch)
                size = yielded
                batch = []
                if yielded >= max_stretches:
                    return
        if batch:
            yield batch

    def _begin(self, documented: Clock, events: Floats) -> float:
        """Returns the video time at which a search for events starts, seconds.

        This is the last key frame at or before the earliest video time that the first event can
        have, or at or before the start of the last `STRETCH_S` of the video if they begin earlier.
        """
        first = float(self.video.times[0])
        last = float(self.video.times[-1])
        begin = documented.video_time(events[0]) - MAX_OFFSET_S if len(events) else first
        return self._key_frame_before(min(max(first, begin), max(first, last - STRETCH_S)))

    def _part(self, clock: Clock, span: Span, changes: ChangeMap) -> ClockPart | None:
        """Returns the clock estimated from one part of the video, within `MAX_DRIFT_S` of `clock`.

        Returns None if there is too little evidence, or if the only evidence is typing that agrees
        with `clock`.
        """
        middle_ms = clock.event_time((span.start + span.end) / 2)
        scales = [clock.event_scale]
        own_clock = clock_from_pointer(changes, self.track, clock, scales, MAX_DRIFT_S)
        if own_clock is not None:
            return ClockPart(middle_ms, own_clock)
        pressed = np.array([clock.video_time(time) for time in self.keys])
        echo = echo_lag(changes, self.video.times, pressed, MAX_DRIFT_S)
        if echo is None or ECHO_S[0] <= echo.lag_s <= ECHO_S[1]:
            return None
        # Programs show a character 0 to 0.065 s after its key (`ECHO_S`), so a range of clocks
        # fits. The clock that differs most from `clock` is used.
        off_s = echo.lag_s if echo.lag_s > 0 else echo.lag_s - ECHO_S[1]
        origin_ms = clock.origin_ms - off_s * 1000
        return ClockPart(middle_ms, replace(clock, origin_ms=origin_ms, uncertainty_ms=0))

    def parts(self, clock: Clock, decoded: ChangeMap) -> list[ClockPart]:
        """Returns the clocks estimated from the decoded video and from later parts of the video."""
        later = self._later_changes(clock, decoded.times[-1])
        parts: list[ClockPart] = []
        for span, changes in chain(_stretches_of(decoded), later):
            part = self._part(clock, span, changes)
            if part is not None:
                parts.append(part)
        return parts

    def _later_changes(self, clock: Clock, begin: float) -> Iterator[tuple[Span, ChangeMap]]:
        """Yields the parts to check after video time `begin`, each with its changed cells."""
        for span in self.parts_to_check(clock, begin, float(self.video.times[-1])):
            changes = ChangeMap()
            for _ in self._decode(changes, [[span]]):
                yield span, changes

    @property
    def _key_frames(self) -> Floats:
        return np.asarray(self.video.packets.key_pts * float(self.video.packets.time_base), float)

    def _key_frame_before(self, time: float) -> float:
        """Returns the time of the last key frame at or before `time`, or of the first frame."""
        keys = self._key_frames
        position = int(np.searchsorted(keys, time + TIME_TOLERANCE_S, side="right"))
        return float(keys[position - 1]) if position else float(self.video.times[0])

    def parts_to_check(self, clock: Clock, begin: float, end: float) -> list[Span]:
        """Returns the parts between two video times that are worth checking for a changed clock.

        The time between them is divided into equal sections. The first section is left out, because
        a clock that changed there is also wrong in later sections. Each later section yields at
        most one part: the shortest span that starts at a key frame and has enough moves. If no span
        has enough moves, the part is the span with the most typed keys.
        """
        if end - begin < WORTH_S:
            return []
        count = max(1, min(MAX_PARTS, round((end - begin) / PART_S)))
        moves = np.concatenate([[0], np.cumsum(self._moving(clock))])
        typed = np.searchsorted((self.keys - clock.origin_ms) / 1000, self.video.times)
        edges = np.linspace(begin, end, count + 2)[1:]
        parts: list[Span] = []
        for share_begin, share_end in pairwise(edges.tolist()):
            begin_s = max(share_begin, parts[-1].end) if parts else share_begin
            is_inside = (self._key_frames >= begin_s) & (self._key_frames < share_end)
            key_frames = self._key_frames[is_inside]
            part = self._soonest(moves, key_frames) or self._most_typing(typed, key_frames)
            if part is not None:
                parts.append(part)
        return parts

    def _moving(self, clock: Clock) -> Any:
        """Returns whether the pointer moves between each frame and the next, according to the log.

        The result is (frames - 1,).
        """
        track = self.track
        frames = self.video.times
        if not len(track.times):
            return np.zeros(len(frames) - 1, bool)
        events = (track.times - clock.origin_ms) / 1000
        newest = np.maximum(np.searchsorted(events, frames, side="right") - 1, 0)
        return np.hypot(np.diff(track.x[newest]), np.diff(track.y[newest])) > MOVED_PX

    def _soonest(self, moves: Any, key_frames: Floats) -> Span | None:
        """Returns the shortest span that starts at a key frame and contains `PART_MOVES` moves.

        Returns None if every such span has more than `LONGEST_PART_FRAMES` frames.

        Args:
            moves: (frames,) number of moves from the beginning of the video to each frame.
            key_frames: times of the key frames to choose from, seconds.
        """
        times = self.video.times
        starts = np.searchsorted(times, key_frames)
        ends = np.searchsorted(moves, moves[starts] + PART_MOVES) if len(starts) else starts
        spans = [
            Span(float(times[start]), float(times[end]))
            for start, end in zip(starts, ends, strict=True)
            if end < len(times) and end - start <= LONGEST_PART_FRAMES
        ]
        return min(spans, key=lambda span: span.end - span.start, default=None)

    def _most_typing(self, typed: Any, key_frames: Floats) -> Span | None:
        """Returns the span of 10 s that starts at a key frame and contains the most keys.

        Returns None if no such span contains `PART_KEYS` keys.

        Args:
            typed: (frames,) number of keys from the beginning of the log to each frame.
            key_frames: times of the key frames to choose from, seconds.
        """
        times = self.video.times
        starts = np.searchsorted(times, key_frames)
        ends = np.searchsorted(times, key_frames + LONGEST_PART_S, side="right") - 1
        counts = typed[ends] - typed[starts]
        if not len(counts) or counts.max() < PART_KEYS:
            return None
        best = int(np.argmax(counts))
        return Span(float(times[starts[best]]), float(times[ends[best]]))


def _stretches_of(changes: ChangeMap) -> Iterator[tuple[Span, ChangeMap]]:
    """Divides the decoded video into stretches, and yields each with its changed cells."""
    times = np.array(changes.times)
    number = (times[1:] - times[0]) // STRETCH_S
    for position, start in enumerate(np.arange(times[0], times[-1], STRETCH_S).tolist()):
        yield Span(start, start + STRETCH_S), changes.only(number == position)


def drift_corrected(clock: Clock, middle_s: float, parts: Sequence[ClockPart]) -> Clock:
    """Returns the clock corrected for its drift from `middle_s` to the last of `parts`.

    The clock is returned unchanged if this time is shorter than `DRIFT_AFTER_S`, or if `clock` and
    the clock of the last part differ by no more than the sum of their uncertainties.

    Args:
        clock: the clock that was measured in one stretch of the video.
        middle_s: the middle of this stretch, video seconds.
        parts: the clocks of parts of the video, in time order.
    """
    if not parts:
        return clock
    early_ms = clock.event_time(middle_s)
    late_ms, late = parts[-1]
    if late_ms - early_ms < DRIFT_AFTER_S * 1000:
        return clock
    difference = late.origin_ms - clock.origin_ms
    if abs(difference) <= clock.uncertainty_ms + late.uncertainty_ms:
        return clock
    seconds = (late_ms - early_ms) / 1000
    rate = (late.video_time(late_ms) - clock.video_time(early_ms)) / seconds
    origin = early_ms - clock.video_time(early_ms) * 1000 / rate
    return replace(
        clock,
        origin_ms=origin,
        documented_offset_ms=clock.documented_offset_ms + origin - clock.origin_ms,
        uncertainty_ms=max(clock.uncertainty_ms, late.uncertainty_ms),
        rate=rate,
    )


def with_parts(clock: Clock, parts: Sequence[ClockPart]) -> Clock:
    """Returns the clock with an uncertainty that covers the clocks of the parts of the video.

    A part is ignored if its clock differs from `clock` by no more than a tolerance. If ffmpeg
    printed the start time, the tolerance is the sum of both uncertainties. Otherwise it is the
    uncertainty of `clock`, but at least the smaller of the part's uncertainty and `MIN_LEAD_MS`.
    """
    uncertainty_ms = clock.uncertainty_ms
    unshifted = replace(clock, shifts=())
    for part in parts:
        part_s = part.clock.video_time(part.middle_ms)
        difference_ms = abs(part_s - unshifted.video_time(part.middle_ms)) * 1000
        if clock.method == "ffmpeg_start":
            tolerance_ms = clock.uncertainty_ms + part.clock.uncertainty_ms
        else:
            tolerance_ms = max(clock.uncertainty_ms, min(part.clock.uncertainty_ms, MIN_LEAD_MS))
        if difference_ms > tolerance_ms:
            uncertainty_ms = max(uncertainty_ms, round(difference_ms, 3))
    return replace(clock, uncertainty_ms=uncertainty_ms)
