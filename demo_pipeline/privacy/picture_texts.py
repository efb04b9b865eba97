"""Texts in pictures, and covering parts of them.

Belongs here: reading by RapidOCR (the extra `privacy`), only where a picture differs from the one
before, and filling a box in the colour around it. Boxes are x, y, width, height in pixels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
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
_MOST_KEPT = 4  # readings of a band: of the picture before, of this one, and both covered


class TextLine(NamedTuple):
    """A line that was read: its text, its box, and its words with theirs."""

    text: str
    box: PictureBox
    words: tuple[tuple[str, PictureBox], ...]

    def boxes_of(self, start: int, end: int) -> list[PictureBox]:
        """The boxes of the words that characters `start` to `end` are in; else the whole line."""
        found = list[PictureBox]()
        place = 0
        for word, box in self.words:
            first = self.text.find(word, place)
            if first < 0:
                return [self.box]
            place = first + len(word)
            if first < end and start < place:
                found.append(box)
        return found or [self.box]


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR  # noqa: PLC0415 - of the extra, and heavy

    limits = {"Global.max_side_len": _LONGEST_SIDE, "Det.limit_side_len": _LONGEST_SIDE}
    quiet = {"Global.log_level": "error", "Global.use_cls": False}
    return RapidOCR(params={**limits, "Det.limit_type": "max", **quiet})


def read_lines(picture: BgrPicture) -> list[TextLine]:
    """The lines in a picture (height, width, 3), BGR, of few rows.

    Raises `ModuleNotFoundError` without the extra `privacy`.
    """
    found = _engine()(picture, return_word_box=True)
    if found.txts is None:
        return []
    return [
        TextLine(
            text, _box(corners), tuple((word, _box(at)) for word, _, at in words if at is not None)
        )
        for text, corners, words in zip(found.txts, found.boxes, found.word_results, strict=True)
    ]


def _box(corners: Any) -> PictureBox:
    points = np.asarray(corners)
    low = np.floor(points.min(axis=0))
    high = np.ceil(points.max(axis=0))
    return int(low[0]), int(low[1]), int(high[0] - low[0]), int(high[1] - low[1])


@dataclass
class PictureReader:
    """Reads one picture after the other: only the bands that differ from all that were read."""

    _bands: dict[int, list[tuple[BgrPicture, list[TextLine]]]] = field(default_factory=dict)

    def lines(self, picture: BgrPicture) -> list[TextLine]:
        """The lines in a picture (height, width, 3), BGR.

        It is read in bands: of a whole 1080p picture with one line at 11 pixels the line is not
        found, of a band it is (4 of 4 and 0 of 4, measured). A line in two bands comes twice, and
        one that an edge cuts comes whole from the neighbour.
        """
        tops = range(0, max(1, len(picture) - _OVERLAP), _BAND - _OVERLAP)
        return [line for top in tops for line in self._read(picture[top : top + _BAND], top)]

    def _read(self, band: BgrPicture, top: int) -> list[TextLine]:
        known = self._bands.setdefault(top, [])
        for before, lines in known:
            if before.shape == band.shape and cv2.absdiff(before, band).max() <= _CHANGED:
                return lines
        lines = [_moved(line, top) for line in read_lines(band)]
        known.insert(0, (band.copy(), lines))
        del known[_MOST_KEPT:]
        return lines


def _moved(line: TextLine, top: int) -> TextLine:
    def moved(box: PictureBox) -> PictureBox:
        return box[0], box[1] + top, box[2], box[3]

    words = tuple((word, moved(box)) for word, box in line.words)
    return TextLine(line.text, moved(line.box), words)


def touch(one: PictureBox, other: PictureBox) -> bool:
    """Whether two boxes have pixels in common."""
    across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
    return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]


def line_below(line: TextLine, lines: Iterable[TextLine]) -> TextLine | None:
    """The next line of the same paragraph: as far left, less than a line's height apart."""
    x, y, width, height = line.box
    found = [
        one
        for one in lines
        if 0.5 * height < one.box[1] - y < 2.5 * height
        and one.box[0] < x + width
        and x < one.box[0] + one.box[2]
    ]
    return min(found, key=lambda one: one.box[1], default=None)


def load_picture(path: Path) -> BgrPicture | None:
    """A picture, BGR; None when it cannot be read."""
    picture: BgrPicture | None = cv2.imread(str(path), cv2.IMREAD_COLOR)
    return picture


def cover(picture: BgrPicture, boxes: Iterable[PictureBox]) -> None:
    """Fill each box in the colour that is most around it."""
    height, width = picture.shape[:2]
    for x, y, wide, high in boxes:
        left = max(0, x - 2)
        top = max(0, y - 2)
        right = min(width, x + wide + 2)
        bottom = min(height, y + high + 2)
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
