"""Writes the screenshot of an action, and computes its row of frames.parquet."""

from collections.abc import Sequence
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
from demo_pipeline.observation.frames.frame_requests import FrameRequest, without_box
from demo_pipeline.observation.frames.screenshot_files import ScreenshotFiles
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    RecordedVideo,
    RgbConverter,
)


@dataclass(frozen=True)
class Screenshot:
    """The row of an action in frames.parquet; `frames_table.FRAMES_SCHEMA` explains the fields."""

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
    """Writes screenshots, scaled to the canvas, as NNN.png and final.png.

    Args:
        native: whether to write screenshots in the screen's own size, too.
    """

    def __init__(
        self,
        video: RecordedVideo,
        pointer: VideoPointer,
        files: ScreenshotFiles,
        *,
        native: bool = False,
    ) -> None:
        self._video = video
        self._pointer = pointer
        self._files = files
        self._native = native
        self._colours = RgbConverter()

    def write(
        self, chooser: FrameChooser, choice: FrameChoice, *, at_target: bool = True
    ) -> Screenshot:
        """Writes the PNG of a request, and returns its row of frames.parquet.

        Call it after the last frame of the request.

        Args:
            choice: the frame, confirmed by `FrameFallback`.
            at_target: whether a pointer anywhere in the target's box counts as being at the target.
                If False, only a pointer near the press counts, because the box may contain another
                element by now.
        """
        request = chooser.request
        frame = choice.frame
        if frame is None:
            return Screenshot(request.action_index, Reason.MISSING)
        canvas = request.canvas or fit_canvas(frame.size, 1.0)
        name = f"{request.action_index:03d}.png"
        rgb = self._colours.rgb(frame)
        fitted = canvas.fit(rgb)
        self._files.write(name, fitted, frame if fitted is rgb else None)
        self._write_native(name, canvas, rgb)
        leak = self._pointer.leak(request if at_target else without_box(request), frame.time)
        return Screenshot(
            request.action_index,
            choice.reason,
            name,
            pts=round(frame.time, DECIMALS),
            frame=int(np.searchsorted(self._video.packets.pts, frame.pts)),
            lead_ms=round((request.press - frame.time) * 1000, 3),
            settle_ms=round(chooser.seconds_still(frame) * 1000, 3),
            leak=leak.is_leak,
            unavoidable=leak.is_unavoidable,
            pointer_distance_px=leak.distance_px,
            unproven_clock=frame.time > request.proven_until + TIME_TOLERANCE_S or None,
        )

    def remove(self, screenshot: Screenshot) -> None:
        """Removes the PNG of a screenshot that turned out to be wrong or not needed."""
        if screenshot.file is not None:
            self._files.remove(screenshot.file)

    def without_unknown_scale(
        self,
        screenshots: Sequence[Screenshot],
        actions: Sequence[Action],
        requests: Sequence[FrameRequest],
    ) -> list[Screenshot]:
        """Removes screenshots in which the place of the action is unknown.

        Call it after the last frame. A screenshot is kept if its frame and its action are in the
        same part of the recording, and if the `stretch` of this part's canvas was used for writing
        the screenshot.

        Args:
            screenshots: the row of frames.parquet for each action.
            actions: the actions, in time order.
            requests: the requests, with the canvases that were used for writing the screenshots.
        """
        screen = self._pointer.screen
        clock = self._pointer.clock
        kept: list[Screenshot] = []
        for shot, action, request in zip(screenshots, actions, requests, strict=True):
            canvas = screen.canvas_of(action)
            written = request.canvas
            is_known = canvas and written and canvas.stretch == written.stretch
            if shot.pts is None or (
                is_known and screen.in_same(clock.event_time(shot.pts), action.press_ms)
            ):
                kept.append(shot)
                continue
            self.remove(shot)
            kept.append(Screenshot(action.action_index, Reason.UNKNOWN_SCALE))
        return kept

    def write_final(self, frame: Frame) -> None:
        """Writes final.png."""
        event_ms = self._pointer.clock.event_time(frame.time)
        canvas = self._pointer.screen.at(event_ms).canvas or fit_canvas(frame.size, 1.0)
        rgb = self._colours.rgb(frame)
        self._files.write(FINAL_FILE, canvas.fit(rgb))
        self._write_native(FINAL_FILE, canvas, rgb)

    def _write_native(self, name: str, canvas: Canvas, rgb: Image) -> None:
        if not self._native:
            return
        image = native_image(canvas, rgb)
        if image is not None:
            self._files.write_native(name, image)


def native_image(canvas: Canvas, rgb: Image) -> Image | None:
    """Returns the screen in its own size, without distortion.

    Returns None if the screen has the size of the canvas. Exports use `fit_canvas` to find the
    position of the image on the canvas.

    Args:
        rgb: pixels of the frame, (height, width, 3).
    """
    size = (round(canvas.video_width / canvas.stretch), canvas.video_height)
    if size == CANVAS_SIZE:
        return None
    if rgb.shape[1::-1] == size:
        return np.ascontiguousarray(rgb)
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
