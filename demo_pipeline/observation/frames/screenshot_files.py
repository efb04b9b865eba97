"""Writes the screenshots of a demonstration as PNG files, and facts about them as a table.

The table, pictures.parquet, has a thumbnail and a coarse grey version of each screenshot. Reading a
row is more than 40 times as fast as reading the PNG.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa

from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.image_files import Pixels, PngWriter
from demo_pipeline.files.parquet import TableWriter, described_schema, open_rows
from demo_pipeline.observation.clock.canvas import CANVAS_SIZE
from demo_pipeline.observation.frames.tone_mapping import is_hdr
from demo_pipeline.observation.frames.video_reader import Frame, RgbConverter, plane_rows, rotation

PICTURES_FILE = "pictures.parquet"
DIGESTS_FILE = "pictures.sha256"
THUMBNAIL_WIDTH = 480  # pixels
CELL = 8  # width and height of a cell, pixels
BLACK_LEVEL = 16  # brightness (0 to 255) of black in video of limited range
# Maximum share of pixels brighter than BLACK_LEVEL in a black screenshot. Even if these pixels are
# far apart, at most 6.4 % of the cells contain one.
BLACK_SHARE = 0.001
_QUALITY = 92  # JPEG quality of thumbnails; on contact sheets, no artefacts are visible
_PLANES = "yuv420p"  # the pixel format of nearly all recordings
_BATCH = 64  # maximum number of rows of pictures.parquet, with thumbnails, held in memory
_GRID = (CANVAS_SIZE[0] // CELL, CANVAS_SIZE[1] // CELL)  # (columns, rows) of cells

PICTURES_SCHEMA = described_schema(
    (
        (
            "file",
            pa.string(),
            False,
            (
                "file name of the screenshot when it was written; the file may have "
                "been renamed or removed since"
            ),
        ),
        ("sha256", pa.string(), False, "SHA-256 of the PNG file, which identifies a renamed file"),
        (
            "jpeg",
            pa.binary(),
            False,
            f"JPEG copy of the screenshot with a width of {THUMBNAIL_WIDTH} pixels",
        ),
        (
            "cells",
            pa.binary(),
            False,
            f"mean grey levels (0 to 255) of squares of {CELL} pixels, row by row, one byte each",
        ),
        ("black", pa.bool_(), False, "whether the screenshot is black, apart from a few pixels"),
    )
)


@dataclass(frozen=True)
class ScreenshotFacts:
    """Facts about a screenshot, for comparing it with others.

    Attributes:
        cells: (135, 240), mean grey level of each cell of 8 x 8 pixels.
        black: whether the screenshot is black, apart from a few pixels.
        missing: whether the file is missing or damaged.
    """

    cells: Pixels
    black: bool
    missing: bool = False

    @property
    def hash(self) -> int:
        """A 64-bit hash. The hashes of screenshots that look alike differ in only a few bits."""
        if self.missing:
            return 0
        small = cv2.resize(self.cells, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
        bits = (small[:, 1:] > small[:, :-1]).reshape(-1)
        return int.from_bytes(np.packbits(bits).tobytes(), "big")


def screenshot_facts(rgb: Pixels) -> ScreenshotFacts:
    """Returns the facts about a screenshot. `rgb` is (height, width, 3)."""
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    cells = np.asarray(cv2.resize(grey, _GRID, interpolation=cv2.INTER_AREA), np.uint8)
    seems_black = float((cells > BLACK_LEVEL).mean()) <= BLACK_SHARE * CELL**2
    black = seems_black and float((np.asarray(grey) > BLACK_LEVEL).mean()) < BLACK_SHARE
    return ScreenshotFacts(cells, black)


def read_screenshot(path: Path) -> ScreenshotFacts:
    """Reads a PNG file and returns the facts about it. If it cannot be read, `missing` is true."""
    rgb = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) if path.is_file() else None
    if rgb is None:
        return ScreenshotFacts(np.zeros(_GRID[::-1], np.uint8), black=False, missing=True)
    return screenshot_facts(np.asarray(rgb, np.uint8))


class ScreenshotFiles:
    """Writes screenshots into a folder, and a row of pictures.parquet for each of them.

    Attributes:
        digests: maps the file name of each screenshot in the folder to its SHA-256.
    """

    def __init__(self, folder: Path, table: TableWriter) -> None:
        self._folder = folder
        self._table = table
        self._png = PngWriter()
        self._colours = RgbConverter()
        self.digests: dict[str, str] = {}

    def write(self, name: str, rgb: Pixels, frame: Frame | None = None) -> None:
        """Writes a screenshot and its row of pictures.parquet.

        Args:
            rgb: the pixels, (height, width, 3).
            frame: the frame with exactly these pixels. None if the frame was scaled.
        """
        data = self._png.encode(rgb)
        (self._folder / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        facts = screenshot_facts(rgb)
        self.digests[name] = sha256
        row = (name, sha256, self._thumbnail(rgb, frame), facts.cells.tobytes(), facts.black)
        self._table.append(row)

    def write_native(self, name: str, rgb: Pixels) -> None:
        """Writes a copy of screenshot `name` in the screen's own size, but adds no row for it."""
        data = self._png.encode(rgb)
        path = native_of(self._folder / name)
        path.write_bytes(data)
        self.digests[path.name] = hashlib.sha256(data).hexdigest()

    def remove(self, name: str) -> None:
        """Removes a screenshot and its copy in the screen's own size, but not its row."""
        for path in (self._folder / name, native_of(self._folder / name)):
            if self.digests.pop(path.name, ""):
                path.unlink()

    def _thumbnail(self, rgb: Pixels, frame: Frame | None) -> bytes:
        height = round(rgb.shape[0] * THUMBNAIL_WIDTH / rgb.shape[1])
        small_frame = None if frame is None else _small_frame(frame, height)
        if small_frame is None:
            small = _resized_twice(rgb, (THUMBNAIL_WIDTH, height))
        else:
            small = self._colours.of_decoded(small_frame)
        bgr = cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
        return bytes(cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])


@contextmanager
def open_screenshot_files(folder: Path) -> Iterator[ScreenshotFiles]:
    """Opens a writer of screenshots and of pictures.parquet.

    After an error, pictures.parquet is not written.
    """
    with TableWriter(folder / PICTURES_FILE, PICTURES_SCHEMA, batch_rows=_BATCH) as table:
        yield ScreenshotFiles(folder, table)


def _resized_twice(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Scales an image to (width, height) in two steps, which takes a third of the usual time."""
    twice = (2 * size[0], 2 * size[1])
    return _resized(cv2.resize(pixels, twice, interpolation=cv2.INTER_AREA), size)


def _resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def _small_frame(frame: Frame, height: int) -> Any:
    """Returns a thumbnail of a frame, in the frame's own colour format.

    Scaling before the conversion to RGB takes a third of the time of scaling after it. Returns None
    if the frame's pixel format is not `_PLANES`, if the frame is HDR or rotated, or if `height` is
    odd.
    """
    decoded = frame.decoded
    if decoded.format.name != _PLANES or is_hdr(decoded) or rotation(decoded) or height % 2:
        return None
    small = av.VideoFrame(THUMBNAIL_WIDTH, height, _PLANES)
    small.colorspace = decoded.colorspace
    small.color_range = decoded.color_range
    for number, (source, plane) in enumerate(zip(decoded.planes, small.planes, strict=True)):
        size = (plane.width, plane.height)
        if number == 0 and frame.halved.shape == (2 * plane.height, 2 * plane.width):
            reduced = _resized(frame.halved, size)
        else:
            reduced = _resized_twice(plane_rows(source)[: source.height, : source.width], size)
        np.copyto(plane_rows(plane)[: plane.height, : plane.width], reduced)
    return small


def digest_lines(folder: Path, digests: Mapping[str, str]) -> str:
    """Returns a line for each screenshot and for pictures.parquet, in the format of `sha256sum`."""
    all_digests = {**digests, PICTURES_FILE: read_digest(folder / PICTURES_FILE).sha256}
    return "".join(f"{all_digests[name]}  {name}\n" for name in sorted(all_digests))


def read_thumbnails(folder: Path) -> Mapping[str, bytes]:
    """Returns a dictionary from the file name of each screenshot to its JPEG thumbnail."""
    with open_rows(folder / PICTURES_FILE, _BATCH) as (_, rows):
        return {row["file"]: row["jpeg"] for row in rows}


def read_screenshot_facts(folder: Path) -> Mapping[str, ScreenshotFacts]:
    """Returns a dictionary from the file name of each screenshot to the facts about it.

    Returns an empty result if the folder has no pictures.parquet.
    """
    if not (folder / PICTURES_FILE).is_file():
        return {}
    facts_by_digest: dict[str, ScreenshotFacts] = {}
    with open_rows(folder / PICTURES_FILE, _BATCH) as (_, rows):
        for row in rows:
            cells = np.frombuffer(row["cells"], np.uint8).reshape(_GRID[::-1])
            facts_by_digest[row["sha256"]] = ScreenshotFacts(cells, row["black"])
    facts: dict[str, ScreenshotFacts] = {}
    for line in (folder / DIGESTS_FILE).read_text("utf-8").splitlines():
        sha256, name = line.split()
        if sha256 in facts_by_digest:
            facts[name] = facts_by_digest[sha256]
    return facts
