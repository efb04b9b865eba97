"""What screenshots alone tell: whether two differ, faults of one, and near-duplicates.

What is compared of a screenshot is in observation/frames/screenshot_files.py. Coordinates are
canvas pixels.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.screenshot_files import CELL, ScreenshotFacts

CHANGED = 8  # of 255, a cell's mean: above the noise of x264 at the recorders' quality
POINTER = (-10, -6, 24, 34)  # pixels around the hot spot that an arrow or a hand covers
TORN_OTHER, TORN_SAME = 0.3, 0.03  # of the cells of a part that differ, and of one that does not
TORN_ROWS = 8  # cells; smaller parts are bars
NEAR_BITS, NEAR_MEAN_BITS = 8, 3.0  # of 64, of any step and of their mean


def different_cells(
    before: ScreenshotFacts, after: ScreenshotFacts, pointers: Iterable[tuple[float, float]]
) -> int:
    """How many of 32,400 cells differ, those that a pointer covers left out.

    Args:
        before: a picture.
        after: another one.
        pointers: where the pointer is in either.
    """
    different = cv2.absdiff(before.cells, after.cells) > CHANGED
    for x, y in pointers:
        left, top, right, bottom = (
            int((at + by) // CELL) for at, by in zip((x, y, x, y), POINTER, strict=True)
        )
        different[max(top, 0) : max(bottom + 1, 0), max(left, 0) : max(right + 1, 0)] = False
    return int(different.sum())


def torn(before: ScreenshotFacts, picture: ScreenshotFacts, after: ScreenshotFacts) -> bool:
    """Whether one part of a picture is that of the picture before, and the other of the next.

    The parts are above and below a line across the whole screen, and each differs from the same
    part of the other neighbour in a third of its cells.
    """
    old, new = (
        (cv2.absdiff(picture.cells, other.cells) > CHANGED).mean(axis=1)
        for other in (before, after)
    )
    both = np.stack([old, new])
    rows = np.arange(1, len(old))
    above = (np.cumsum(both, axis=1)[:, :-1] / rows)[:, TORN_ROWS:-TORN_ROWS]
    below = (np.cumsum(both[:, ::-1], axis=1)[:, -2::-1] / rows[::-1])[:, TORN_ROWS:-TORN_ROWS]
    kept = np.maximum(above, below[::-1])
    changed = np.minimum(below, above[::-1])
    return bool(((kept <= TORN_SAME) & (changed > TORN_OTHER)).any())


def groups(rows: Iterable[Mapping[str, Any]]) -> list[frozenset[str]]:
    """Sets of two or more demonstrations that are nearly the same, in the order of their ids.

    Nearly the same: the same task and action types, and screenshots that look alike, step by step.
    Who is near a member of a group is in it.

    Args:
        rows: of the table `triage`; one without `picture_hashes` is like nothing.
    """
    alike: defaultdict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if "picture_hashes" in row:
            alike[row["task_group"], tuple(row["action_types"])].append(row)
    found = [group for same in alike.values() for group in _joined(same)]
    return sorted((group for group in found if len(group) > 1), key=sorted)


def _joined(same: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
    pending = sorted(same, key=lambda row: row["trajectory_id"])
    numbers = [[int(text, 16) for text in row["picture_hashes"]] for row in pending]
    hashes = np.array(numbers, np.uint64).reshape(len(pending), -1)
    found = []
    left = list(range(len(pending)))
    while left:
        group = [left.pop(0)]
        for one in group:  # which grows
            bits = np.bitwise_count(hashes[left] ^ hashes[one])
            near = (bits.max(axis=1, initial=0) <= NEAR_BITS) & (
                bits.sum(axis=1) <= NEAR_MEAN_BITS * max(1, bits.shape[1])
            )
            group += [place for place, is_near in zip(left, near, strict=True) if is_near]
            left = [place for place, is_near in zip(left, near, strict=True) if not is_near]
        found.append(frozenset(pending[place]["trajectory_id"] for place in group))
    return found
