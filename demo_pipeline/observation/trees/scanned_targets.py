"""What the scans say before the video is decoded: elements under actions, and the desktop's size.

Belongs here: which scan is current at each action; those of pointing actions are read, once each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.common.python_gc import reduced_python_gc
from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.screen_candidates import DesktopSize
from demo_pipeline.observation.frames.frame_requests import ScannedTarget
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.clicked_window import KEEPS_ORDER, ClickedWindow
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.scans import LoggedScan, current_scan, scans_of_part
from demo_pipeline.observation.trees.tree_reader import TreeReader

LARGEST_TARGET_SHARE = 0.05  # of the canvas; the pointer inside a larger element shows no target


@dataclass(frozen=True)
class ScannedTargets:
    """What the current scans of all actions have.

    Attributes:
        by_action: action index → its current scan, and the element under it.
        desktops: the size of the desktop in each of these scans that has it, in time order.
    """

    by_action: Mapping[int, ScannedTarget]
    desktops: Sequence[DesktopSize]


@reduced_python_gc()
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
    clicked = ClickedWindow()
    for action in actions:
        known = scans_of_part(scans, calibration.screen, action.press_ms)
        scan = current_scan(known, action.press_ms, since).scan
        since = max(since, action.end_ms)
        if scan is None:
            clicked = ClickedWindow()
            continue
        found = ScannedTarget(scan.event_index, scan.begin_ms, scan.end_ms)
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            canvas = calibration.screen.at(action.press_ms).canvas or calibration.canvas
            tree = reader.tree(scan, action.press_ms, canvas)
            node = node_at(tree, action.x, action.y, clicked.in_tree(action, tree))
            clicked.record(action, tree, node)
            element = PixelBox(*node.box) if node and node.box else None
            small = element is not None and _is_small(element, canvas)
            found = replace(found, element=element, box=element if small else None)
            if tree.desktop_size is not None:
                desktops[scan.event_index] = DesktopSize(scan.begin_ms, tree.desktop_size)
        elif action.action_type not in KEEPS_ORDER:
            clicked = ClickedWindow()
        targets[action.action_index] = found
    return ScannedTargets(targets, sorted(desktops.values(), key=lambda size: size.time_ms))


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """Whether a pointer inside the box points at it; not so in a page or a text area."""
    area = box.width * box.height * canvas.event_to_canvas**2
    return area <= LARGEST_TARGET_SHARE * canvas.width * canvas.height
