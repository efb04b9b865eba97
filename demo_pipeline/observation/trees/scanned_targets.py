"""Reads the element and the windows under the pointer from the current scan of each action.

The `screenshots` stage uses the results to decide which window is in front and whether the screen
changed at the element. The stage also compares the boxes of small named elements (*marks*) with the
screen, to check the scale of the tree's coordinates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import Boxes, Canvas
from demo_pipeline.observation.clock.screen_changes import DesktopSize
from demo_pipeline.observation.frames.frame_requests import ElementUnderAction, ScannedTarget
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.tree_scales import LEAST_MARKS
from demo_pipeline.observation.trees.hit_test import (
    is_desktop,
    node_at,
    positions_at,
    windows_at,
)
from demo_pipeline.observation.trees.scans import current_scan, scans_of_part
from demo_pipeline.observation.trees.step_tree import StepTree, TreeReader
from demo_pipeline.recording.logged_scans import LoggedScan

# Largest share of the canvas that a target may cover. Inside a larger element, the position of the
# pointer does not identify the target.
LARGEST_TARGET_SHARE = 0.05
# Minimum and maximum width and height of a mark, in units of event space. Most labels and buttons
# are in this range.
MARK_WIDTHS = (12, 400)
MARK_HEIGHTS = (8, 80)
_MAY_BE_EMPTY = "tablecell"  # a cell may look empty although it has a name for screen readers
# Spacing of the grid points at which windows are tested for being covered, in units of event space.
COVER_STEP = 8


@dataclass(frozen=True)
class ScannedTargets:
    """The targets of all actions according to their current scans.

    Attributes:
        by_action: maps an action index to the current scan and the elements under the pointer.
        desktops: the sizes of the desktop in time order, from the current scans of pointing actions
            whose tree has a desktop node.
    """

    by_action: Mapping[int, ScannedTarget]
    desktops: Sequence[DesktopSize]


def scan_targets(
    actions: Sequence[Action],
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    calibration: Calibration,
) -> ScannedTargets:
    """Finds the current scan of each action, and the elements under pointing actions."""
    targets: dict[int, ScannedTarget] = {}
    desktops: dict[int, DesktopSize] = {}
    since = float("-inf")
    for action in actions:
        usable_scans = scans_of_part(scans, calibration.screen, action.press_ms)
        current = current_scan(usable_scans, action.press_ms, since)
        scan = current.scan
        since = max(since, action.end_ms)
        if scan is None:
            continue
        target = ScannedTarget(scan.event_index, scan.begin_ms, scan.end_ms)
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            canvas = calibration.screen.at(action.press_ms).canvas or calibration.canvas
            tree = reader.tree(scan, action.press_ms, canvas)
            target = _with_elements(target, tree, action, canvas)
            if current.previous is not None:
                before_ms = (current.previous.begin_ms, current.previous.end_ms)
                target = replace(target, before_ms=before_ms)
            if tree.desktop_size is not None:
                desktops[scan.event_index] = DesktopSize(scan.begin_ms, tree.desktop_size)
        targets[action.action_index] = target
    return ScannedTargets(targets, sorted(desktops.values(), key=lambda size: size.time_ms))


def _with_elements(
    target: ScannedTarget, tree: StepTree, action: Action, canvas: Canvas
) -> ScannedTarget:
    """Adds to `target` the element and windows under a pointing action, and the tree's marks."""
    aim = _element_under(tree, action)
    small_box = None
    if aim.element is not None and _is_small(aim.element, canvas):
        small_box = aim.element
    window_boxes: set[PixelBox] = set()
    for window in tree.windows:
        box = tree.box(window)
        if box is not None and box.area > 0:
            window_boxes.add(box)
    return replace(
        target,
        aim=aim,
        windows=_windows_under(tree, action),
        box=small_box,
        marks=_marks(tree),
        window_boxes=frozenset(window_boxes),
    )


def _element_under(tree: StepTree, action: Action, front: int | None = None) -> ElementUnderAction:
    """Returns the element under a pointing action, with the boxes of all nodes at that point.

    `front` is the front window, as a position in the tree. If it is None, the front window is taken
    from the tree.
    """
    x = action.x or 0.0
    y = action.y or 0.0
    element = node_at(tree, x, y, front, of_scroll=action.action_type == "scroll")
    if element is None or element.box is None:
        return ElementUnderAction()
    boxes: list[PixelBox] = []
    for position in positions_at(tree, x, y):
        box = tree.box(position)
        if box is not None:
            boxes.append(box)
    return ElementUnderAction(element.box, boxes)


def _windows_under(tree: StepTree, action: Action) -> list[ElementUnderAction]:
    """Returns the windows under an action, each with its element at that point.

    Returns an empty list if there is at most one window.
    """
    windows: list[ElementUnderAction] = []
    for position in windows_at(tree, action.x or 0.0, action.y or 0.0):
        box = tree.box(position)
        if box is not None and not is_desktop(tree, position):
            element = _element_under(tree, action, position)
            windows.append(replace(element, window=box, position=position))
    return windows if len(windows) > 1 else []


def _marks(tree: StepTree) -> Boxes:
    """Returns the boxes (marks, 4) of small named elements without children, in event space.

    Elements in windows that may be covered are left out, unless too few marks would remain.
    """
    screen_width, screen_height = tree.screen
    x, y, widths, heights = tree.boxes.T
    is_mark = (widths >= MARK_WIDTHS[0]) & (widths <= MARK_WIDTHS[1])
    is_mark &= (heights >= MARK_HEIGHTS[0]) & (heights <= MARK_HEIGHTS[1])
    is_mark &= (x >= 0) & (y >= 0) & (x + widths <= screen_width) & (y + heights <= screen_height)
    is_mark[sorted(set(tree.parents) - {-1})] = False
    marks = [
        node
        for node in np.flatnonzero(is_mark).tolist()
        if tree.raws[node].name
        and tree.roles[node] != _MAY_BE_EMPTY
        and "hidden" not in tree.states_at(node)
    ]
    coverable = _coverable_windows(tree)
    surely_visible = [node for node in marks if tree.windows_around[node] not in coverable]
    if len(surely_visible) >= LEAST_MARKS:
        marks = surely_visible
    return np.unique(tree.boxes[marks], axis=0)


def _coverable_windows(tree: StepTree) -> set[int]:
    """Returns the outermost windows that other windows may fully cover, as tree positions."""
    windows = list(tree.windows)
    boxes = np.nan_to_num(tree.boxes[windows])
    grid = np.arange(0, max(tree.screen), COVER_STEP)
    first = np.searchsorted(grid, boxes[:, :2]).tolist()
    last = np.searchsorted(grid, boxes[:, :2] + boxes[:, 2:]).tolist()
    areas: list[tuple[slice, slice]] = []
    for (left, top), (right, bottom) in zip(first, last, strict=True):
        areas.append((slice(top, bottom), slice(left, right)))
    coverable: set[int] = set()
    for number, node in enumerate(windows):
        covered = np.zeros((len(grid), len(grid)), bool)
        for other in areas[:number] + areas[number + 1 :]:
            covered[other] = True
        if covered[areas[number]].all():
            coverable.add(node)
    return coverable


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """Returns whether an element is so small that a press inside identifies it as the target."""
    return (
        box.area * canvas.event_to_canvas**2 <= LARGEST_TARGET_SHARE * canvas.width * canvas.height
    )
