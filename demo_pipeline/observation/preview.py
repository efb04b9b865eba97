"""Pictures for people: a contact sheet of a trajectory, each step's frame with its action drawn.

Belongs here: drawing only. Colours are BGR, sizes are pixels of the sheet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Picture = np.ndarray[Any, np.dtype[np.uint8]]

_RED, _GREEN, _WHITE, _DARK = (60, 60, 230), (90, 190, 60), (255, 255, 255), (40, 36, 32)
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_CAPTION = 26


@dataclass(frozen=True)
class Tile:
    """One step.

    Attributes:
        screenshot: its PNG.
        caption: one short line; never what was typed.
        points: canvas pixels to mark, joined by a line where there are two.
        box: (x, y, width, height) of the target on the canvas.
    """

    screenshot: Path
    caption: str
    points: Sequence[tuple[int, int]] = ()
    box: tuple[int, int, int, int] | None = None


def contact_sheet(tiles: Sequence[Tile], columns: int, width: int) -> Picture:
    """A grid of `columns` tiles, each `width` pixels wide; (height, columns * width, 3) BGR."""
    pictures = [_tile(tile, width) for tile in tiles]
    if not pictures:
        return np.full((_CAPTION, width, 3), _DARK, np.uint8)
    blank = np.full_like(pictures[0], _DARK)
    while len(pictures) % columns:
        pictures.append(blank)
    rows = [np.hstack(pictures[i : i + columns]) for i in range(0, len(pictures), columns)]
    return np.vstack(rows)


def encode_jpeg(picture: Picture, quality: int = 70) -> bytes:
    """JPEG bytes of a BGR picture."""
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return data.tobytes()


def _tile(tile: Tile, width: int) -> Picture:
    raw = cv2.imread(str(tile.screenshot))
    if raw is None:
        raw = np.full((1080, 1920, 3), _DARK, np.uint8)
    scale = width / raw.shape[1]
    height = round(raw.shape[0] * scale)
    small = cv2.resize(raw, (width, height), interpolation=cv2.INTER_AREA)
    if tile.box is not None:
        x, y, w, h = (round(value * scale) for value in tile.box)
        cv2.rectangle(small, (x, y), (x + w, y + h), _GREEN, 1, cv2.LINE_AA)
    marks = [(round(x * scale), round(y * scale)) for x, y in tile.points]
    for mark in marks:
        cv2.circle(small, mark, 5, _RED, 2, cv2.LINE_AA)
    if len(marks) == 2:
        cv2.arrowedLine(small, marks[0], marks[1], _RED, 1, cv2.LINE_AA, tipLength=0.2)
    caption = np.full((_CAPTION, width, 3), _DARK, np.uint8)
    text = tile.caption.encode("ascii", "replace").decode()
    size = 0.42 if width >= 320 else 0.34
    cv2.putText(caption, text, (4, 17), _FONT, size, _WHITE, 1, cv2.LINE_AA)
    sheet: Picture = np.vstack([caption, small]).astype(np.uint8)
    return sheet
