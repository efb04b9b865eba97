"""Converts positions of the log to pixels of the video and of the 1920x1080 canvas.

*Event space* is the coordinate system of the log: its unit is a screen pixel, or a point on macOS.
The *event scale* is the number of video pixels per unit of event space. If the resolution changes
during a recording, each part has a canvas of its own.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Any, Literal

import cv2
import numpy as np
from pydantic import (
    BeforeValidator,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
)

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.desktopd.models import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.files.recording_files import META_FILE
from demo_pipeline.observation.clock.clock import DECIMALS
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.meta import Meta

CANVAS_SIZE = (CANVAS_WIDTH, CANVAS_HEIGHT)
# Minimum size of the pointer's visible part, video pixels. A smaller part may move without changing
# a cell (8 x 8 pixels).
LEAST_SHOWN_PX = 8.0

Image = np.ndarray[Any, np.dtype[np.uint8]]
Boxes = np.ndarray[Any, np.dtype[np.float64]]
"""(boxes, 4): x, y, width, height; NaN for nodes of an accessibility tree without a usable box."""
ScaleMethod = Literal["pixels", "monitor", "assumed"]


@dataclass(frozen=True)
class Canvas:
    """Converts event space to video pixels and to canvas pixels.

    event * event_scale = video pixels; video pixels * scale + pad = canvas pixels

    A video keeps its size when the screen's resolution changes. It then has black bars around the
    screen, or shows the screen stretched. The canvas undoes both.

    Attributes:
        width, height: size of the canvas, pixels.
        video_width, video_height: size of the video as a player shows it, pixels.
        event_scale: vertical video pixels per unit of event space.
        scale: canvas pixels per vertical video pixel.
        pad_x, pad_y: width of the left and height of the upper black bar on the canvas, canvas
            pixels.
        scale_method: the evidence for the event scale: `pixels` (the pointer in the video),
            `monitor` (meta.json's primary_monitor), or `assumed`.
        left: width of the black bar at each side of the video, pixels.
        top: height of the black bar at the top and at the bottom of the video, pixels.
        stretch: width of the screen in the video relative to its undistorted width.
    """

    width: PositiveInt
    height: PositiveInt
    video_width: PositiveInt
    video_height: PositiveInt
    event_scale: PositiveFloat
    scale: PositiveFloat
    pad_x: NonNegativeInt
    pad_y: NonNegativeInt
    scale_method: ScaleMethod = "assumed"
    left: float = 0.0
    top: float = 0.0
    stretch: float = 1.0

    @property
    def event_to_canvas(self) -> float:
        """Canvas pixels per unit of event space."""
        return self.event_scale * self.scale

    @property
    def shown_size(self) -> tuple[float, float]:
        """Width and height of the screen in the video, without bars and undistorted, pixels."""
        width = (self.video_width - 2 * self.left) / self.stretch
        return width, self.video_height - 2 * self.top

    @property
    def inner_size(self) -> tuple[int, int]:
        """Width and height of the screen on the canvas, between the bars, canvas pixels."""
        width, height = self.shown_size
        inner_width = min(self.width, max(1, round(width * self.scale)))
        inner_height = min(self.height, max(1, round(height * self.scale)))
        return inner_width, inner_height

    @property
    def event_size(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        width, height = self.shown_size
        return width / self.event_scale, height / self.event_scale

    def to_canvas(self, x: float, y: float) -> tuple[float, float]:
        """Converts event coordinates to canvas pixels, which may be outside the canvas."""
        factor = self.event_to_canvas
        return x * factor + self.pad_x, y * factor + self.pad_y

    def pixel_of(self, x: float, y: float) -> tuple[int, int]:
        """Returns the canvas pixel nearest to a point in event space, never a pixel of the bars.

        If the screen is not larger than the canvas,
        `round((pixel - pad) / event_to_canvas)` converts the pixel back to the same point. On a
        screen n times as large as the canvas, the formula is off by at most n / 2 units.
        """
        across, down = self.to_canvas(x, y)
        inner_width, inner_height = self.inner_size
        column = min(max(ceil(across - 0.5), self.pad_x), self.pad_x + inner_width - 1)
        row = min(max(ceil(down - 0.5), self.pad_y), self.pad_y + inner_height - 1)
        return column, row

    def to_video(self, x: float, y: float) -> tuple[float, float]:
        """Converts event coordinates to video pixels."""
        across = x * self.event_scale * self.stretch
        return across + self.left, y * self.event_scale + self.top

    def box_to_video(self, box: PixelBox) -> PixelBox:
        """Converts a box in event space to video pixels."""
        x, y = self.to_video(box.x, box.y)
        right, bottom = self.to_video(box.right, box.bottom)
        return PixelBox(x, y, right - x, bottom - y)

    def boxes_to_video(self, boxes: Boxes) -> Boxes:
        """Converts boxes in event space to video pixels."""
        across = self.event_scale * self.stretch
        down = self.event_scale
        return boxes * (across, down, across, down) + (self.left, self.top, 0, 0)

    def on_screen(self, x: float, y: float) -> bool:
        """Whether a point in event space is on the recorded screen."""
        video_x, video_y = self.to_video(x, y)
        right = self.video_width - self.left
        bottom = self.video_height - self.top
        return self.left <= video_x < right and self.top <= video_y < bottom

    def on_border(self, x: float, y: float) -> bool:
        """Whether a point in event space is in the outermost row or column, or off the screen."""
        width, height = self.event_size
        return not (0 < x < width - 1 and 0 < y < height - 1)

    def hides_pointer(self, x: float, y: float) -> bool:
        """Whether the pointer may be invisible, because its position is at a border of the screen.

        At the right and the lower border, almost nothing of the pointer's image is inside the
        screen. At any border, the pointer may be on another display, because some recorders log
        positions on other displays as the nearest border position. `x` and `y` are in event space.
        """
        video_x, video_y = self.to_video(x, y)
        right = self.video_width - self.left
        bottom = self.video_height - self.top
        beyond = self.event_scale  # some recorders log x = width, one unit beyond the last column
        return (
            self.left - beyond <= video_x <= self.left
            or self.top - beyond <= video_y <= self.top
            or right - LEAST_SHOWN_PX < video_x <= right + beyond
            or bottom - LEAST_SHOWN_PX < video_y <= bottom + beyond
        )

    def fit(self, image: Image) -> Image:
        """Returns a video frame scaled to the canvas, undistorted, with black bars.

        `image` is (video_height, video_width, 3). A frame that already fits the canvas is returned
        unchanged.
        """
        shown_w, shown_h = self.shown_size
        if image.shape[:2] == (self.height, self.width) == (shown_h, shown_w):
            return image
        left = round(self.left)
        top = round(self.top)
        image = image[top : self.video_height - top, left : self.video_width - left]
        inner_w, inner_h = self.inner_size
        method = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_CUBIC
        inner = cv2.resize(image, (inner_w, inner_h), interpolation=method)
        canvas = np.zeros((self.height, self.width, 3), np.uint8)
        canvas[self.pad_y : self.pad_y + inner_h, self.pad_x : self.pad_x + inner_w] = inner
        return canvas


def fit_canvas(
    video_size: tuple[int, int],
    event_scale: float,
    *,
    stretch: float = 1.0,
) -> Canvas:
    """Returns the canvas of a video, with the video in the middle between two equal bars.

    `video_size` is (width, height) in pixels; `event_scale` and `stretch` are those of `Canvas`.
    """
    video_w, video_h = video_size
    width, height = CANVAS_SIZE
    shown_w = video_w / stretch
    scale = min(width / shown_w, height / video_h)
    pad_x = (width - round(shown_w * scale)) // 2
    pad_y = (height - round(video_h * scale)) // 2
    sizes = (width, height, video_w, video_h, event_scale, scale, pad_x, pad_y)
    return Canvas(*sizes, stretch=stretch)


COMMON_SCALES = (1.0, 2.0, 1.5, 1.25, 1.75)  # scale factors of common displays
# Video and monitor count as having the same aspect ratio if the ratio of their widths differs from
# the ratio of their heights by at most 2 %.
SAME_SHAPE = 0.02
# An event scale fits if it puts at least 90 % of the pointer's logged positions inside the video.
FITTING_SHARE = 0.9


@dataclass(frozen=True)
class RecordedScreen:
    """The sizes of a recorded screen that the video file and meta.json document.

    Attributes:
        video: width and height of the video, pixels.
        monitor: width and height of meta.json's primary_monitor, in pixels or in points. None if
            primary_monitor is missing.
        in_points: whether the unit of event space is a point, which can be larger than a pixel.
    """

    video: tuple[int, int]
    monitor: tuple[int, int] | None
    in_points: bool = False

    @classmethod
    def of(cls, meta: Meta, video: tuple[int, int]) -> "RecordedScreen":
        """Returns the screen that meta.json and the size of the video describe."""
        monitor = meta.primary_monitor
        in_points = meta.platform == "macos"
        if monitor is None:
            return cls(video, None, in_points)
        factor = 1.0
        if in_points and monitor.scale_factor in COMMON_SCALES:
            # If meta.json has a scale factor, the monitor's size is in pixels, but the log counts
            # in points.
            factor = monitor.scale_factor
        size = (round(monitor.width / factor), round(monitor.height / factor))
        return cls(video, size, in_points)

    @property
    def documented_scale(self) -> float | None:
        """Video pixels per unit of the monitor's size.

        None if meta.json has no monitor, or if monitor and video have different aspect ratios.
        """
        if self.monitor is None or min(self.monitor) <= 0:
            return None
        across = self.video[0] / self.monitor[0]
        down = self.video[1] / self.monitor[1]
        return across if abs(across - down) <= SAME_SHAPE * max(across, down) else None

    @property
    def candidates(self) -> list[float]:
        """The event scales worth testing, the most likely first."""
        scale = self.documented_scale
        scales = COMMON_SCALES if scale is None else (scale, *COMMON_SCALES)
        return list(dict.fromkeys(round(scale, 6) for scale in scales))

    def scale_from_documents(self, track: PointerPath) -> float:
        """Returns the event scale of a video that does not show the pointer.

        A scale of `candidates` fits if it puts nearly all logged positions of the pointer inside
        the video. Without logged positions, the likeliest candidate is used. Otherwise the first of
        these rules that applies decides:

        1. The documented scale is used if it fits, or if no candidate fits.
        2. Without a documented scale, 1 is used if it fits and event space is not in points.
        3. If exactly one candidate fits, it is used.

        Raises:
            DemonstrationError: none of these rules applies.
        """
        likeliest = self.candidates[0]
        is_documented = self.documented_scale is not None
        if not len(track.times):
            return likeliest
        fitting = [
            scale
            for scale in self.candidates
            if self._share_on_video(track, scale) >= FITTING_SHARE
        ]
        if likeliest in fitting and (is_documented or not self.in_points):
            return likeliest
        if is_documented and not fitting:  # the pointer may have been on another display
            return likeliest
        if len(fitting) == 1:
            return fitting[0]
        share_outside = 1 - self._share_on_video(track, likeliest)
        message = (
            f"the scale of the log's coordinates is ambiguous: primary_monitor "
            f"{_size_text(self.monitor)}, video {_size_text(self.video)}, {share_outside:.0%} of "
            "the pointer's positions are outside the video, and the video does not show the pointer"
        )
        remedy = "correct primary_monitor in meta.json, or record with the pointer in the video"
        raise DemonstrationError(Problem("ambiguous_scale", META_FILE, message, remedy=remedy))

    def _share_on_video(self, track: PointerPath, scale: float) -> float:
        """Returns the share of the pointer's positions that a scale puts inside the video."""
        x = track.x * scale
        y = track.y * scale
        width, height = self.video
        return float(((x >= 0) & (x < width) & (y >= 0) & (y < height)).mean())


def _size_text(size: tuple[int, int] | None) -> str:
    return f"{size[0]}x{size[1]}" if size else "(missing)"


ALWAYS = float("-inf")
FromMs = Annotated[
    float,
    BeforeValidator(lambda value: ALWAYS if value is None else value),
    PlainSerializer(lambda value: None if value == ALWAYS else value),
]
"""Epoch milliseconds. Minus infinity is written as null in JSON."""


@dataclass(frozen=True)
class ScreenPart:
    """A part of a recording with one resolution of the screen. It ends where the next part begins.

    Attributes:
        from_ms: start of the part, epoch milliseconds; minus infinity for the first part.
        canvas: None while the screen is being redrawn, or if its resolution and scale are unknown.
    """

    from_ms: FromMs
    canvas: Canvas | None


@dataclass
class ScreenParts:
    """The parts of a recording with different screen resolutions, in time order.

    Nearly every recording has exactly one part.
    """

    parts: tuple[ScreenPart, ...]

    @classmethod
    def single(cls, canvas: Canvas) -> "ScreenParts":
        """Returns a single part for a recording whose screen keeps its resolution and scale."""
        return cls((ScreenPart(ALWAYS, canvas),))

    def __iter__(self) -> Iterator[ScreenPart]:
        """Iterates over the parts in time order."""
        return iter(self.parts)

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.parts)

    def add(self, later: Sequence[ScreenPart]) -> None:
        """Adds `later`, and removes old parts that begin at or after the start of `later`."""
        earlier = (part for part in self.parts if part.from_ms < later[0].from_ms)
        self.parts = (*earlier, *later)

    def at(self, event_ms: float) -> ScreenPart:
        """Returns the part that contains an event time (epoch milliseconds)."""
        if len(self.parts) == 1:
            return self.parts[0]
        position = bisect_right([part.from_ms for part in self.parts], event_ms)
        return self.parts[max(0, position - 1)]

    def rounded(self) -> Sequence[ScreenPart]:
        """Returns the parts with times rounded to `DECIMALS` places, as written to files."""
        return [replace(part, from_ms=round(part.from_ms, DECIMALS)) for part in self.parts]

    def canvas_of(self, action: Action) -> Canvas | None:
        """Returns the canvas of an action, or None if it is unknown or changes during a drag."""
        part = self.at(action.press_ms)
        if action.action_type == "drag" and part != self.at(action.end_ms):
            return None
        return part.canvas

    def in_same(self, first_ms: float, second_ms: float) -> bool:
        """Whether two event times (epoch milliseconds) are in the same part of the recording."""
        return self.at(first_ms) == self.at(second_ms)
