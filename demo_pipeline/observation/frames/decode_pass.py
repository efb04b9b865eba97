"""The decode pass: the frames that observers ask for, decoded once and in order, shown to all.

Belongs here: the protocol of an observer, the loop over frames, and the observers of a recording.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.wheel import WheelVote
from demo_pipeline.common.recording_files import VIDEO_FILE
from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.calibration.clock_checks import ClockCheckObserver, ClockPart
from demo_pipeline.observation.frames.action_frames import ActionFrames
from demo_pipeline.observation.frames.change_detection import ChangeDetector
from demo_pipeline.observation.frames.evidence import WaitEvidence
from demo_pipeline.observation.frames.fallback_frames import FallbackFrames
from demo_pipeline.observation.frames.final_frame import FinalFrame
from demo_pipeline.observation.frames.frame_choice import (
    BeforeFrameChooser,
    FrameChooser,
)
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest, merge_spans
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath
from demo_pipeline.observation.frames.pointer_witness import PointerWitness
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.scan_frames import (
    ScanComparison,
    ScanComparisons,
    TypedPlaces,
)
from demo_pipeline.observation.frames.screenshot_writer import Screenshot, ScreenshotWriter
from demo_pipeline.observation.frames.scroll_motion import ScrollMotion
from demo_pipeline.observation.frames.stop_effect import StopEffect
from demo_pipeline.observation.frames.thumbnails import ThumbnailWriter
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame, Span
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.wait_observer import WaitObserver, intervals_between
from demo_pipeline.problems import DemonstrationError, Problem

SURE_MS = 250  # ms of clock uncertainty; beyond, scans, scrolls and pauses match other frames

Result_co = TypeVar("Result_co", covariant=True)


class FrameObserver(Protocol[Result_co]):
    """Observes the decode pass: asks for spans, sees frames in order, then gives its result."""

    @property
    def spans(self) -> Sequence[Span]:
        """Spans of video time whose frames it needs."""

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, in presentation order; also those that only others asked for.

        Keep a frame only while it is needed, and never `diff`: each frame that is held makes
        decoding the next one about a tenth slower.
        """

    def result(self) -> Result_co:
        """What was observed; called once, after the last frame."""


class SingleFrames(Protocol):
    """Sees the frames of the decode pass without comparing successive ones."""

    @property
    def spans(self) -> Sequence[Span]:
        """Spans of video time whose frames it needs."""

    def see(self, frame: Frame) -> None:
        """Take the next frame, in presentation order."""


class RecorderStop(NamedTuple):
    """What the log says of the recorder's end.

    Attributes:
        possible: the last action, when it may have stopped the recorder.
        known_ms: press of the shortcut that did, epoch milliseconds; None: no shortcut is known.
    """

    possible: Action | None = None
    known_ms: int | None = None


NO_STOP = RecorderStop()


class Decoded(NamedTuple):
    """How many frames were decoded, and the last of them."""

    frames: int
    last: Frame | None


@dataclass(frozen=True)
class DecodeResult:
    """What the decode pass observed.

    Attributes:
        screenshots: one for each request, in their order.
        waits: pauses that were waits.
        large_changes: times at which much of the screen changed, ascending video seconds.
        scanned: what changed since the scans of the actions.
        typed: what changed while text was typed, by action index.
        wheel: the direction in which the wheel scrolls.
        stopped: whether the action that may have stopped the recorder did so.
        screen_suspect: whether the screen may have changed its resolution or scale.
        decoded: number of frames decoded.
        clock_parts: what parts of the video show of their clock.
        recorder_control: indexes of the actions that started or stopped the recorder.
        tree_scales: where the units of trees change, as `scales_of_parts` says.
    """

    screenshots: Sequence[Screenshot]
    waits: Sequence[WaitEvidence]
    large_changes: Sequence[float]
    scanned: ScanComparisons
    typed: Mapping[int, Sequence[PixelBox]]
    wheel: WheelVote
    stopped: bool
    screen_suspect: bool
    decoded: int
    clock_parts: Sequence[ClockPart] = ()
    recorder_control: Sequence[int] = ()
    tree_scales: Mapping[int, float | None] = field(default_factory=dict)


def run_decode_pass(
    video: RecordedVideo,
    requests: Sequence[FrameRequest],
    *,
    calibration: Calibration,
    path: PointerPath,
    actions: Sequence[Action],
    folder: Path,
    recorder_stop: RecorderStop = NO_STOP,
    choose_with: Callable[[FrameRequest], FrameChooser] = BeforeFrameChooser,
) -> DecodeResult:
    """Answer the requests of all `actions`; write NNN.png, final.png and thumbnails into `folder`.

    Raises:
        DemonstrationError: no frame of the video decodes.
    """
    clock = calibration.clock
    pointer = VideoPointer(path, clock, calibration.screen, video.frame_s)
    near, detector = replace(pointer, frame_s=video.grab_s), ChangeDetector(calibration.flickering)
    fallbacks = FallbackFrames(requests, video.times)
    sure = clock.uncertainty_ms <= SURE_MS
    scanned = ScanComparison(requests, video.times, detector, near, enabled=sure)
    scrolls = ScrollMotion(actions if sure else [], clock, calibration.screen)
    intervals = intervals_between(actions, requests, pointer) if sure else []
    waits = WaitObserver(intervals, video.times, pointer)
    stop = _stop_effect(video, clock, requests, recorder_stop.possible)
    check = ClockCheckObserver(calibration.clock_check)
    witness = _witness(calibration, pointer)
    with ThumbnailWriter(folder) as thumbnails:
        writer = ScreenshotWriter(video, fallbacks, pointer, folder, thumbnails)
        choosers = map(choose_with, requests)  # no list: it would keep the frames of each
        compared = scanned, TypedPlaces(actions, detector, near)
        answers = ActionFrames(requests, choosers, waits, writer, compared, video.frame_s)
        final = _final_frame(video, clock, actions, recorder_stop)
        observers = (scanned, scrolls, answers, final, stop, witness)
        decoded = show_frames(video, observers, detector, pointer, (fallbacks, waits, check))
        answered = answers.result()
        writer.write_final(final.result() or _any_frame(video, decoded.last))
    return DecodeResult(
        answered.screenshots,
        answered.waits,
        answered.large_changes,
        scanned.result(),
        answered.typed,
        scrolls.result(),
        stop.result(),
        witness.result(),
        decoded.frames,
        check.result(),
    )


def _witness(calibration: Calibration, pointer: VideoPointer) -> PointerWitness:
    seen = calibration.scale_method == "pixels"
    return PointerWitness(pointer, calibration.canvas, seen_before=seen)


def _stop_effect(
    video: RecordedVideo, clock: Clock, requests: Sequence[FrameRequest], possible: Action | None
) -> StopEffect:
    """The observer for what the action that may have stopped the recorder did to the screen."""
    earlier = requests[possible.action_index].since if possible else 0.0
    return StopEffect(possible, clock, float(video.times[-1]), earlier)


def _final_frame(
    video: RecordedVideo, clock: Clock, actions: Sequence[Action], recorder_stop: RecorderStop
) -> FinalFrame:
    """The observer for final.png: after the last action, and before the recorder was stopped."""
    ends = [clock.video_time(action.end_ms) for action in actions]
    until = clock.video_time(recorder_stop.known_ms) if recorder_stop.known_ms else float("inf")
    # The frame shown until then may be an old one: a variable rate has none while nothing changes.
    before = video.times[video.times < until]
    shown = float(before[-1] if len(before) else video.times[-1])
    return FinalFrame(min(shown, max(ends, default=float("inf"))), until)


def show_frames(
    video: RecordedVideo,
    observers: Sequence[FrameObserver[object]],
    detector: ChangeDetector,
    pointer: VideoPointer,
    single_frames: Sequence[SingleFrames] = (),
) -> Decoded:
    """Decode the spans of all observers once and show each frame to every observer, in turn.

    Those of `single_frames` see every frame first. Frames that only they asked for are shown to no
    observer: they would split the time between two spans for those that compare successive frames.
    """
    spans = merge_spans([span for one in observers for span in one.spans], video.frame_s)
    ends = np.array([span.end for span in spans]) + TIME_TOLERANCE_S
    last: Frame | None = None
    count = 0
    wanted = [span for one in single_frames for span in one.spans]
    for frame in video.resume(merge_spans([*spans, *wanted], 0.0)):
        count += 1
        for one in single_frames:
            one.see(frame)
        position = int(np.searchsorted(ends, frame.time))
        if position == len(ends) or frame.time < spans[position].start - TIME_TOLERANCE_S:
            continue
        diff = FrameDiff(last, frame, video.times, detector, pointer)
        for observer in observers:
            observer.see(diff)
        last = frame
        del diff  # holds the frame before, too: decoding the next one would be a tenth slower
    return Decoded(count, last)


def _any_frame(video: RecordedVideo, last_decoded: Frame | None) -> Frame:
    """The last frame that was seen, or the first, if there is none after the last action.

    Raises:
        DemonstrationError: no frame decodes.
    """
    frame = last_decoded or video.frame_at(0)
    if frame is None:
        message = f"none of its {len(video.times)} frames can be decoded"
        remedy = "upload the recording again"
        raise DemonstrationError(Problem("no_frames", VIDEO_FILE, message, remedy=remedy))
    return frame
