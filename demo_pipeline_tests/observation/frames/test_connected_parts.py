"""Connected parts of masks, compared with labelled samples."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.observation.frames.changes import Mask, connected_parts

LEAST = 3  # samples


def labelled(mask: Mask, gap: tuple[int, int]) -> list[tuple[list[int], list[list[int]]]]:
    """The same by labels: top, bottom, left, right and samples of every part, in order."""
    first_column, first_row, columns, rows = cv2.boundingRect(mask)
    cut = mask[first_row : first_row + rows, first_column : first_column + columns]
    if not cut.size:
        return []
    kernel = np.ones((2 * gap[1] + 1, 2 * gap[0] + 1), np.uint8)
    count, labels = cv2.connectedComponents(cv2.dilate(cut, kernel), connectivity=8)
    first_blocks = []
    for label in range(1, count):
        down, across = np.nonzero(labels == label)
        first_blocks.append((min(zip(down // 2, across // 2, strict=True)), label))
    parts = []
    for _, label in sorted(first_blocks):
        own = np.where(labels == label, cut, 0)
        down, across = np.nonzero(own)
        if len(down) >= LEAST:
            top, bottom, left, right = down.min(), down.max() + 1, across.min(), across.max() + 1
            sides = [top + first_row, bottom + first_row, left + first_column, right + first_column]
            parts.append(([int(side) for side in sides], own[top:bottom, left:right].tolist()))
    return parts


def found(mask: Mask, gap: tuple[int, int]) -> list[tuple[list[int], list[list[int]]]]:
    return [
        ([rows.start, rows.stop, columns.start, columns.stop], inside.tolist())
        for (rows, columns), inside in connected_parts(mask, gap, LEAST)
    ]


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    height, width, scale = (draw(st.integers(1, most)) for most in (60, 60, 3))
    share = draw(st.sampled_from([0.01, 0.05, 0.2, 0.5, 0.8]))
    samples = np.random.default_rng(draw(st.integers(0, 2**32))).random((height, width)) < share
    return np.asarray(np.kron(samples, np.ones((scale, scale), np.uint8)), np.uint8)


@given(masks(), st.sampled_from([(0, 0), (1, 1), (4, 1), (2, 5), (9, 9)]))
@pytest.mark.no_cover
def test_parts_are_those_of_labelled_samples(mask: Mask, gap: tuple[int, int]) -> None:
    assert found(mask, gap) == labelled(mask, gap)


def test_a_part_inside_the_hole_of_another_is_its_own() -> None:
    mask = np.zeros((40, 40), np.uint8)
    cv2.rectangle(mask, (2, 2), (36, 36), 1, 2)
    mask[16:22, 16:22] = 1
    sides = [box for box, _ in found(mask, (1, 1))]
    assert sides == [[1, 38, 1, 38], [16, 22, 16, 22]]
    ring = found(mask, (1, 1))[0][1]
    assert not np.array(ring)[10:28, 10:28].any(), "the inner part is not among the ring's samples"


def test_nothing_has_no_parts() -> None:
    assert found(np.zeros((9, 9), np.uint8), (1, 1)) == []
