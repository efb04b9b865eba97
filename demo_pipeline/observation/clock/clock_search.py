"""The search for the clock, and whether one clock holds along a recording.

Belongs here: going from stretch to stretch until the pointer or typing shows the clock, which later
parts tell whether it holds, and the uncertainty that covers what they say.
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

WORTH_S = 10.0  # seconds of video; in fewer a clock has no time to change
PART_S = 30.0  # seconds of video for another part: films slip by a frame, once or twice in 90 s
MAX_PARTS = 4  # parts looked at; their frames are decoded once more
PART_MOVES = 24  # moves between frames, twice what a lag needs to be found
PART_KEYS = 24  # keys, likewise
# Seconds from a key to its character when the clock is right: 0.00 to 0.04 in most programs, 0.06
# in the simulator. A slower program (0.11, 0.12) makes the clock look less certain than it is.
ECHO_S = (-0.015, 0.065)
MIN_LEAD_MS = 50  # from a frame to its press, at least; an unsure part may differ by as much
LONGEST_PART_S = 10.0  # seconds decoded for a part with typing
# Frames decoded for a part with moves: ten seconds at 30 a second; ten seconds at 8 hold 19 moves.
# Without enough moves in them a part says nothing.
LONGEST_PART_FRAMES = 300

STRETCH_S = 10.0  # seconds of video that are looked at together
# Seconds, and share of the video, after the first movement: what is before is not checked.
BUSY_S = 20.0
BUSY_SHARE = 1 / 6
BUSY_MOVES = 36  # moves between frames in a stretch, three times what a lag needs to be found
MAX_OFFSET_S = 3.5  # seconds searched around meta.timestamp; recorders: 0.5 to 2.5
MAX_STRETCHES = 32  # with too little pointer movement in these, the documented clock is used
MIN_STRETCHES = 6  # before giving up, however short the video is
MAX_SHARE = 0.3  # of the video; a search for missing evidence must not double the decoding
MIN_MOVES = 12  # pointer events; a stretch with fewer is not worth decoding
MIN_ANSWERED = 4  # inputs that the video may answer, likewise
MORE_SHARE = 0.2  # of the video, decoded for these inputs after the other searches
DRIFT_AFTER_S = 300.0  # seconds between two parts; in fewer a clock does not drift by a frame
MAX_DRIFT_S = 1.5  # seconds by which the clocks may have moved apart at the end
_NEXT_FRAME_S = 1e-6  # seconds; less than the distance of two frames


class ClockPart(NamedTuple):
    """The clock that a part of the video shows on its own, and the part's middle in epoch ms."""

    middle_ms: float
    clock: Clock


@dataclass(frozen=True)
class ClockSearch:
    """The search for the clock in stretches of video.

    Attributes:
        video: of the recording.
        track: the pointer's positions in the log.
        keys: when keys were pressed that type, epoch milliseconds.
    """

    video: RecordedVideo
    track: PointerPath
    keys: Floats

    def _look(self, changes: ChangeMap, batches: Iterable[Sequence[Span]]) -> Iterator[None]:
        """Decode one batch of stretches after the other, and add what changes in each.

        The video is read on from one to the next: some films have a single key frame.
        """
        batches = list(batches)
        frames = self.video.frames([stretch for batch in batches for stretch in batch])
        ahead: Frame | None = None
        last: Frame | None = None
        for batch in batches:
            end = batch[-1].end + TIME_TOLERANCE_S
            until = self.video.times[np.searchsorted(self.video.times, end) - 1]
            if last is not None and last.time >= batch[0].start - TIME_TOLERANCE_S:
                changes.add(last)  # what is before the first frame of a batch is not compared
            while (ahead := ahead or next(frames, None)) and ahead.time <= end:
                last = ahead
                ahead = None
                changes.add(last)
                if last.time >= until:
                    break
            yield

    def pointer_clock(
        self, documented: Clock, logged: Clock | None, scales: Sequence[float]
    ) -> tuple[Clock | None, ChangeMap]:
        """The clock that the pointer's movements show, None when they show none, and in what.

        A stretch in which the pointer moves much is mostly enough; else the video is looked at from
        the first movement on. With a logged start one stretch is enough.
        """
        batches = self._stretches(documented, self.track.times, MIN_MOVES)
        if logged is None and np.count_nonzero(self._moving(documented)) < MIN_MOVES:
            batches = self._keyboard_work(documented)
        for tried in (self._busiest(documented), batches):
            changes = ChangeMap()
            for _ in self._look(changes, tried):
                reference = logged or documented
                found = clock_from_pointer(changes, self.track, reference, scales, MAX_OFFSET_S)
                if found is not None or logged is not None:
                    return found, changes
        return None, changes

    def _keyboard_work(self, documented: Clock) -> Iterator[list[Span]]:
        """One stretch from the first movement on, longer than usual: all inputs have to vote.

        It is read on here, because some videos have a single key frame.
        """
        times = self.video.times
        begin = self._begin(documented, self.track.times)
        more_s = min(STRETCH_S, MORE_SHARE * float(times[-1] - times[0]))
        second = float(times[min(int(np.searchsorted(times, begin)) + 1, len(times) - 1)])
        end = max(begin + STRETCH_S + more_s, second)
        yield [Span(begin, min(float(times[-1]), end))]

    def _busiest(self, documented: Clock) -> Iterator[list[Span]]:
        """The stretch near the first movement in which the pointer moves most, if that is much.

        Of 42 films 8 have such a one, and all of these show their clock in it.
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
        """The clock that typing shows, in what was looked at and in what follows it."""
        end = changes.times[-1] if changes.times else None
        frames = self.video.times
        batches = self._stretches(documented, self.keys, MIN_KEYS, end)
        for _ in chain([None], self._look(changes, batches)):
            found = clock_from_keys(changes, frames, self.keys, documented, MAX_OFFSET_S)
            if found is not None:
                return found
        return None

    def answered_clock(
        self, changes: ChangeMap, documented: Clock, answered: Floats, scales: Sequence[float]
    ) -> Clock | None:
        """The clock that all inputs show, in what was looked at and in a little that follows it.

        `answered`: as of `clock_from_inputs`.
        """
        frames = self.video.times
        most = int(MORE_SHARE * (frames[-1] - frames[0]) / STRETCH_S)
        end = changes.times[-1] if changes.times else None
        batches: Iterable[list[Span]] = ()
        if most:
            batches = self._stretches(documented, answered, MIN_ANSWERED, end, most)
        for _ in chain([None], self._look(changes, batches)):
            found = clock_from_inputs(changes, frames, self.track, answered, documented, scales)
            if found is not None:
                return found
        return None

    def _stretches(
        self,
        documented: Clock,
        events: Floats,
        least: int,
        after: float | None = None,
        most: int | None = None,
    ) -> Iterator[list[Span]]:
        """Stretches in which something may show: one, one more, then 2, 4, 8 and 16 more.

        A stretch holds at least two frames, so that there is something to compare. `least` of the
        `events` (epoch milliseconds) make one worth decoding, except for the first of the video.
        All lie after the video time `after`; None: from the first event on. There are `most` at
        most; None: a share of the video that other searches may decode.
        """
        times = self.video.times
        first = float(times[0])
        last = float(times[-1])
        moved = np.array([documented.video_time(time) for time in events])
        begin = self._begin(documented, events)
        begin = begin if after is None else max(begin, after)
        strictly_most = inf if most is None else most
        if most is None:
            allowed = int(MAX_SHARE * (last - first) / STRETCH_S)
            most = min(MAX_STRETCHES, max(MIN_STRETCHES, allowed))
        batch: list[Span] = []
        yielded = 0
        size = 1
        for start in np.arange(begin, max(last, begin + _NEXT_FRAME_S), STRETCH_S).tolist():
            reach = [start - MAX_OFFSET_S, start + STRETCH_S + MAX_OFFSET_S]
            from_move, to_move = np.searchsorted(moved, reach)
            if (yielded or after is not None) and to_move - from_move < least:
                continue
            position = int(np.searchsorted(times, start + _NEXT_FRAME_S)) + 1
            second = float(times[min(position, len(times) - 1)])
            batch.append(Span(start, min(last, max(start + STRETCH_S, second))))
            if len(batch) == min(size, strictly_most - yielded):
                yield batch
                yielded += len(batch)
                size = yielded
                batch = []
                if yielded >= most:
                    return
        if batch:
            yield batch

    def _begin(self, documented: Clock, events: Floats) -> float:
        """The key frame before the first of the events, as early as it may be; video seconds."""
        first = float(self.video.times[0])
        last = float(self.video.times[-1])
        begin = documented.video_time(events[0]) - MAX_OFFSET_S if len(events) else first
        return self._key_frame_before(min(max(first, begin), max(first, last - STRETCH_S)))

    def _part(self, clock: Clock, span: Span, changes: ChangeMap) -> ClockPart | None:
        """The clock that the changes in a span show, not far from `clock`; None: they show none."""
        middle = (span.start + span.end) / 2
        found = clock_from_pointer(changes, self.track, clock, [clock.event_scale], MAX_DRIFT_S)
        if found is None:
            pressed = np.array([clock.video_time(time) for time in self.keys])
            lag_s, *_ = echo_lag(changes, self.video.times, pressed, MAX_DRIFT_S) or (ECHO_S[0],)
            if ECHO_S[0] <= lag_s <= ECHO_S[1]:
                return None
            # Of the clocks that typing allows, the one that is furthest off.
            off_s = lag_s if lag_s > 0 else lag_s - ECHO_S[1]
            found = replace(clock, origin_ms=clock.origin_ms - off_s * 1000, uncertainty_ms=0)
        return ClockPart(clock.event_time(middle), found)

    def parts(self, clock: Clock, seen: ChangeMap) -> list[ClockPart]:
        """The clocks that the stretches in `seen`, and parts of the video after them, show each."""
        looked = chain(_stretches_of(seen), self._later_changes(clock, seen.times[-1]))
        found = (self._part(clock, span, changes) for span, changes in looked)
        return [part for part in found if part is not None]

    def _later_changes(self, clock: Clock, begin: float) -> Iterator[tuple[Span, ChangeMap]]:
        """Parts of the video after a video time, and what changes in each."""
        for span in self.parts_to_check(clock, begin, float(self.video.times[-1])):
            changes = ChangeMap()
            for _ in self._look(changes, [[span]]):
                yield span, changes

    @property
    def _key_frames(self) -> Floats:
        return np.asarray(self.video.packets.key_pts * float(self.video.packets.time_base), float)

    def _key_frame_before(self, time: float) -> float:
        """The last key frame no later than `time`, seconds; the first frame when there is none."""
        keys = self._key_frames
        position = int(np.searchsorted(keys, time + TIME_TOLERANCE_S, side="right"))
        return float(keys[position - 1]) if position else float(self.video.times[0])

    def parts_to_check(self, clock: Clock, begin: float, end: float) -> list[Span]:
        """The parts between two video times, ascending seconds, in which the person does enough.

        The time is divided evenly, and the first share left out: a video falls behind and stays so.
        In each other share the part is the key frame after which enough movement follows soonest,
        or where the pointer rests enough typing: nothing is decoded that is not looked at.
        """
        if end - begin < WORTH_S:
            return []
        count = max(1, min(MAX_PARTS, round((end - begin) / PART_S)))
        moves = np.concatenate([[0], np.cumsum(self._moving(clock))])
        typed = np.searchsorted((self.keys - clock.origin_ms) / 1000, self.video.times)
        edges = np.linspace(begin, end, count + 2)[1:]
        found: list[Span] = []
        for first, last in pairwise(edges.tolist()):
            free = max(first, found[-1].end) if found else first
            share = self._key_frames[(self._key_frames >= free) & (self._key_frames < last)]
            part = self._soonest(moves, share) or self._most_typing(typed, share)
            found += [part] if part is not None else []
        return found

    def _moving(self, clock: Clock) -> Any:
        """(frames - 1,) whether the pointer moved from one frame to the next, by the log."""
        track = self.track
        frames = self.video.times
        if not len(track.times):
            return np.zeros(len(frames) - 1, bool)
        events = (track.times - clock.origin_ms) / 1000
        newest = np.maximum(np.searchsorted(events, frames, side="right") - 1, 0)
        return np.hypot(np.diff(track.x[newest]), np.diff(track.y[newest])) > MOVED_PX

    def _soonest(self, moves: Any, keys: Floats) -> Span | None:
        """From one of the key frames until there were enough moves; the shortest such span.

        `moves`: (frames,) how many there were up to each frame. `keys`: the key frames, seconds.
        """
        times = self.video.times
        starts = np.searchsorted(times, keys)
        ends = np.searchsorted(moves, moves[starts] + PART_MOVES) if len(starts) else starts
        spans = [
            Span(float(times[start]), float(times[end]))
            for start, end in zip(starts, ends, strict=True)
            if end < len(times) and end - start <= LONGEST_PART_FRAMES
        ]
        return min(spans, key=lambda span: span.end - span.start, default=None)

    def _most_typing(self, typed: Any, keys: Floats) -> Span | None:
        """From one of the key frames as long as a part may be, where most is typed, if enough.

        `typed`: (frames,) how many keys were typed up to each frame. `keys`: as above.
        """
        times = self.video.times
        starts = np.searchsorted(times, keys)
        ends = np.searchsorted(times, keys + LONGEST_PART_S, side="right") - 1
        counts = typed[ends] - typed[starts]
        if not len(counts) or counts.max() < PART_KEYS:
            return None
        best = int(np.argmax(counts))
        return Span(float(times[starts[best]]), float(times[ends[best]]))


def _stretches_of(changes: ChangeMap) -> Iterator[tuple[Span, ChangeMap]]:
    """The stretches of video that were looked at together, and what changes in each."""
    times = np.array(changes.times)
    number = (times[1:] - times[0]) // STRETCH_S
    for position, start in enumerate(np.arange(times[0], times[-1], STRETCH_S).tolist()):
        yield Span(start, start + STRETCH_S), changes.only(number == position)


def drift_corrected(clock: Clock, found_s: float, parts: Sequence[ClockPart]) -> Clock:
    """The clock, which was found around a video time, corrected by its last part, far later.

    A difference within their uncertainties is not a drift.
    """
    early_ms = clock.event_time(found_s)
    late_ms, late = parts[-1] if parts else (early_ms, clock)
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
    """The clock, as uncertain as its parts differ from it.

    A part that is less sure than it differs contradicts nothing while the least lead of a frame,
    `MIN_LEAD_MS` before its press, covers the difference.
    A start time that the recorder logged is exact: only a part that contradicts it beyond its own
    uncertainty counts.
    """
    uncertainty = clock.uncertainty_ms
    even = replace(clock, shifts=())
    for part in parts:
        shown = part.clock.video_time(part.middle_ms) - even.video_time(part.middle_ms)
        apart = abs(shown) * 1000
        granted = clock.uncertainty_ms + part.clock.uncertainty_ms
        if clock.method != "ffmpeg_start":
            covered = min(part.clock.uncertainty_ms, MIN_LEAD_MS)
            granted = max(clock.uncertainty_ms, covered)
        if apart > granted:
            uncertainty = max(uncertainty, round(apart, 3))
    return replace(clock, uncertainty_ms=uncertainty)
