"""The search for the clock: which stretches of a video to decode for it, and how many.

Belongs here: going from stretch to stretch until the pointer or typing shows the clock, and which
later parts tell whether it holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.calibration.clock_checks import ClockCheck, parts_to_check
from demo_pipeline.observation.calibration.key_alignment import MIN_KEYS, clock_from_keys
from demo_pipeline.observation.calibration.pointer_alignment import clock_from_pointer, with_drift
from demo_pipeline.observation.frames.changed_cells import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerTrack
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Span

STRETCH_S = 10.0  # seconds of video that are looked at together
MAX_STRETCHES = 32  # with too little pointer movement in these, the documented clock is used
MIN_STRETCHES = 6  # before giving up, however short the video is
MAX_SHARE = 0.3  # of the video; a search for missing evidence must not double the decoding
MIN_MOVES = 12  # pointer events; a stretch with fewer is not worth decoding
DRIFT_AFTER_S = 300.0  # seconds; a shorter recording has no time to drift by a frame
LATE_S = 120.0  # seconds before the end of the recording in which its drift is looked for
LATE_STRETCH_S = 6.0  # seconds of video looked at for drift
LATE_STEP_S = 2.0  # seconds between the starts that are compared
MAX_DRIFT_S = 1.5  # seconds by which the clocks may have moved apart at the end
_NEXT_FRAME_S = 1e-6  # seconds; less than the distance of two frames


@dataclass(frozen=True)
class ClockSearch:
    """The search for the clock in stretches of video.

    Attributes:
        video: of the recording.
        track: the pointer's positions in the log.
        keys: when keys were pressed that type, epoch milliseconds.
        offset_s: how far the clock may be off.
    """

    video: RecordedVideo
    track: PointerTrack
    keys: Floats
    offset_s: float

    def add_changes(self, changes: ChangeMap, stretches: Sequence[Span]) -> None:
        """Decode stretches of video and add what changes in them."""
        for frame in self.video.look(stretches):
            changes.add(frame)
        changes.seconds += sum(stretch.end - stretch.start for stretch in stretches)

    def pictured_clock(
        self,
        changes: ChangeMap,
        documented: Clock,
        logged: Clock | None,
        scales: Sequence[float],
    ) -> Clock | None:
        """The clock that the pointer's movements show; None when they show none.

        With a logged start one stretch is enough. `changes` takes what was looked at.
        """
        for stretches in self._stretches(documented, self.track.times, MIN_MOVES):
            self.add_changes(changes, stretches)
            reference = logged or documented
            found = clock_from_pointer(changes, self.track, reference, scales, self.offset_s)
            if found is not None or logged is not None:
                return found
        return None

    def typed_clock(self, changes: ChangeMap, documented: Clock) -> Clock | None:
        """The clock that typing shows, in what was looked at and in what follows it."""
        end = changes.times[-1] if changes.times else None
        frames, offset_s = self.video.times, self.offset_s
        for stretches in chain([[]], self._stretches(documented, self.keys, MIN_KEYS, end)):
            self.add_changes(changes, stretches)
            found = clock_from_keys(changes, frames, self.keys, documented, offset_s)
            if found is not None:
                return found
        return None

    def _stretches(
        self, documented: Clock, events: Floats, least: int, after: float | None = None
    ) -> Iterator[list[Span]]:
        """Stretches in which something may show: one, one more, then 2, 4, 8 and 16 more.

        A stretch holds at least two frames, so that there is something to compare.

        Args:
            documented: the clock.
            events: moves or keys, ascending epoch milliseconds.
            least: events that a stretch may hold, except the first one of the video.
            after: video seconds that the stretches lie after; None: from the first event on.
        """
        times = self.video.times
        first, last = float(times[0]), float(times[-1])
        moved = np.array([documented.video_time(time) for time in events])
        begin = float(moved[0]) - self.offset_s if len(moved) else first
        begin = self._key_frame_before(min(max(first, begin), max(first, last - STRETCH_S)))
        begin = begin if after is None else max(begin, after)
        allowed = int(MAX_SHARE * (last - first) / STRETCH_S)
        most = min(MAX_STRETCHES, max(MIN_STRETCHES, allowed))
        batch: list[Span] = []
        yielded, size = 0, 1
        for start in np.arange(begin, max(last, begin + _NEXT_FRAME_S), STRETCH_S).tolist():
            reach = [start - self.offset_s, start + STRETCH_S + self.offset_s]
            from_move, to_move = np.searchsorted(moved, reach)
            if (yielded or after is not None) and to_move - from_move < least:
                continue
            position = int(np.searchsorted(times, start + _NEXT_FRAME_S)) + 1
            second = float(times[min(position, len(times) - 1)])
            batch.append(Span(start, min(last, max(start + STRETCH_S, second))))
            if len(batch) == size:
                yield batch
                yielded += size
                size, batch = yielded, []
                if yielded >= most:
                    return
        if batch:
            yield batch

    def drift_corrected(self, clock: Clock, changes: ChangeMap) -> Clock:
        """The clock of a long recording, corrected by what a stretch near its end shows."""
        late, seen = self._late_stretch(clock), ChangeMap()
        if late is None:
            return clock
        self.add_changes(seen, [late])
        part = self._check([late], clock).part(0, seen)
        if part is None:
            return clock
        early_s = (changes.times[0] + changes.times[-1]) / 2
        return with_drift(clock, part.clock, clock.event_time(early_s), part.middle_ms)

    def clock_check(self, clock: Clock, changes: ChangeMap) -> ClockCheck:
        """The parts of the video after the stretches in `changes` that are to be compared."""
        begin, end = changes.times[-1], float(self.video.times[-1])
        parts = parts_to_check(self.video, self.track, self.keys, clock, begin, end)
        return self._check(parts, clock)

    def _check(self, spans: Sequence[Span], clock: Clock) -> ClockCheck:
        search_s = min(self.offset_s, MAX_DRIFT_S)
        return ClockCheck(spans, self.track, self.keys, self.video.times, clock, search_s)

    def _late_stretch(self, clock: Clock) -> Span | None:
        """The stretch with most movement near the end of a recording; None in a short one."""
        first, last = float(self.video.times[0]), float(self.video.times[-1])
        if last - first <= DRIFT_AFTER_S:
            return None
        moved = (self.track.times - clock.origin_ms) / 1000
        # A stretch starts at a key frame: frames between the two would be decoded for nothing.
        starts = np.arange(last - LATE_S, last - LATE_STRETCH_S + 1, LATE_STEP_S)
        starts = np.unique([self._key_frame_before(float(start)) for start in starts])
        ends = np.searchsorted(moved, starts + LATE_STRETCH_S)
        best = int(np.argmax(ends - np.searchsorted(moved, starts)))
        return Span(float(starts[best]), float(starts[best]) + LATE_STRETCH_S)

    def _key_frame_before(self, time: float) -> float:
        """The last key frame no later than `time`, seconds; the first frame when there is none."""
        packets = self.video.packets
        keys = packets.key_pts * float(packets.time_base)
        position = int(np.searchsorted(keys, time + TIME_TOLERANCE_S, side="right"))
        return float(keys[position - 1]) if position else float(self.video.times[0])
