"""The contact sheet: steps as tiles of a grid, each a screenshot with its action drawn on it.

Belongs here: tiles, captions and the grid. Not here: what is drawn on a screenshot (overlay.py).
Colours are BGR, sizes are pixels of the sheet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2
import numpy as np

from demo_pipeline.formats.desktopd.step_actions import StepAction
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.observation.overlay import (
    DARK,
    RED,
    WHITE,
    Colour,
    Picture,
    draw_action,
    place_label,
    text_size,
    write,
)

TITLE_HEIGHT = 40
_AMBER: Colour = (40, 150, 235)
_GREY: Colour = (200, 200, 200)
_EDGE = 6


@dataclass(frozen=True)
class Tile:
    """The tile of a step.

    Attributes:
        screenshot: its PNG.
        heading: the number and the type of the step.
        caption: a short line about the screenshot; never what was typed.
        action: is drawn on the screenshot; None: nothing is.
        box: (x, y, width, height) of the target on the canvas.
        leak: the kind of pointer leak in the screenshot; empty without a leak.
        thumbnail: the screenshot as a small JPEG, which is read instead; None: there is none.
    """

    screenshot: Path
    heading: str
    caption: str
    action: StepAction | None
    box: tuple[int, int, int, int] | None = None
    leak: Literal["", "LEAK", "UNAVOIDABLE"] = ""
    thumbnail: bytes | None = None


def sheet_size(tiles: int, columns: int, width: int, *, titled: bool) -> tuple[int, int]:
    """(width, height) in pixels of a sheet of `tiles` tiles, each `width` wide."""
    rows = max(1, -(-tiles // columns))
    high = _caption_height(width) + _picture_height(width)
    return columns * width, rows * high + (TITLE_HEIGHT if titled else 0)


def contact_sheet(tiles: Sequence[Tile], columns: int, width: int, title: str = "") -> Picture:
    """(height, width, 3) BGR: a grid with `columns` tiles of `width` pixels below the title.

    Each screenshot is read once. A screenshot that cannot be read becomes a dark tile with a note.
    """
    across, down = sheet_size(len(tiles), columns, width, titled=bool(title))
    sheet = _dark(across, down)
    if title:
        scale = next((s for s in (0.7, 0.6, 0.5) if text_size(title, s)[0] < across - 24), 0.4)
        write(sheet, title, (12, 26), scale, WHITE)
    top = TITLE_HEIGHT if title else 0
    high = _caption_height(width) + _picture_height(width)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        y, x = top + row * high, column * width
        _draw_tile(sheet[y : y + high, x : x + width], tile)
    return sheet


def encode_jpeg(picture: Picture, quality: int = 70) -> bytes:
    """JPEG bytes of a BGR picture."""
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return data.tobytes()


def _dark(width: int, height: int) -> Picture:
    """An empty picture; filling it pixel by pixel takes fifty times as long as row by row."""
    picture: Picture = np.empty((height, width, 3), np.uint8)
    picture[:1] = DARK
    picture[1:] = picture[:1]
    return picture


def _caption_height(width: int) -> int:
    return 44 if width >= 360 else 38


def _picture_height(width: int) -> int:
    return round(CANVAS_HEIGHT * width / CANVAS_WIDTH)


def _draw_tile(place: Picture, tile: Tile) -> None:
    width = place.shape[1]
    captions = _caption_height(width)
    size = 0.5 if width >= 360 else 0.38
    write(place, tile.heading, (_EDGE, captions // 2 - 4), size, WHITE)
    write(place, tile.caption, (_EDGE, captions - 8), size * 0.9, _GREY)
    if tile.leak:
        _draw_flag(place, tile.leak, captions // 2 - 4, size)
    # A thin gap on the right and below separates tiles that look alike.
    inner = (width - 2, _picture_height(width) - 2)
    place[captions : captions + inner[1], : inner[0]] = _frame(tile, width)[: inner[1], : inner[0]]


def _draw_flag(place: Picture, flag: str, line: int, size: float) -> None:
    wide, high = text_size(flag, size)
    left = place.shape[1] - wide - 2 * _EDGE
    colour = RED if flag == "LEAK" else _AMBER
    corner = (place.shape[1] - 4, line + 4)
    cv2.rectangle(place, (left - 2, line - high - 4), corner, colour, cv2.FILLED)
    write(place, flag, (left + 3, line), size, WHITE if flag == "LEAK" else DARK)


def _frame(tile: Tile, width: int) -> Picture:
    height = _picture_height(width)
    raw = _picture(tile)
    if raw is None:
        dark = _dark(width, height)
        place_label(dark, "the screenshot cannot be read", [], 0.42)
        return dark
    small = raw
    if raw.shape[:2] != (height, width):
        small = cv2.resize(raw, (width, height), interpolation=cv2.INTER_AREA)
    if tile.action is not None:
        draw_action(small, tile.action, width / CANVAS_WIDTH, tile.box)
    return small


def _picture(tile: Tile) -> Picture | None:
    """The thumbnail, or the screenshot without one; None when it cannot be read."""
    if tile.thumbnail is not None:
        data = np.frombuffer(tile.thumbnail, np.uint8)
        return cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    return cv2.imread(str(tile.screenshot)) if tile.screenshot.is_file() else None
