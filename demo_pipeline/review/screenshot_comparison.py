"""Counts differences between screenshots, and finds torn screenshots and near-duplicates.

Screenshots are compared by a perceptual hash and by cells: the mean brightness of small squares.
Coordinates are screenshot pixels.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.screenshot_files import CELL, ScreenshotFacts

# Cells count as different if their brightness (0 to 255) differs by more than 8. The noise of x264
# is smaller.
CHANGED = 8
# Left, top, right and bottom of a mouse pointer (arrow or hand), in pixels from its position.
POINTER = (-10, -6, 24, 34)
TORN_OTHER = 0.3  # if a larger share of cells differs, two images show different screens
TORN_SAME = 0.03  # largest share of differing cells between two images of the same screen
# Minimum rows of cells in each part of a torn screenshot; a smaller part may be a toolbar or a
# status bar.
TORN_ROWS = 8
# Demonstrations are near-duplicates if the hashes of corresponding steps differ in at most
# `NEAR_BITS` of 64 bits, and on average in at most `NEAR_MEAN_BITS` bits.
NEAR_BITS = 8
NEAR_MEAN_BITS = 3.0


def different_cells(
    before: ScreenshotFacts, after: ScreenshotFacts, pointers: Iterable[tuple[float, float]]
) -> int:
    """Returns how many of the 32,400 cells differ between two screenshots.

    Args:
        pointers: positions of the mouse pointer in both screenshots; cells under it are not
            compared.
    """
    different = cv2.absdiff(before.cells, after.cells) > CHANGED
    for x, y in pointers:
        left, top, right, bottom = POINTER
        first_column = int((x + left) // CELL)
        last_column = int((x + right) // CELL)
        first_row = int((y + top) // CELL)
        last_row = int((y + bottom) // CELL)
        rows = slice(max(first_row, 0), max(last_row + 1, 0))
        columns = slice(max(first_column, 0), max(last_column + 1, 0))
        different[rows, columns] = False
    return int(different.sum())


def torn(before: ScreenshotFacts, screenshot: ScreenshotFacts, after: ScreenshotFacts) -> bool:
    """Returns whether a screenshot shows two different screens above and below a horizontal line.

    One part equals the earlier screenshot `before` and differs from the later screenshot `after`;
    the other part equals `after` and differs from `before`.
    """
    old = (cv2.absdiff(screenshot.cells, before.cells) > CHANGED).mean(axis=1)
    new = (cv2.absdiff(screenshot.cells, after.cells) > CHANGED).mean(axis=1)
    both = np.stack([old, new])
    rows = np.arange(1, len(old))
    # Share of different cells above and below each possible line. Row 0 compares the screenshot
    # with `before`, row 1 with `after`. Each column is a possible line.
    above = (np.cumsum(both, axis=1)[:, :-1] / rows)[:, TORN_ROWS:-TORN_ROWS]
    below = (np.cumsum(both[:, ::-1], axis=1)[:, -2::-1] / rows[::-1])[:, TORN_ROWS:-TORN_ROWS]
    # Row 0 tests for an old part above a new part, and row 1 for a new part above an old part.
    same = np.maximum(above, below[::-1])
    changed = np.minimum(below, above[::-1])
    return bool(((same <= TORN_SAME) & (changed > TORN_OTHER)).any())


def near_duplicates(rows: Iterable[Mapping[str, Any]]) -> list[frozenset[str]]:
    """Returns groups of two or more near-duplicate demonstrations, sorted by id.

    Near-duplicates have the same task group and action types, and similar screenshots at each step.
    A group contains all near-duplicates of its members.

    Args:
        rows: the demonstrations' rows of the triage. Rows without `picture_hashes` are ignored.
    """
    same_actions: defaultdict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]]
    same_actions = defaultdict(list)
    for row in rows:
        if "picture_hashes" in row:
            same_actions[row["task_group"], tuple(row["action_types"])].append(row)
    groups = []
    for candidates in same_actions.values():
        groups += [group for group in _grouped_by_hashes(candidates) if len(group) > 1]
    return sorted(groups, key=sorted)


def _grouped_by_hashes(rows: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
    """Groups demonstrations with similar screenshot hashes.

    All demonstrations must have the same number of steps.
    """
    rows = sorted(rows, key=lambda row: row["trajectory_id"])
    numbers = list[list[int]]()
    for row in rows:
        numbers.append([int(text, 16) for text in row["picture_hashes"]])
    hashes = np.array(numbers, np.uint64).reshape(len(rows), -1)
    groups = []
    ungrouped = list(range(len(rows)))
    while ungrouped:
        group = [ungrouped.pop(0)]
        for member in group:  # the loop also visits members that are appended inside the loop
            bits = np.bitwise_count(hashes[ungrouped] ^ hashes[member])
            near = (bits.max(axis=1, initial=0) <= NEAR_BITS) & (
                bits.sum(axis=1) <= NEAR_MEAN_BITS * max(1, bits.shape[1])
            )
            still_ungrouped = list[int]()
            for place, is_near in zip(ungrouped, near, strict=True):
                if is_near:
                    group.append(place)
                else:
                    still_ungrouped.append(place)
            ungrouped = still_ungrouped
        groups.append(frozenset(rows[place]["trajectory_id"] for place in group))
    return groups
