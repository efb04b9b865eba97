"""The canvas: one invertible transform from the log's coordinates to video pixels and 1920x1080.

Belongs here: scale and bars, for points and for pictures. Event space is the unit of the log's
coordinates: screen pixels, or points on macOS.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH

CANVAS_SIZE = (CANVAS_WIDTH, CANVAS_HEIGHT)

Image = np.ndarray[Any, np.dtype[np.uint8]]


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
        left, top: width of the bars of equal width inside the video, pixels.
        stretch: video pixels across for one pixel of an undistorted picture.
    """

    width: int
    height: int
    video_width: int
    video_height: int
    event_scale: float
    scale: float
    pad_x: int
    pad_y: int
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
    def event_size(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        width, height = self.shown_size
        return width / self.event_scale, height / self.event_scale

    def to_canvas(self, x: float, y: float) -> tuple[float, float]:
        """Event coordinates to canvas pixels; may be outside the canvas."""
        factor = self.event_to_canvas
        return x * factor + self.pad_x, y * factor + self.pad_y

    def to_video(self, x: float, y: float) -> tuple[float, float]:
        """Event coordinates to video pixels."""
        across = x * self.event_scale * self.stretch
        return across + self.left, y * self.event_scale + self.top

    def boxes_to_video(
        self, boxes: np.ndarray[Any, np.dtype[np.float64]]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(boxes, 4) x, y, width, height in event space as video pixels."""
        across, down = self.event_scale * self.stretch, self.event_scale
        return boxes * (across, down, across, down) + (self.left, self.top, 0, 0)

    def on_screen(self, x: float, y: float) -> bool:
        """Whether a point in event space is on the recorded screen."""
        video_x, video_y = self.to_video(x, y)
        right, bottom = self.video_width - self.left, self.video_height - self.top
        return self.left <= video_x < right and self.top <= video_y < bottom

    def on_border(self, x: float, y: float) -> bool:
        """Whether a point in event space is in the first or last row or column of the screen."""
        width, height = self.event_size
        return not (0 < x < width - 1 and 0 < y < height - 1)

    def fit(self, picture: Image) -> Image:
        """A (video_height, video_width, 3) picture on the canvas: undistorted, with black bars."""
        shown_w, shown_h = self.shown_size
        if picture.shape[:2] == (self.height, self.width) == (shown_h, shown_w):
            return picture
        left, top = round(self.left), round(self.top)
        picture = picture[top : self.video_height - top, left : self.video_width - left]
        inner_w = min(self.width, max(1, round(shown_w * self.scale)))
        inner_h = min(self.height, max(1, round(shown_h * self.scale)))
        method = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_CUBIC
        inner = cv2.resize(picture, (inner_w, inner_h), interpolation=method)
        canvas = np.zeros((self.height, self.width, 3), np.uint8)
        canvas[self.pad_y : self.pad_y + inner_h, self.pad_x : self.pad_x + inner_w] = inner
        return canvas


def fit_canvas(
    video_size: tuple[int, int],
    event_scale: float,
    *,
    bars: tuple[float, float] = (0.0, 0.0),
    stretch: float = 1.0,
) -> Canvas:
    """The canvas of a video of `video_size` pixels, `event_scale` of them to a unit of the log.

    `bars` are `left` and `top` of `Canvas`.
    """
    (video_w, video_h), (width, height) = video_size, CANVAS_SIZE
    shown_w, shown_h = (video_w - 2 * bars[0]) / stretch, video_h - 2 * bars[1]
    scale = min(width / shown_w, height / shown_h)
    pad_x = (width - round(shown_w * scale)) // 2
    pad_y = (height - round(shown_h * scale)) // 2
    return Canvas(width, height, video_w, video_h, event_scale, scale, pad_x, pad_y, *bars, stretch)


def barred_canvas(video_size: tuple[int, int], screen: tuple[float, float]) -> Canvas:
    """The canvas of a screen that fills the video as far as its shape allows, with equal bars.

    `screen` is the screen's size in event space.
    """
    (video_w, video_h), (width, height) = video_size, screen
    scale = min(video_w / width, video_h / height)
    bars = (video_w - width * scale) / 2, (video_h - height * scale) / 2
    return fit_canvas(video_size, scale, bars=bars)


def stretched_canvas(video_size: tuple[int, int], screen: tuple[float, float]) -> Canvas:
    """The canvas of a screen that is stretched to the whole video; arguments as above."""
    (video_w, video_h), (width, height) = video_size, screen
    scale = video_h / height
    return fit_canvas(video_size, scale, stretch=video_w / width / scale)
