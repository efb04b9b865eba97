"""The screenshot of an action: its final frame, the PNG, and how the frame relates to the press."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demo_pipeline.common.png import PngWriter
from demo_pipeline.observation.calibration.canvas import Canvas, fit_canvas
from demo_pipeline.observation.frames.fallback_frames import FallbackFrames
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frame_choice import FrameChoice, Reason
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    without_box,
)
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.request_progress import RequestProgress
from demo_pipeline.observation.frames.rgb_converter import RgbConverter
from demo_pipeline.observation.frames.thumbnails import ThumbnailWriter
from demo_pipeline.observation.frames.video_frames import TIME_TOLERANCE_S, Frame
from demo_pipeline.observation.frames.video_pointer import VideoPointer

MAX_STALE_S = 0.5  # seconds; a frame says nothing about a later screen unless a frame follows it
MAX_STALE_FRAMES = 2  # frame distances; the same for a video with a low frame rate
UNKNOWN_SCALE_REASON = "unknown_scale"  # where an action's coordinates are in the video
PAUSE_REASON = "pause"  # `reason_code` of a pause that was not a wait


@dataclass(frozen=True)
class Screenshot:
    """What the video shows before one action; fields as in `screenshots.FRAMES_SCHEMA`."""

    action_index: int
    reason: str
    file: str | None = None
    pts: int | None = None
    time: float | None = None
    lead_ms: float | None = None
    leak: bool = False
    unavoidable: bool = False
    pointer_distance_px: float | None = None
    settle_ms: float | None = None


class ScreenshotWriter:
    """Writes screenshots on the canvas as NNN.png and final.png into a folder.

    Args:
        video: of the recording.
        fallbacks: the frames of requests without a candidate.
        pointer: where the pointer is.
        folder: to write into.
        thumbnails: takes the thumbnail of each screenshot.
    """

    def __init__(
        self,
        video: RecordedVideo,
        fallbacks: FallbackFrames,
        pointer: VideoPointer,
        folder: Path,
        thumbnails: ThumbnailWriter,
    ) -> None:
        self._video = video
        self._fallbacks = fallbacks
        self._pointer = pointer
        self._folder = folder
        self._thumbnails = thumbnails
        self._png = PngWriter()
        self._colours = RgbConverter()
        self._max_stale_s = max(MAX_STALE_S, MAX_STALE_FRAMES * video.frame_s)

    def write(
        self, progress: RequestProgress, choice: FrameChoice, *, at_target: bool = True
    ) -> Screenshot:
        """Write the PNG of a request whose span has passed.

        Args:
            progress: of the request.
            choice: of the frame, by `choose`.
            at_target: whether the pointer inside the target's box is at the target; otherwise it
                is when near the press, because another element is there now.
        """
        request, (frame, reason) = progress.request, choice
        if frame is None:
            return Screenshot(request.action_index, Reason.MISSING)
        canvas = self._canvas_of(request, frame)
        if canvas is None:
            return Screenshot(request.action_index, UNKNOWN_SCALE_REASON)
        name = f"{request.action_index:03d}.png"
        rgb = self._colours.rgb(frame)
        picture = canvas.fit(rgb)
        self._png.write(self._folder / name, picture)
        as_it_is = frame if picture is rgb else None
        self._thumbnails.add(request.action_index, picture, as_it_is)
        aimed = request if at_target else without_box(request)
        leak, unavoidable, distance = self._pointer.leak(aimed, frame.time)
        return Screenshot(
            request.action_index,
            reason,
            name,
            frame.pts,
            frame.time,
            (request.press - frame.time) * 1000,
            leak,
            unavoidable,
            distance,
            progress.seconds_still(frame) * 1000,
        )

    def remove(self, screenshot: Screenshot) -> None:
        """Remove the PNG of a pause that was no wait after all."""
        if screenshot.file is not None:
            (self._folder / screenshot.file).unlink(missing_ok=True)

    def write_final(self, frame: Frame) -> None:
        """Write final.png."""
        event_ms = self._pointer.clock.event_time(frame.time)
        canvas = _if_fitting(self._pointer.screen.at(event_ms).canvas, frame)
        canvas = canvas or fit_canvas(frame.size, 1.0)
        self._png.write(self._folder / FINAL_FILE, canvas.fit(self._colours.rgb(frame)))

    def _canvas_of(self, request: FrameRequest, frame: Frame) -> Canvas | None:
        """The canvas that holds from the frame to the action; None: it is not known."""
        clock, screen = self._pointer.clock, self._pointer.screen
        if not screen.in_same(clock.event_time(frame.time), request.press_ms):
            return None
        return _if_fitting(request.canvas, frame)

    def choose(self, progress: RequestProgress) -> FrameChoice:
        """The chooser's choice, or another frame when the video does not support that one."""
        frame, reason = progress.chooser.choice()
        if frame is None or self._is_stale(progress.request.limit, progress.latest):
            return self._fallback(progress.request, progress.latest)
        if self._misses_candidates(progress, frame, reason):
            return FrameChoice(frame, Reason.BACKOFF)
        return FrameChoice(frame, reason)

    def _misses_candidates(self, progress: RequestProgress, frame: Frame, reason: Reason) -> bool:
        """Whether the rule might have chosen a frame that did not decode or is after the end."""
        request = progress.request
        begin, until = frame.time, request.approach
        if reason is not Reason.PRE_MOVE:
            begin, until = max(request.since, request.span.start), request.limit
        earliest, latest = begin + TIME_TOLERANCE_S, until - TIME_TOLERANCE_S
        first, last = np.searchsorted(self._video.times, [earliest, latest])
        seen = sum(earliest < time < latest for time in progress.candidates)
        video_end = self._video.times[-1] + SPAN_MARGIN_FRAMES * self._video.frame_s
        return bool(last - first > seen or until > video_end)

    def _is_stale(self, limit: float, latest: Frame | None) -> bool:
        """Whether the newest candidate is too old to show the screen at the limit.

        The decoder failed, or the video ended, too long before the limit.
        """
        times = self._video.times
        position = self._position_before(limit)
        due = float(times[max(0, position)])
        if position == len(times) - 1:
            due = limit
        return latest is not None and due - latest.time > self._max_stale_s

    def _fallback(self, request: FrameRequest, latest: Frame | None) -> FrameChoice:
        """The nearest frame before the limit or before the press; none after the video's end.

        `latest` is the newest candidate.
        """
        if request.press > self._video.times[-1] + self._max_stale_s:
            return FrameChoice(None, Reason.MISSING)
        position = self._position_before(request.limit)
        reason = Reason.BACKOFF if position >= 0 else Reason.FIRST_FRAME
        reason = Reason.WAITING if request.pause else reason
        frame = self._fallbacks.take(request)
        if frame is None:
            due = float(self._video.times[max(0, position)])
            is_due = latest is not None and abs(latest.time - due) <= TIME_TOLERANCE_S
            frame = latest if is_due else None
        latest_s = max(request.limit + TIME_TOLERANCE_S, request.press - TIME_TOLERANCE_S)
        if frame is None or frame.time > latest_s:
            return FrameChoice(None, Reason.MISSING)
        return FrameChoice(frame, reason)

    def _position_before(self, time: float) -> int:
        """Number of the last frame of the video no later than `time`; -1 without one."""
        found = np.searchsorted(self._video.times, time + TIME_TOLERANCE_S, side="right")
        return int(found) - 1


def _if_fitting(canvas: Canvas | None, frame: Frame) -> Canvas | None:
    """The canvas if it is of frames of this size: a video may change it in mid-stream."""
    if canvas is None or (canvas.video_width, canvas.video_height) != frame.size:
        return None
    return canvas
