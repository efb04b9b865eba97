"""Finds focus rings and highlighted list rows in screenshots.

In an open list, browsers and toolkits highlight the row that Enter would choose (the *lit choice*).
Callers pass the boxes of the elements that can have the focus.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Grey = np.ndarray[Any, np.dtype[np.uint8]]
"""A greyscale screenshot, (rows, columns)."""
Bounds = Sequence[float]
"""x, y, width, height of an element in canvas pixels."""

# Maximum distance from the sides of an element to its focus ring, in pixels.
INSIDE_PX = 5
OUTSIDE_PX = 6
_RIM = INSIDE_PX + OUTSIDE_PX
CORNER_PX = 3  # pixels at each end of a side that are left out because of round corners
SAME_PX = 3  # canvas pixels; boxes count as equal if no side differs by more
# Minimum increase of the contrast across a side with a new ring, in sums of grey levels.
# Rings increased the contrast by 60 to 400, and noise increased it by 6.
RING_LEVELS = 30
# Minimum ratio of the increase at a ring to the increase at any other element. With a smaller
# ratio, several elements were probably redrawn.
RING_LEAD = 2.0
# Elements with a side below 24 pixels are never taken for new (see STILL_SHARE), because they may
# have no content inside their ring.
STILL_SIDE = 24
# An element is new if it has less than a quarter as much ink in the earlier screenshot as in the
# later one. Ink means the pixels that differ from the background.
STILL_SHARE = 0.25
# Maximum number of pixels that may change in an element with unchanged content, as a share of the
# element's ink.
DRAWN_SHARE = 0.5
WRITTEN_LEVELS = 24  # grey levels; ink differs from its background by more than 24
# Minimum difference between the background of a lit choice and the median background of all
# choices, in grey levels.
LIT_LEVELS = 20
ALIKE_LEVELS = 8  # maximum difference between equal backgrounds, in grey levels
# Minimum number of choices in a list with a lit choice. If there are only two, either may be lit.
FEWEST_CHOICES = 3


def grey_screenshot(path: Path) -> Grey | None:
    """Reads a screenshot as greyscale. Returns None if the file is missing or damaged."""
    if not path.is_file():
        return None
    screenshot: Any = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    return None if screenshot is None else np.asarray(screenshot, np.uint8)


def ringed(
    before: Grey, after: Grey, boxes: Sequence[Bounds], may_be_new: Sequence[bool]
) -> int | None:
    """Returns the index of the element that got a focus ring between two screenshots.

    A ring raises the contrast across at least three sides of an element. Returns None if no element
    or several elements got a ring.

    Args:
        may_be_new: for each element, whether the element and its ring may have appeared at the same
            time. True only for input fields.
    """
    if not boxes or before.shape != after.shape:
        return None
    rises: list[float] = []
    for box, is_new in zip(boxes, may_be_new, strict=True):
        rises.append(_contrast_rise(before, after, box, is_new))
    best, *others = sorted(range(len(boxes)), key=lambda index: -rises[index])
    rival_rise = 0.0
    for other in others:
        if not _is_same_box(boxes[other], boxes[best]):
            rival_rise = max(rival_rise, rises[other])
    is_clear = rises[best] >= RING_LEVELS and rises[best] >= RING_LEAD * rival_rise
    return best if is_clear else None


def has_same_sides(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether the sides of an element and any ring look the same in two screenshots."""
    old = _with_rim(before, box)
    new = _with_rim(after, box)
    if old is None or new is None:
        return False
    return bool(np.abs(np.subtract(_side_contrasts(new), _side_contrasts(old))).max() < RING_LEVELS)


def has_same_content(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether the inside of an element shows the same content in two screenshots."""
    x, y, width, height = map(round, box)
    rows = slice(y + _RIM, y + height - _RIM)
    columns = slice(x + _RIM, x + width - _RIM)
    old = before[rows, columns]
    new = after[rows, columns]
    if not new.size:
        return True
    redrawn = np.count_nonzero(cv2.absdiff(old, new) > WRITTEN_LEVELS)
    return bool(redrawn <= DRAWN_SHARE * _ink(new))


def has_same_background(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether an element kept its background. A new focus ring does not change it."""
    old = _background(before, box)
    new = _background(after, box)
    return old is not None and new is not None and abs(new - old) <= ALIKE_LEVELS


def _background(screenshot: Grey, box: Bounds) -> int | None:
    """Returns the most frequent grey level in a box; None if the box is off the screenshot."""
    x, y, width, height = box
    part = screenshot[round(y) : round(y + height), round(x) : round(x + width)]
    return int(np.bincount(part.ravel()).argmax()) if part.size else None


def _contrast_rise(before: Grey, after: Grey, box: Bounds, may_be_new: bool) -> float:
    """Returns the largest increase of contrast that at least three sides of a box reach.

    The increase is in grey levels. It is 0 for an element that is new in the later screenshot,
    unless `may_be_new` is true.
    """
    old = _with_rim(before, box)
    new = _with_rim(after, box)
    if old is None or new is None or np.array_equal(old, new):
        return 0.0
    if min(map(round, box[2:])) >= STILL_SIDE and not may_be_new:
        old_ink = _ink(old[_RIM:-_RIM, _RIM:-_RIM])
        new_ink = _ink(new[_RIM:-_RIM, _RIM:-_RIM])
        if old_ink < STILL_SHARE * new_ink:
            return 0.0
    rises = np.subtract(_side_contrasts(new), _side_contrasts(old))
    return float(max(0.0, sorted(rises)[1]))


def _with_rim(screenshot: Grey, box: Bounds) -> Grey | None:
    """Cuts out a box with a margin of `OUTSIDE_PX` pixels.

    Returns None if the box is too small for a ring, or too close to the edge of the screenshot.
    """
    x, y, width, height = map(round, box)
    left = x - OUTSIDE_PX
    top = y - OUTSIDE_PX
    right = x + width + OUTSIDE_PX
    bottom = y + height + OUTSIDE_PX
    if left < 0 or top < 0 or right > screenshot.shape[1] or bottom > screenshot.shape[0]:
        return None
    if min(width, height) <= 2 * INSIDE_PX:
        return None
    return screenshot[top:bottom, left:right]


def _ink(part: Grey) -> int:
    """Counts the pixels that differ from the background by more than `WRITTEN_LEVELS`."""
    background = np.full_like(part, np.bincount(part.ravel()).argmax())
    return int(np.count_nonzero(cv2.absdiff(part, background) > WRITTEN_LEVELS))


def _side_contrasts(part: Grey) -> list[float]:
    """Returns the contrast across each side of a box that `_with_rim` cut out.

    The contrast is the sum of the grey-level differences across the side, averaged along the side.
    """
    end = OUTSIDE_PX + CORNER_PX
    levels = part.astype(np.int16)
    bands = (
        levels[:_RIM, end:-end],
        levels[-_RIM:, end:-end],
        levels[end:-end, :_RIM].T,
        levels[end:-end, -_RIM:].T,
    )
    return [float(np.abs(np.diff(band, axis=0)).sum(axis=0).mean()) for band in bands]


def _is_same_box(first: Bounds, second: Bounds) -> bool:
    """Returns whether the sides of two boxes differ by at most `SAME_PX` pixels."""
    first_edges = (first[0], first[1], first[0] + first[2], first[1] + first[3])
    second_edges = (second[0], second[1], second[0] + second[2], second[1] + second[3])
    return all(abs(a - b) <= SAME_PX for a, b in zip(first_edges, second_edges, strict=True))


def lit_choice(screenshot: Grey, boxes: Sequence[Bounds]) -> int | None:
    """Returns the index of the highlighted choice, the only one with a different background.

    Returns None if no choice or several choices are highlighted, or if the list is too short.
    """
    differences = _background_differences(screenshot, boxes)
    if differences is None or len(boxes) < FEWEST_CHOICES:
        return None
    lit: list[int] = []
    alike = 0
    for index, levels in enumerate(differences):
        if levels >= LIT_LEVELS:
            lit.append(index)
        elif levels <= ALIKE_LEVELS:
            alike += 1
    return lit[0] if len(lit) == 1 and alike == len(boxes) - 1 else None


def are_unlit(screenshot: Grey, boxes: Sequence[Bounds]) -> bool:
    """Returns whether all choices of a list have the same background, so that none is lit."""
    differences = _background_differences(screenshot, boxes)
    return differences is not None and len(differences) > 1 and max(differences) <= ALIKE_LEVELS


def _background_differences(screenshot: Grey, boxes: Sequence[Bounds]) -> list[float] | None:
    """Returns the difference of each choice's background from the median, in grey levels.

    Returns None if a choice is outside the screenshot.
    """
    backgrounds: list[int] = []
    for box in boxes:
        background = _background(screenshot, box)
        if background is None:
            return None
        backgrounds.append(background)
    usual = float(np.median(backgrounds)) if backgrounds else 0.0
    return [abs(background - usual) for background in backgrounds]
