"""A frame as a picture of the screen that is fine enough to tell text from other text."""

import zlib
from dataclasses import dataclass

import cv2
import numpy as np

from demo_pipeline.observation.frames.video_frames import (
    PLANAR,
    Frame,
    Luma,
    rotation,
    upright,
)

DETAIL_STEP = 2  # pixels of which each sample of `ScreenPicture.detail` is the mean, both ways


@dataclass(frozen=True)
class ScreenPicture:
    """What a frame shows.

    Attributes:
        detail: (rows, columns) uint8, the luma at half size; each sample the mean of 2 x 2 pixels.
        time: of the frame, video seconds.
    """

    detail: Luma
    time: float


@dataclass(frozen=True)
class PackedPicture:
    """A `ScreenPicture` in about a tenth of the memory."""

    _detail: bytes
    _shape: tuple[int, int]
    _time: float

    @classmethod
    def of(cls, picture: ScreenPicture) -> "PackedPicture":
        """Pack a picture."""
        rows, columns = picture.detail.shape
        return cls(zlib.compress(picture.detail.tobytes(), 1), (rows, columns), picture.time)

    def unpacked(self) -> ScreenPicture:
        """The picture as it was."""
        detail: Luma = np.frombuffer(zlib.decompress(self._detail), np.uint8)
        return ScreenPicture(detail.reshape(self._shape), self._time)


def screen_picture(frame: Frame) -> ScreenPicture:
    """The picture of a frame."""
    picture = frame.picture
    if picture.format.name not in PLANAR:
        picture = picture.reformat(format="gray")
    plane = picture.planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    inside = rows[: picture.height, : picture.width]
    size = (max(1, picture.width // DETAIL_STEP), max(1, picture.height // DETAIL_STEP))
    halved: Luma = cv2.resize(inside, size, interpolation=cv2.INTER_AREA)
    return ScreenPicture(upright(halved, rotation(frame.picture)), frame.time)
