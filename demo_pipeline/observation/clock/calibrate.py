"""Calibrates a recording: finds its clock, its canvas, and the cells of its screen that flicker.

The clock converts times of the log to times of the video. The canvas converts positions of the log
to pixels. This module tries several kinds of evidence for the clock, the most trusted first: a
start time that ffmpeg logged, moves of the pointer, typing, all inputs together, clicks, and
finally `meta.timestamp`.
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
    ClockPart,
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
    """The clock, the canvas and the flickering cells of a recording.

    Attributes:
        canvas: maps event positions to the canvas; valid at the start of the recording.
        detector: compares frames; it already knows the cells that flickered in the decoded
            stretches of video.
    """

    clock: Clock
    canvas: Canvas
    detector: ChangeDetector = field(default_factory=ChangeDetector)

    @cached_property
    def screen(self) -> ScreenParts:
        """The canvas of each part of the recording; at first there is a single part."""
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
    """Finds the clock and the canvas of a recording.

    Decodes one stretch of video, and more stretches if the first holds too little evidence. Then
    decodes up to four later parts to see whether the clock drifts or becomes wrong.

    Args:
        manifest: contains the size of the video, and the time and the monitor from meta.json.
        keys: the result of `typed_keys`.
        answered: the result of `answered_inputs`.
        steps: the changes of the recorder's clock, found in the log.

    Raises:
        DemonstrationError: nothing shows how the log's coordinates map to the video.
    """
    documented = documented_clock(manifest.recorded_at.timestamp() * 1000)
    first_s = float(video.times[0])
    screen = _screen(manifest)
    logged = _logged_clock(events, documented, first_s)
    inputs = InputTimes(path, keys)
    until_ms = steps[0].from_ms if steps else inf
    before_steps = inputs.between(ALWAYS, until_ms)
    search = ClockSearch(video, before_steps.track, before_steps.keys)
    scales = screen.candidates
    by_pointer, changes = search.pointer_clock(documented, logged, scales)
    if logged is not None:
        clock = reconcile_clocks(logged, by_pointer, 1.0, first_s)
    elif by_pointer is not None:
        clock = by_pointer
    else:
        presses = _presses(actions, until_ms)
        answered = answered[answered < until_ms]
        clock = _clock_without_pointer(search, changes, presses, answered, documented, scales)
    if steps:
        scales = scales if by_pointer is None else [by_pointer.event_scale]
        clock = find_shifts(video, clock, scales, steps, inputs)
        if clock.method == "pixels":
            by_pointer = clock
        unset_inputs = inputs.shifted(clock.shifts)
        search = ClockSearch(video, unset_inputs.track, unset_inputs.keys)
    shown_by_video = clock if clock.method in {"typing", "inputs"} else by_pointer
    if shown_by_video is not None:
        parts = search.parts(replace(shown_by_video, shifts=()), changes)
        if by_pointer is not None and not steps:
            clock = _without_drift(by_pointer, logged, changes, parts, first_s)
        clock = with_parts(clock, parts)
    detector = ChangeDetector(_acting(actions, clock), video.grab_s, changes)
    return Calibration(clock, _canvas(screen, by_pointer, path), detector)


def _logged_clock(events: Any, documented: Clock, first_s: float) -> Clock | None:
    """Returns the clock from the start time that ffmpeg printed, or None if it is not logged."""
    printed = events.filter(pc.equal(events["event"], "ffmpeg_stderr"))["payload"].to_pylist()
    return ffmpeg_clock(filter(None, printed), documented.origin_ms, first_s)


def _without_drift(
    by_pointer: Clock,
    logged: Clock | None,
    changes: ChangeMap,
    parts: Sequence[ClockPart],
    first_s: float,
) -> Clock:
    """Returns the clock measured from the pointer's moves, corrected for drift.

    If ffmpeg logged a start time, the first frame keeps this time.
    """
    clock = drift_corrected(by_pointer, changes.middle_s, parts)
    if logged is None:
        return clock
    return reconcile_clocks(logged, by_pointer, clock.rate, first_s)


def _screen(manifest: RecordingManifest) -> RecordedScreen:
    size = (manifest.video.width, manifest.video.height)
    upright = size[::-1] if rotation(manifest.video) in {90, 270} else size
    return RecordedScreen.of(manifest.parsed_meta(), upright)


def _presses(actions: Sequence[Action], until_ms: float) -> PointerPath:
    """Returns times and positions of the button presses before `until_ms` (epoch milliseconds)."""
    return PointerPath.through(
        (action.press_ms, action.x, action.y)
        for action in actions
        if action.action_type in POINTER_TYPES - {"scroll"} and action.press_ms < until_ms
        if action.x is not None and action.y is not None
    )


def _acting(actions: Sequence[Action], clock: Clock) -> list[Span]:
    """Returns for each action, except pauses, the video span in which it and its effect may lie."""
    uncertainty_s = clock.uncertainty_ms / 1000
    return [
        Span(
            clock.video_time(action.press_ms) - uncertainty_s,
            clock.video_time(action.end_ms) + uncertainty_s + EFFECT_S,
        )
        for action in actions
        if action.action_type != "pause"
    ]


def _clock_without_pointer(  # noqa: PLR0917 - each kind of evidence is an argument
    search: ClockSearch,
    changes: ChangeMap,
    presses: PointerPath,
    answered: Floats,
    documented: Clock,
    scales: Sequence[float],
) -> Clock:
    """Returns the clock of a recording whose pointer moves are not enough to estimate it.

    Typing is tried first, then all inputs together, then clicks. If none of them shows a clock, the
    result is `documented`.

    Args:
        changes: the changed cells in the decoded stretches. The searches decode more stretches and
            add their changed cells.
        presses: times and positions of the button presses.
        answered: the result of `answered_inputs`.
        scales: event scales to try, the most likely first.
    """
    by_typing = search.typed_clock(changes, documented)
    if by_typing is not None:
        return by_typing
    by_inputs = search.answered_clock(changes, documented, answered, scales)
    if by_inputs is not None:
        return by_inputs
    by_clicks = clock_from_clicks(changes, presses, documented, scales[0], MAX_OFFSET_S)
    return by_clicks or documented


def _canvas(screen: RecordedScreen, by_pointer: Clock | None, path: PointerPath) -> Canvas:
    """Returns the canvas, with its event scale from the pointer in the video or from meta.json."""
    if by_pointer is not None:
        return replace(fit_canvas(screen.video, by_pointer.event_scale), scale_method="pixels")
    method: ScaleMethod = "assumed" if screen.documented_scale is None else "monitor"
    canvas = fit_canvas(screen.video, screen.scale_from_documents(path))
    return replace(canvas, scale_method=method)
