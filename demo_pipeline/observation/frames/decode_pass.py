"""The decode pass: the frames that observers ask for, decoded once and in order, shown to all.

Belongs here: the loop over frames, and the queue of open requests. Memory holds the frames of open
requests, however long the video is. Which pauses were waits is known only at the end: their frames
are kept until then.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
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
from demo_pipeline.observation.frames.border_presses import BorderPresses
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.continued_typing import ContinuedTyping
from demo_pipeline.observation.frames.evidence import Evidence, Hover, Wait
from demo_pipeline.observation.frames.final_frame import FinalFrame
from demo_pipeline.observation.frames.frame_choice import FrameChoice, FrameChooser, Reason
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    ScannedTarget,
    merge_spans,
)
from demo_pipeline.observation.frames.hovers import HoverObserver, waits_without_hovers
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.scan_comparisons import ActionScreens, ScanComparison
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

MOST_HELD = 16  # actions compared later, with up to four pictures of 0.5 MB in 1080p each
SURE_MS = 250  # ms of clock uncertainty; beyond, scans, scrolls and pauses match other frames

Seen_contra = TypeVar("Seen_contra", contravariant=True)


class _Observer(Protocol[Seen_contra]):
    """Asks for spans of the video and sees its frames, or what changed in them, in order.

    It also sees those that only others asked for. Each frame that it keeps makes decoding the next
    one about a tenth slower.
    """

    @property
    def spans(self) -> Sequence[Span]:
        """Spans of video time whose frames it needs."""

    def see(self, seen: Seen_contra, /) -> None:
        """Take the next frame in presentation order."""


Requests = Sequence[FrameRequest]
Rescaled = Callable[[float | None], Requests]
"""The requests of all actions with trees in other units; None: as if nothing had a known box."""


@dataclass
class _Waiting:
    """A request that is not answered yet.

    Attributes:
        request: for a tree whose boxes fit the picture as they are.
        choosers: by the scale of the tree, of those that may be right; none before its span.
    """

    request: FrameRequest
    choosers: dict[float | None, FrameChooser] = field(default_factory=dict)

    def chooser(self, scale: float | None) -> FrameChooser:
        """The one for a scale, or else the one that needs no box."""
        return next(self.choosers[one] for one in (scale, None, 1.0) if one in self.choosers)


class _ActionFrames:
    """Shows frames to the open requests and writes screenshots.

    How the boxes of a scan fit the picture is known when the scan was seen, which may be after the
    first frames of a request: it then has a chooser with its target and one without.

    Args:
        screen: its parts, which may become more.
        requests: in the order of the actions.
        rescaled: the same for trees that do not fit as they are.
        waits: tells which pauses were waits.
        writer: writes the screenshot of an answered request.
        private: tells when the screen was dark.
        comparisons: compare an answered request with its scan, and with typing before it; the
            first sees each frame before this observer.
        frame_s: usual distance of two frames, seconds.

    Attributes:
        requests: as they were answered.
        large_changes: times at which much of the screen changed, ascending video seconds.
    """

    def __init__(  # noqa: PLR0917 - what it works with
        self,
        screen: ScreenParts,
        requests: Requests,
        rescaled: Rescaled,
        waits: WaitObserver,
        writer: ScreenshotWriter,
        private: PrivateScreen,
        comparisons: tuple[ScanComparison, TypedPlaces],
        frame_s: float,
    ) -> None:
        self._screen, self._parts = screen, len(screen)
        self.requests = list(requests)
        self._rescaled = rescaled
        self._by_scale: dict[float | None, Requests] = {1.0: requests}
        self._unanswered = deque(map(_Waiting, requests))
        self._open = deque(one for one in self._unanswered if not one.request.pause)
        self._waits = waits
        self._writer = writer
        self._private = private
        self._scanned, self._typed = comparisons
        self._margin_s = SPAN_MARGIN_FRAMES * frame_s
        self._screenshots: dict[int, Screenshot] = {}
        self._pauses: dict[int, tuple[FrameChooser, FrameChoice, ActionScreens | None]] = {}
        self._held: list[tuple[ScannedTarget, int, ActionScreens]] = []
        self._typed_on = ContinuedTyping()
        self.large_changes: list[float] = []

    @property
    def spans(self) -> Sequence[Span]:
        """Those of the requests, except for pauses."""
        return [request.span for request in self.requests if not request.pause]

    def see(self, diff: FrameDiff) -> None:
        """Answer the requests whose spans have passed; show the frame to the others."""
        time = diff.frame.time
        if len(self._screen) > self._parts:
            self._ask_anew()
        while self._unanswered and time > self._unanswered[0].request.span.end + TIME_TOLERANCE_S:
            self._answer(self._unanswered.popleft())
        for index in list(self._pauses):
            if self._waits.may_be_wait(index) is not None:
                self._settle_pause(index)
        for waiting in self._open:
            if time < waiting.request.span.start - self._margin_s:
                break
            self._begin(waiting)
            if waiting.request.continued:
                self._typed_on.follow(diff.before, diff.frame)
            is_large = [chooser.see(diff) for chooser in waiting.choosers.values()]
            if any(is_large) and time not in self.large_changes[-1:]:
                self.large_changes.append(time)

    def result(
        self, misplaced: Collection[int], hovers: Sequence[Hover], clock: Clock
    ) -> tuple[list[Screenshot], list[Wait]]:
        """A screenshot for each request, in their order, and the waits; after the last frame.

        What was seen at the wrong place, before `misplaced` actions, is not evidence of a wait. Nor
        is what the pointer itself opened, by `hovers`.
        """
        while self._unanswered:
            self._answer(self._unanswered.popleft())
        self._compare_held(is_end=True)
        waits = [
            wait
            for wait in self._waits.result()
            if not {wait.action_index, wait.action_index + 1}.intersection(misplaced)
        ]
        waits = waits_without_hovers(waits, hovers, clock)
        for index in list(self._pauses):
            self._settle_pause(index)
        waited = {wait.action_index for wait in waits}
        for request in self.requests:
            if request.pause and request.action_index not in waited:
                self._leave_out_pause(request.action_index)
        return [self._screenshots[request.action_index] for request in self.requests], waits

    def forget(self, misplaced: Collection[int]) -> None:
        """Forget what was compared at the wrong place, of actions by index."""
        for index in misplaced:
            self._scanned.leave_out(self.requests[index])
            self._typed.found.pop(index, None)

    def _ask_anew(self) -> None:
        """Make the requests anew that were not begun when the screen was given another size."""
        self._parts = len(self._screen)
        self._by_scale = {1.0: self._rescaled(1.0)}
        for waiting in self._unanswered:
            if not waiting.choosers:
                index = waiting.request.action_index
                waiting.request = self.requests[index] = self._by_scale[1.0][index]

    def _begin(self, waiting: _Waiting) -> None:
        """Make the choosers of a request, one for each scale that its tree may have."""
        if waiting.choosers:
            return
        request = waiting.request
        scales = self._scanned.scales
        possible: list[float | None] = [1.0]
        if request.scan is not None and request.target is not None:
            if not self._scanned.note_scale(request, is_last=False):
                possible = [None, *self._by_scale]
            elif (scale := scales.at(request.scan.event_index)) != 1.0:
                possible = [None, scale]
        for scale in dict.fromkeys(possible):
            waiting.choosers[scale] = FrameChooser(self._request(request.action_index, scale))

    def _request(self, index: int, scale: float | None) -> FrameRequest:
        """The request of an action with a tree of a scale."""
        if scale not in self._by_scale:
            self._by_scale[scale] = self._rescaled(scale)
        return self._by_scale[scale][index]

    def _answer(self, waiting: _Waiting) -> None:
        """Write the screenshot; a target that was redrawn since its scan is not a place of leaks.

        A pause is compared and written when it may be a wait.
        """
        self._begin(waiting)
        request: FrameRequest = waiting.request
        scale: float | None = 1.0
        if request.scan is not None:
            self._scanned.note_scale(request, is_last=True)
            self._compare_held()
            scale = self._scanned.scales.at(request.scan.event_index)
        chooser = waiting.chooser(scale)
        choice = self._writer.choose(chooser)
        self._typed.see(request.action_index, choice.frame)
        pictures = self._scanned.pictures(request, choice.frame, chooser.latest)
        if request.pause:
            self._pauses[request.action_index] = chooser, choice, pictures
            return
        self._open.remove(waiting)
        is_same = request.continued and not self._private.was_dark(request.since, request.press)
        if is_same and not request.after_long_rest:
            is_same = not self._typed_on.is_replaced(choice.frame, chooser.latest)
        self._typed_on.see(choice.frame, request.point)
        if is_same:
            continued = Screenshot(request.action_index, Reason.CONTINUED)
            self._screenshots[request.action_index] = continued
            return
        redrawn = self._compare(request.scan, request.action_index, pictures)
        screenshot = self._writer.write(chooser, choice, at_target=not redrawn)
        self._screenshots[request.action_index] = screenshot

    def _compare(
        self, scan: ScannedTarget | None, index: int, pictures: ActionScreens | None
    ) -> bool:
        """Whether the target was redrawn since the scan; held while the scan's scale is open.

        A scan whose scale is in doubt says nothing of the screen.
        """
        if scan is None or pictures is None:
            return False
        scales = self._scanned.scales
        if scales.is_open(scan.event_index):
            self._held.append((scan, index, pictures))
            return False
        scale = scales.at(scan.event_index)
        return scale is not None and self._scanned.compare(self._request(index, scale), pictures)

    def _compare_held(self, *, is_end: bool = False) -> None:
        """Compare the actions whose scans' scale is known by now."""
        scales = self._scanned.scales
        held = self._held
        is_open = bool(held) and scales.is_open(held[0][0].event_index)
        if is_open and (is_end or len(held) == MOST_HELD):
            scales.give_up()
        elif is_open:
            return
        self._held = []
        for one in held:
            self._compare(*one)

    def _settle_pause(self, index: int) -> None:
        """Write the screenshot of a pause that may have been a wait, and let go of its frame."""
        chooser, choice, pictures = self._pauses.pop(index)
        if self._waits.may_be_wait(index):
            self._compare(chooser.request.scan, index, pictures)
            self._screenshots[index] = self._writer.write(chooser, choice)

    def _leave_out_pause(self, index: int) -> None:
        """The pause was thinking: it gets no screenshot."""
        if index in self._screenshots:
            self._writer.remove(self._screenshots[index])
        self._scanned.since_scan.pop(index, None)
        self._screenshots[index] = Screenshot(index, Reason.PAUSE)


@dataclass(frozen=True)
class DecodeResult:
    """What the decode pass observed.

    Attributes:
        evidence: what later stages read.
        screenshots: one for each request, in their order.
        stopped: whether the action that may have stopped the recorder did so.
        decoded: number of frames decoded.
        digests: SHA-256 of the pictures, by their names.
    """

    evidence: Evidence
    screenshots: Sequence[Screenshot]
    stopped: bool
    decoded: int
    digests: dict[str, str]


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
    possible_stop: Action | None = None,
    stopped_ms: int | None = None,
    several_displays: bool = False,
    native: bool = False,
) -> DecodeResult:
    """Answer the requests of all `actions`; write NNN.png, final.png and their table into `folder`.

    `requests` are for trees whose boxes fit the picture as they are, `rescaled` gives others.
    `private` tells when the screen was dark or locked.
    `possible_stop` is the last action, when it may have stopped the recorder, `stopped_ms` when its
    shortcut was pressed; `desktops` are those of the scans. `several_displays`: see
    `BorderPresses`; `native`: see `ScreenshotWriter`.

    Raises:
        DemonstrationError: no frame of the video decodes.
    """
    clock = calibration.clock
    screen = calibration.screen
    pointer = VideoPointer(path, clock, screen, video.frame_s)
    near = replace(pointer, frame_s=video.grab_s)
    detector = deepcopy(calibration.detector)
    matched, asked = (actions, requests) if clock.uncertainty_ms <= SURE_MS else ([], [])
    scanned = ScanComparison(asked, video.times, detector, near)
    scrolls = ScrollMotion(matched, clock, screen)
    waits = WaitObserver(intervals_between(matched, asked, pointer), video.times, pointer)
    hovers = HoverObserver(matched, asked, video.times, pointer)
    earlier = requests[possible_stop.action_index].since if possible_stop else 0.0
    stop = StopEffect(possible_stop, clock, float(video.times[-1]), earlier)
    watch = ScreenWatch(calibration, desktops)
    final = _final_frame(video, clock, actions, stopped_ms)
    typed = TypedPlaces(actions, detector, near)
    border = BorderPresses(actions, pointer, video.times, several_displays=several_displays)
    with open_screenshot_files(folder) as pictures:
        writer = ScreenshotWriter(video, requests, pointer, pictures, native=native)
        compared = (scanned, typed)
        frame_s = video.frame_s
        answers = _ActionFrames(
            screen, requests, rescaled, waits, writer, private, compared, frame_s
        )
        observers = (scanned, scrolls, answers, final, stop, watch)
        single_frames = (private, writer.fallbacks, waits, hovers, border)
        decoded, last = show_frames(video, observers, detector, pointer, single_frames)
        watch.finish()
        planned = _misplaced(actions, requests, screen)  # waits and scrolls were planned before
        opened = hovers.result(planned)
        shots, waited = answers.result(planned, opened, clock)
        private_actions, stretches = private.result()
        shots = [_without_picture(shot, writer, private_actions) for shot in shots]
        waited = [wait for wait in waited if wait.action_index not in private_actions]
        screenshots = list(writer.placed(zip(shots, actions, answers.requests, strict=True)))
        shown = final.result() or _any_frame(video, last)
        writer.write_final(private.desktop_before(shown.time) or shown)
    answers.forget(_misplaced(actions, answers.requests, screen))
    wheel = scrolls.result(planned)
    evidence = _evidence(
        calibration, scanned, typed, answers, waited, opened, wheel, border.elsewhere()
    )
    if private_actions:
        ends = float(video.times[-1])
        limits = [(stretch.start, min(stretch.end, ends)) for stretch in stretches]
        evidence = evidence.without(private_actions, limits)
    return DecodeResult(evidence, screenshots, stop.result(), decoded, pictures.digests)


def _without_picture(
    shot: Screenshot, writer: ScreenshotWriter, private_actions: Collection[int]
) -> Screenshot:
    """The screenshot, or for a private action none: a lock screen may show what is typed."""
    if shot.action_index not in private_actions:
        return shot
    writer.remove(shot)
    return Screenshot(shot.action_index, Reason.PRIVATE)


def _misplaced(actions: Sequence[Action], requests: Requests, screen: ScreenParts) -> set[int]:
    """Indexes of the actions whose requests have another canvas than is known by now."""
    return {
        action.action_index
        for action, request in zip(actions, requests, strict=True)
        if request.canvas != screen.canvas_of(action)
    }


def _evidence(  # noqa: PLR0917 - what was observed
    calibration: Calibration,
    scanned: ScanComparison,
    typed: TypedPlaces,
    answers: _ActionFrames,
    waits: Sequence[Wait],
    hovers: Sequence[Hover],
    wheel: WheelVote,
    elsewhere: Sequence[int],
) -> Evidence:
    return Evidence.model_validate(
        {
            "clock": calibration.clock.rounded(),
            "canvas": calibration.canvas,
            "wheel": wheel,
            "waits": waits,
            "hovers": hovers,
            "screen_changes_s": [round(time, DECIMALS) for time in answers.large_changes],
            "targets": [found for _, found in sorted(scanned.targets.items())],
            "typed": [
                {"action_index": index, "places": places}
                for index, places in sorted(typed.found.items())
            ],
            "dotted": typed.dotted,
            "tree_scales": [
                {"scan_event": line, "scale": scale}
                for line, scale in scanned.scales.parts().items()
            ],
            "since_scan": [found for _, found in sorted(scanned.since_scan.items())],
            "elsewhere": elsewhere,
            "parts": calibration.screen.rounded() if len(calibration.screen) > 1 else (),
        }
    )


def _final_frame(
    video: RecordedVideo, clock: Clock, actions: Sequence[Action], stopped_ms: int | None
) -> FinalFrame:
    """The observer for final.png: after the last action, and before the recorder was stopped."""
    ends = [clock.video_time(action.end_ms) for action in actions]
    until = clock.video_time(stopped_ms) if stopped_ms else float("inf")
    # The frame shown until then may be an old one: a variable rate has none while nothing changes.
    before = video.times[video.times < until]
    shown = float(before[-1] if len(before) else video.times[-1])
    return FinalFrame(min(shown, max(ends, default=float("inf"))), until)


def show_frames(
    video: RecordedVideo,
    observers: Sequence[_Observer[FrameDiff]],
    detector: ChangeDetector,
    pointer: VideoPointer,
    single_frames: Sequence[_Observer[Frame]] = (),
) -> tuple[int, Frame | None]:
    """Decode the spans of all observers once and show each frame to every observer, in turn.

    Those of `single_frames` see every frame first. Frames that only they asked for are shown to no
    other: they would split the time between two spans for those that compare successive frames.
    Returns how many frames were decoded, and the last one that was shown to all.
    """
    spans = merge_spans([span for one in observers for span in one.spans], video.frame_s)
    ends = np.array([span.end for span in spans]) + TIME_TOLERANCE_S
    last: Frame | None = None
    count = 0
    wanted = [span for one in single_frames for span in one.spans]
    for frame in video.frames(merge_spans([*spans, *wanted], 0.0)):
        count += 1
        for one in single_frames:
            one.see(frame)
        position = int(ends.searchsorted(frame.time))
        if position == len(ends) or frame.time < spans[position].start - TIME_TOLERANCE_S:
            continue
        diff = FrameDiff(last, frame, video.times, detector, pointer)
        for observer in observers:
            observer.see(diff)
        if last is not None and diff.is_next:
            detector.learn(last, frame)
        last = frame
        del diff  # holds the frame before, too: decoding the next one would be a tenth slower
    return count, last


def _any_frame(video: RecordedVideo, last: Frame | None) -> Frame:
    """The last frame that was seen, or the first, if there is none after the last action.

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
