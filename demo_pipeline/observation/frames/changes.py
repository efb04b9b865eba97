"""What changed between two pictures of the screen: in cells, coarsely, and in detail.

Belongs here: every threshold that tells a change from codec noise, from the pointer and its hover
effects, from cells that flicker, from highlights, a text cursor and a focus ring. `changed_cells`
asks where anything changed, from frame to frame; `content_changes` asks where content was replaced,
between pictures far apart. Points and boxes: video pixels.
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

# One recording per process: OpenCV's own threads cost a quarter of the CPU time and save none.
cv2.setNumThreads(1)

BLOCK = 8  # video pixels to a side of the cells in which change is noted
CHANGED_LEVELS = 10  # of 255; codec noise in a still picture is mostly less
MEAN_LEVELS = 12  # of 255; two encodings differ so in 3 cells at most in means of 4 x 4 pixels
THRESHOLD = 24  # of 255; an encoder refines a still picture by less
KEY_FRAME_THRESHOLD = 48  # of 255; a key frame encodes the whole picture again
SIGNIFICANT_SHARE = 0.0005  # of all cells; a text cursor's blink and one typed letter are less
MIN_SIGNIFICANT_CELLS = 4  # cells; a text cursor has 3, the least content awaited 20
SMALL_CELLS = 2  # cells, as a tick in a small check box; noise seldom reaches two
LARGE_SHARE = 0.02  # of all cells; another screen had 3.9 to 14.8 %, typed letters 0.06 %
POINTER_PX = 40  # video pixels around the pointer's hot spot that its own picture covers

Cells = np.ndarray[Any, np.dtype[np.bool_]]


class ChangeMap:
    """The cells in which each frame differs from the previous one.

    Memory: one bit for each cell and frame, 4 kB for a 1080p frame.

    Attributes:
        times: of the frames, seconds.
        shape: (rows, columns) of the cells; (0, 0) before two frames were added.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.shape = (0, 0)
        self._packed: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._last: Luma | None = None
        self._none = np.packbits(np.zeros(0, bool))

    def __len__(self) -> int:
        """Number of pairs of successive frames compared."""
        return len(self._packed)

    def add(self, frame: Frame) -> None:
        """Add the next frame in presentation order."""
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
        """The times of each two successive frames, and the cells that changed between them."""
        rows, columns = self.shape
        for times, packed in zip(pairwise(self.times), self._packed, strict=True):
            cells = np.unpackbits(packed, count=rows * columns).reshape(self.shape)
            yield *times, cells.view(bool)

    def only(self, chosen: Cells) -> "ChangeMap":
        """The chosen ones of the (frames - 1,) comparisons, with the frame before the first."""
        kept = ChangeMap()
        first = int(np.argmax(chosen)) if chosen.any() else 0
        kept.times = self.times[first : first + 1] + list(compress(self.times[1:], chosen))
        kept._packed = list(compress(self._packed, chosen))
        kept.shape = self.shape
        return kept

    def without_repeats(self) -> "ChangeMap":
        """Without the frames that show the same as the one before."""
        return self.only(np.array([bool(packed.any()) for packed in self._packed], bool))

    def packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(frames - 1, bytes): eight cells per byte, set where a cell or its neighbour changed."""
        return np.stack(self._packed)


def with_neighbours(cells: Cells) -> Cells:
    """(rows, columns): the cells and their eight neighbours."""
    found: Cells = cv2.dilate(cells.view(np.uint8), np.ones((3, 3), np.uint8)).view(bool)
    return found


def filled(cells: Cells) -> Cells:
    """The cells with those two beside them, which closes the space between lines of text."""
    return with_neighbours(with_neighbours(cells))


def connected(cells: Cells, near: Cells) -> Cells:
    """Those of `cells` in the parts that reach `near`, across gaps as between lines of text."""
    return cells & _parts_at(near, filled(cells))


def _parts_at(near: Cells, cells: Cells) -> Cells:
    """The connected parts of `cells` that reach `near`."""
    count, labels = cv2.connectedComponents(cells.view(np.uint8), connectivity=8)
    reaching = np.zeros(count, bool)
    reaching[labels[near & cells]] = True
    found: Cells = reaching[labels]
    return found


def box_share(cells: Cells) -> float:
    """The share of all cells that the box around some of them covers."""
    _, _, width, height = cv2.boundingRect(cells.view(np.uint8))
    return float(width * height) / max(1, cells.size)


def cells_of(box: PixelBox) -> tuple[slice, slice]:
    """Rows and columns of the cells that a box in video pixels touches."""
    sides = ((box.y, box.height), (box.x, box.width))
    rows, columns = (
        slice(max(0, int(low // BLOCK)), max(0, int((low + length) // BLOCK) + 1))
        for low, length in sides
    )
    return rows, columns


def changed_cells(before: Luma, after: Luma, threshold: int = CHANGED_LEVELS) -> Cells:
    """(rows, columns) of cells of BLOCK x BLOCK video pixels in which a sample changed.

    A strip at the right or lower edge that is narrower than a cell is ignored.
    """
    side = BLOCK // SAMPLE_STEP
    rows, columns = (samples // side for samples in before.shape)
    if before is after or not rows * columns or cv2.norm(before, after, cv2.NORM_INF) <= threshold:
        return np.zeros((rows, columns), bool)
    inside = cv2.absdiff(before, after)[: rows * side, : columns * side]
    strips = reduce(cv2.max, (inside[first::side] for first in range(side)))
    changed = cv2.threshold(strips, threshold, 255, cv2.THRESH_BINARY)[1]
    cells: Cells = changed.view(f"u{side}") != 0  # a cell's samples as one number
    return cells


@dataclass(frozen=True)
class Difference:
    """Where two frames differ, and what kind of change that is. Points, boxes: video pixels.

    `cells`: (rows, columns), set where the frames differ.
    """

    cells: Cells

    @cached_property
    def count(self) -> int:
        """How many cells differ."""
        return _count(self.cells)

    @property
    def is_large(self) -> bool:
        """Whether it covers more of the screen than hover effects do."""
        return self.count >= LARGE_SHARE * self.cells.size

    def is_significant(self, pointers: list[Point], target: PixelBox | None) -> bool:
        """Whether more than noise changed outside the pointer, its hover effects and the target."""
        if not is_notable(self.cells):
            return False
        rest = self.without_pointers(pointers)
        if target is not None:
            rest[cells_of(target)] = False
        return is_notable(rest) and is_notable(self._without_hover_effects(rest, pointers))

    def count_away_from(self, pointers: list[Point]) -> int:
        """How many cells changed that are not around the pointer."""
        return _count(self.without_pointers(pointers)) if self.count else 0

    def shows_response(self, pointers: list[Point], box: PixelBox) -> bool:
        """Whether anything but the pointer changed in `box`, even as little as a tick."""
        if self.count < SMALL_CELLS:
            return False
        return _count(self.without_pointers(pointers)[cells_of(box)]) >= SMALL_CELLS

    def without_pointers(self, pointers: list[Point]) -> Cells:
        """The cells that changed away from the pointer."""
        rest = self.cells.copy()
        for point in pointers:
            rest[cells_of(PixelBox.around(point, POINTER_PX))] = False
        return rest

    def _without_hover_effects(self, rest: Cells, pointers: list[Point]) -> Cells:
        """`rest` without the connected regions around a pointer, such as a highlighted row."""
        near = np.zeros_like(self.cells)
        for x, y in pointers:
            row = int(y // BLOCK)
            column = int(x // BLOCK)
            near[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
        return rest & ~_parts_at(near, self.cells)


def is_notable(cells: Cells) -> bool:
    """Whether it is more than a text cursor, a letter or noise."""
    return _count(cells) >= max(MIN_SIGNIFICANT_CELLS, SIGNIFICANT_SHARE * cells.size)


def _count(cells: Cells) -> int:
    return int(np.count_nonzero(cells))


Mask = np.ndarray[Any, np.dtype[np.uint8]]  # of 0 and 1
PartPlace = tuple[slice, slice]  # (rows, columns) of a mask
DETAIL_STEP = HALF  # pixels of which each sample of `ScreenDetail.detail` is the mean, both ways

BEFORE_POINTER_PX, AFTER_POINTER_PX = 16, 32  # pixels; the largest usual pointer has 24 to a side
SHARED_RIM_PX = 4.0  # pixels inside an element's box that its neighbours' lines reach
CHANGED_DETAIL = 32  # of 255; means of 2 x 2 pixels differ less between two encodings of a picture
STEPS = 16  # brightnesses are compared in so many, each wider than codec noise
STEP_LEVELS = 256 // STEPS
LEAST_SAMPLES = 6  # samples that changed, about a digit of small text; noise has fewer together
CARET_SAMPLES = 2  # width of a text cursor; a letter beside it makes it wider
RING_SAMPLES = 4  # thickness of a focus ring with its gap
LINE_GAP = (4, 1)  # samples across and down between letters of one line, less than between lines
CLUSTER_GAP = 9  # samples between the lines of one menu or paragraph
SHADED_DETAIL = 8  # of 255; flat areas of two encodings differ by less, those of dark themes more
SHADED_SAMPLES = 6  # to a side; a smaller area is a tick, a letter or an underline
SOLID_SHARE = 0.5  # of the samples; letters cover about a third of their line
EDGE_SAMPLES = 24  # height of a straight edge; the letters of a text are lower
PANEL_SAMPLES = 16  # least width of a panel; a scroll bar is narrower


@dataclass(frozen=True)
class ScreenDetail:
    """What a frame shows.

    Attributes:
        detail: (rows, columns) uint8, the luma at half size; each sample the mean of 2 x 2 pixels.
        time: of the frame, video seconds.
    """

    detail: Luma
    time: float


def screen_detail(frame: Frame) -> ScreenDetail:
    """The picture of a frame."""
    return ScreenDetail(frame.halved, frame.time)


ChangedBox = tuple[int, int, int, int]
"""x, y, width, height; video pixels."""


@dataclass(frozen=True)
class ContentChanges:
    """What differs between two pictures, beyond highlights.

    Attributes:
        regions: tight boxes, about one for each line of text.
        panels: boxes of changes with straight edges, as of a menu, a dialog or a picture.
        replaced: (rows, columns) of `ScreenDetail.detail`, set where content was replaced; None:
            nowhere, or not kept.
    """

    regions: tuple[ChangedBox, ...] = ()
    panels: tuple[ChangedBox, ...] = ()
    replaced: Annotated[Any, Field(exclude=True)] = None

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.regions or self.panels)

    def touch(self, box: PixelBox) -> bool:
        """Whether anything in a box was replaced, apart from its rim."""
        if self.replaced is None:
            return False
        rims = (min(SHARED_RIM_PX, side / 6) for side in (box.width, box.height))
        inside = self.replaced[_samples_of(box, *rims)]
        return bool(np.count_nonzero(inside) >= LEAST_SAMPLES)

    def cover(self, x: float, y: float) -> bool:
        """Whether a point lies on what was replaced, or between its lines."""
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
    """What differs between two pictures (`ScreenDetail.detail`) of one size.

    A change is a highlight when each brightness of the one picture became one brightness of the
    other: a selected row keeps its letters. Replaced content mixes them.

    Args:
        before: the earlier picture.
        after: the later one.
        pointers: around these the pointer's own picture does not count, video pixels.
        flickering: cells of `BLOCK` pixels that never count; None: no such cells.
        pointer_scale: video pixels for one pixel of a pointer's usual picture.
    """
    changed = _differ(before, after, CHANGED_DETAIL)
    _leave_out_pointers(changed, pointers, pointer_scale)
    _leave_out_flickering(changed, flickering)
    if cv2.countNonZero(changed) < LEAST_SAMPLES:
        return ContentChanges()
    replaced = np.zeros_like(changed)
    panels = []
    for part, inside in connected_parts(changed, (CLUSTER_GAP, CLUSTER_GAP), LEAST_SAMPLES):
        if _is_ring(inside):  # on a dense screen its round corners mix more samples than noise
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
    """Boxes of the areas whose every sample changed, however little: a lit row, a dark menu.

    Arguments as of `content_changes`.
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
    """1 for each sample that differs by more than the threshold, else 0."""
    difference = cv2.absdiff(before, after)
    return np.asarray(cv2.threshold(difference, threshold, 1, cv2.THRESH_BINARY)[1], np.uint8)


def _leave_out_pointers(changed: Mask, pointers: Sequence[Point], scale: float) -> None:
    """Clear what the pointer's picture covers; most of it is right of and below its hot spot."""
    before = round(BEFORE_POINTER_PX * scale)
    after = round(AFTER_POINTER_PX * scale)
    for x, y in pointers:
        left, top = (max(0, int(side) - before) // DETAIL_STEP for side in (x, y))
        right, bottom = (max(0, int(side) + after) // DETAIL_STEP for side in (x, y))
        changed[top:bottom, left:right] = 0


def _leave_out_flickering(changed: Mask, flickering: Cells | None) -> None:
    """Clear the cells that always change."""
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
    """The changed samples that no highlight explains, without a text cursor and a focus ring.

    Only the changed part of the picture and what is next to it is looked at: text replaced on its
    background has neighbours that stayed, a highlight leaves none but at its rim, where samples
    are of both sides.
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
    """Whether most samples changed, as under a highlight; of replaced text, most stayed.

    Each line counts by itself: a text cursor beside a highlight does not make it less solid.
    """
    lines = sum(inside.size for _, inside in connected_parts(changed, LINE_GAP, LEAST_SAMPLES))
    return bool(lines) and bool(np.count_nonzero(changed) >= SOLID_SHARE * lines)


def _unexplained(before: Luma, after: Luma, near: Mask) -> Mask:
    """1 where a sample is not what most of its brightness became, or came from; else 0."""
    pairs = cv2.calcHist([before, after], [0, 1], near, [STEPS, STEPS], [0, 256, 0, 256])
    became = _far_from_usual(before, after, pairs)
    return became | _far_from_usual(after, before, pairs.T)


def _far_from_usual(source: Luma, result: Luma, pairs: Any) -> Mask:
    """1 where the result is not that of most samples of their brightness in the source.

    `pairs`: (steps, steps) how many samples of a brightness of the source have which result.
    """
    middles = (pairs.argmax(axis=1) * STEP_LEVELS + STEP_LEVELS // 2).astype(np.uint8)
    usual = cv2.LUT(source, np.repeat(middles, STEP_LEVELS))
    return _differ(result, np.asarray(usual, np.uint8), CHANGED_DETAIL)


def _is_ring(inside: Mask) -> bool:
    """Whether samples are only along the edges of their box, as those of a focus ring."""
    height, width = inside.shape
    if min(height, width) <= 2 * RING_SAMPLES:
        return False
    middle = inside[RING_SAMPLES:-RING_SAMPLES, RING_SAMPLES:-RING_SAMPLES]
    return bool(np.count_nonzero(middle) < LEAST_SAMPLES)


def _samples_of(box: PixelBox, across: float, down: float) -> PartPlace:
    """Rows and columns of a box in video pixels, without a rim of so many."""
    sides = (box.y + down, box.bottom - down, box.x + across, box.right - across)
    top, bottom, left, right = (max(0, round(side / DETAIL_STEP)) for side in sides)
    return slice(top, bottom), slice(left, right)


def _panels(changed: Mask, part: PartPlace) -> list[ChangedBox]:
    """The boxes between straight upright edges in a change; none without two of them.

    Where an edge begins or ends, so does a box: beside the lit title of a menu there is no panel.
    """
    if changed.shape[0] < EDGE_SAMPLES or changed.shape[1] < PANEL_SAMPLES:
        return []
    upright = cv2.morphologyEx(changed, cv2.MORPH_OPEN, np.ones((EDGE_SAMPLES, 1), np.uint8))
    left = upright.argmax(axis=1)
    right = upright.shape[1] - upright[:, ::-1].argmax(axis=1)
    between = upright.any(axis=1) & (right - left >= PANEL_SAMPLES)
    steps = np.abs(np.diff(left)) + np.abs(np.diff(right)) >= PANEL_SAMPLES
    begins = np.flatnonzero(np.diff(between, prepend=False, append=False) | np.pad(steps, 1))
    rows = [slice(*ends) for ends in pairwise(begins.tolist()) if between[ends[0]]]
    top = part[0].start
    start = part[1].start
    return [
        _box(
            (
                slice(top + some.start, top + some.stop),
                slice(start + left[some].min(), start + right[some].max()),
            )
        )
        for some in rows
    ]


def _box(part: PartPlace) -> ChangedBox:
    """Samples as video pixels."""
    (top, bottom), (left, right) = (
        (int(side.start) * DETAIL_STEP, int(side.stop) * DETAIL_STEP) for side in part
    )
    return left, top, right - left, bottom - top


def connected_parts(
    mask: Mask, gap: tuple[int, int], least_samples: int
) -> Iterator[tuple[PartPlace, Mask]]:
    """Yield the connected parts of a mask: where each is, tightly, and its samples there.

    Row by row, by the first block of 2 x 2 samples of each.

    Args:
        mask: (rows, columns).
        gap: samples (across, down) by which a part is widened to each side to reach the next.
        least_samples: parts with fewer are left out.
    """
    left, top, columns, rows = cv2.boundingRect(mask)
    mask = mask[top : top + rows, left : left + columns]
    if cv2.countNonZero(mask) < least_samples:
        return
    widened = cv2.dilate(mask, np.ones((2 * gap[1] + 1, 2 * gap[0] + 1), np.uint8))
    labels = cv2.connectedComponents(widened, connectivity=8)[1]
    # Outlines take an eighth of the time of OpenCV's own statistics; that of a hole is no larger.
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
