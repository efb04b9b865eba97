"""The screenshot of an action as a PNG, and how the frame relates to the press."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.canvas import (
    CANVAS_SIZE,
    Canvas,
    Image,
    fit_canvas,
)
from demo_pipeline.observation.clock.clock import DECIMALS
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frame_choice import FrameChoice, FrameChooser, Reason
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    without_box,
)
from demo_pipeline.observation.frames.kept_frames import KeptFrames
from demo_pipeline.observation.frames.screenshot_files import ScreenshotFiles
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    RgbConverter,
    number_at,
)

MAX_STALE_S = 0.5  # seconds; a frame says nothing about a later screen unless a frame follows it
MAX_STALE_FRAMES = 2  # frame distances; the same for a video with a low frame rate


@dataclass(frozen=True)
class Screenshot:
    """What the video shows before one action; fields as in `screenshots.FRAMES_SCHEMA`."""

    action_index: int
    reason_code: Reason
    file: str | None = None
    pts: float | None = None
    frame: int | None = None
    lead_ms: float | None = None
    settle_ms: float | None = None
    leak: bool = False
    unavoidable: bool = False
    pointer_distance_px: float | None = None
    unproven_clock: bool | None = None


class ScreenshotWriter:
    """Writes screenshots on the canvas as NNN.png and final.png.

    Args:
        video: of the recording.
        requests: whose screenshots will be written, in order.
        pointer: where the pointer is.
        pictures: takes them.
        native: whether to write the screen's own pictures beside them.

    Attributes:
        fallbacks: keeps the last frame before the limit for pauses, and for requests without one
            in their span: with a variable frame rate the screen may be older.
    """

    def __init__(
        self,
        video: RecordedVideo,
        requests: Sequence[FrameRequest],
        pointer: VideoPointer,
        pictures: ScreenshotFiles,
        *,
        native: bool = False,
    ) -> None:
        self._video = video
        self._pointer = pointer
        self._pictures = pictures
        self._native = native
        numbers = ((request, number_at(video.times, request.limit)) for request in requests)
        lone = (
            max(0, number)
            for request, number in numbers
            if request.pause or number < 0 or video.times[number] < request.span.start
        )
        self.fallbacks: KeptFrames[Frame] = KeptFrames(video.times, lone, lambda frame: frame)
        self._colours = RgbConverter()
        self._max_stale_s = max(MAX_STALE_S, MAX_STALE_FRAMES * video.frame_s)

    def write(
        self, chooser: FrameChooser, choice: FrameChoice, *, at_target: bool = True
    ) -> Screenshot:
        """Write the PNG of a request whose span has passed.

        Args:
            chooser: of the request.
            choice: of the frame, by `choose`.
            at_target: whether the pointer inside the target's box is at the target; otherwise it
                is when near the press, because another element is there now.
        """
        request = chooser.request
        (frame, reason) = choice
        if frame is None:
            return Screenshot(request.action_index, Reason.MISSING)
        canvas = request.canvas or fit_canvas(frame.size, 1.0)
        name = f"{request.action_index:03d}.png"
        rgb = self._colours.rgb(frame)
        picture = canvas.fit(rgb)
        self._pictures.write(name, picture, frame if picture is rgb else None)
        self._write_native(name, canvas, rgb)
        aimed = request if at_target else without_box(request)
        leak, unavoidable, distance = self._pointer.leak(aimed, frame.time)
        return Screenshot(
            request.action_index,
            reason,
            name,
            round(frame.time, DECIMALS),
            int(np.searchsorted(self._video.packets.pts, frame.pts)),
            round((request.press - frame.time) * 1000, 3),
            round(chooser.seconds_still(frame) * 1000, 3),
            leak,
            unavoidable,
            distance,
            frame.time > request.proven_until + TIME_TOLERANCE_S or None,
        )

    def remove(self, screenshot: Screenshot) -> None:
        """Remove the PNG of a pause that was not a wait after all, or whose place is not known."""
        if screenshot.file is not None:
            self._pictures.remove(screenshot.file)

    def placed(
        self, found: Iterable[tuple[Screenshot, Action, FrameRequest]]
    ) -> Iterator[Screenshot]:
        """Yield the screenshots, after the whole film; where no scale is known, without picture.

        One canvas must hold from the frame to the action, and undistort the picture as that did by
        which it was written.
        """
        screen = self._pointer.screen
        clock = self._pointer.clock
        for shot, action, request in found:
            canvas = screen.canvas_of(action)
            written = request.canvas
            is_known = canvas and written and canvas.stretch == written.stretch
            if shot.pts is None or (
                is_known and screen.in_same(clock.event_time(shot.pts), action.press_ms)
            ):
                yield shot
            else:
                self.remove(shot)
                yield Screenshot(action.action_index, Reason.UNKNOWN_SCALE)

    def write_final(self, frame: Frame) -> None:
        """Write final.png."""
        event_ms = self._pointer.clock.event_time(frame.time)
        canvas = self._pointer.screen.at(event_ms).canvas or fit_canvas(frame.size, 1.0)
        rgb = self._colours.rgb(frame)
        self._pictures.write(FINAL_FILE, canvas.fit(rgb))
        self._write_native(FINAL_FILE, canvas, rgb)

    def _write_native(self, name: str, canvas: Canvas, rgb: Image) -> None:
        if self._native and (own := native_picture(canvas, rgb)) is not None:
            self._pictures.write_native(name, own)

    def choose(self, chooser: FrameChooser) -> FrameChoice:
        """The chooser's choice, or another frame when the video does not support that one."""
        frame, reason = chooser.choice()
        if frame is None or self._is_stale(chooser.request.limit, chooser.latest):
            return self._fallback(chooser.request, chooser.latest)
        if self._misses_candidates(chooser, frame, reason):
            return FrameChoice(frame, Reason.BACKOFF)
        return FrameChoice(frame, reason)

    def _misses_candidates(self, chooser: FrameChooser, frame: Frame, reason: Reason) -> bool:
        """Whether the rule might have chosen a frame that did not decode or is after the end."""
        request = chooser.request
        begin = frame.time
        until = request.approach
        if reason is not Reason.PRE_MOVE:
            begin = max(request.since, request.span.start)
            until = request.limit
        earliest = begin + TIME_TOLERANCE_S
        latest = until - TIME_TOLERANCE_S
        first, last = np.searchsorted(self._video.times, [earliest, latest])
        seen = sum(earliest < time < latest for time in chooser.candidates)
        video_end = self._video.times[-1] + SPAN_MARGIN_FRAMES * self._video.frame_s
        return bool(last - first > seen or until > video_end)

    def _is_stale(self, limit: float, latest: Frame | None) -> bool:
        """Whether the newest candidate is too old to show the screen at the limit.

        The decoder failed, or the video ended, too long before the limit.
        """
        times = self._video.times
        number = number_at(times, limit)
        due = limit if number == len(times) - 1 else float(times[max(0, number)])
        return latest is not None and due - latest.time > self._max_stale_s

    def _fallback(self, request: FrameRequest, latest: Frame | None) -> FrameChoice:
        """The nearest frame before the limit or before the press; none after the video's end.

        `latest` is the newest candidate.
        """
        times = self._video.times
        number = number_at(times, request.limit)
        if request.press > times[-1] + self._max_stale_s:
            return FrameChoice(None, Reason.MISSING)
        reason = Reason.BACKOFF if number >= 0 else Reason.FIRST_FRAME
        reason = Reason.WAITING if request.pause else reason
        self.fallbacks.forget_before(max(0, number))
        frame = self.fallbacks.get(max(0, number))
        if frame is None and latest is not None:
            is_due = abs(latest.time - times[max(0, number)]) <= TIME_TOLERANCE_S
            frame = latest if is_due else None
        latest_s = max(request.limit + TIME_TOLERANCE_S, request.press - TIME_TOLERANCE_S)
        if frame is None or frame.time > latest_s or frame.is_black:
            return FrameChoice(None, Reason.MISSING)
        return FrameChoice(frame, reason)


def native_picture(canvas: Canvas, rgb: Image) -> Image | None:
    """The recorded screen in its own size, undistorted.

    None: its size is that of the canvas. `fit_canvas` of its size gives its place on the canvas.

    Args:
        canvas: of the picture.
        rgb: the video's picture, (height, width, 3).
    """
    size = (round(canvas.video_width / canvas.stretch), canvas.video_height)
    if size == CANVAS_SIZE:
        return None
    if rgb.shape[1::-1] == size:
        return np.ascontiguousarray(rgb)
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
