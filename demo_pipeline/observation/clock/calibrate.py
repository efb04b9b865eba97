"""Calibration of a recording: its clock, its canvas, and the cells of the picture that flicker.

Belongs here: the order of trust. A start time that ffmpeg logged comes first, then the movements of
the pointer, then typing, then all inputs together, then clicks, then `meta.timestamp`. Which
stretches of video are decoded for it is in clock_search.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import pyarrow.compute as pc

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.clock.canvas import (
    ALWAYS,
    Canvas,
    RecordedScreen,
    ScaleMethod,
    ScreenParts,
    fit_canvas,
)
from demo_pipeline.observation.clock.clock import Clock, documented_clock, ffmpeg_clock
from demo_pipeline.observation.clock.clock_evidence import clock_from_clicks, reconcile_clocks
from demo_pipeline.observation.clock.clock_search import (
    MAX_OFFSET_S,
    ClockSearch,
    drift_corrected,
    with_parts,
)
from demo_pipeline.observation.clock.clock_shifts import InputTimes, find_shifts
from demo_pipeline.observation.frames.change_detector import EFFECT_S, ChangeDetector
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerPath
from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span, rotation
from demo_pipeline.recording.clock_steps import ClockStep
from demo_pipeline.recording.manifest import RecordingManifest


@dataclass(frozen=True)
class Calibration:
    """The calibration of a whole recording.

    Attributes:
        clock: maps event times to video times.
        canvas: maps event space to the canvas, at the beginning.
        detector: compares frames, and knows the cells that flickered in what was looked at.
    """

    clock: Clock
    canvas: Canvas
    detector: ChangeDetector = field(default_factory=ChangeDetector)

    @cached_property
    def screen(self) -> ScreenParts:
        """The parts of the recording, of which there is one until more are found."""
        return ScreenParts.single(self.canvas)


def calibrate(
    video: RecordedVideo,
    manifest: RecordingManifest,
    *,
    events: Any,
    path: PointerPath,
    actions: Sequence[Action],
    keys: Floats,
    answered: Floats,
    steps: Sequence[ClockStep] = (),
) -> Calibration:
    """Find the clock and the canvas of a recording, of which `events` is the events table.

    Decodes one stretch of video, more when that holds too little pointer movement or typing to be
    sure, and up to four parts (how the clock drifts, and whether it holds). All that the choice of
    frames depends on is known before the decode pass. `path` has the positions of the pointer in
    the log, `keys` the epoch milliseconds of keys that type, `answered` those of all inputs that
    the video may answer, `steps` those of the recorder's clock.

    Raises:
        DemonstrationError: nothing shows how the log's coordinates map to the video.
    """
    documented = documented_clock(manifest.recorded_at.timestamp() * 1000)
    first_s = float(video.times[0])
    screen = _screen(manifest)
    printed = events.filter(pc.equal(events["event"], "ffmpeg_stderr"))["payload"].to_pylist()
    logged = ffmpeg_clock(filter(None, printed), documented.origin_ms, first_s)
    inputs = InputTimes(path, keys)
    until_ms = steps[0].from_ms if steps else inf
    first = inputs.between(ALWAYS, until_ms)
    search = ClockSearch(video, first.track, first.keys)
    pictured, changes = search.pictured_clock(documented, logged, screen.candidates)
    clock = pictured or documented
    if logged is not None:
        clock = reconcile_clocks(logged, pictured, clock, first_s)
    elif pictured is None:
        presses = InputTimes(_presses(actions), keys).between(ALWAYS, until_ms).track
        shown_inputs = answered[answered < until_ms]
        unseen = _Unpictured(search, changes, presses, shown_inputs, documented)
        clock = unseen.clock(screen.candidates)
    if steps:
        tried = screen.candidates if pictured is None else [pictured.event_scale]
        clock = find_shifts(video, clock, tried, steps, inputs)
        pictured = clock if clock.method == "pixels" else pictured
        even = inputs.shifted(clock.shifts)
        search = ClockSearch(video, even.track, even.keys)
    shown = clock if clock.method in {"typing", "inputs"} else pictured
    if shown is not None:
        parts = search.parts(replace(shown, shifts=()), changes)
        if pictured is not None and not steps:
            clock = drift_corrected(pictured, (changes.times[0] + changes.times[-1]) / 2, parts)
            clock = reconcile_clocks(logged, pictured, clock, first_s) if logged else clock
        clock = with_parts(clock, parts)
    detector = ChangeDetector(_acting(actions, clock), video.grab_s, changes)
    return Calibration(clock, _canvas(screen, pictured, path), detector)


def _screen(manifest: RecordingManifest) -> RecordedScreen:
    size = (manifest.video.width, manifest.video.height)
    upright = size[::-1] if rotation(manifest.video) in {90, 270} else size
    return RecordedScreen.of(manifest.parsed_meta(), upright)


def _presses(actions: Sequence[Action]) -> PointerPath:
    """When and where buttons were pressed."""
    return PointerPath.through(
        (action.press_ms, action.x, action.y)
        for action in actions
        if action.action_type in POINTER_TYPES - {"scroll"}
        if action.x is not None and action.y is not None
    )


def _acting(actions: Sequence[Action], clock: Clock) -> list[Span]:
    """When somebody may have acted, or the effect of it shown, video seconds."""
    unsure_s = clock.uncertainty_ms / 1000
    return [
        Span(
            clock.video_time(action.press_ms) - unsure_s,
            clock.video_time(action.end_ms) + unsure_s + EFFECT_S,
        )
        for action in actions
        if action.action_type != "pause"
    ]


@dataclass(frozen=True)
class _Unpictured:
    """A recording whose clock the pointer's moves alone do not show, before its first clock step.

    Attributes:
        search: over the video.
        changes: of the stretches of video that were decoded.
        presses: when and where buttons were pressed.
        answered: when anything was pressed that the video may answer, epoch milliseconds.
        documented: the clock by `meta.timestamp`.
    """

    search: ClockSearch
    changes: ChangeMap
    presses: PointerPath
    answered: Floats
    documented: Clock

    def clock(self, scales: Sequence[float]) -> Clock:
        """The clock that typing, all inputs or clicks show, else the documented one."""
        changes = self.changes
        documented = self.documented
        typed = self.search.typed_clock(changes, documented)
        if typed is not None:
            return typed
        by_inputs = self.search.answered_clock(changes, documented, self.answered, scales)
        if by_inputs is not None:
            return by_inputs
        clicked = clock_from_clicks(changes, self.presses, documented, scales[0], MAX_OFFSET_S)
        return clicked or documented


def _canvas(screen: RecordedScreen, pictured: Clock | None, path: PointerPath) -> Canvas:
    """The canvas of the whole recording, by the pointer in the pictures or else by meta.json."""
    if pictured is not None:
        return replace(fit_canvas(screen.video, pictured.event_scale), scale_method="pixels")
    method: ScaleMethod = "assumed" if screen.documented_scale is None else "monitor"
    canvas = fit_canvas(screen.video, screen.scale_from_documents(path))
    return replace(canvas, scale_method=method)
