"""Finds the clock and the canvas of a recording, and the cells of the screen that flicker.

This module holds the order of trust among the sources of a clock: a start time that ffmpeg logged,
pointer movements, typing, all inputs together, clicks, and last `meta.timestamp`. clock_search.py
decides which stretches of the video are decoded for them.
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
        canvas: maps event positions to the canvas; valid at the start of the recording.
        detector: compares frames; it already knows cells that flickered in the decoded stretches.
    """

    clock: Clock
    canvas: Canvas
    detector: ChangeDetector = field(default_factory=ChangeDetector)

    @cached_property
    def screen(self) -> ScreenParts:
        """The parts of the recording; a single part until changes of resolution are found."""
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
    """Find the clock and the canvas of a recording, before the decode pass chooses frames by them.

    Decodes one stretch of video. If it holds too little evidence, more stretches follow. Up to four
    later parts show whether the clock drifts and whether it still holds.

    Args:
        video: of the recording.
        manifest: of the recording.
        events: the events table.
        path: the pointer's positions in the log.
        actions: of the recording, in time order.
        keys: when keys were pressed that type a character, epoch milliseconds.
        answered: when any input came that the screen may answer, epoch milliseconds.
        steps: where somebody set the recorder's clock.

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
    before_steps = inputs.between(ALWAYS, until_ms)
    search = ClockSearch(video, before_steps.track, before_steps.keys)
    by_pointer, changes = search.pointer_clock(documented, logged, screen.candidates)
    clock = by_pointer or documented
    if logged is not None:
        clock = reconcile_clocks(logged, by_pointer, clock, first_s)
    elif by_pointer is None:
        other_evidence = _EvidenceWithoutPointer(
            search,
            changes,
            presses=InputTimes(_presses(actions), keys).between(ALWAYS, until_ms).track,
            answered=answered[answered < until_ms],
            documented=documented,
        )
        clock = other_evidence.clock(screen.candidates)
    if steps:
        scales = screen.candidates if by_pointer is None else [by_pointer.event_scale]
        clock = find_shifts(video, clock, scales, steps, inputs)
        if clock.method == "pixels":
            by_pointer = clock
        unset_inputs = inputs.shifted(clock.shifts)
        search = ClockSearch(video, unset_inputs.track, unset_inputs.keys)
    shown_by_video = clock if clock.method in {"typing", "inputs"} else by_pointer
    if shown_by_video is not None:
        parts = search.parts(replace(shown_by_video, shifts=()), changes)
        if by_pointer is not None and not steps:
            middle_s = (changes.times[0] + changes.times[-1]) / 2
            clock = drift_corrected(by_pointer, middle_s, parts)
            if logged is not None:
                clock = reconcile_clocks(logged, by_pointer, clock, first_s)
        clock = with_parts(clock, parts)
    detector = ChangeDetector(_acting(actions, clock), video.grab_s, changes)
    return Calibration(clock, _canvas(screen, by_pointer, path), detector)


def _screen(manifest: RecordingManifest) -> RecordedScreen:
    size = (manifest.video.width, manifest.video.height)
    upright = size[::-1] if rotation(manifest.video) in {90, 270} else size
    return RecordedScreen.of(manifest.parsed_meta(), upright)


def _presses(actions: Sequence[Action]) -> PointerPath:
    """Returns when and where buttons were pressed."""
    return PointerPath.through(
        (action.press_ms, action.x, action.y)
        for action in actions
        if action.action_type in POINTER_TYPES - {"scroll"}
        if action.x is not None and action.y is not None
    )


def _acting(actions: Sequence[Action], clock: Clock) -> list[Span]:
    """Returns when the person may have acted, or the screen may have shown the effect."""
    uncertainty_s = clock.uncertainty_ms / 1000
    return [
        Span(
            clock.video_time(action.press_ms) - uncertainty_s,
            clock.video_time(action.end_ms) + uncertainty_s + EFFECT_S,
        )
        for action in actions
        if action.action_type != "pause"
    ]


@dataclass(frozen=True)
class _EvidenceWithoutPointer:
    """The evidence for a clock that the pointer's moves alone do not show.

    It reaches up to the first step of the recorder's clock.

    Attributes:
        search: over the video.
        changes: in the stretches of video that were decoded.
        presses: when and where buttons were pressed.
        answered: when any input came that the screen may answer, epoch milliseconds.
        documented: the clock by `meta.timestamp`.
    """

    search: ClockSearch
    changes: ChangeMap
    presses: PointerPath
    answered: Floats
    documented: Clock

    def clock(self, scales: Sequence[float]) -> Clock:
        """Returns the clock by typing, else by all inputs, else by clicks, else as documented."""
        changes = self.changes
        documented = self.documented
        by_typing = self.search.typed_clock(changes, documented)
        if by_typing is not None:
            return by_typing
        by_inputs = self.search.answered_clock(changes, documented, self.answered, scales)
        if by_inputs is not None:
            return by_inputs
        by_clicks = clock_from_clicks(changes, self.presses, documented, scales[0], MAX_OFFSET_S)
        return by_clicks or documented


def _canvas(screen: RecordedScreen, by_pointer: Clock | None, path: PointerPath) -> Canvas:
    """Returns the canvas, scaled by the pointer in the video or else by meta.json."""
    if by_pointer is not None:
        return replace(fit_canvas(screen.video, by_pointer.event_scale), scale_method="pixels")
    method: ScaleMethod = "assumed" if screen.documented_scale is None else "monitor"
    canvas = fit_canvas(screen.video, screen.scale_from_documents(path))
    return replace(canvas, scale_method=method)
