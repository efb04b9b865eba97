"""Calibration of a recording: its clock, its canvas, and the cells of the picture that flicker.

Belongs here: which stretches of video to look at, and the order of trust. A start time that ffmpeg
logged comes first, then the movements of the pointer, then clicks, then `meta.timestamp`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from demo_pipeline.observation.calibration.canvas import Canvas, fit_canvas
from demo_pipeline.observation.calibration.click_alignment import clock_from_clicks
from demo_pipeline.observation.calibration.clock import Clock, documented_clock, ffmpeg_clock
from demo_pipeline.observation.calibration.clock_checks import (
    ClockCheck,
    ClockPart,
    parts_to_check,
    with_parts,
)
from demo_pipeline.observation.calibration.event_scale import RecordedScreen
from demo_pipeline.observation.calibration.pointer_alignment import (
    clock_from_pointer,
    reconcile_clocks,
    with_drift,
)
from demo_pipeline.observation.calibration.screen_parts import ScreenParts
from demo_pipeline.observation.frames.change_detection import flickering_cells
from demo_pipeline.observation.frames.changed_cells import Cells, ChangeMap
from demo_pipeline.observation.frames.pointer_path import PointerPath, PointerTrack
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Span, rotation
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.settings import ObservationSettings

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
_LOG = logging.getLogger(__package__)

ScaleMethod = Literal["pixels", "monitor", "assumed"]


@dataclass(frozen=True)
class Calibration:
    """The calibration of a whole recording.

    Attributes:
        clock: maps event times to video times.
        canvas: maps event space to the canvas, at the beginning.
        scale_method: what the event scale follows from: `pixels` (the pointer in the video),
            `monitor` (meta.json's primary_monitor), or `assumed`.
        flickering: (rows, columns) of cells that change all the time; None without two frames.
        parts: of a recording whose screen changed its resolution or scale; else None.
        clock_check: what the decode pass is to compare with the clock; None: nothing more.
    """

    clock: Clock
    canvas: Canvas
    scale_method: ScaleMethod
    flickering: Cells | None
    parts: ScreenParts | None = None
    clock_check: ClockCheck | None = None

    @property
    def screen(self) -> ScreenParts:
        """The parts of the recording, of which there is one unless more were found."""
        return self.parts or ScreenParts.single(self.canvas)

    def checked(self, parts: Sequence[ClockPart], min_lead_ms: float) -> "Calibration":
        """With the clock as uncertain as the parts of its check show it; see `with_parts`."""
        return replace(self, clock=with_parts(self.clock, parts, min_lead_ms), clock_check=None)


def calibrate(
    video: RecordedVideo,
    manifest: RecordingManifest,
    *,
    events: Any,
    path: PointerPath,
    presses: PointerTrack,
    settings: ObservationSettings,
) -> Calibration:
    """Find the clock and the canvas of a recording.

    Decodes one stretch of video, more when that holds too little pointer movement to be sure, and
    in a long recording some seconds at its end: how the clock drifts.

    Args:
        video: of the recording.
        manifest: of the recording.
        events: the events table.
        path: positions of the pointer in the log.
        presses: when and where buttons were pressed.
        settings: `max_clock_offset_s` limits the search.

    Raises:
        DemonstrationError: nothing shows how the log's coordinates map to the video.
    """
    timestamp_ms, first_s = manifest.recorded_at.timestamp() * 1000, float(video.times[0])
    logged = ffmpeg_clock(_ffmpeg_lines(events), timestamp_ms, first_s)
    size = _upright_size(manifest)
    screen = RecordedScreen.of(manifest.parsed_meta(), size)
    documented = documented_clock(timestamp_ms)
    search = _Search(video, path.track(), settings.max_clock_offset_s)
    changes = ChangeMap()
    pictured = search.pictured_clock(changes, documented, logged, screen.candidates)
    clock = pictured or documented
    if pictured is not None:
        clock = search.drift_corrected(pictured, changes)
    elif logged is None:
        scale, offset_s = screen.candidates[0], settings.max_clock_offset_s
        clock = clock_from_clicks(changes, presses, documented, scale, offset_s) or documented
    if logged is not None:
        clock = reconcile_clocks(logged, pictured, clock, first_s)
    check = None if pictured is None else search.clock_check(pictured, changes)
    method, scale = _scale(screen, pictured, path)
    canvas = fit_canvas(size, scale)
    flickering = flickering_cells(changes, video.grab_s)
    return _logged(Calibration(clock, canvas, method, flickering, clock_check=check))


def _logged(found: Calibration) -> Calibration:
    clock, canvas = found.clock, found.canvas
    offset, uncertainty = clock.documented_offset_ms, clock.uncertainty_ms
    _LOG.debug("clock by %s: %+.0f ms, +- %.0f ms", clock.method, offset, uncertainty)
    scales = (canvas.event_scale, canvas.scale)
    _LOG.debug("scale by %s: %.4f to the video, from there %.4f", found.scale_method, *scales)
    return found


def _scale(
    screen: RecordedScreen, pictured: Clock | None, path: PointerPath
) -> tuple[ScaleMethod, float]:
    """The event scale, and what it follows from."""
    if pictured is not None:
        return "pixels", pictured.event_scale
    method: ScaleMethod = "assumed" if screen.documented_scale is None else "monitor"
    return method, screen.scale_from_documents(path.track())


def _ffmpeg_lines(events: Any) -> list[str]:
    """What ffmpeg printed while it recorded."""
    lines = events.filter(pc.equal(events["event"], "ffmpeg_stderr"))["payload"]
    return [line for line in lines.to_pylist() if line]


@dataclass(frozen=True)
class _Search:
    """The search for the clock in stretches of video. `offset_s`: how far the clock may be off."""

    video: RecordedVideo
    track: PointerTrack
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
        for stretches in self.stretches(documented):
            self.add_changes(changes, stretches)
            reference = logged or documented
            found = clock_from_pointer(changes, self.track, reference, scales, self.offset_s)
            if found is not None or logged is not None:
                return found
        return None

    def stretches(self, documented: Clock) -> Iterator[list[Span]]:
        """Stretches in which the pointer may move: one, one more, then 2, 4, 8 and 16 more.

        A stretch holds at least two frames, so that there is something to compare.
        """
        times = self.video.times
        first, last = float(times[0]), float(times[-1])
        moved = np.array([documented.video_time(time) for time in self.track.times])
        begin = float(moved[0]) - self.offset_s if len(moved) else first
        begin = self._key_frame_before(min(max(first, begin), max(first, last - STRETCH_S)))
        allowed = int(MAX_SHARE * (last - first) / STRETCH_S)
        most = min(MAX_STRETCHES, max(MIN_STRETCHES, allowed))
        batch: list[Span] = []
        yielded, size = 0, 1
        for start in np.arange(begin, max(last, begin + _NEXT_FRAME_S), STRETCH_S).tolist():
            reach = [start - self.offset_s, start + STRETCH_S + self.offset_s]
            from_move, to_move = np.searchsorted(moved, reach)
            if yielded and to_move - from_move < MIN_MOVES:
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
        return self._check(parts_to_check(self.video, self.track, clock, begin, end), clock)

    def _check(self, spans: Sequence[Span], clock: Clock) -> ClockCheck:
        return ClockCheck(spans, self.track, clock, min(self.offset_s, MAX_DRIFT_S))

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


def _upright_size(manifest: RecordingManifest) -> tuple[int, int]:
    """Width and height of the video as players show it, pixels."""
    size = (manifest.video.width, manifest.video.height)
    return size[::-1] if rotation(manifest.video) in {90, 270} else size
