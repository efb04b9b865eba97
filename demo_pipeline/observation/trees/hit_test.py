"""The hit test: which element of a scan is under a point, and which has the keyboard focus.

Belongs here: what is a target. Which windows there are, and which is in front, is in
tree_windows.py.
"""

from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree
from demo_pipeline.observation.trees.tree_windows import (
    ancestors,
    area,
    front_window,
    positions_at,
    raw_role,
    window_of,
)

_CONTAINERS = frozenset({"desktop", "window"})
_CLIPPING = frozenset(
    {"scrollpane", "viewport", "document", "documentweb", "documentframe", "scrollarea"}
)
_TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
WHOLE_WINDOW_SHARE = 0.97  # of a window's or the screen's area; a panel this large is no target
ROUNDING_PX = 1  # pixels by which an element may stick out of the element that contains it


def node_at(
    tree: StepTree, x: float, y: float, clicked_window: int | None = None
) -> Element | None:
    """The smallest visible node under a point in event space; of equals, the last in the document.

    Windows, the desktop, panels as large as their window or the screen, and nodes that another
    window covers are never targets. None when it is not known which of two windows is in front:
    the tree does not say, and neither is the window that was clicked last (`clicked_window`).
    """
    under = [
        position
        for position in positions_at(tree, x, y)
        if tree.role_at(position) not in _CONTAINERS
        and position not in tree.top_panes
        and "hidden" not in tree.states_at(position)
        and not _is_whole_window(tree, position)
        and not _is_clipped(tree, position, x, y)
    ]
    if not under:
        return None
    front = front_window(tree, x, y)
    if front is None and clicked_window in {window_of(tree, node) for node in under}:
        front = clicked_window
    if front is not None:
        visible = [node for node in under if window_of(tree, node) in {None, front}]
        if visible or not _is_overlay(tree, front):
            under = visible
    elif len({window_of(tree, node) for node in under} - {None}) > 1:
        return None
    target = min(under, key=lambda node: (area(tree.box(node)), -node), default=None)
    return None if target is None else tree.element(target)


def _is_overlay(tree: StepTree, window: int) -> bool:
    """Whether a window shows nothing, so that it covers nothing."""
    return not any(
        parent == window and area(tree.box(node)) > 0 and "hidden" not in tree.states_at(node)
        for node, parent in enumerate(tree.parents)
    )


def _contains(box: BoxTuple, x: float, y: float) -> bool:
    return box[0] <= x < box[0] + box[2] and box[1] <= y < box[1] + box[3]


def focused_node(tree: StepTree) -> Element | None:
    """The element with the keyboard focus, when the scan has it; never a window."""
    focused = tree.focused
    if focused is None or tree.role_at(focused) in _CONTAINERS:
        return None
    return tree.element(focused)


def text_node_at(tree: StepTree, x: float, y: float) -> Element | None:
    """The text element under a point: the hit node, or its nearest ancestor that is one."""
    hit = node_at(tree, x, y)
    if hit is None:
        return None
    path = (hit.position, *ancestors(tree, hit.position))
    return next((tree.element(node) for node in path if tree.role_at(node) in _TEXT_ROLES), None)


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Whether our hit test at the recorder's pointer agrees with the recorder's own.

    The two elements agree when one contains the other: recorders often return a node a level or two
    above the smallest. Elements of different windows never agree. None when the recorder made no
    hit test, or found nothing.
    """
    cursor = tree.cursor
    if cursor is None or cursor.position is None or cursor.element is None:
        return None
    theirs = cursor.element.box
    if not _contains(theirs, cursor.position.x, cursor.position.y):
        return None
    hit = node_at(tree, cursor.position.x, cursor.position.y)
    if hit is None or hit.box is None:
        return False
    node = tree.cursor_node
    if node is not None and window_of(tree, node) != window_of(tree, hit.position):
        return False
    return _encloses(theirs, hit.box) or _encloses(hit.box, theirs)


def _encloses(outer: BoxTuple, inner: BoxTuple) -> bool:
    """Whether `inner` is inside `outer`, apart from rounding."""
    return (
        outer[0] - ROUNDING_PX <= inner[0]
        and outer[1] - ROUNDING_PX <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + ROUNDING_PX
        and inner[1] + inner[3] <= outer[1] + outer[3] + ROUNDING_PX
    )


def _is_whole_window(tree: StepTree, position: int) -> bool:
    if tree.role_at(position) not in {"panel", "unknown"}:
        return False
    covered = area(tree.box(position))
    if covered >= WHOLE_WINDOW_SHARE * tree.screen[0] * tree.screen[1]:
        return True
    windows = (
        node
        for node in ancestors(tree, position)
        if tree.role_at(node) == "window" or node in tree.top_panes
    )
    window = next((box for node in windows if (box := tree.box(node)) is not None), None)
    return window is not None and 0 < area(window) * WHOLE_WINDOW_SHARE <= covered


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Whether the node is scrolled out of sight: its box continues beyond the pane around it."""
    return any(
        (box := tree.box(node)) is not None
        and area(box) > 0
        and not _contains(box, x, y)
        and raw_role(tree, node) in _CLIPPING
        for node in ancestors(tree, position)
    )
