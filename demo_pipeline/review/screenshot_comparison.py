"""Compares screenshots: whether two differ, torn screenshots, and near-duplicate demonstrations.

observation/frames/screenshot_files.py reduces a screenshot to the cells and the hash that this
module compares. Coordinates are canvas pixels.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from demo_pipeline.observation.frames.screenshot_files import CELL, ScreenshotFacts

CHANGED = 8  # of 255, difference of a cell's mean: above the noise of x264 in recorded videos
POINTER = (-10, -6, 24, 34)  # left, top, right, bottom of an arrow or a hand around its hot spot
TORN_OTHER = 0.3  # least share of the cells of a part that differ, if the part is another screen
TORN_SAME = 0.03  # greatest share of the cells that differ, if the part is the same screen
TORN_ROWS = 8  # of cells; smaller parts are bars
NEAR_BITS = 8  # of 64, in which the hashes of any two steps differ
NEAR_MEAN_BITS = 3.0  # of 64, mean over all steps


def different_cells(
    before: ScreenshotFacts, after: ScreenshotFacts, pointers: Iterable[tuple[float, float]]
) -> int:
    """How many of 32,400 cells differ between two screenshots, except under a pointer.

    Args:
        before: a screenshot.
        after: another one.
        pointers: where the pointer is in either.
    """
    different = cv2.absdiff(before.cells, after.cells) > CHANGED
    for x, y in pointers:
        left, top, right, bottom = (
            int((position + offset) // CELL)
            for position, offset in zip((x, y, x, y), POINTER, strict=True)
        )
        different[max(top, 0) : max(bottom + 1, 0), max(left, 0) : max(right + 1, 0)] = False
    return int(different.sum())


def torn(before: ScreenshotFacts, screenshot: ScreenshotFacts, after: ScreenshotFacts) -> bool:
    """Whether a screenshot shows the screen before in one part and the screen after in the other.

    The parts are above and below a line across the whole screen. Each equals its neighbour on one
    side, and differs in a third of its cells from the neighbour on the other side.
    """
    old = (cv2.absdiff(screenshot.cells, before.cells) > CHANGED).mean(axis=1)
    new = (cv2.absdiff(screenshot.cells, after.cells) > CHANGED).mean(axis=1)
    both = np.stack([old, new])
    rows = np.arange(1, len(old))
    above = (np.cumsum(both, axis=1)[:, :-1] / rows)[:, TORN_ROWS:-TORN_ROWS]
    below = (np.cumsum(both[:, ::-1], axis=1)[:, -2::-1] / rows[::-1])[:, TORN_ROWS:-TORN_ROWS]
    same = np.maximum(above, below[::-1])
    changed = np.minimum(below, above[::-1])
    return bool(((same <= TORN_SAME) & (changed > TORN_OTHER)).any())


def near_duplicates(rows: Iterable[Mapping[str, Any]]) -> list[frozenset[str]]:
    """Groups of two or more demonstrations that are nearly the same, in the order of their ids.

    Nearly the same: the same task and action types, and screenshots that look alike step by step.
    A demonstration that is near any member of a group belongs to the group.

    Args:
        rows: of the table `triage`; rows without `picture_hashes` are ignored.
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
    rows = sorted(rows, key=lambda row: row["trajectory_id"])
    numbers = [[int(text, 16) for text in row["picture_hashes"]] for row in rows]
    hashes = np.array(numbers, np.uint64).reshape(len(rows), -1)
    groups = []
    ungrouped = list(range(len(rows)))
    while ungrouped:
        group = [ungrouped.pop(0)]
        for member in group:  # the group grows meanwhile
            bits = np.bitwise_count(hashes[ungrouped] ^ hashes[member])
            near = (bits.max(axis=1, initial=0) <= NEAR_BITS) & (
                bits.sum(axis=1) <= NEAR_MEAN_BITS * max(1, bits.shape[1])
            )
            group += [place for place, is_near in zip(ungrouped, near, strict=True) if is_near]
            ungrouped = [
                place for place, is_near in zip(ungrouped, near, strict=True) if not is_near
            ]
        groups.append(frozenset(rows[place]["trajectory_id"] for place in group))
    return groups
