"""Finds in screenshots which element has the keyboard focus.

Browsers and toolkits draw a ring around the element that the keyboard reached, and fill the row of
a list that the keyboard would choose. Both are searched for only among elements that can have the
focus.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Grey = np.ndarray[Any, np.dtype[np.uint8]]  # (rows, columns)
Bounds = Sequence[float]
"""x, y, width, height on the canvas."""

INSIDE_PX = 5  # inside a side, in which a ring is drawn
OUTSIDE_PX = 6  # outside a side, in which a ring is drawn; beyond begins the next element
_RIM = INSIDE_PX + OUTSIDE_PX
CORNER_PX = 3  # pixels at the ends of a side that a round corner leaves out
SAME_PX = 3  # pixels between the sides of a cell and those of the field that edits the cell
RING_LEVELS = 30  # of 255, by which a side's contrast rises; rings rose it by 60 to 400, noise by 6
RING_LEAD = 2.0  # times the rise of any other element; below, several elements were redrawn
STILL_SIDE = 24  # pixels; an element this large has content apart from its ring
STILL_SHARE = 0.25  # of the ink inside existed before; a new element had none
DRAWN_SHARE = 0.5  # of the ink inside may be redrawn where only a ring appeared
WRITTEN_LEVELS = 24  # of 255, by which ink differs from its background
LIT_LEVELS = 20  # of 255, by which a lit choice's background differs from that of the others
ALIKE_LEVELS = 8  # of 255, by which the others' backgrounds differ from each other
FEWEST_CHOICES = 3  # if only two differ, either could be the lit choice


def grey_screenshot(path: Path) -> Grey | None:
    """Reads a screenshot in grey; None: the file is missing or cannot be decoded."""
    if not path.is_file():
        return None
    screenshot: Any = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    return None if screenshot is None else np.asarray(screenshot, np.uint8)


def ringed(
    before: Grey, after: Grey, boxes: Sequence[Bounds], may_be_new: Sequence[bool]
) -> int | None:
    """Returns which element got a focus ring between two screenshots; None: not exactly one.

    A ring raises the contrast across at least three sides of an element. The fourth side may belong
    to a neighbour that lost its ring.

    Args:
        before: the earlier screenshot.
        after: the later screenshot.
        boxes: of the elements.
        may_be_new: for each element, whether it may have appeared together with its ring, as an
            input field may.
    """
    if not boxes or before.shape != after.shape:
        return None
    rises = [
        _contrast_rise(before, after, [round(side) for side in box], is_new)
        for box, is_new in zip(boxes, may_be_new, strict=True)
    ]
    best, *others = sorted(range(len(boxes)), key=lambda index: -rises[index])
    rival_rises = [rises[other] for other in others if not _is_same_box(boxes[other], boxes[best])]
    rival_rise = max(rival_rises, default=0.0)
    is_clear = rises[best] >= RING_LEVELS and rises[best] >= RING_LEAD * rival_rise
    return best if is_clear else None


def has_same_sides(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether the sides of an element look the same, so that its ring is still there."""
    rounded = [round(side) for side in box]
    old = _with_rim(before, rounded)
    new = _with_rim(after, rounded)
    if old is None or new is None:
        return False
    return bool(np.abs(np.subtract(_side_contrasts(new), _side_contrasts(old))).max() < RING_LEVELS)


def has_same_content(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether the inside of an element shows the same text.

    An element that was uncovered in between shows another text than before.
    """
    x, y, width, height = (round(side) for side in box)
    rows = slice(y + _RIM, y + height - _RIM)
    columns = slice(x + _RIM, x + width - _RIM)
    old = before[rows, columns]
    new = after[rows, columns]
    if not new.size:
        return True
    redrawn = np.count_nonzero(cv2.absdiff(old, new) > WRITTEN_LEVELS)
    return bool(redrawn <= DRAWN_SHARE * _ink(new))


def has_same_background(before: Grey, after: Grey, box: Bounds) -> bool:
    """Returns whether an element kept its most common brightness, which a ring does not change."""
    old = _background(before, box)
    new = _background(after, box)
    return old is not None and new is not None and abs(new - old) <= ALIKE_LEVELS


def _background(screenshot: Grey, box: Bounds) -> int | None:
    """Returns the most common brightness in a box; None: the box is outside the screenshot."""
    x, y, width, height = box
    part = screenshot[round(y) : round(y + height), round(x) : round(x + width)]
    return int(np.bincount(part.ravel()).argmax()) if part.size else None


def _contrast_rise(before: Grey, after: Grey, box: Sequence[int], may_be_new: bool) -> float:
    """Returns by how many levels the contrast across at least three sides of a box rose.

    The result is 0 for an element that appeared, unless it may be new.
    """
    old = _with_rim(before, box)
    new = _with_rim(after, box)
    if old is None or new is None or np.array_equal(old, new):
        return 0.0
    if min(box[2:]) >= STILL_SIDE and not may_be_new:
        old_ink = _ink(old[_RIM:-_RIM, _RIM:-_RIM])
        new_ink = _ink(new[_RIM:-_RIM, _RIM:-_RIM])
        if old_ink < STILL_SHARE * new_ink:
            return 0.0
    rises = np.subtract(_side_contrasts(new), _side_contrasts(old))
    return float(max(0.0, sorted(rises)[1]))


def _with_rim(screenshot: Grey, box: Sequence[int]) -> Grey | None:
    """Cuts out a box and its surroundings; None: it is too small, or at the edge of the screen."""
    x, y, width, height = box
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
    """Counts the pixels that differ from the most common brightness."""
    background = np.full_like(part, np.bincount(part.ravel()).argmax())
    return int(np.count_nonzero(cv2.absdiff(part, background) > WRITTEN_LEVELS))


def _side_contrasts(part: Grey) -> list[float]:
    """Returns the mean sum of brightness steps across each side of a box that was cut out."""
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
    """Returns whether two boxes differ by a few pixels, as a cell and the field that edits it."""
    edges = [(box[0], box[1], box[0] + box[2], box[1] + box[3]) for box in (first, second)]
    return all(abs(a - b) <= SAME_PX for a, b in zip(*edges, strict=True))


def lit_choice(screenshot: Grey, boxes: Sequence[Bounds]) -> int | None:
    """Returns which choice of a list has another background; None: not exactly one."""
    differences = _background_differences(screenshot, boxes)
    if differences is None or len(boxes) < FEWEST_CHOICES:
        return None
    lit = [index for index, levels in enumerate(differences) if levels >= LIT_LEVELS]
    alike = sum(levels <= ALIKE_LEVELS for levels in differences)
    return lit[0] if len(lit) == 1 and alike == len(boxes) - 1 else None


def are_unlit(screenshot: Grey, boxes: Sequence[Bounds]) -> bool:
    """Returns whether all choices of a list have the same background, so that none is lit."""
    differences = _background_differences(screenshot, boxes)
    return differences is not None and len(differences) > 1 and max(differences) <= ALIKE_LEVELS


def _background_differences(screenshot: Grey, boxes: Sequence[Bounds]) -> list[float] | None:
    """Returns by how many levels the background of each choice differs from the median.

    None: a choice is outside the screenshot.
    """
    backgrounds: list[int] = []
    for box in boxes:
        background = _background(screenshot, box)
        if background is None:
            return None
        backgrounds.append(background)
    usual = float(np.median(backgrounds)) if backgrounds else 0.0
    return [abs(background - usual) for background in backgrounds]
