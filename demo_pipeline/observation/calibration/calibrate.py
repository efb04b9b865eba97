"""Settling what holds for a whole recording: its clock, its canvas, the cells that never rest.

Belongs here: looking at a stretch of video with pointer movement, at more only where that is not
enough, and deciding by the order of trust of formats note "The clock".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from demo_pipeline.observation.calibration.canvas import Canvas, fit_canvas
from demo_pipeline.observation.calibration.click_alignment import clock_from_clicks
from demo_pipeline.observation.calibration.clock import Clock, documented_clock, ffmpeg_clock
from demo_pipeline.observation.calibration.event_scale import RecordedScreen
from demo_pipeline.observation.calibration.pointer_alignment import (
    clock_from_pointer,
    reconcile,
    with_drift,
)
from demo_pipeline.observation.frames.change_detection import flickering_cells
from demo_pipeline.observation.frames.changed_cells import Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import PointerPath, PointerTrack
from demo_pipeline.observation.frames.video_frames import Span, decode_spans, rotation
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.video_probe import PacketScan
from demo_pipeline.settings import ObservationSettings

STRETCH_S = 10.0
MOST_STRETCHES = 32  # who has not moved the pointer enough by then gets the documented clock
MOST_SHARE = 0.3  # of the video; looking for what is not there must not double the decoding
LEAST_STRETCHES = 6  # before giving up
FEW_MOVES = 12  # events; a stretch with fewer is not worth decoding
DRIFT_AFTER_S = 300.0  # shorter recordings have no time to drift by a frame
LATE_S = 120.0  # how near the end of the recording its drift is looked for
LATE_STRETCH_S = 6.0
LARGEST_DRIFT_S = 1.5


@dataclass(frozen=True)
class Calibration:
    """The clock, the canvas, and the cells that always change."""

    clock: Clock
    canvas: Canvas
    scale_method: Literal["pixels", "monitor", "assumed"]
    flickering: Cells | None


def calibrate(
    video: Path,
    scan: PacketScan,
    manifest: RecordingManifest,
    *,
    events: Any,
    path: PointerPath,
    presses: PointerTrack,
    settings: ObservationSettings,
) -> Calibration:
    """Decide clock and canvas by the order of trust: ffmpeg's own start, pictures, meta.timestamp.

    `events` is the events table, `presses` are the clicks. Decodes a first stretch of video, more
    where that holds too little movement to be sure, and of a long recording one near its end.

    Raises:
        DemonstrationError: nothing tells how the log's coordinates lie on the video.
    """
    timestamp_ms = manifest.recorded_at.timestamp() * 1000
    told = events.filter(pc.equal(events["event"], "ffmpeg_stderr"))["payload"]
    payloads = [payload for payload in told.to_pylist() if payload]
    logged = ffmpeg_clock(payloads, timestamp_ms, float(scan.times[0]))
    size = _upright_size(manifest)
    screen = RecordedScreen.of(manifest.parsed_meta(), size)
    documented = documented_clock(timestamp_ms)
    film = _Film(video, scan, path.track(), settings.max_clock_offset_s)
    changes = ChangeMap()
    seen: Clock | None = None
    for stretches in film.stretches(documented):
        film.look(changes, stretches)
        seen = film.aligned(changes, logged or documented, screen.candidates)
        if seen is not None or logged is not None:
            break
    if seen is None and logged is None:
        scale = screen.candidates[0]
        seen = clock_from_clicks(changes, presses, documented, scale, settings.max_clock_offset_s)
    sure = seen if seen is not None and seen.method == "pixels" else None
    clock = seen or documented
    if sure is not None:
        clock = film.followed(sure, changes)
    if logged is not None:
        clock = reconcile(logged, sure, clock, float(scan.times[0]))
    scale = sure.event_scale if sure else screen.without_pictures(path.track())
    documents: Literal["monitor", "assumed"] = "assumed" if screen.told is None else "monitor"
    canvas = fit_canvas(size, scale, (settings.canvas_width, settings.canvas_height))
    return Calibration(clock, canvas, "pixels" if sure else documents, flickering_cells(changes))


@dataclass(frozen=True)
class _Film:
    """The video as evidence: which stretches to look at, and what they say."""

    video: Path
    scan: PacketScan
    track: PointerTrack
    search_s: float

    def look(self, changes: ChangeMap, stretches: Sequence[Span]) -> None:
        """Note what changes in the stretches."""
        for frame in decode_spans(self.video, self.scan, stretches):
            changes.add(frame)

    def aligned(
        self, changes: ChangeMap, reference: Clock, scales: Sequence[float]
    ) -> Clock | None:
        """The clock that the pointer's movements show."""
        return clock_from_pointer(changes, self.track, reference, scales, self.search_s)

    def stretches(self, documented: Clock) -> Iterator[list[Span]]:
        """Stretches of 10 s in which the pointer may move: one, one more, then 2, 4, 8, 16 more.

        A stretch holds at least two frames, so that there is something to compare.
        """
        times = self.scan.times
        first, last = float(times[0]), float(times[-1])
        moved = np.array([documented.video_time(time) for time in self.track.times])
        begin = float(moved[0]) - self.search_s if len(moved) else first
        begin = self._key_before(min(max(first, begin), max(first, last - STRETCH_S)))
        most = min(
            MOST_STRETCHES, max(LEAST_STRETCHES, int(MOST_SHARE * (last - first) / STRETCH_S))
        )
        waiting: list[Span] = []
        looked, count = 0, 1
        for start in np.arange(begin, max(last, begin + 1e-6), STRETCH_S).tolist():
            near = np.searchsorted(
                moved, [start - self.search_s, start + STRETCH_S + self.search_s]
            )
            if looked and near[1] - near[0] < FEW_MOVES:
                continue
            position = int(np.searchsorted(times, start + 1e-6)) + 1
            second = float(times[min(position, len(times) - 1)])
            waiting.append(Span(start, min(last, max(start + STRETCH_S, second))))
            if len(waiting) == count:
                yield waiting
                looked += count
                count, waiting = looked, []
                if looked >= most:
                    return
        if waiting:
            yield waiting

    def followed(self, clock: Clock, changes: ChangeMap) -> Clock:
        """The clock of a long recording, corrected by what its end shows."""
        late = self._late_stretch(clock)
        if late is None:
            return clock
        there = ChangeMap()
        self.look(there, [late])
        found = clock_from_pointer(
            there, self.track, clock, [clock.event_scale], min(self.search_s, LARGEST_DRIFT_S)
        )
        if found is None:
            return clock
        middle = (changes.times[0] + changes.times[-1]) / 2
        then = (late.start + late.end) / 2
        return with_drift(clock, found, clock.event_time(middle), clock.event_time(then))

    def _late_stretch(self, clock: Clock) -> Span | None:
        """The stretch with most movement near the end of a recording over five minutes."""
        first, last = float(self.scan.times[0]), float(self.scan.times[-1])
        if last - first <= DRIFT_AFTER_S:
            return None
        moved = (self.track.times - clock.origin_ms) / 1000
        # What lies between a key frame and the stretch would be decoded and not looked at.
        starts = np.arange(last - LATE_S, last - LATE_STRETCH_S + 1, 2.0)
        starts = np.unique([self._key_before(float(start)) for start in starts])
        ends = np.searchsorted(moved, starts + LATE_STRETCH_S)
        best = int(np.argmax(ends - np.searchsorted(moved, starts)))
        return Span(float(starts[best]), float(starts[best]) + LATE_STRETCH_S)

    def _key_before(self, time: float) -> float:
        """The last key frame no later than `time`, seconds; the first frame when there is none."""
        keys = self.scan.key_pts * float(self.scan.time_base)
        position = int(np.searchsorted(keys, time + 1e-9, side="right"))
        return float(keys[position - 1]) if position else float(self.scan.times[0])


def _upright_size(manifest: RecordingManifest) -> tuple[int, int]:
    size = (manifest.video.width, manifest.video.height)
    return size[::-1] if rotation(manifest.video) in {90, 270} else size
