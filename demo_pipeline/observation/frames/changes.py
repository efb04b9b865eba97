"""Finds where two frames differ: coarsely, in cells of 8 x 8 pixels, or in detail.

`changed_cells` compares successive frames in cells. `content_changes` compares frames that may be
far apart, and finds where content was replaced. Points and boxes are in video pixels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import compress, pairwise
from typing import Annotated, Any

import cv2
import numpy as np
from pydantic import Field

from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.frames.video_reader import HALF, SAMPLE_STEP, Frame, Luma

# OpenCV's own threads take a quarter of the CPU time and make nothing faster.
cv2.setNumThreads(1)

BLOCK = 8  # width and height of a cell, video pixels
# Thresholds for differences of brightness, which is between 0 and 255:
CHANGED_LEVELS = 10  # codec noise on a still screen is mostly lower
# Like CHANGED_LEVELS, but for samples that are means of 4 x 4 pixels. Two encodings of the same
# screen differed by 12 levels in at most three cells.
MEAN_LEVELS = 12
THRESHOLD = 24  # a still screen changes less, even while the encoder refines the image
KEY_FRAME_THRESHOLD = 48  # used at key frames, which encode the whole screen again
# Thresholds for the number of changed cells, or their share of all cells:
SIGNIFICANT_SHARE = 0.0005  # a blinking text cursor or a typed letter changes less
MIN_SIGNIFICANT_CELLS = 4  # a text cursor changes 3 cells; content after a wait changed 20 or more
SMALL_CELLS = 2  # a check mark in a small check box changes 2 cells; noise seldom changes 2
LARGE_SHARE = 0.02  # a new screen changed 3.9 to 14.8 % of the cells, typed letters 0.06 %
POINTER_PX = 40  # video pixels around the pointer's hot spot that contain the drawn pointer

Cells = np.ndarray[Any, np.dtype[np.bool_]]


class ChangeMap:
    """Stores the cells in which each frame differs from the frame before.

    Attributes:
        times: times of the frames, video seconds.
        shape: number of rows and columns of cells; (0, 0) until two frames were added.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.shape = (0, 0)
        self._packed: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._last: Luma | None = None
        self._none = np.packbits(np.zeros(0, bool))

    def __len__(self) -> int:
        """Number of comparisons. A comparison is between a frame and the frame before it."""
        return len(self._packed)

    def add(self, frame: Frame) -> None:
        """Compares the next frame, in presentation order, with the frame before it."""
        luma = frame.luma
        self.times.append(frame.time)
        if self._last is not None:
            cells = changed_cells(self._last, luma)
            if not self._packed:
                self.shape = (cells.shape[0], cells.shape[1])
                self._none = np.packbits(np.zeros_like(cells))
            packed = np.packbits(with_neighbours(cells)) if cells.any() else self._none
            self._packed.append(packed)
        self._last = luma

    def pairs(self) -> Iterator[tuple[float, float, Cells]]:
        """Yields the times of the two frames and the changed cells of each comparison."""
        rows, columns = self.shape
        for (before, after), packed in zip(pairwise(self.times), self._packed, strict=True):
            cells = np.unpackbits(packed, count=rows * columns).reshape(self.shape)
            yield before, after, cells.view(bool)

    @property
    def middle_s(self) -> float:
        """The video time halfway between the first and the last frame, seconds."""
        return (self.times[0] + self.times[-1]) / 2

    def only(self, is_chosen: Cells) -> "ChangeMap":
        """Returns a map with only the comparisons for which `is_chosen` is true.

        `is_chosen` has the shape (frames - 1,). The `times` of the result begin with the earlier
        frame of the first chosen comparison.
        """
        chosen = ChangeMap()
        first = int(np.argmax(is_chosen)) if is_chosen.any() else 0
        chosen.times = self.times[first : first + 1] + list(compress(self.times[1:], is_chosen))
        chosen._packed = list(compress(self._packed, is_chosen))
        chosen.shape = self.shape
        return chosen

    def without_repeats(self) -> "ChangeMap":
        """Returns the map without frames that are the same as the frame before."""
        return self.only(np.array([bool(packed.any()) for packed in self._packed], bool))

    def packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Returns one bit per cell and comparison, set if the cell or a neighbour changed.

        The result has the shape (frames - 1, bytes).
        """
        return np.stack(self._packed)


def with_neighbours(cells: Cells) -> Cells:
    """Returns the cells that are true or have a true cell among their eight neighbours."""
    widened: Cells = cv2.dilate(cells.view(np.uint8), np.ones((3, 3), np.uint8)).view(bool)
    return widened


def filled(cells: Cells) -> Cells:
    """Widens the true cells by two cells on every side, which joins the lines of a text."""
    return with_neighbours(with_neighbours(cells))


def connected(cells: Cells, near: Cells) -> Cells:
    """Returns the true cells that are connected with a true cell of `near`.

    Connections may cross the space between lines of text.
    """
    return cells & _parts_at(near, filled(cells))


def _parts_at(near: Cells, cells: Cells) -> Cells:
    """Returns the connected parts of `cells` that have a cell in common with `near`."""
    count, labels = cv2.connectedComponents(cells.view(np.uint8), connectivity=8)
    is_reached = np.zeros(count, bool)
    is_reached[labels[near & cells]] = True
    parts: Cells = is_reached[labels]
    return parts


def box_share(cells: Cells) -> float:
    """Returns the share of the screen inside the bounding box of the true cells."""
    _, _, width, height = cv2.boundingRect(cells.view(np.uint8))
    return float(width * height) / max(1, cells.size)


def cells_of(box: PixelBox) -> tuple[slice, slice]:
    """Returns the rows and columns of the cells that overlap a box in video pixels."""
    return _cell_range(box.y, box.bottom), _cell_range(box.x, box.right)


def _cell_range(low: float, high: float) -> slice:
    return slice(max(0, int(low // BLOCK)), max(0, int(high // BLOCK) + 1))


def changed_cells(before: Luma, after: Luma, threshold: int = CHANGED_LEVELS) -> Cells:
    """Returns the cells in which any sample changed, as an array (rows, columns).

    A strip at the right or lower edge that is narrower than a cell is ignored.

    Args:
        before, after: samples of two frames at a quarter of their size, such as `Frame.luma`.
        threshold: a sample has changed if its brightness (0 to 255) differs by more than this.
    """
    side = BLOCK // SAMPLE_STEP
    rows = before.shape[0] // side
    columns = before.shape[1] // side
    if before is after or not rows * columns or cv2.norm(before, after, cv2.NORM_INF) <= threshold:
        return np.zeros((rows, columns), bool)
    inside = cv2.absdiff(before, after)[: rows * side, : columns * side]
    strips = reduce(cv2.max, (inside[first::side] for first in range(side)))
    changed = cv2.threshold(strips, threshold, 255, cv2.THRESH_BINARY)[1]
    cells: Cells = changed.view(f"u{side}") != 0  # reads the samples of a cell as a single number
    return cells


@dataclass(frozen=True)
class Difference:
    """The cells in which two frames differ, with tests for the kind of change.

    Points and boxes are in video pixels.

    Attributes:
        cells: (rows, columns), true where the frames differ.
    """

    cells: Cells

    @cached_property
    def count(self) -> int:
        """Number of cells that differ."""
        return _count(self.cells)

    @property
    def is_large(self) -> bool:
        """Whether the changed area is too large for a hover effect."""
        return self.count >= LARGE_SHARE * self.cells.size

    def is_significant(self, pointers: list[Point], target: PixelBox | None) -> bool:
        """Whether more than noise changed outside the target and away from the pointers.

        Hover effects, which are changes connected with a pointer, are ignored.
        """
        if not is_notable(self.cells):
            return False
        rest = self.without_pointers(pointers)
        if target is not None:
            rest[cells_of(target)] = False
        return is_notable(rest) and is_notable(self._without_hover_effects(rest, pointers))

    def count_away_from(self, pointers: list[Point]) -> int:
        """Returns the number of changed cells away from the pointers."""
        return _count(self.without_pointers(pointers)) if self.count else 0

    def shows_response(self, pointers: list[Point], box: PixelBox) -> bool:
        """Whether anything changed in `box` besides the pointer, even just a check mark."""
        if self.count < SMALL_CELLS:
            return False
        return _count(self.without_pointers(pointers)[cells_of(box)]) >= SMALL_CELLS

    def without_pointers(self, pointers: list[Point]) -> Cells:
        """Returns the cells that changed, except cells around the pointers."""
        rest = self.cells.copy()
        for point in pointers:
            rest[cells_of(PixelBox.around(point, POINTER_PX))] = False
        return rest

    def _without_hover_effects(self, rest: Cells, pointers: list[Point]) -> Cells:
        """Returns `rest` without changes that extend to a pointer, such as a highlighted row."""
        near = np.zeros_like(self.cells)
        for x, y in pointers:
            row = int(y // BLOCK)
            column = int(x // BLOCK)
            near[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
        return rest & ~_parts_at(near, self.cells)


def is_notable(cells: Cells) -> bool:
    """Whether the change is more than a text cursor, a letter or noise."""
    return _count(cells) >= max(MIN_SIGNIFICANT_CELLS, SIGNIFICANT_SHARE * cells.size)


def _count(cells: Cells) -> int:
    return int(np.count_nonzero(cells))


# The rest of this module compares screens in detail. Here, a sample is the mean of 2 x 2 pixels.
Mask = np.ndarray[Any, np.dtype[np.uint8]]  # (rows, columns) of samples, each 0 or 1
PartPlace = tuple[slice, slice]  # (rows, columns) of a part of a mask
DETAIL_STEP = HALF  # width and height of a sample, video pixels

# Pixels around the pointer's hot spot that the drawn pointer may cover, to the left and above
# (BEFORE) and to the right and below (AFTER). Usual pointers are at most 24 pixels wide.
BEFORE_POINTER_PX = 16
AFTER_POINTER_PX = 32
SHARED_RIM_PX = 4.0  # width of a box's inner rim; neighbouring elements may reach into this rim
CHANGED_DETAIL = 32  # levels of brightness (0 to 255); two encodings of a screen differ by less
STEPS = 16  # number of brightness intervals; each is wider than codec noise
STEP_LEVELS = 256 // STEPS
LEAST_SAMPLES = 6  # minimum number of changed samples; a digit of small text has 6, noise fewer
CARET_SAMPLES = 2  # maximum width of a text cursor; a change that includes a letter is wider
RING_SAMPLES = 4  # thickness of a focus ring together with the gap to its element
# Number of samples by which the parts of a mask are widened, so that near parts connect:
LINE_GAP = (4, 1)  # (horizontally, vertically); joins letters, but not lines of text
CLUSTER_GAP = 9  # in both directions; joins the lines of a menu or paragraph
# Minimum change of brightness (0 to 255) in a highlighted area. Highlights in dark themes change by
# at least 8 levels. Two encodings of the same flat area differ by fewer levels.
SHADED_DETAIL = 8
SHADED_SAMPLES = 6  # minimum side of a highlight; a check mark, a letter or an underline is smaller
SOLID_SHARE = 0.5  # minimum share of changed samples in a highlight; letters cover about a third
EDGE_SAMPLES = 24  # minimum height of a straight edge; letters are smaller
PANEL_SAMPLES = 16  # minimum width of a panel; a scroll bar is narrower


@dataclass(frozen=True)
class ScreenDetail:
    """The screen in a frame, at half size for comparisons in detail.

    Attributes:
        detail: (rows, columns) uint8, the luma; each sample is the mean of 2 x 2 pixels.
        time: time of the frame, video seconds.
    """

    detail: Luma
    time: float


def screen_detail(frame: Frame) -> ScreenDetail:
    """Returns the screen in a frame, at half size."""
    return ScreenDetail(frame.halved, frame.time)


ChangedBox = tuple[int, int, int, int]
"""x, y, width, height; video pixels."""


@dataclass(frozen=True)
class ContentChanges:
    """The content that differs between two screens, without highlights.

    Attributes:
        regions: tight boxes of the changed content, about one for each line of text.
        panels: boxes of changes with straight edges, such as a menu, a dialog or an image.
        replaced: mask (rows, columns) of samples, 1 where content was replaced. None if nothing
            changed, or if the mask was dropped to save memory.
    """

    regions: tuple[ChangedBox, ...] = ()
    panels: tuple[ChangedBox, ...] = ()
    replaced: Annotated[Any, Field(exclude=True)] = None

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.regions or self.panels)

    def touch(self, box: PixelBox) -> bool:
        """Whether content inside a box was replaced. The rim of the box is ignored."""
        if self.replaced is None:
            return False
        rim_x = min(SHARED_RIM_PX, box.width / 6)
        rim_y = min(SHARED_RIM_PX, box.height / 6)
        inside = self.replaced[_samples_of(box, rim_x, rim_y)]
        return bool(np.count_nonzero(inside) >= LEAST_SAMPLES)

    def cover(self, x: float, y: float) -> bool:
        """Whether a point lies on replaced content, or between two lines of replaced content."""
        if self.replaced is None:
            return False
        if any(PixelBox(*panel).contains(x, y) for panel in self.panels):
            return True
        column = int(x) // DETAIL_STEP
        row = int(y) // DETAIL_STEP
        reach = 4 * CLUSTER_GAP
        near = np.pad(self.replaced, reach)[row : row + 2 * reach, column : column + 2 * reach]
        if not near.any():
            return False
        kernel = np.ones((2 * CLUSTER_GAP + 1, 2 * CLUSTER_GAP + 1), np.uint8)
        return bool(cv2.morphologyEx(near, cv2.MORPH_CLOSE, kernel)[reach, reach])


def content_changes(
    before: Luma,
    after: Luma,
    pointers: Sequence[Point],
    flickering: Cells | None = None,
    pointer_scale: float = 1.0,
) -> ContentChanges:
    """Returns the content that differs between two screens of the same size, without highlights.

    In a highlighted row, all samples of one brightness change to the same new brightness. In
    replaced content, they change to many different values.

    Args:
        before, after: `ScreenDetail.detail` of the two screens.
        pointers: positions of the pointer, video pixels. Changes under the drawn pointer are
            ignored.
        flickering: cells of `BLOCK` x `BLOCK` pixels in which changes are ignored. None if no cell
            flickers.
        pointer_scale: size of the drawn pointer relative to its usual size.
    """
    changed = _differ(before, after, CHANGED_DETAIL)
    _leave_out_pointers(changed, pointers, pointer_scale)
    _leave_out_flickering(changed, flickering)
    if cv2.countNonZero(changed) < LEAST_SAMPLES:
        return ContentChanges()
    replaced = np.zeros_like(changed)
    panels = []
    for part, inside in connected_parts(changed, (CLUSTER_GAP, CLUSTER_GAP), LEAST_SAMPLES):
        # At a high resolution, the round corners of a focus ring would look like content.
        if _is_ring(inside):
            continue
        content = _content(before[part], after[part], inside)
        if not content.any():
            continue
        replaced[part] |= content
        panels += _panels(inside, part)
    regions = tuple(_box(part) for part, _ in connected_parts(replaced, LINE_GAP, LEAST_SAMPLES))
    return ContentChanges(regions, tuple(panels), replaced) if regions else ContentChanges()


def shaded_areas(
    before: Luma, after: Luma, pointers: Sequence[Point], pointer_scale: float = 1.0
) -> list[PixelBox]:
    """Returns boxes of areas in which every sample changed, such as a highlighted row or a menu.

    Even a slight change of brightness counts. Arguments are those of `content_changes`.
    """
    changed = _differ(before, after, SHADED_DETAIL - 1)
    _leave_out_pointers(changed, pointers, pointer_scale)
    left, top, width, height = cv2.boundingRect(changed)
    if height:
        square = np.ones((SHADED_SAMPLES, SHADED_SAMPLES), np.uint8)
        rows = slice(max(0, top - SHADED_SAMPLES), top + height + SHADED_SAMPLES)
        columns = slice(max(0, left - SHADED_SAMPLES), left + width + SHADED_SAMPLES)
        changed[rows, columns] = cv2.morphologyEx(changed[rows, columns], cv2.MORPH_OPEN, square)
    return [PixelBox(*_box(part)) for part, _ in connected_parts(changed, (1, 1), LEAST_SAMPLES)]


def _differ(before: Luma, after: Luma, threshold: int) -> Mask:
    """Returns a mask of the samples whose brightness differs by more than `threshold` levels."""
    difference = cv2.absdiff(before, after)
    return np.asarray(cv2.threshold(difference, threshold, 1, cv2.THRESH_BINARY)[1], np.uint8)


def _leave_out_pointers(changed: Mask, pointers: Sequence[Point], scale: float) -> None:
    """Clears the samples of `changed` that a pointer at one of the given points may cover."""
    before = round(BEFORE_POINTER_PX * scale)
    after = round(AFTER_POINTER_PX * scale)
    for x, y in pointers:
        rows = slice(max(0, int(y) - before) // DETAIL_STEP, max(0, int(y) + after) // DETAIL_STEP)
        columns = slice(
            max(0, int(x) - before) // DETAIL_STEP, max(0, int(x) + after) // DETAIL_STEP
        )
        changed[rows, columns] = 0


def _leave_out_flickering(changed: Mask, flickering: Cells | None) -> None:
    """Clears the samples of `changed` that lie in flickering cells."""
    if flickering is None:
        return
    side = BLOCK // DETAIL_STEP
    left, top, width, height = cv2.boundingRect(flickering.view(np.uint8))
    part = changed[top * side : (top + height) * side, left * side : (left + width) * side]
    if part.size:
        steady = (~flickering[top : top + height, left : left + width]).view(np.uint8)
        size = (width * side, height * side)
        steady = cv2.resize(steady, size, interpolation=cv2.INTER_NEAREST)
        part &= steady[: part.shape[0], : part.shape[1]]


def _content(before: Luma, after: Luma, changed: Mask) -> Mask:
    """Returns the changed samples that are content: no highlight, text cursor or focus ring.

    Samples at the edge of a highlight mix colours from inside and outside. The usual change of
    brightness is determined without these samples.
    """
    square = np.ones((3, 3), np.uint8)
    near = cv2.dilate(changed, square)
    if _is_solid(changed):
        near = cv2.erode(near, square, borderValue=0)
    unexplained = _unexplained(before, after, near) & changed
    content: Mask = np.zeros_like(changed)
    for part, inside in connected_parts(unexplained, LINE_GAP, LEAST_SAMPLES):
        height, width = inside.shape
        thin = width <= CARET_SAMPLES < height or height == 1
        if not (thin or _is_ring(inside)):
            content[part] |= inside
    return content


def _is_solid(changed: Mask) -> bool:
    """Whether the changed samples fill at least half of their boxes, as in a highlight."""
    lines = sum(inside.size for _, inside in connected_parts(changed, LINE_GAP, LEAST_SAMPLES))
    return bool(lines) and bool(np.count_nonzero(changed) >= SOLID_SHARE * lines)


def _unexplained(before: Luma, after: Luma, near: Mask) -> Mask:
    """Returns the samples that changed differently from most samples of the same brightness.

    Only samples in the mask `near` are counted to find the usual change.
    """
    pairs = cv2.calcHist([before, after], [0, 1], near, [STEPS, STEPS], [0, 256, 0, 256])
    became = _far_from_usual(before, after, pairs)
    return became | _far_from_usual(after, before, pairs.T)


def _far_from_usual(source: Luma, result: Luma, pairs: Any) -> Mask:
    """Returns the samples whose brightness in `result` is unusual for their brightness in `source`.

    `pairs` is (STEPS, STEPS), the number of samples for each pair of brightness intervals.
    """
    middles = (pairs.argmax(axis=1) * STEP_LEVELS + STEP_LEVELS // 2).astype(np.uint8)
    usual = cv2.LUT(source, np.repeat(middles, STEP_LEVELS))
    return _differ(result, np.asarray(usual, np.uint8), CHANGED_DETAIL)


def _is_ring(inside: Mask) -> bool:
    """Whether the changed samples lie only along the edges of their box, as in a focus ring."""
    height, width = inside.shape
    if min(height, width) <= 2 * RING_SAMPLES:
        return False
    middle = inside[RING_SAMPLES:-RING_SAMPLES, RING_SAMPLES:-RING_SAMPLES]
    return bool(np.count_nonzero(middle) < LEAST_SAMPLES)


def _samples_of(box: PixelBox, across: float, down: float) -> PartPlace:
    """Returns the rows and columns of the samples in a box without its rim.

    The rim is `across` video pixels wide at the left and right side, and `down` video pixels high
    at the top and bottom.
    """
    sides = (box.y + down, box.bottom - down, box.x + across, box.right - across)
    top, bottom, left, right = (max(0, round(side / DETAIL_STEP)) for side in sides)
    return slice(top, bottom), slice(left, right)


def _panels(changed: Mask, part: PartPlace) -> list[ChangedBox]:
    """Returns the boxes between straight vertical edges in a changed part of the screen.

    The boxes are in video pixels. A box ends where an edge jumps sideways, so that the highlighted
    title of a menu is not part of the menu's panel.

    Args:
        changed: the changed samples of this part.
        part: place of this part on the screen.
    """
    if changed.shape[0] < EDGE_SAMPLES or changed.shape[1] < PANEL_SAMPLES:
        return []
    upright = cv2.morphologyEx(changed, cv2.MORPH_OPEN, np.ones((EDGE_SAMPLES, 1), np.uint8))
    left = upright.argmax(axis=1)
    right = upright.shape[1] - upright[:, ::-1].argmax(axis=1)
    between = upright.any(axis=1) & (right - left >= PANEL_SAMPLES)
    steps = np.abs(np.diff(left)) + np.abs(np.diff(right)) >= PANEL_SAMPLES
    begins = np.flatnonzero(np.diff(between, prepend=False, append=False) | np.pad(steps, 1))
    first_row = part[0].start
    first_column = part[1].start
    panels = []
    for begin, end in pairwise(begins.tolist()):
        if between[begin]:
            rows = slice(first_row + begin, first_row + end)
            columns = slice(
                first_column + left[begin:end].min(), first_column + right[begin:end].max()
            )
            panels.append(_box((rows, columns)))
    return panels


def _box(part: PartPlace) -> ChangedBox:
    """Converts rows and columns of samples to a box in video pixels."""
    rows, columns = part
    left = int(columns.start) * DETAIL_STEP
    top = int(rows.start) * DETAIL_STEP
    right = int(columns.stop) * DETAIL_STEP
    bottom = int(rows.stop) * DETAIL_STEP
    return left, top, right - left, bottom - top


def connected_parts(
    mask: Mask, gap: tuple[int, int], least_samples: int
) -> Iterator[tuple[PartPlace, Mask]]:
    """Yields the connected parts of a mask, each with its bounding box and its samples in that box.

    Args:
        gap: number of samples (horizontally, vertically) by which parts are widened. Parts that
            then touch each other are connected.
        least_samples: parts with fewer samples are left out.
    """
    left, top, columns, rows = cv2.boundingRect(mask)
    mask = mask[top : top + rows, left : left + columns]
    if cv2.countNonZero(mask) < least_samples:
        return
    widened = cv2.dilate(mask, np.ones((2 * gap[1] + 1, 2 * gap[0] + 1), np.uint8))
    labels = cv2.connectedComponents(widened, connectivity=8)[1]
    # Finding boxes by outlines is eight times as fast as OpenCV's `connectedComponentsWithStats`.
    # A part with holes has several outlines; the largest is the outer one.
    boxes: dict[int, Sequence[int]] = {}
    for outline in cv2.findContours(widened, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
        x, y = outline[0, 0].tolist()
        box = cv2.boundingRect(outline)
        number = int(labels[y, x])
        boxes[number] = max(box, boxes.get(number, box), key=lambda sides: sides[2] * sides[3])
    for number, (x, y, width, height) in sorted(boxes.items()):
        around = slice(y, y + height), slice(x, x + width)
        own = mask[around] & (labels[around] == number)
        if cv2.countNonZero(own) < least_samples:
            continue
        across, down, wide, high = cv2.boundingRect(own)
        first_row = top + y + down
        first_column = left + x + across
        part = slice(first_row, first_row + high), slice(first_column, first_column + wide)
        yield part, own[down : down + high, across : across + wide]
