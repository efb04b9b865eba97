"""What screenshots show of the keyboard focus: the ring around what has it, the lit choice.

Browsers and toolkits draw a ring around what the keyboard reached, and fill the row of a list that
keys would choose. Both are looked for among the boxes of elements that can have the focus.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Grey = np.ndarray[Any, np.dtype[np.uint8]]  # (rows, columns)
Bounds = Sequence[float]
"""x, y, width, height on the canvas."""

INSIDE_PX, OUTSIDE_PX = 5, 6  # of a side, in which a ring is drawn; beyond is the next element
_RIM = INSIDE_PX + OUTSIDE_PX
CORNER_PX = 3  # pixels at the ends of a side that a round corner leaves out
SAME_PX = 3  # pixels between the sides of a cell and of what edits it
RING_LEVELS = 30  # of 255, by which a side's contrast rises; rings rose it by 60 to 400, noise by 6
RING_LEAD = 2.0  # times as much as any other element's; fewer: several were redrawn
STILL_SIDE = 24  # pixels; what is as large has an inside apart from its ring
STILL_SHARE = 0.25  # of the ink inside was there before; of what appeared, none was
DRAWN_SHARE = 0.5  # of the ink inside that may be drawn anew where only a ring came
WRITTEN_LEVELS = 24  # of 255, by which ink differs from its ground
LIT_LEVELS = 20  # of 255, by which a lit choice's ground differs from the others'
ALIKE_LEVELS = 8  # of 255, by which the others' differ from each other
FEWEST_CHOICES = 3  # of two that differ, nothing tells which one is lit


def grey_picture(shot: Path) -> Grey | None:
    """A screenshot in grey; None: there is none."""
    if not shot.is_file():
        return None
    picture: Any = cv2.imread(str(shot), cv2.IMREAD_GRAYSCALE)
    return None if picture is None else np.asarray(picture, np.uint8)


def ringed(
    before: Grey, after: Grey, boxes: Sequence[Bounds], may_be_new: Sequence[bool]
) -> int | None:
    """Which of the elements got a ring from one picture to the next; None: not exactly one.

    The contrast across its sides rises, on three of them at least: the fourth may be that of a
    neighbour which lost its ring.

    Args:
        before: the screen.
        after: the screen later.
        boxes: of the elements.
        may_be_new: of each, whether it may have appeared with its ring, as a field does.
    """
    if not boxes or before.shape != after.shape:
        return None
    rises = [
        _rise(before, after, [round(side) for side in box], is_new)
        for box, is_new in zip(boxes, may_be_new, strict=True)
    ]
    first, *others = sorted(range(len(boxes)), key=lambda index: -rises[index])
    apart = [rises[other] for other in others if not _is_same(boxes[other], boxes[first])]
    is_clear = rises[first] >= RING_LEVELS and rises[first] >= RING_LEAD * max(apart, default=0.0)
    return first if is_clear else None


def is_as_before(before: Grey, after: Grey, box: Bounds) -> bool:
    """Whether the sides of an element look as they did, so that a ring around it is still there."""
    whole = [round(side) for side in box]
    old, new = (_with_rim(picture, whole) for picture in (before, after))
    if old is None or new is None:
        return False
    return bool(np.abs(np.subtract(_contrasts(new), _contrasts(old))).max() < RING_LEVELS)


def is_written_as_before(before: Grey, after: Grey, box: Bounds) -> bool:
    """Whether what is written in an element is what it was; what uncovered it is not there."""
    x, y, width, height = (round(side) for side in box)
    rows = slice(y + _RIM, y + height - _RIM)
    columns = slice(x + _RIM, x + width - _RIM)
    old = before[rows, columns]
    new = after[rows, columns]
    if not new.size:
        return True
    drawn = np.count_nonzero(cv2.absdiff(old, new) > WRITTEN_LEVELS)
    return bool(drawn <= DRAWN_SHARE * _ink(new))


def is_ground_as_before(before: Grey, after: Grey, box: Bounds) -> bool:
    """Whether the most common brightness in an element is what it was; a ring leaves it so."""
    old = _ground(before, box)
    new = _ground(after, box)
    return old is not None and new is not None and abs(new - old) <= ALIKE_LEVELS


def _ground(picture: Grey, box: Bounds) -> int | None:
    """The most common brightness in a box; None when it is outside the picture."""
    x, y, width, height = box
    part = picture[round(y) : round(y + height), round(x) : round(x + width)]
    return int(np.bincount(part.ravel()).argmax()) if part.size else None


def _rise(before: Grey, after: Grey, box: Sequence[int], may_be_new: bool) -> float:
    """By how much the contrast across the sides of a box rose, levels; 0 for what appeared."""
    old, new = (_with_rim(picture, box) for picture in (before, after))
    if old is None or new is None or np.array_equal(old, new):
        return 0.0
    if min(box[2:]) >= STILL_SIDE and not may_be_new:
        was, shown = (_ink(part[_RIM:-_RIM, _RIM:-_RIM]) for part in (old, new))
        if was < STILL_SHARE * shown:
            return 0.0
    sides = np.subtract(_contrasts(new), _contrasts(old))
    return float(max(0.0, sorted(sides)[1]))


def _with_rim(picture: Grey, box: Sequence[int]) -> Grey | None:
    """A box with what is around it; None: it is too small, or at the edge of the screen."""
    x, y, width, height = box
    left = x - OUTSIDE_PX
    top = y - OUTSIDE_PX
    right = x + width + OUTSIDE_PX
    bottom = y + height + OUTSIDE_PX
    is_inside = min(left, top) >= 0 and right <= picture.shape[1] and bottom <= picture.shape[0]
    is_large = min(width, height) > 2 * INSIDE_PX
    return picture[top:bottom, left:right] if is_inside and is_large else None


def _ink(picture: Grey) -> int:
    """Pixels that differ from the most common level."""
    ground = np.full_like(picture, np.bincount(picture.ravel()).argmax())
    return int(np.count_nonzero(cv2.absdiff(picture, ground) > WRITTEN_LEVELS))


def _contrasts(picture: Grey) -> list[float]:
    """The mean sum of the steps across each side of a box, which is the picture without its rim."""
    end = OUTSIDE_PX + CORNER_PX
    levels = picture.astype(np.int16)
    bands = (
        levels[:_RIM, end:-end],
        levels[-_RIM:, end:-end],
        levels[end:-end, :_RIM].T,
        levels[end:-end, -_RIM:].T,
    )
    return [float(np.abs(np.diff(band, axis=0)).sum(axis=0).mean()) for band in bands]


def _is_same(one: Bounds, other: Bounds) -> bool:
    """Whether two boxes are within a few pixels of each other, as a cell and what edits it."""
    corners = [(box[0], box[1], box[0] + box[2], box[1] + box[3]) for box in (one, other)]
    return all(abs(a - b) <= SAME_PX for a, b in zip(*corners, strict=True))


def lit(picture: Grey, boxes: Sequence[Bounds]) -> int | None:
    """Which of a list's choices has another ground than all others; None: not exactly one."""
    apart = _apart(picture, boxes)
    if apart is None:
        return None
    found = [index for index, levels in enumerate(apart) if levels >= LIT_LEVELS]
    alike = sum(levels <= ALIKE_LEVELS for levels in apart)
    is_clear = len(found) == 1 and alike == len(boxes) - 1 and len(boxes) >= FEWEST_CHOICES
    return found[0] if is_clear else None


def are_unlit(picture: Grey, boxes: Sequence[Bounds]) -> bool:
    """Whether all of a list's choices have the same ground, so that none is lit."""
    apart = _apart(picture, boxes)
    return apart is not None and len(apart) > 1 and max(apart) <= ALIKE_LEVELS


def _apart(picture: Grey, boxes: Sequence[Bounds]) -> list[float] | None:
    """By how many levels the ground of each choice differs from the usual one.

    None when a choice is outside the picture.
    """
    grounds = [ground for box in boxes if (ground := _ground(picture, box)) is not None]
    if len(grounds) < len(boxes):
        return None
    usual = float(np.median(grounds)) if grounds else 0.0
    return [abs(ground - usual) for ground in grounds]
