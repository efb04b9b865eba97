"""A frame as a picture of the screen that is fine enough to tell text from other text."""

from dataclasses import dataclass

from demo_pipeline.observation.frames.video_frames import HALF, Frame, Luma

DETAIL_STEP = HALF  # pixels of which each sample of `ScreenPicture.detail` is the mean, both ways


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
    return ScreenPicture(frame.halved, frame.time)
