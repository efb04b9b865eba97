"""The screenshot of an action as a PNG, its thumbnail, and how the frame relates to the press.

Belongs here: thumbnails.parquet, its writer and its reader. Reading a whole PNG again costs more
than forty times as much as reading its thumbnail.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa

from demo_pipeline.files.image_files import Pixels, PngWriter
from demo_pipeline.files.parquet import TableWriter, described_schema, read_table
from demo_pipeline.observation.clock.canvas import Canvas, fit_canvas
from demo_pipeline.observation.clock.clock import DECIMALS
from demo_pipeline.observation.frames.frame_choice import (
    FrameChoice,
    FrameChooser,
    KeptFrames,
    Reason,
)
from demo_pipeline.observation.frames.frame_requests import (
    SPAN_MARGIN_FRAMES,
    FrameRequest,
    without_box,
)
from demo_pipeline.observation.frames.last_action import FINAL_FILE
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    RgbConverter,
    number_at,
    plane_rows,
    rotation,
)

THUMBNAILS_FILE = "thumbnails.parquet"
THUMBNAIL_WIDTH = 480  # pixels
_QUALITY = 92  # of the JPEG; its artefacts do not show in the JPEG of a contact sheet
_PLANES = "yuv420p"  # of nearly all recordings
_BATCH = 64  # thumbnails held in memory

THUMBNAILS_SCHEMA = described_schema(
    (
        ("action_index", pa.int32(), False, "row of actions.parquet"),
        ("jpeg", pa.binary(), False, f"the screenshot as a JPEG of {THUMBNAIL_WIDTH} pixels width"),
    )
)


class _ThumbnailWriter:
    """Adds thumbnails to thumbnails.parquet.

    A pause that was not a wait after all, and an action of the recorder, may leave a thumbnail
    whose screenshot is gone.
    """

    def __init__(self, table: TableWriter) -> None:
        self._colours = RgbConverter()
        self._table = table

    def add(self, action_index: int, rgb: Pixels, frame: Frame | None = None) -> None:
        """Add the thumbnail of a screenshot.

        Args:
            action_index: row of actions.parquet.
            rgb: the screenshot, (height, width, 3).
            frame: shows the same pixels; None: the screenshot is not a frame as it is.
        """
        height = round(rgb.shape[0] * THUMBNAIL_WIDTH / rgb.shape[1])
        planes = None if frame is None else _small_planes(frame, height)
        size = (THUMBNAIL_WIDTH, height)
        small = _resized_twice(rgb, size) if planes is None else self._colours.of_picture(planes)
        bgr = cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
        _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        self._table.append([action_index, data.tobytes()])


@contextmanager
def open_thumbnails(folder: Path) -> Iterator[_ThumbnailWriter]:
    """A writer of thumbnails.parquet, which leaves no file after an error."""
    with TableWriter(folder / THUMBNAILS_FILE, THUMBNAILS_SCHEMA, batch_rows=_BATCH) as table:
        yield _ThumbnailWriter(table)


def _resized_twice(picture: Pixels, size: tuple[int, int]) -> Pixels:
    """A picture at a size of (width, height), by way of twice the size: a third of the cost."""
    twice = (2 * size[0], 2 * size[1])
    return _resized(cv2.resize(picture, twice, interpolation=cv2.INTER_AREA), size)


def _resized(picture: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _small_planes(frame: Frame, height: int) -> Any:
    """A picture whose planes are made smaller before their colours are computed, not after.

    That takes a third of the time. None when the planes have another form.
    """
    picture = frame.picture
    if picture.format.name != _PLANES or rotation(picture) or height % 2:
        return None
    small = av.VideoFrame(THUMBNAIL_WIDTH, height, _PLANES)
    small.colorspace, small.color_range = picture.colorspace, picture.color_range
    for number, (source, plane) in enumerate(zip(picture.planes, small.planes, strict=True)):
        size = (plane.width, plane.height)
        if number == 0 and frame.halved.shape == (2 * plane.height, 2 * plane.width):
            reduced = _resized(frame.halved, size)
        else:
            reduced = _resized_twice(plane_rows(source)[: source.height, : source.width], size)
        np.copyto(plane_rows(plane)[: plane.height, : plane.width], reduced)
    return small


def read_thumbnails(folder: Path) -> Mapping[int, bytes]:
    """Action index → JPEG, from the folder of a demonstration's screenshots."""
    table = read_table(folder / THUMBNAILS_FILE, THUMBNAILS_SCHEMA)
    indexes, pictures = table["action_index"].to_pylist(), table["jpeg"].to_pylist()
    return dict(zip(indexes, pictures, strict=True))


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


class ScreenshotWriter:
    """Writes screenshots on the canvas as NNN.png and final.png into a folder.

    Args:
        video: of the recording.
        requests: whose screenshots will be written, in order.
        pointer: where the pointer is.
        folder: to write into.
        thumbnails: takes the thumbnail of each screenshot.

    Attributes:
        fallbacks: keeps the last frame before the limit for pauses, and for requests without one
            in their span: with a variable frame rate the screen may be older.
    """

    def __init__(
        self,
        video: RecordedVideo,
        requests: Sequence[FrameRequest],
        pointer: VideoPointer,
        folder: Path,
        thumbnails: _ThumbnailWriter,
    ) -> None:
        self._video, self._pointer = video, pointer
        self._folder, self._thumbnails = folder, thumbnails
        numbers = ((request, number_at(video.times, request.limit)) for request in requests)
        lone = (
            max(0, number)
            for request, number in numbers
            if request.pause or number < 0 or video.times[number] < request.span.start
        )
        self.fallbacks: KeptFrames[Frame] = KeptFrames(video.times, lone, lambda frame: frame)
        self._png = PngWriter()
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
        request, (frame, reason) = chooser.request, choice
        if frame is None:
            return Screenshot(request.action_index, Reason.MISSING)
        canvas = self._canvas_of(request, frame)
        if canvas is None:
            return Screenshot(request.action_index, Reason.UNKNOWN_SCALE)
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
            round(frame.time, DECIMALS),
            int(np.searchsorted(self._video.packets.pts, frame.pts)),
            round((request.press - frame.time) * 1000, 3),
            round(chooser.seconds_still(frame) * 1000, 3),
            leak,
            unavoidable,
            distance,
        )

    def remove(self, screenshot: Screenshot) -> None:
        """Remove the PNG of a pause that was not a wait after all."""
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
        begin, until = frame.time, request.approach
        if reason is not Reason.PRE_MOVE:
            begin, until = max(request.since, request.span.start), request.limit
        earliest, latest = begin + TIME_TOLERANCE_S, until - TIME_TOLERANCE_S
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
        if frame is None or frame.time > latest_s:
            return FrameChoice(None, Reason.MISSING)
        return FrameChoice(frame, reason)


def _if_fitting(canvas: Canvas | None, frame: Frame) -> Canvas | None:
    """The canvas if it is of frames of this size: a video may change it in mid-stream."""
    if canvas is None or (canvas.video_width, canvas.video_height) != frame.size:
        return None
    return canvas
