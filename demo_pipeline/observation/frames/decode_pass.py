"""Decodes the video once and shows each frame to all observers that need it.

An *observer* names the spans of video that it needs, and sees the frames of these spans in order.
Only a few frames are held at a time, so memory use does not grow with the length of the video.
"""

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.clock.clock import DECIMALS, Clock
from demo_pipeline.observation.clock.screen_changes import DesktopSize, ScreenWatch
from demo_pipeline.observation.frames.action_frames import (
    ActionFrames,
    Requests,
    Rescaled,
    ScaledRequests,
)
from demo_pipeline.observation.frames.border_presses import BorderPresses
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.evidence import Evidence, Hover, Wait
from demo_pipeline.observation.frames.final_frame import FinalFrame
from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_fallback import FrameFallback
from demo_pipeline.observation.frames.frame_requests import merge_spans
from demo_pipeline.observation.frames.hovers import HoverObserver
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.scan_comparisons import ScanComparison
from demo_pipeline.observation.frames.screenshot_files import open_screenshot_files
from demo_pipeline.observation.frames.screenshot_writer import Screenshot, ScreenshotWriter
from demo_pipeline.observation.frames.scroll_motion import ScrollMotion
from demo_pipeline.observation.frames.stop_effect import StopEffect
from demo_pipeline.observation.frames.typed_places import TypedPlaces
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    Span,
)
from demo_pipeline.observation.frames.wait_observer import WaitObserver, intervals_between
from demo_pipeline.problems import DemonstrationError, Problem

# Milliseconds. If the clock's uncertainty is larger, scans, scrolls and pauses are not observed,
# because it is not known which frames belong to them.
SURE_MS = 250

Seen_contra = TypeVar("Seen_contra", contravariant=True)


class _Observer(Protocol[Seen_contra]):
    """Names the spans of video that it needs, and sees their frames in presentation order.

    It also sees frames that only other observers need. Each frame that an observer holds slows down
    decoding by about a tenth.
    """

    @property
    def spans(self) -> Sequence[Span]:
        """The spans whose frames the observer needs."""

    def see(self, seen: Seen_contra, /) -> None:
        """Processes the next frame in presentation order."""


@dataclass(frozen=True)
class RecorderFacts:
    """Facts about the recorder that the decode pass needs.

    Attributes:
        possible_stop: the last action if it may have stopped the recorder, otherwise None.
        stopped_ms: time at which the shortcut that stops the recorder was pressed, epoch
            milliseconds. None if it was not pressed.
        several_displays: whether meta.json says that the computer has another display.
    """

    possible_stop: Action | None = None
    stopped_ms: int | None = None
    several_displays: bool = False


UNKNOWN_RECORDER = RecorderFacts()


@dataclass(frozen=True)
class DecodeResult:
    """The results of the decode pass.

    Attributes:
        evidence: the content of evidence.json.
        screenshots: the row of frames.parquet for each request, in the order of the requests.
        stopped: whether `RecorderFacts.possible_stop` stopped the recorder.
        decoded: number of frames decoded.
        digests: maps the file name of each screenshot to its SHA-256.
    """

    evidence: Evidence
    screenshots: Sequence[Screenshot]
    stopped: bool
    decoded: int
    digests: dict[str, str]


@dataclass(frozen=True)
class _Observers:
    """The observers of a decode pass, except for those that choose and write frames."""

    scanned: ScanComparison
    typed: TypedPlaces
    scrolls: ScrollMotion
    waits: WaitObserver
    hovers: HoverObserver
    border: BorderPresses
    private: PrivateScreen
    stop: StopEffect
    final: FinalFrame


def run_decode_pass(
    video: RecordedVideo,
    requests: Requests,
    rescaled: Rescaled,
    *,
    calibration: Calibration,
    path: PointerPath,
    actions: Sequence[Action],
    folder: Path,
    private: PrivateScreen,
    desktops: Sequence[DesktopSize] = (),
    recorder: RecorderFacts = UNKNOWN_RECORDER,
    native: bool = False,
) -> DecodeResult:
    """Decodes the video, and writes the screenshots and pictures.parquet into `folder`.

    Args:
        requests: a request for each action. The requests assume that accessibility trees have the
            same units as the pointer's positions.
        rescaled: creates new requests if the trees turn out to have other units.
        calibration: the clock and the canvas. The decode pass adds parts of the recording with
            another screen size to `calibration.screen`.
        actions: in time order.
        folder: folder for NNN.png, final.png and pictures.parquet.
        private: finds the times at which the screen was dark or locked.
        desktops: the sizes of the desktop in the accessibility scans.
        native: whether to write screenshots in the screen's own size, too.

    Raises:
        DemonstrationError: no frame of the video decodes.
    """
    pointer = VideoPointer(path, calibration.clock, calibration.screen, video.frame_s)
    detector = deepcopy(calibration.detector)
    observers = _observers(video, requests, actions, pointer, detector, private, recorder)
    watch = ScreenWatch(calibration, desktops)
    fallback = FrameFallback(video, requests)
    single = (private, fallback.frames, observers.waits, observers.hovers, observers.border)
    with open_screenshot_files(folder) as files:
        writer = ScreenshotWriter(video, pointer, files, native=native)
        answers = ActionFrames(
            requests=ScaledRequests(calibration.screen, requests, rescaled),
            fallback=fallback,
            writer=writer,
            scanned=observers.scanned,
            typed=observers.typed,
            waits=observers.waits,
            private=private,
            frame_s=video.frame_s,
        )
        final = observers.final
        compared = (observers.scanned, observers.scrolls, answers, final, observers.stop, watch)
        decoded, last = show_frames(video, compared, detector, pointer, single)
        watch.finish()
        screenshots, evidence = _results(
            video, requests, actions, calibration, observers, answers, writer
        )
        final_frame = final.result() or _any_frame(video, last)
        writer.write_final(private.desktop_before(final_frame.time) or final_frame)
    return DecodeResult(evidence, screenshots, observers.stop.result(), decoded, files.digests)


def _results(  # noqa: PLR0917 - everything that took part in the decode pass
    video: RecordedVideo,
    requests: Requests,
    actions: Sequence[Action],
    calibration: Calibration,
    observers: _Observers,
    answers: ActionFrames,
    writer: ScreenshotWriter,
) -> tuple[list[Screenshot], Evidence]:
    """Returns the screenshots and the evidence. Call it after the last frame.

    Removes screenshots that turned out to be private or to have an unknown scale.
    """
    screen = calibration.screen
    # Some observers used the original `requests`. `answers.requests` may have replaced them since.
    misplaced = _misplaced(actions, requests, screen)
    hovers = observers.hovers.result(misplaced)
    screenshots, waits = answers.result(misplaced, hovers, calibration.clock)
    private_actions, private_stretches = observers.private.result()
    screenshots = _without_private(screenshots, writer, private_actions)
    screenshots = writer.without_unknown_scale(screenshots, actions, answers.requests)
    answers.forget(_misplaced(actions, answers.requests, screen))
    evidence = _evidence(
        calibration,
        observers,
        large_changes=answers.large_changes,
        waits=[wait for wait in waits if wait.action_index not in private_actions],
        hovers=hovers,
        wheel=observers.scrolls.result(misplaced),
    )
    if private_actions:
        end = float(video.times[-1])
        private_s = [(stretch.start, min(stretch.end, end)) for stretch in private_stretches]
        evidence = evidence.without(private_actions, private_s)
    return screenshots, evidence


def _observers(  # noqa: PLR0917 - everything that observers need
    video: RecordedVideo,
    requests: Requests,
    actions: Sequence[Action],
    pointer: VideoPointer,
    detector: ChangeDetector,
    private: PrivateScreen,
    recorder: RecorderFacts,
) -> _Observers:
    clock = pointer.clock
    times = video.times
    is_sure = clock.uncertainty_ms <= SURE_MS
    observed_actions = actions if is_sure else []
    observed_requests = requests if is_sure else []
    near_pointer = replace(pointer, frame_s=video.grab_s)
    intervals = intervals_between(observed_actions, observed_requests, pointer)
    stop = recorder.possible_stop
    previous_end = requests[stop.action_index].since if stop else 0.0
    several_displays = recorder.several_displays
    return _Observers(
        scanned=ScanComparison(observed_requests, times, detector, near_pointer),
        typed=TypedPlaces(actions, detector, near_pointer),
        scrolls=ScrollMotion(observed_actions, clock, pointer.screen),
        waits=WaitObserver(intervals, times, pointer),
        hovers=HoverObserver(observed_actions, observed_requests, times, pointer),
        border=BorderPresses(actions, pointer, times, several_displays=several_displays),
        private=private,
        stop=StopEffect(stop, clock, float(times[-1]), previous_end),
        final=_final_frame(video, clock, actions, recorder.stopped_ms),
    )


def _without_private(
    screenshots: Sequence[Screenshot], writer: ScreenshotWriter, private_actions: Collection[int]
) -> list[Screenshot]:
    """Removes the screenshots of private actions, because a lock screen may show typed text."""
    kept: list[Screenshot] = []
    for shot in screenshots:
        if shot.action_index not in private_actions:
            kept.append(shot)
            continue
        writer.remove(shot)
        kept.append(Screenshot(shot.action_index, Reason.PRIVATE))
    return kept


def _misplaced(actions: Sequence[Action], requests: Requests, screen: ScreenParts) -> set[int]:
    """Returns the indexes of the actions whose request was created with a wrong canvas."""
    return {
        action.action_index
        for action, request in zip(actions, requests, strict=True)
        if request.canvas != screen.canvas_of(action)
    }


def _evidence(
    calibration: Calibration,
    observers: _Observers,
    *,
    large_changes: Sequence[float],
    waits: Sequence[Wait],
    hovers: Sequence[Hover],
    wheel: WheelVote,
) -> Evidence:
    scanned = observers.scanned
    typed = observers.typed
    return Evidence.model_validate(
        {
            "clock": calibration.clock.rounded(),
            "canvas": calibration.canvas,
            "wheel": wheel,
            "waits": waits,
            "hovers": hovers,
            "screen_changes_s": [round(time, DECIMALS) for time in large_changes],
            "targets": [target for _, target in sorted(scanned.targets.items())],
            "typed": [
                {"action_index": index, "places": places}
                for index, places in sorted(typed.places.items())
            ],
            "dotted": typed.dotted,
            "tree_scales": [
                {"scan_event": line, "scale": scale}
                for line, scale in scanned.scales.parts().items()
            ],
            "since_scan": [changes for _, changes in sorted(scanned.since_scan.items())],
            "elsewhere": observers.border.elsewhere(),
            "parts": calibration.screen.rounded() if len(calibration.screen) > 1 else (),
        }
    )


def _final_frame(
    video: RecordedVideo, clock: Clock, actions: Sequence[Action], stopped_ms: int | None
) -> FinalFrame:
    """Returns the observer that chooses the frame of final.png.

    The frame lies after the last action, and before the recorder was stopped.
    """
    ends = [clock.video_time(action.end_ms) for action in actions]
    until = clock.video_time(stopped_ms) if stopped_ms else float("inf")
    # With a variable frame rate, the last frame before the stop can precede the end of the last
    # action.
    before_stop = video.times[video.times < until]
    last_shown = float(before_stop[-1] if len(before_stop) else video.times[-1])
    return FinalFrame(min(last_shown, max(ends, default=float("inf"))), until)


def show_frames(
    video: RecordedVideo,
    observers: Sequence[_Observer[FrameDiff]],
    detector: ChangeDetector,
    pointer: VideoPointer,
    single_frames: Sequence[_Observer[Frame]] = (),
) -> tuple[int, Frame | None]:
    """Decodes the spans of all observers once, and shows each frame to the observers in turn.

    The observers in `single_frames` see every decoded frame first. `observers` do not see frames
    that only `single_frames` need, because such a frame would come between two frames that
    `observers` compare.

    Returns:
        The number of decoded frames, and the last frame that `observers` saw.
    """
    compared: list[Span] = []
    for observer in observers:
        compared += observer.spans
    spans = merge_spans(compared, video.frame_s)
    ends = np.array([span.end for span in spans]) + TIME_TOLERANCE_S
    all_spans = list(spans)
    for single in single_frames:
        all_spans += single.spans
    last: Frame | None = None
    count = 0
    for frame in video.frames(merge_spans(all_spans, 0.0)):
        count += 1
        for single in single_frames:
            single.see(frame)
        number = int(ends.searchsorted(frame.time))
        if number == len(ends) or frame.time < spans[number].start - TIME_TOLERANCE_S:
            continue
        diff = FrameDiff(last, frame, video.times, detector, pointer)
        for observer in observers:
            observer.see(diff)
        if last is not None and diff.is_next:
            detector.learn(last, frame)
        last = frame
        # Holding a frame longer makes decoding a tenth slower.
        del diff
    return count, last


def _any_frame(video: RecordedVideo, last: Frame | None) -> Frame:
    """Returns `last` or, if it is None, the first frame of the video.

    Raises:
        DemonstrationError: no frame decodes.
    """
    first = Span(float(video.times[0]), float(video.times[0]))
    frame = last or next(video.frames([first]), None)
    if frame is None:
        message = f"none of its {len(video.times)} frames can be decoded"
        remedy = "upload the recording again"
        raise DemonstrationError(Problem("no_frames", VIDEO_FILE, message, remedy=remedy))
    return frame
