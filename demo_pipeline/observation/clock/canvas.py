"""The canvas: one invertible transform from the log's coordinates to video pixels and 1920x1080.

Belongs here: scale and bars, for points and for pictures; which scales are worth testing, and which
one is used when the pictures confirm none; and which canvas holds at a time of the log, since
people change the resolution in settings tasks. Event space is the unit of the log's coordinates:
screen pixels, or points on macOS. How the parts are found is in screen_changes.py.
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
LEAST_SHOWN_PX = 8.0  # video pixels of a pointer across and down; less changes no cell of 8 x 8

Image = np.ndarray[Any, np.dtype[np.uint8]]
Boxes = np.ndarray[Any, np.dtype[np.float64]]
"""(boxes, 4): x, y, width, height; NaN for a node of a tree without a usable box."""
ScaleMethod = Literal["pixels", "monitor", "assumed"]


@dataclass(frozen=True)
class Canvas:
    """event * event_scale = video pixels; video pixels * scale + pad = canvas pixels.

    After the screen was given another size in mid-recording, its picture may have bars inside the
    video, or be stretched to the video's shape: the bars are cut off and the stretch is undone.

    Attributes:
        width, height: of the canvas, pixels.
        video_width, video_height: of the upright video, pixels.
        event_scale: video pixels down for one unit of event space.
        scale: canvas pixels for one video pixel down.
        pad_x, pad_y: width of the left and upper bar, whole canvas pixels.
        scale_method: what the event scale follows from: `pixels` (the pointer in the video),
            `monitor` (meta.json's primary_monitor), or `assumed`.
        left, top: width of the bars of equal width inside the video, pixels.
        stretch: video pixels across for one pixel of an undistorted picture.
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
        """Canvas pixels for one unit of event space."""
        return self.event_scale * self.scale

    @property
    def shown_size(self) -> tuple[float, float]:
        """Width and height of the undistorted picture of the screen, without bars, video pixels."""
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
        """Event coordinates to canvas pixels; may be outside the canvas."""
        factor = self.event_to_canvas
        return x * factor + self.pad_x, y * factor + self.pad_y

    def pixel_of(self, x: float, y: float) -> tuple[int, int]:
        """The canvas pixel that a point in event space is written as, never one of the bars.

        It is the nearest one, so `round((pixel - pad) / event_to_canvas)` gives the point back
        wherever the canvas is at least as large as the screen. On a larger screen several points
        share a pixel, and the result is off by half the number of points that share it, at most.
        """
        across, down = self.to_canvas(x, y)
        inner_width, inner_height = self.inner_size
        column = min(max(ceil(across - 0.5), self.pad_x), self.pad_x + inner_width - 1)
        row = min(max(ceil(down - 0.5), self.pad_y), self.pad_y + inner_height - 1)
        return column, row

    def to_video(self, x: float, y: float) -> tuple[float, float]:
        """Event coordinates to video pixels."""
        across = x * self.event_scale * self.stretch
        return across + self.left, y * self.event_scale + self.top

    def box_to_video(self, box: PixelBox) -> PixelBox:
        """A box in event space as video pixels."""
        x, y = self.to_video(box.x, box.y)
        right, bottom = self.to_video(box.right, box.bottom)
        return PixelBox(x, y, right - x, bottom - y)

    def boxes_to_video(self, boxes: Boxes) -> Boxes:
        """Boxes in event space as video pixels."""
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
        """Whether a point in event space is in the first or last row or column of the screen."""
        width, height = self.event_size
        return not (0 < x < width - 1 and 0 < y < height - 1)

    def hides_pointer(self, x: float, y: float) -> bool:
        """Whether a pointer at a point in event space is at a border, where it may be invisible.

        A pointer's picture is right of and below its point: at the right and the lower border all
        but nothing of it is inside the screen. At any border a log that is cut to the screen may
        have a pointer that is on another display.
        """
        video_x, video_y = self.to_video(x, y)
        right = self.video_width - self.left
        bottom = self.video_height - self.top
        beyond = self.event_scale  # some recorders cut to the width instead of the last column
        return (
            self.left - beyond <= video_x <= self.left
            or self.top - beyond <= video_y <= self.top
            or right - LEAST_SHOWN_PX < video_x <= right + beyond
            or bottom - LEAST_SHOWN_PX < video_y <= bottom + beyond
        )

    def fit(self, picture: Image) -> Image:
        """A (video_height, video_width, 3) picture on the canvas: undistorted, with black bars."""
        shown_w, shown_h = self.shown_size
        if picture.shape[:2] == (self.height, self.width) == (shown_h, shown_w):
            return picture
        left = round(self.left)
        top = round(self.top)
        picture = picture[top : self.video_height - top, left : self.video_width - left]
        inner_w, inner_h = self.inner_size
        method = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_CUBIC
        inner = cv2.resize(picture, (inner_w, inner_h), interpolation=method)
        canvas = np.zeros((self.height, self.width, 3), np.uint8)
        canvas[self.pad_y : self.pad_y + inner_h, self.pad_x : self.pad_x + inner_w] = inner
        return canvas


def fit_canvas(
    video_size: tuple[int, int],
    event_scale: float,
    *,
    stretch: float = 1.0,
) -> Canvas:
    """The canvas of a video of `video_size` pixels, `event_scale` of them to a unit of the log."""
    (video_w, video_h), (width, height) = video_size, CANVAS_SIZE
    shown_w = video_w / stretch
    scale = min(width / shown_w, height / video_h)
    pad_x = (width - round(shown_w * scale)) // 2
    pad_y = (height - round(video_h * scale)) // 2
    sizes = (width, height, video_w, video_h, event_scale, scale, pad_x, pad_y)
    return Canvas(*sizes, stretch=stretch)


COMMON_SCALES = (1.0, 2.0, 1.5, 1.25, 1.75)  # scale factors of common displays
SAME_SHAPE = 0.02  # largest relative difference of the scales along the two sides
FITTING_SHARE = 0.9  # of the pointer's positions; with these on the video, a scale fits


@dataclass(frozen=True)
class RecordedScreen:
    """The sizes that are known of a recorded screen, each as (width, height).

    Attributes:
        video: of the upright video, pixels.
        monitor: meta's primary_monitor, before or after the display's own scaling; None: missing.
        in_points: the platform counts in points, so that a unit need not be a pixel.
    """

    video: tuple[int, int]
    monitor: tuple[int, int] | None
    in_points: bool = False

    @classmethod
    def of(cls, meta: Meta, video: tuple[int, int]) -> "RecordedScreen":
        """The screen of a recording."""
        monitor = meta.primary_monitor
        in_points = meta.platform == "macos"
        if monitor is None:
            return cls(video, None, in_points)
        # With a scale factor the size is in pixels, and the log of macOS counts in points.
        factor = monitor.scale_factor if in_points and monitor.scale_factor in COMMON_SCALES else 1
        size = (round(monitor.width / factor), round(monitor.height / factor))
        return cls(video, size, in_points)

    @property
    def documented_scale(self) -> float | None:
        """Video pixels for one unit of the monitor; None without a monitor of the same shape."""
        if self.monitor is None or min(self.monitor) <= 0:
            return None
        across, down = (self.video[side] / self.monitor[side] for side in (0, 1))
        return across if abs(across - down) <= SAME_SHAPE * max(across, down) else None

    @property
    def candidates(self) -> list[float]:
        """Event scales worth testing, the most likely first."""
        scale = self.documented_scale
        scales = COMMON_SCALES if scale is None else (scale, *COMMON_SCALES)
        return list(dict.fromkeys(round(scale, 6) for scale in scales))

    def scale_from_documents(self, track: PointerPath) -> float:
        """The event scale when the pictures confirm none: the documented one unless it cannot be.

        Raises:
            DemonstrationError: the pointer's positions fit on the video at no candidate scale, or
                at several and none is documented.
        """
        likeliest = self.candidates[0]
        documented = self.documented_scale is not None
        if not len(track.times):
            return likeliest
        fitting = [s for s in self.candidates if self._share_on_video(track, s) >= FITTING_SHARE]
        if likeliest in fitting and (documented or not self.in_points):
            return likeliest
        if documented and not fitting:  # the pointer was on another display: nothing contradicts
            return likeliest
        if len(fitting) == 1:
            return fitting[0]
        off = 1 - self._share_on_video(track, likeliest)
        message = (
            f"the scale of the log's coordinates is ambiguous: primary_monitor "
            f"{_size_text(self.monitor)}, video {_size_text(self.video)}, {off:.0%} of the "
            "pointer's positions are outside the video, and the video does not show the pointer"
        )
        remedy = "correct primary_monitor in meta.json, or record with the pointer in the video"
        raise DemonstrationError(Problem("ambiguous_scale", META_FILE, message, remedy=remedy))

    def _share_on_video(self, track: PointerPath, scale: float) -> float:
        """Share of the positions that are on the video at a scale."""
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
"""Epoch milliseconds; minus infinity is written as null."""


@dataclass(frozen=True)
class ScreenPart:
    """A part of a recording; it ends where the next one begins.

    Attributes:
        from_ms: when it began, epoch milliseconds; minus infinity for the first.
        canvas: of this part; None when its resolution and scale cannot be known, and while the
            screen is redrawn.
    """

    from_ms: FromMs
    canvas: Canvas | None


@dataclass
class ScreenParts:
    """All parts of a recording in time order, at least one; nearly always exactly one.

    The decode pass may find more.
    """

    parts: tuple[ScreenPart, ...]

    @classmethod
    def single(cls, canvas: Canvas) -> "ScreenParts":
        """A recording whose screen keeps its resolution and scale."""
        return cls((ScreenPart(ALWAYS, canvas),))

    def __iter__(self) -> Iterator[ScreenPart]:
        """In time order."""
        return iter(self.parts)

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.parts)

    def add(self, later: Sequence[ScreenPart]) -> None:
        """Add parts that follow; those before that they replace go."""
        kept = (part for part in self.parts if part.from_ms < later[0].from_ms)
        self.parts = (*kept, *later)

    def at(self, event_ms: float) -> ScreenPart:
        """The part that an event time in epoch milliseconds belongs to."""
        if len(self.parts) == 1:
            return self.parts[0]
        position = bisect_right([part.from_ms for part in self.parts], event_ms)
        return self.parts[max(0, position - 1)]

    def rounded(self) -> Sequence[ScreenPart]:
        """The parts with times as they are written."""
        return [replace(part, from_ms=round(part.from_ms, DECIMALS)) for part in self.parts]

    def canvas_of(self, action: Action) -> Canvas | None:
        """The canvas of an action; None when it is not known, or changes before a drag ends."""
        part = self.at(action.press_ms)
        kept = action.action_type != "drag" or part == self.at(action.end_ms)
        return part.canvas if kept else None

    def in_same(self, first_ms: float, second_ms: float) -> bool:
        """Whether two event times are in one part, so that one's coordinates hold at the other."""
        return self.at(first_ms) == self.at(second_ms)
