"""The decode pass: the frames that observers ask for, decoded once and in order, shown to all.

Belongs here: the protocol of an observer, the loop over frames, the queue of open requests, and the
suspicion that the screen was given another resolution or scale. Memory holds the frames of open
requests, however long the video is. Which pauses were waits is known only at the end: their frames
are decoded then.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import CONTINUED, Action
from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import Canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_search import ClockCheckObserver, ClockPart
from demo_pipeline.observation.frames.evidence import WaitEvidence
from demo_pipeline.observation.frames.frame_changes import (
    CHANGED_LEVELS,
    LARGE_SHARE,
    ChangeDetector,
    changed_cells,
)
from demo_pipeline.observation.frames.frame_choice import (
    BeforeFrameChooser,
    FallbackFrames,
    FrameChoice,
    FrameChooser,
)
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    merge_spans,
)
from demo_pipeline.observation.frames.last_action import FinalFrame, StopEffect
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point, PointerPath
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.scan_frames import (
    ActionPictures,
    ScanComparison,
    ScanComparisons,
    TypedPlaces,
)
from demo_pipeline.observation.frames.screenshot_writer import (
    PAUSE_REASON,
    RequestProgress,
    Screenshot,
    ScreenshotWriter,
    ThumbnailWriter,
)
from demo_pipeline.observation.frames.scroll_motion import ScrollMotion
from demo_pipeline.observation.frames.video_pointer import FrameDiff, VideoPointer
from demo_pipeline.observation.frames.video_reader import TIME_TOLERANCE_S, Frame, Luma, Span
from demo_pipeline.observation.frames.wait_observer import (
    MEAN_LEVELS,
    WaitObserver,
    intervals_between,
)
from demo_pipeline.problems import DemonstrationError, Problem

SUSPICIOUS_MISSES = 5  # moves in a row without a change where the log has the pointer


class PointerWitness:
    """Compares, for each move of the pointer between two frames, the places it was logged at.

    A move counts as missed when no such place changed, but another one did: grabbers stall, and
    then write the same picture again.

    Args:
        pointer: its path, as the calibration maps it to the video.
        canvas: of the whole recording, so far as is known.
        seen_before: whether the video showed the pointer there when it was calibrated; if not, its
            absence proves nothing.
    """

    spans: Sequence[Span] = ()

    def __init__(self, pointer: VideoPointer, canvas: Canvas, *, seen_before: bool) -> None:
        self._pointer = pointer
        self._canvas = canvas
        self._enabled = seen_before
        self._misses = 0
        self._suspicious = False

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame, and the one decoded before it."""
        before, frame = diff.before, diff.frame
        size = self._canvas.video_width, self._canvas.video_height
        if frame.size != size:
            self._suspicious = True
        if self._suspicious or not self._enabled or before is None or before.size != size:
            return
        moved = self._pointer.moves_around(before.time, frame.time)
        if not moved or not diff.is_next:
            return
        if not all(self._canvas.on_screen(*point) for point in moved):
            return  # on another display, for all that is known
        if any(_changed(before, frame, self._canvas.to_video(*point)) for point in moved):
            self._misses = 0
        elif changed_cells(before.luma, frame.luma).any():
            self._misses += 1
            self._suspicious = self._misses >= SUSPICIOUS_MISSES

    def result(self) -> bool:
        """Whether the screen may have another resolution or scale from some time on."""
        return self._suspicious


def _changed(before: Frame, frame: Frame, point: Point) -> bool:
    """Whether the picture changed around a point in video pixels."""
    first, second = before.patch(point), frame.patch(point)
    if first.shape != second.shape or not first.size:
        return True
    return bool(np.max(cv2.absdiff(first, second)) > CHANGED_LEVELS)


REPLACED_HEIGHT = 0.5  # of the screen's; suggestions below a field are less tall, a pager is taller


@dataclass(frozen=True)
class ActionFramesResult:
    """What the video shows about the actions.

    Attributes:
        screenshots: one for each request, in their order.
        waits: pauses that were waits.
        large_changes: times at which much of the screen changed, ascending video seconds.
        typed: what changed while text was typed, by action index.
    """

    screenshots: Sequence[Screenshot]
    waits: Sequence[WaitEvidence]
    large_changes: Sequence[float]
    typed: Mapping[int, Sequence[PixelBox]]


class ActionFrames:
    """Shows frames to the open requests and writes screenshots.

    Args:
        requests: in the order of the actions.
        choosers: the rule that chooses the frame of each request; read once and not kept.
        waits: tells which pauses were waits.
        writer: writes the screenshot of an answered request.
        comparisons: compare an answered request with its scan, and with typing before it; the
            first sees each frame before this observer.
        frame_s: usual distance of two frames, seconds.
    """

    def __init__(  # noqa: PLR0917 - what the observer works with, in the order of use
        self,
        requests: Sequence[FrameRequest],
        choosers: Iterable[FrameChooser],
        waits: WaitObserver,
        writer: ScreenshotWriter,
        comparisons: tuple[ScanComparison, TypedPlaces],
        frame_s: float,
    ) -> None:
        self._requests = requests
        progresses = [
            RequestProgress(request, chooser)
            for request, chooser in zip(requests, choosers, strict=True)
        ]
        self._unanswered = deque(progresses)
        self._open = deque(one for one in progresses if not one.request.pause)
        self._waits = waits
        self._writer = writer
        self._scanned, self._typed = comparisons
        self._margin_s = SPAN_MARGIN_FRAMES * frame_s
        self._screenshots: dict[int, Screenshot] = {}
        self._pauses: dict[int, tuple[RequestProgress, FrameChoice, ActionPictures | None]] = {}
        self._large_changes: list[float] = []
        self._shown: Luma | None = None

    @property
    def spans(self) -> Sequence[Span]:
        """Those of the requests, except for pauses."""
        return [request.span for request in self._requests if not request.pause]

    def see(self, diff: FrameDiff) -> None:
        """Answer the requests whose spans have passed; show the frame to the others."""
        time = diff.frame.time
        while self._unanswered and time > self._unanswered[0].request.span.end + TIME_TOLERANCE_S:
            self._answer(self._unanswered.popleft())
        for index in list(self._pauses):
            if self._waits.may_be_wait(index) is not None:
                self._settle_pause(index)
        for progress in self._open:
            if time < progress.request.span.start - self._margin_s:
                break
            if progress.see(diff) and time not in self._large_changes[-1:]:
                self._large_changes.append(time)

    def result(self) -> ActionFramesResult:
        """Answer what is still open; call once, after the last frame."""
        while self._unanswered:
            self._answer(self._unanswered.popleft())
        waits = self._waits.result()
        for index in list(self._pauses):
            self._settle_pause(index)
        waited = {wait.action_index for wait in waits}
        for request in self._requests:
            if request.pause and request.action_index not in waited:
                self._leave_out_pause(request.action_index)
        screenshots = [self._screenshots[request.action_index] for request in self._requests]
        return ActionFramesResult(screenshots, waits, self._large_changes, self._typed.result())

    def _answer(self, progress: RequestProgress) -> None:
        """Write the screenshot; a target that was redrawn since its scan is no place of leaks.

        A pause is compared and written when it may be a wait.
        """
        choice, request = self._writer.choose(progress), progress.request
        self._typed.see(request.action_index, choice.frame)
        pictures = self._scanned.pictures(request, choice.frame, progress.latest)
        if request.pause:
            self._pauses[request.action_index] = progress, choice, pictures
            return
        self._open.remove(progress)
        if request.continued and not self._is_replaced(choice.frame):
            self._screenshots[request.action_index] = Screenshot(request.action_index, CONTINUED)
            return
        self._shown = None if choice.frame is None else choice.frame.quartered
        redrawn = self._scanned.compare(request, pictures)
        screenshot = self._writer.write(progress, choice, at_target=not redrawn)
        self._screenshots[request.action_index] = screenshot

    def _is_replaced(self, frame: Frame | None) -> bool:
        """Whether a frame shows another screen than the last screenshot of an action."""
        shown = self._shown
        if shown is None or frame is None or shown.shape != frame.quartered.shape:
            return False
        changed = changed_cells(shown, frame.quartered, MEAN_LEVELS)
        tall = cv2.boundingRect(changed.view(np.uint8))[3] >= REPLACED_HEIGHT * changed.shape[0]
        return tall and bool(np.count_nonzero(changed) >= LARGE_SHARE * changed.size)

    def _settle_pause(self, index: int) -> None:
        """Write the screenshot of a pause that may have been a wait, and let go of its frame."""
        progress, choice, pictures = self._pauses.pop(index)
        if self._waits.may_be_wait(index):
            self._scanned.compare(progress.request, pictures)
            self._screenshots[index] = self._writer.write(progress, choice)

    def _leave_out_pause(self, index: int) -> None:
        """The pause was thinking: it gets no screenshot."""
        written = self._screenshots.get(index)
        if written is not None:
            self._writer.remove(written)
        self._scanned.leave_out(index)
        self._screenshots[index] = Screenshot(index, PAUSE_REASON)


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
