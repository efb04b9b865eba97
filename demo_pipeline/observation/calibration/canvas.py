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

    Attributes:
        width, height: of the canvas, pixels.
        video_width, video_height: of the upright video, pixels.
        event_scale: video pixels for one unit of event space.
        scale: canvas pixels for one video pixel, equal on both axes.
        pad_x, pad_y: width of the left and upper bar, whole canvas pixels.
    """

    width: int
    height: int
    video_width: int
    video_height: int
    event_scale: float
    scale: float
    pad_x: int
    pad_y: int

    @property
    def event_to_canvas(self) -> float:
        """Canvas pixels for one unit of event space."""
        return self.event_scale * self.scale

    @property
    def event_size(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        return self.video_width / self.event_scale, self.video_height / self.event_scale

    def to_canvas(self, x: float, y: float) -> tuple[float, float]:
        """Event coordinates to canvas pixels; may be outside the canvas."""
        factor = self.event_to_canvas
        return x * factor + self.pad_x, y * factor + self.pad_y

    def to_video(self, x: float, y: float) -> tuple[float, float]:
        """Event coordinates to video pixels."""
        return x * self.event_scale, y * self.event_scale

    def on_screen(self, x: float, y: float) -> bool:
        """Whether a point in event space is on the recorded screen."""
        video_x, video_y = self.to_video(x, y)
        return 0 <= video_x < self.video_width and 0 <= video_y < self.video_height

    def fit(self, picture: Image) -> Image:
        """A (video_height, video_width, 3) picture on the canvas: undistorted, with black bars."""
        if picture.shape[:2] == (self.height, self.width):
            return picture
        inner_w = min(self.width, max(1, round(self.video_width * self.scale)))
        inner_h = min(self.height, max(1, round(self.video_height * self.scale)))
        method = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_CUBIC
        inner = cv2.resize(picture, (inner_w, inner_h), interpolation=method)
        canvas = np.zeros((self.height, self.width, 3), np.uint8)
        canvas[self.pad_y : self.pad_y + inner_h, self.pad_x : self.pad_x + inner_w] = inner
        return canvas


def fit_canvas(video_size: tuple[int, int], event_scale: float) -> Canvas:
    """The canvas of a video of `video_size` pixels, `event_scale` of them to a unit of the log."""
    (video_w, video_h), (width, height) = video_size, CANVAS_SIZE
    scale = min(width / video_w, height / video_h)
    pad_x = (width - round(video_w * scale)) // 2
    pad_y = (height - round(video_h * scale)) // 2
    return Canvas(width, height, video_w, video_h, event_scale, scale, pad_x, pad_y)
