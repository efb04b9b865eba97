"""Thumbnails of the screenshots: made while the picture is at hand, for contact sheets.

Belongs here: thumbnails.parquet, its writer and its reader. Reading a whole PNG again costs more
than forty times as much as reading its thumbnail.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import cv2
import pyarrow as pa

from demo_pipeline.common.parquet import TableWriter, described_schema, read_table
from demo_pipeline.common.png import Pixels

THUMBNAILS_FILE = "thumbnails.parquet"
THUMBNAIL_WIDTH = 480  # pixels
_QUALITY = 92  # of the JPEG; its artefacts do not show in the JPEG of a contact sheet
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

    def add(self, action_index: int, rgb: Pixels) -> None:
        """Add the thumbnail of a screenshot, (height, width, 3) RGB."""
        height = round(rgb.shape[0] * THUMBNAIL_WIDTH / rgb.shape[1])
        twice = (2 * THUMBNAIL_WIDTH, 2 * height)  # halving twice costs a third of one step
        half = cv2.resize(rgb, twice, interpolation=cv2.INTER_AREA)
        small = cv2.resize(half, (THUMBNAIL_WIDTH, height), interpolation=cv2.INTER_AREA)
        bgr = cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
        _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        self._table.append([action_index, data.tobytes()])


def read_thumbnails(folder: Path) -> Mapping[int, bytes]:
    """Action index → JPEG, from the folder of a demonstration's screenshots."""
    table = read_table(folder / THUMBNAILS_FILE, THUMBNAILS_SCHEMA)
    indexes, pictures = table["action_index"].to_pylist(), table["jpeg"].to_pylist()
    return dict(zip(indexes, pictures, strict=True))
