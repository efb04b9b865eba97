"""The windows of a scan: which there are, which a node is in, and which of two is in front.

Belongs here: what the order of windows and the recorder's own hit test say of the front one. What
the picture shows of it is in frames/window_order.py.
"""

from collections.abc import Iterator

import numpy as np

from demo_pipeline.observation.trees.roles import normalised
from demo_pipeline.observation.trees.step_tree import BoxTuple, StepTree

_WINDOWS = frozenset({"window", "dialog"})
_ORDERED = frozenset({"window", "pane"})  # names of UI Automation and macOS
_DESKTOP_PANE = "Program Manager"  # what Windows calls the desktop with its icons


def is_window(tree: StepTree, position: int) -> bool:
    """Whether a node is a window, a dialog, or a pane that is a window of its own."""
    return tree.role_at(position) in _WINDOWS or position in tree.top_panes


def is_desktop(tree: StepTree, position: int) -> bool:
    """Whether a node is the desktop of Windows, which is behind all windows."""
    return position in tree.top_panes and tree.raws[position].name == _DESKTOP_PANE


def window_of(tree: StepTree, position: int) -> int | None:
    """Position of the outermost window around a node, itself included."""
    path = (position, *ancestors(tree, position))
    return next((node for node in reversed(path) if is_window(tree, node)), None)


def windows_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the outermost visible windows under a point in event space."""
    return [
        position
        for position in positions_at(tree, x, y)
        if is_window(tree, position)
        and "hidden" not in tree.states_at(position)
        and window_of(tree, position) == position
    ]


def window_boxes(tree: StepTree) -> frozenset[BoxTuple | None]:
    """The boxes of all outermost windows."""
    return frozenset(
        tree.box(node)
        for node in range(len(tree))
        if is_window(tree, node) and window_of(tree, node) == node
    )


def focused_window(tree: StepTree) -> int | None:
    """Position of the outermost window around the element with the keyboard focus; or None."""
    return None if tree.focused is None else window_of(tree, tree.focused)


def front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the window that the tree says is in front at a point; None when it does not.

    The desktop of Windows is behind all others. The children of one node are listed from front to
    back by UI Automation and macOS, and so are macOS's applications: there the first is in front.
    The order of AT-SPI has no meaning, and a Windows recorder that makes hit tests lists windows at
    the top as their scans end: there its hit test tells. The focus does not: AT-SPI's stays in a
    window that another one covers.
    """
    windows = windows_at(tree, x, y)
    if len(windows) < 2:
        return next(iter(windows), None)
    windows = [node for node in windows if not is_desktop(tree, node)] or windows
    if len(windows) == 1:
        return windows[0]
    if not all(raw_role(tree, position) in _ORDERED for position in windows):
        return None
    has_evidence = tree.cursor is not None or tree.focused is not None
    if not has_evidence or all(tree.parents[position] >= 0 for position in windows):
        return windows[0]
    return _hit_of(tree, windows)


def _hit_of(tree: StepTree, windows: list[int]) -> int | None:
    """The window that the recorder hit at the pointer, if all of these are under the pointer."""
    hit = tree.cursor_node
    if hit is None or tree.cursor is None or tree.cursor.position is None:
        return None
    point = tree.cursor.position
    under = set(windows_at(tree, point.x, point.y))
    window = window_of(tree, hit)
    return window if window in windows and under.issuperset(windows) else None


def positions_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the nodes whose box contains a point in event space, in document order."""
    left, top, width, height = tree.boxes.T
    inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    positions: list[int] = np.flatnonzero(inside).tolist()
    return positions


def positions_of(tree: StepTree, box: BoxTuple | None) -> list[int]:
    """Positions of the nodes that have exactly a box."""
    if box is None:
        return []
    positions: list[int] = np.flatnonzero((tree.boxes == box).all(axis=1)).tolist()
    return positions


def area(box: BoxTuple | None) -> float:
    """Of a box in event space; 0 without one."""
    return box[2] * box[3] if box is not None else 0.0


def raw_role(tree: StepTree, position: int) -> str:
    """The recorder's name of a node's role, in lower case without a platform's prefix."""
    return normalised(tree.raws[position].role or "")


def ancestors(tree: StepTree, position: int) -> Iterator[int]:
    """Positions of the nodes around a node, the nearest first."""
    position = tree.parents[position]
    while position >= 0:
        yield position
        position = tree.parents[position]
