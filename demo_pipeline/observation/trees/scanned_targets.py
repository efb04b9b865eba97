"""What the current scan of each action has at the pointer, for the stage that decodes the film.

Belongs here: which scan is current at each action (those of pointing actions are read, once each),
the element and the windows under the pointer, and the marks by which a tree's units are judged.
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

LARGEST_TARGET_SHARE = 0.05  # of the canvas; the pointer inside a larger element shows no target
MARK_WIDTHS, MARK_HEIGHTS = (12, 400), (8, 80)  # units of event space; those of labels and buttons
_MAY_BE_EMPTY = "tablecell"  # whatever its name, which may be read out only
COVER_STEP = 8  # units of event space between the points that other windows have to cover


@dataclass(frozen=True)
class ScannedTargets:
    """What the current scans of all actions have.

    Attributes:
        by_action: action index → its current scan, and the element under it.
        desktops: the size of the desktop in each of these scans that has it, in time order.
    """

    by_action: Mapping[int, ScannedTarget]
    desktops: Sequence[DesktopSize]


def scan_targets(
    actions: Sequence[Action],
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    calibration: Calibration,
) -> ScannedTargets:
    """Find the current scans; read those of pointing actions."""
    targets: dict[int, ScannedTarget] = {}
    desktops: dict[int, DesktopSize] = {}
    since = float("-inf")
    for action in actions:
        known = scans_of_part(scans, calibration.screen, action.press_ms)
        current = current_scan(known, action.press_ms, since)
        scan = current.scan
        since = max(since, action.end_ms)
        if scan is None:
            continue
        found = ScannedTarget(scan.event_index, scan.begin_ms, scan.end_ms)
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            canvas = calibration.screen.at(action.press_ms).canvas or calibration.canvas
            tree = reader.tree(scan, action.press_ms, canvas)
            aim = _aim(tree, action)
            windows = _windows(tree, action)
            small = aim.element is not None and _is_small(aim.element, canvas)
            box = aim.element if small else None
            found = replace(found, aim=aim, windows=windows, box=box, marks=_marks(tree))
            shown = [tree.box(window) for window in tree.windows]
            boxes = frozenset(box for box in shown if box is not None and box.area > 0)
            found = replace(found, window_boxes=boxes)
            if current.previous is not None:
                before_ms = (current.previous.begin_ms, current.previous.end_ms)
                found = replace(found, before_ms=before_ms)
            if tree.desktop_size is not None:
                desktops[scan.event_index] = DesktopSize(scan.begin_ms, tree.desktop_size)
        targets[action.action_index] = found
    return ScannedTargets(targets, sorted(desktops.values(), key=lambda size: size.time_ms))


def _aim(tree: StepTree, action: Action, front: int | None = None) -> ElementUnderAction:
    x = action.x or 0.0
    y = action.y or 0.0
    node = node_at(tree, x, y, front, of_scroll=action.action_type == "scroll")
    if node is None or node.box is None:
        return ElementUnderAction()
    around = [box for node in positions_at(tree, x, y) if (box := tree.box(node))]
    return ElementUnderAction(node.box, around)


def _windows(tree: StepTree, action: Action) -> list[ElementUnderAction]:
    """The windows at a point, where there are several, and what each has there."""
    windows = [
        replace(_aim(tree, action, position), window=box, position=position)
        for position in windows_at(tree, action.x or 0.0, action.y or 0.0)
        if not is_desktop(tree, position) and (box := tree.box(position)) is not None
    ]
    return windows if len(windows) > 1 else []


def _marks(tree: StepTree) -> Boxes:
    """(elements, 4) boxes of small named elements without children, event space."""
    width, height = tree.screen
    x, y, across, down = tree.boxes.T
    small = (across >= MARK_WIDTHS[0]) & (across <= MARK_WIDTHS[1])
    small &= (down >= MARK_HEIGHTS[0]) & (down <= MARK_HEIGHTS[1])
    small &= (x >= 0) & (y >= 0) & (x + across <= width) & (y + down <= height)
    small[sorted(set(tree.parents) - {-1})] = False
    shown = [
        node
        for node in np.flatnonzero(small).tolist()
        if tree.raws[node].name and tree.roles[node] != _MAY_BE_EMPTY
        if "hidden" not in tree.states_at(node)
    ]
    coverable = _coverable(tree)
    seen = [node for node in shown if tree.windows_around[node] not in coverable]
    return np.unique(tree.boxes[seen if len(seen) >= LEAST_MARKS else shown], axis=0)


def _coverable(tree: StepTree) -> set[int]:
    """The outermost windows that other ones together may hide: nothing tells if they are seen."""
    windows = list(tree.windows)
    boxes = np.nan_to_num(tree.boxes[windows])
    cells = np.arange(0, max(tree.screen), COVER_STEP)
    first = np.searchsorted(cells, boxes[:, :2]).tolist()
    last = np.searchsorted(cells, boxes[:, :2] + boxes[:, 2:]).tolist()
    places = [
        (slice(top, bottom), slice(left, right))
        for (left, top), (right, bottom) in zip(first, last, strict=True)
    ]
    found = set()
    for number, node in enumerate(windows):
        covered = np.zeros((len(cells), len(cells)), bool)
        for other in places[:number] + places[number + 1 :]:
            covered[other] = True
        if covered[places[number]].all():
            found.add(node)
    return found


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """Whether a pointer inside the box points at it; not so in a page or a text area."""
    return (
        box.area * canvas.event_to_canvas**2 <= LARGEST_TARGET_SHARE * canvas.width * canvas.height
    )
