"""Tests the connected parts of masks: their samples, their places and their order."""

import cv2
import numpy as np

from demo_pipeline.observation.frames.changes import Mask, connected_parts


def found(mask: Mask, gap: tuple[int, int], least: int = 3) -> list[list[int]]:
    """Returns top, bottom, left and right of every part, in order, and checks their samples."""
    parts = []
    for (rows, columns), inside in connected_parts(mask, gap, least):
        assert not (inside & ~mask[rows, columns]).any()
        assert all(side.any() for side in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
        parts.append([rows.start, rows.stop, columns.start, columns.stop])
    return parts


def test_parts_are_joined_across_a_gap_and_come_row_by_row() -> None:
    mask = np.zeros((60, 60), np.uint8)
    for row, column in ((40, 3), (5, 30), (5, 39), (41, 50)):
        mask[row : row + 4, column : column + 4] = 1
    lower = [[40, 44, 3, 7], [41, 45, 50, 54]]
    assert found(mask, (1, 1)) == [[5, 9, 30, 34], [5, 9, 39, 43], *lower]
    assert found(mask, (3, 1)) == [[5, 9, 30, 43], *lower]
    mask[20, 20:22] = 1
    assert found(mask, (3, 1)) == [[5, 9, 30, 43], *lower], "too few samples"
    assert len(found(mask, (3, 1), least=2)) == 4


def test_a_part_inside_the_hole_of_another_is_its_own() -> None:
    mask = np.zeros((40, 40), np.uint8)
    cv2.rectangle(mask, (2, 2), (36, 36), 1, 2)
    mask[16:22, 16:22] = 1
    assert found(mask, (1, 1)) == [[1, 38, 1, 38], [16, 22, 16, 22]]
    ring = next(inside for _, inside in connected_parts(mask, (1, 1), 3))
    assert not ring[10:28, 10:28].any(), "the inner part is not among the ring's samples"


def test_nothing_has_no_parts() -> None:
    assert found(np.zeros((9, 9), np.uint8), (1, 1)) == []
