"""Recognises text in screenshots with RapidOCR (the extra `privacy`), and covers boxes in them.

A box is x, y, width, height in pixels of the screenshot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

ScreenshotBox = tuple[int, int, int, int]
BgrImage = np.ndarray[Any, np.dtype[np.uint8]]

# RapidOCR scales down images with a side longer than 4096 pixels. With a smaller limit, letters of
# 11 pixels in 4K screenshots were not recognised (measured).
_LONGEST_SIDE = 4096
_BAND = 300  # number of pixel rows of a screenshot that are recognised at once
_OVERLAP = 48  # number of pixel rows that two bands share; more than the height of a text line
# Colour values (0 to 255) count as equal if they differ by at most 16. The noise of video encoders
# on a still screen is smaller.
_CHANGED = 16
# Number of cached results per band: two screenshots, each with and without covered boxes.
_MOST_CACHED = 4


class TextLine(NamedTuple):
    """A recognised line of text, its box, and its words with their boxes."""

    text: str
    box: ScreenshotBox
    words: tuple[tuple[str, ScreenshotBox], ...]

    def boxes_of(self, start: int, end: int) -> list[ScreenshotBox]:
        """Returns the boxes of all words that overlap the characters from `start` to before `end`.

        Returns the box of the whole line if a word's position is unknown.
        """
        boxes = list[ScreenshotBox]()
        place = 0
        for word, box in self.words:
            first = self.text.find(word, place)
            if first < 0:
                return [self.box]
            place = first + len(word)
            if first < end and start < place:
                boxes.append(box)
        return boxes or [self.box]


@cache
def _engine() -> Any:
    """Returns RapidOCR with its models, which are loaded on the first call."""
    from rapidocr import RapidOCR  # noqa: PLC0415 - optional, and slow to import

    limits = {"Global.max_side_len": _LONGEST_SIDE, "Det.limit_side_len": _LONGEST_SIDE}
    quiet = {"Global.log_level": "error", "Global.use_cls": False}
    return RapidOCR(params={**limits, "Det.limit_type": "max", **quiet})


def read_lines(screenshot: BgrImage) -> list[TextLine]:
    """Recognises the lines of text in a part of a screenshot.

    Args:
        screenshot: BGR, shape (height, width, 3).

    Raises:
        ModuleNotFoundError: the extra `privacy` is not installed.
    """
    result = _engine()(screenshot, return_word_box=True)
    if result.txts is None:
        return []
    lines = list[TextLine]()
    for text, corners, words in zip(result.txts, result.boxes, result.word_results, strict=True):
        boxes = [(word, _box(place)) for word, _, place in words if place is not None]
        lines.append(TextLine(text, _box(corners), tuple(boxes)))
    return lines


def _box(corners: Any) -> ScreenshotBox:
    points = np.asarray(corners)
    low = np.floor(points.min(axis=0))
    high = np.ceil(points.max(axis=0))
    return int(low[0]), int(low[1]), int(high[0] - low[0]), int(high[1] - low[1])


@dataclass
class ScreenshotReader:
    """Recognises the text of successive screenshots.

    A horizontal band of a screenshot is only searched if it changed.
    """

    # Maps the first row of a band to the band's recent contents and the lines recognised in them.
    _bands: dict[int, list[tuple[BgrImage, list[TextLine]]]] = field(default_factory=dict)

    def lines(self, screenshot: BgrImage) -> list[TextLine]:
        """Returns the recognised lines of a screenshot, searched in overlapping bands.

        A line that is complete in two bands is returned twice.

        Measured: a single line of 11 pixels on a 1080p screen was found in 4 of 4 bands, but in 0
        of 4 whole screenshots.

        Args:
            screenshot: BGR, shape (height, width, 3).
        """
        lines = list[TextLine]()
        for top in range(0, max(1, len(screenshot) - _OVERLAP), _BAND - _OVERLAP):
            lines += self._lines_of_band(screenshot[top : top + _BAND], top)
        return lines

    def _lines_of_band(self, band: BgrImage, top: int) -> list[TextLine]:
        results = self._bands.setdefault(top, [])
        for earlier_band, lines in results:
            is_same_size = earlier_band.shape == band.shape
            if is_same_size and cv2.absdiff(earlier_band, band).max() <= _CHANGED:
                return lines
        lines = [_moved(line, top) for line in read_lines(band)]
        results.insert(0, (band.copy(), lines))
        del results[_MOST_CACHED:]
        return lines


def _moved(line: TextLine, top: int) -> TextLine:
    def moved(box: ScreenshotBox) -> ScreenshotBox:
        return box[0], box[1] + top, box[2], box[3]

    words = tuple((word, moved(box)) for word, box in line.words)
    return TextLine(line.text, moved(line.box), words)


def touch(box: ScreenshotBox, other: ScreenshotBox) -> bool:
    """Whether two boxes share a pixel."""
    x, y, width, height = box
    other_x, other_y, other_width, other_height = other
    overlaps_across = x < other_x + other_width and other_x < x + width
    overlaps_down = y < other_y + other_height and other_y < y + height
    return overlaps_across and overlaps_down


def line_below(line: TextLine, lines: Iterable[TextLine]) -> TextLine | None:
    """Returns the next line of the same paragraph, or None.

    The top of the next line is 0.5 to 2.5 line heights below the top of `line`, and the two lines
    share some columns.
    """
    x, y, width, height = line.box
    nearest: TextLine | None = None
    for other in lines:
        other_x, other_y, other_width, _ = other.box
        is_near = 0.5 * height < other_y - y < 2.5 * height
        overlaps_across = other_x < x + width and x < other_x + other_width
        if is_near and overlaps_across and (nearest is None or other_y < nearest.box[1]):
            nearest = other
    return nearest


def load_screenshot(path: Path) -> BgrImage | None:
    """Reads an image file as BGR. Returns None if the file cannot be decoded."""
    screenshot: BgrImage | None = cv2.imread(str(path), cv2.IMREAD_COLOR)
    return screenshot


def cover(screenshot: BgrImage, boxes: Iterable[ScreenshotBox]) -> None:
    """Fills each box, widened by two pixels on each side, with the median colour around it."""
    height, width = screenshot.shape[:2]
    for x, y, box_width, box_height in boxes:
        left = max(0, x - 2)
        top = max(0, y - 2)
        right = min(width, x + box_width + 2)
        bottom = min(height, y + box_height + 2)
        if left < right and top < bottom:
            screenshot[top:bottom, left:right] = _colour_around(
                screenshot, left, top, right, bottom
            )


def _colour_around(screenshot: BgrImage, left: int, top: int, right: int, bottom: int) -> Any:
    """Returns the median colour of the pixels along the four edges of a box."""
    edges: Sequence[BgrImage] = (
        screenshot[max(0, top - 1), left:right],
        screenshot[min(len(screenshot) - 1, bottom), left:right],
        screenshot[top:bottom, max(0, left - 1)],
        screenshot[top:bottom, min(screenshot.shape[1] - 1, right)],
    )
    return np.median(np.concatenate(edges), axis=0).astype(np.uint8)
