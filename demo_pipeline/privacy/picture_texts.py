"""Texts in pictures, and covering parts of them.

Belongs here: reading by RapidOCR (the extra `privacy`), which part of a picture changed since the
one before, and filling a box in the colour around it. Boxes are x, y, width, height in pixels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

PictureBox = tuple[int, int, int, int]
BgrPicture = np.ndarray[Any, np.dtype[np.uint8]]

_LONGEST_SIDE = (
    4096  # pixels; smaller ones scale a 4K screen down and lose 11 px letters (measured)
)
_BAND, _OVERLAP = 300, 48  # rows of a picture that are read at once; a line's height is in both
_CHANGED = 16  # of 255, more than an encoder's noise on a still screen
_AROUND = 24  # pixels around what changed that are read again: a line's height
_WHOLE, _MOST_PARTS = 0.5, 4  # share and parts above which reading all of it costs less (measured)


class TextLine(NamedTuple):
    """A line that was read: its text, its box, and its words with theirs."""

    text: str
    box: PictureBox
    words: tuple[tuple[str, PictureBox], ...]

    def boxes_of(self, start: int, end: int) -> list[PictureBox]:
        """The boxes of the words that characters `start` to `end` are in; else the whole line."""
        found, place = list[PictureBox](), 0
        for word, box in self.words:
            first = self.text.find(word, place)
            if first < 0:
                return [self.box]
            place = first + len(word)
            if first < end and start < place:
                found.append(box)
        return found or [self.box]


def can_read() -> bool:
    """Whether the extra `privacy` is installed."""
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR  # noqa: PLC0415 - of the extra, and heavy

    limits = {"Global.max_side_len": _LONGEST_SIDE, "Det.limit_side_len": _LONGEST_SIDE}
    quiet = {"Global.log_level": "error", "Global.use_cls": False}
    return RapidOCR(params={**limits, "Det.limit_type": "max", **quiet})


def read_lines(picture: BgrPicture, left: int = 0, top: int = 0) -> list[TextLine]:
    """The lines in a picture (height, width, 3), BGR, whose corner is at (left, top).

    It is read in bands: of a whole 1080p picture with one line at 11 pixels the line is not found,
    of a band it is (4 of 4 and 0 of 4, measured). A line in two bands comes twice.
    """
    height = len(picture)
    starts = range(0, max(1, height - _OVERLAP), _BAND - _OVERLAP)
    return [
        line
        for start in starts
        for line in _read_band(picture[start : start + _BAND], left, top + start)
    ]


def _read_band(band: BgrPicture, left: int, top: int) -> list[TextLine]:
    found = _engine()(band, return_word_box=True)
    if found.txts is None:
        return []
    return [
        TextLine(
            text,
            _box(corners, left, top),
            tuple((word, _box(at, left, top)) for word, _, at in words if at is not None),
        )
        for text, corners, words in zip(found.txts, found.boxes, found.word_results, strict=True)
    ]


def _box(corners: Any, left: int, top: int) -> PictureBox:
    points = np.asarray(corners)
    low, high = np.floor(points.min(axis=0)), np.ceil(points.max(axis=0))
    return int(low[0]) + left, int(low[1]) + top, int(high[0] - low[0]), int(high[1] - low[1])


@dataclass
class PictureReader:
    """Reads one picture after the other: only what changed since the one before.

    Attributes:
        read: pictures that were read so far.
    """

    read: int = 0
    _picture: BgrPicture | None = None
    _lines: list[TextLine] = field(default_factory=list)

    def lines(self, picture: BgrPicture) -> list[TextLine]:
        """The lines in a picture (height, width, 3), BGR."""
        parts = None if self._picture is None else changed_parts(self._picture, picture)
        self.read += 1
        if parts is None:
            self._lines = read_lines(picture)
        else:
            for part in parts:
                left, top, wide, high = part
                self._lines = [line for line in self._lines if not _touch(line.box, part)]
                self._lines += read_lines(picture[top : top + high, left : left + wide], left, top)
        self._picture = picture
        return list(self._lines)


def changed_parts(before: BgrPicture, after: BgrPicture) -> list[PictureBox] | None:
    """The parts that differ, with the lines around them; None: read all of it."""
    if before.shape != after.shape:
        return None
    mask = (cv2.absdiff(before, after).max(axis=2) > _CHANGED).astype(np.uint8)
    height, width = mask.shape
    mask = cv2.dilate(mask, np.ones((2 * _AROUND, 2 * _AROUND), np.uint8))
    rows = np.flatnonzero(mask.any(axis=1))
    bands = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    # A line is read whole: from edge to edge, since a word must not be cut.
    parts = [(0, int(band[0]), width, int(band[-1] - band[0]) + 1) for band in bands]
    many = len(parts) > _MOST_PARTS or sum(part[3] for part in parts) > _WHOLE * height
    return None if many else parts


def _touch(one: PictureBox, other: PictureBox) -> bool:
    across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
    return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]


def load_picture(path: Path) -> BgrPicture | None:
    """A picture, BGR; None when it cannot be read."""
    picture: BgrPicture | None = cv2.imread(str(path), cv2.IMREAD_COLOR)
    return picture


def cover(picture: BgrPicture, boxes: Iterable[PictureBox]) -> None:
    """Fill each box in the colour that is most around it."""
    height, width = picture.shape[:2]
    for x, y, wide, high in boxes:
        left, top = max(0, x - 2), max(0, y - 2)
        right, bottom = min(width, x + wide + 2), min(height, y + high + 2)
        if left < right and top < bottom:
            picture[top:bottom, left:right] = _colour_around(picture, left, top, right, bottom)


def _colour_around(picture: BgrPicture, left: int, top: int, right: int, bottom: int) -> Any:
    edges: Sequence[BgrPicture] = (
        picture[max(0, top - 1), left:right],
        picture[min(len(picture) - 1, bottom), left:right],
        picture[top:bottom, max(0, left - 1)],
        picture[top:bottom, min(picture.shape[1] - 1, right)],
    )
    return np.median(np.concatenate(edges), axis=0).astype(np.uint8)
