"""Thumbnails of the screenshots: made while the picture is at hand, for contact sheets.

Belongs here: thumbnails.parquet, its writer and its reader. Reading a whole PNG again costs more
than forty times as much as reading its thumbnail.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import cv2
import numpy as np
import pyarrow as pa

from demo_pipeline.common.parquet import TableWriter, described_schema, read_table
from demo_pipeline.common.png import Pixels
from demo_pipeline.observation.frames.rgb_converter import RgbConverter
from demo_pipeline.observation.frames.video_frames import Frame, plane_rows, rotation

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


class ThumbnailWriter:
    """Writes thumbnails.parquet; a context manager, which leaves no file after an error.

    A pause that was no wait after all, and an action of the recorder, may leave a thumbnail whose
    screenshot is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._colours = RgbConverter()
        self._table = TableWriter(folder / THUMBNAILS_FILE, THUMBNAILS_SCHEMA, batch_rows=_BATCH)

    def __enter__(self) -> Self:
        self._table.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._table.__exit__(kind, error, trace)

    def add(self, action_index: int, rgb: Pixels, frame: Frame | None = None) -> None:
        """Add the thumbnail of a screenshot.

        Args:
            action_index: row of actions.parquet.
            rgb: the screenshot, (height, width, 3).
            frame: shows the same pixels; None: the screenshot is not a frame as it is.
        """
        height = round(rgb.shape[0] * THUMBNAIL_WIDTH / rgb.shape[1])
        planes = None if frame is None else _small_planes(frame, height)
        if planes is None:
            small = _resized_twice(rgb, (THUMBNAIL_WIDTH, height))
        else:
            small = self._colours.of_picture(planes)
        bgr = cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
        _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        self._table.append([action_index, data.tobytes()])


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
    for name in ("colorspace", "color_range"):
        setattr(small, name, getattr(picture, name))
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
