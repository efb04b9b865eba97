"""A frame as a picture of the screen that is fine enough to tell text from other text."""

from dataclasses import dataclass

import cv2

from demo_pipeline.observation.frames.video_frames import (
    PLANAR,
    Frame,
    Luma,
    plane_rows,
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


def screen_picture(frame: Frame) -> ScreenPicture:
    """The picture of a frame."""
    picture = frame.picture
    if picture.format.name not in PLANAR:
        picture = picture.reformat(format="gray")
    inside = plane_rows(picture.planes[0])[: picture.height, : picture.width]
    size = (max(1, picture.width // DETAIL_STEP), max(1, picture.height // DETAIL_STEP))
    halved: Luma = cv2.resize(inside, size, interpolation=cv2.INTER_AREA)
    return ScreenPicture(upright(halved, rotation(frame.picture)), frame.time)
